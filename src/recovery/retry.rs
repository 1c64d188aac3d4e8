//! Markers of answers that were interrupted: resolved when their journal tells more, counted when it does not, given up
//! when there is nothing left to hope for, replaced when their run ends after all.

use super::errors::{find_error, tag_error};
use super::evidence::{Evidence, JournalState};
use super::finding::{final_marker, finding_of, lost};
use super::merge::{ContextRows, Merged, merge};
use super::plan::{Answer, Facts, Step};
use super::run_note::note_run;
use super::turn::Turn;
use super::watch::growing_run;
use crate::clock::Timestamp;
use crate::model::fold::Provenance;
use crate::model::marker::{self, Finding, FirstSeen, Retry};
use crate::model::{NotAList, Row, RunEnd, Session};

/// One marker: resolved if its run's journal tells more than it did, counted or given up if not.
pub(super) fn resolve_marker(
    session: &mut Session,
    at: usize,
    facts: &Facts<'_>,
) -> Result<Option<(String, Step)>, NotAList> {
    let row = session.message(at).unwrap_or_default();
    let answer = |run| facts.runs.get(run).map(|evidence| Answer { run, evidence, now: facts.now });
    if let Some(retry) = Retry::of(&row) {
        let step = match answer(&retry.run) {
            _ if retry.run.is_empty() => Some(give_up(session, at, row, None)?),
            Some(answer) => retry_marker(session, Marker { at, row, retry: &retry }, &answer, facts)?,
            None => None,
        };
        return Ok(step.map(|step| (retry.run, step)));
    }
    let Some(growing) = growing_run(session, at, &row) else { return Ok(None) };
    let step = match answer(&growing.run) {
        Some(answer) => grow(session, at, &answer)?,
        None => None,
    };
    Ok(step.map(|step| (growing.run, step)))
}

/// An armed marker.
struct Marker<'r> {
    at: usize,
    row: Row,
    retry: &'r Retry,
}

/// It looks first, and counts afterwards.
fn retry_marker(
    session: &mut Session,
    marker: Marker<'_>,
    answer: &Answer<'_>,
    facts: &Facts<'_>,
) -> Result<Option<Step>, NotAList> {
    let Marker { at, row, retry } = marker;
    let evidence = answer.evidence;
    let is_told = evidence.is_ours || evidence.ending == Some(RunEnd::InterruptedByUser);
    if evidence.has_output() || evidence.error_row.is_some() || is_told {
        let merged = merge_above(session, at, answer)?;
        return Ok(Some(Step::Promoted { rows: merged.added }));
    }
    let attempts = retry.attempts.unwrap_or(0);
    let age = match retry.first_seen {
        FirstSeen::At(first) => facts.now.seconds() - first,
        FirstSeen::Unknown | FirstSeen::Unusable => 0.0,
    };
    let (attempts_max, age_max) = (i64::from(facts.options.attempts_max), facts.options.give_up_after.as_secs_f64());
    match evidence.journal {
        JournalState::Unreadable => Ok(None),
        _ if attempts >= attempts_max || age > age_max => give_up(session, at, row, Some(answer)).map(Some),
        JournalState::Arriving => mend(session, Marker { at, row, retry }, facts),
        _ if attempts.saturating_add(1) >= attempts_max => give_up(session, at, row, Some(answer)).map(Some),
        _ => spend(session, Marker { at, row, retry }, attempts.saturating_add(1), facts).map(Some),
    }
}

/// Nothing asks for another look any more. Should the journal change all the same, the next read sees it.
fn give_up(session: &mut Session, at: usize, mut row: Row, answer: Option<&Answer<'_>>) -> Result<Step, NotAList> {
    let finding = answer.map_or(Finding::Lost, |answer| lost(answer.evidence));
    marker::settle(&mut row, &finding, answer.map_or("", |answer| answer.run));
    marker::set_folded_records(&mut row, answer.and_then(|answer| answer.evidence.unsealed_records()));
    session.replace_message(at, &row)?;
    Ok(Step::GaveUp)
}

fn spend(session: &mut Session, mut marker: Marker<'_>, attempts: i64, facts: &Facts<'_>) -> Result<Step, NotAList> {
    let is_unusable = marker.retry.first_seen == FirstSeen::Unusable;
    marker::spend(&mut marker.row, attempts, is_unusable.then(|| facts.now.whole_seconds()));
    session.replace_message(marker.at, &marker.row)?;
    Ok(Step::Spent { attempts })
}

/// A journal that may still appear costs nothing. Only notes that are no numbers are put right, or they would never
/// count.
fn mend(session: &mut Session, marker: Marker<'_>, facts: &Facts<'_>) -> Result<Option<Step>, NotAList> {
    let Retry { attempts, first_seen, .. } = *marker.retry;
    if attempts.is_some() && first_seen != FirstSeen::Unusable {
        return Ok(None);
    }
    spend(session, marker, attempts.unwrap_or(0), facts)?;
    Ok(Some(Step::Mended))
}

/// A journal grew after its rows were recovered. What adds nothing to the transcript changes nothing.
fn grow(session: &mut Session, at: usize, answer: &Answer<'_>) -> Result<Option<Step>, NotAList> {
    let before = session.message(at).unwrap_or_default();
    let mut grown = session.clone();
    let merged = merge_above(&mut grown, at, answer)?;
    let was_open = marker::folded_up_to(&before).is_some();
    let is_sealed = matches!(answer.evidence.journal, JournalState::Sealed { .. });
    if merged == Merged::default() && !(was_open && is_sealed) {
        return Ok(None);
    }
    *session = grown;
    Ok(Some(Step::Promoted { rows: merged.added }))
}

/// The run's rows land above its marker, and the marker says what is known now, or goes.
fn merge_above(session: &mut Session, at: usize, answer: &Answer<'_>) -> Result<Merged, NotAList> {
    let turn = Turn::above(session, at);
    let (provenance, now) = (answer.evidence.provenance(answer.run), answer.now.whole_seconds());
    if let Some(user) = turn.user.filter(|_| provenance.is_live()) {
        retag(session, user, provenance)?;
    }
    let merged = merge(session, &turn, &answer.evidence.folded, provenance, now)?;
    note_run(session, turn.user, answer.run, answer.evidence, None)?;
    close_marker(session, at + merged.added, answer)?;
    Ok(merged)
}

fn close_marker(session: &mut Session, at: usize, answer: &Answer<'_>) -> Result<(), NotAList> {
    let Answer { run, evidence, now } = answer;
    if let Some(error) = &evidence.error_row {
        return match find_error(session, &Turn::above(session, at), error) {
            Some(saved) => tag_error(session, saved, error).and_then(|()| session.splice_messages(at..at + 1, &[])),
            None => session.replace_message(at, error),
        };
    }
    if evidence.is_ours {
        // It was interrupted when its first marker says, and not when the run was sealed.
        let interrupted_at = session.message(at).and_then(|row| row.timestamp());
        let marker = final_marker(evidence, run, interrupted_at.unwrap_or_else(|| now.whole_seconds()));
        return session.splice_messages(at..at + 1, marker.as_slice());
    }
    let mut row = session.message(at).unwrap_or_default();
    marker::settle(&mut row, &finding_of(evidence), run);
    marker::set_folded_records(&mut row, evidence.unsealed_records());
    session.replace_message(at, &row)
}

/// Lets a run that ended after its turn was given up for dead replace its own marker, if that is still there.
pub fn fold_late(
    session: &Session,
    run: &str,
    evidence: &Evidence,
    now: Timestamp,
) -> Result<Option<Session>, NotAList> {
    let Some(at) = late_marker(session, run) else { return Ok(None) };
    let mut session = session.clone();
    merge_above(&mut session, at, &Answer { run, evidence, now })?;
    Ok(Some(session))
}

/// Whether the transcript holds a marker that waits for more of a run, and so [`fold_late`] has a place for it.
pub fn has_late_marker(session: &Session, run: &str) -> bool {
    late_marker(session, run).is_some()
}

fn late_marker(session: &Session, run: &str) -> Option<usize> {
    let is_own = |at: &usize| session.message(*at).is_some_and(|row| is_marker_of(&row, run));
    session.messages_with("\"interrupted\"").into_iter().rfind(is_own)
}

/// Whether a marker waits for more of a run. One that has said its last word does not.
pub(super) fn is_marker_of(row: &Row, run: &str) -> bool {
    let is_armed = Retry::of(row).is_some_and(|retry| retry.run == run);
    let may_grow = marker::is_interrupted(row) && marker::folded_up_to(row).is_some();
    is_armed || (may_grow && row.run().as_deref() == Some(run))
}

/// The prompt of a run that ended normally after all no longer says that it was recovered.
fn retag(session: &mut Session, at: usize, provenance: Provenance<'_>) -> Result<(), NotAList> {
    let mut row = session.message(at).unwrap_or_default();
    if row.run().as_deref() != Some(provenance.run()) {
        return Ok(());
    }
    let old = row.clone();
    provenance.retag(row.fields_mut());
    ContextRows::of(session, provenance.run()).replace(session, &old, &row)?;
    session.replace_message(at, &row)
}
