//! Decide: what becomes of a session whose answers were interrupted. Pure: a session and what is known in, the session
//! as it should be out, or nothing if it is as it should be.

use std::collections::HashMap;
use std::time::Duration;

use super::evidence::{Ending, Evidence, JournalState};
use super::finding::{final_marker, finding_of};
use super::merge::{Merged, add_to_context, merge};
use super::turn::{Turn, user_row};
use super::watch::growing_run;
use crate::clock::Timestamp;
use crate::model::fold::Provenance;
use crate::model::marker::{self, Finding, FirstSeen, Retry, interrupted_marker};
use crate::model::{List, NotAList, PendingTurn, Row, Session, normal_form};

/// How long recovery hopes.
#[derive(Debug, Clone)]
pub struct RecoveryOptions {
    /// How often a journal is looked at in vain before its marker says that the answer is lost.
    pub attempts_max: u32,
    /// How long a marker asks for another look.
    pub give_up_after: Duration,
    /// How long a turn that this process began is left alone although nobody seems to work on it.
    pub grace: Duration,
}

impl Default for RecoveryOptions {
    fn default() -> Self {
        RecoveryOptions {
            attempts_max: 12,
            give_up_after: Duration::from_secs(24 * 60 * 60),
            grace: Duration::from_secs(30),
        }
    }
}

/// All that a decision may depend on.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The present moment.
    pub now: Timestamp,
    /// When the process began that holds the directory.
    pub process_began: Timestamp,
    /// How long to hope.
    pub options: &'a RecoveryOptions,
    /// What is known of the pending turn's run, if that turn is dead.
    pub pending: Option<Evidence>,
    /// The agent's own transcript, for a session that has none.
    pub core: Option<Session>,
    /// What is known of the runs that markers name. A marker whose run is not among them is left alone.
    pub runs: HashMap<String, Evidence>,
}

/// What was decided for one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Its turn ended properly and only had to be folded.
    Folded,
    /// Its turn was interrupted, and so many rows were recovered.
    Recovered {
        /// Rows that were added.
        rows: usize,
    },
    /// Its turn was interrupted, and nothing was found yet.
    Armed,
    /// Its marker was resolved, with so many more rows.
    Promoted {
        /// Rows that were added.
        rows: usize,
    },
    /// One more look was in vain.
    Spent {
        /// Looks so far.
        attempts: u32,
    },
    /// There is nothing left to hope for.
    GaveUp,
    /// What its marker noted was unusable and is so no longer.
    Mended,
}

/// What should be done.
#[derive(Debug)]
pub struct Plan {
    /// The session as it should be.
    pub session: Session,
    /// What that means for each run.
    pub steps: Vec<(String, Step)>,
    /// Whether the session changed for its user: a dead turn came into the transcript.
    pub touches: bool,
}

/// Decides what becomes of a session; nothing if it is to stay as it is.
pub fn plan(session: &Session, facts: &Facts<'_>) -> Result<Option<Plan>, NotAList> {
    let mut plan = Plan { session: session.clone(), steps: Vec::new(), touches: false };
    // From the last to the first, because rows are only ever added above a marker.
    for at in session.messages_with("\"interrupted\"").into_iter().rev() {
        resolve_marker(&mut plan, at, facts)?;
    }
    if let (Some(evidence), Some(pending)) = (&facts.pending, session.pending_turn()) {
        let run = session.active_run().unwrap_or_default().into_owned();
        let step = recover_turn(&mut plan.session, &pending, &run, evidence, facts)?;
        plan.steps.push((run, step));
        plan.touches = true;
    }
    Ok((!plan.steps.is_empty()).then_some(plan))
}

/// Folds a run that has ended into the pending turn that waits for it.
pub fn fold_ended(session: &mut Session, run: &str, evidence: &Evidence, now: Timestamp) -> Result<(), NotAList> {
    let pending = session.pending_turn();
    session.clear_pending();
    let provenance = Provenance::Live(run);
    let turn = match &pending {
        Some(pending) => place_turn(session, pending, provenance, now)?,
        None => Turn { user: None, rows: session.len(List::Messages)..session.len(List::Messages) },
    };
    merge(session, &turn, &evidence.folded, provenance, now.whole_seconds())?;
    match final_marker(evidence, run, now.whole_seconds()) {
        Some(marker) => session.push_message(&marker),
        None => Ok(()),
    }
}

/// Lets a prompt that waits for no run become a row, before another one takes its place.
pub fn keep_unanswered(session: &mut Session, now: Timestamp) -> Result<(), NotAList> {
    let Some(pending) = session.pending_turn() else { return Ok(()) };
    if Turn::of_pending(session, &pending, "").is_none() {
        let mut row = user_row(&pending, now.whole_seconds());
        row.fields_mut().set("_recovered", "true");
        add_to_context(session, session.len(List::Messages), std::slice::from_ref(&row))?;
        session.push_message(&row)?;
    }
    session.clear_pending();
    Ok(())
}

/// Lets a run that ended after its turn was given up for dead replace its own marker, if that is still there.
pub fn fold_late(
    session: &Session,
    run: &str,
    evidence: &Evidence,
    now: Timestamp,
) -> Result<Option<Session>, NotAList> {
    let names_run = |at: &usize| {
        let row = session.message(*at).unwrap_or_default();
        let retry = Retry::of(&row).map(|retry| retry.run);
        marker::is_interrupted(&row) && (retry.as_deref() == Some(run) || row.run().as_deref() == Some(run))
    };
    let Some(at) = session.messages_with("\"interrupted\"").into_iter().rfind(names_run) else { return Ok(None) };
    let mut session = session.clone();
    let turn = Turn::above(&session, at);
    let provenance = Provenance::Live(run);
    if let Some(user) = turn.user {
        retag(&mut session, user, provenance)?;
    }
    let merged = merge(&mut session, &turn, &evidence.folded, provenance, now.whole_seconds())?;
    close_marker(&mut session, at + merged.added, evidence, run, now)?;
    Ok(Some(session))
}

fn retag(session: &mut Session, at: usize, provenance: Provenance<'_>) -> Result<(), NotAList> {
    let mut row = session.message(at).unwrap_or_default();
    if row.run().as_deref() != Some(provenance.run()) {
        return Ok(());
    }
    provenance.retag(row.fields_mut());
    session.replace_message(at, &row)
}

/// The pending turn's place in the transcript; its user row is added if it is not there.
fn place_turn(
    session: &mut Session,
    pending: &PendingTurn,
    provenance: Provenance<'_>,
    now: Timestamp,
) -> Result<Turn, NotAList> {
    // Whoever ends a run of ours has not saved its prompt before.
    if let Some(turn) = Turn::of_pending(session, pending, provenance.run()).filter(|_| !provenance.is_live()) {
        return Ok(turn);
    }
    let mut row = user_row(pending, now.whole_seconds());
    if !provenance.is_live() {
        row.fields_mut().set("_recovered", "true");
    }
    row.fields_mut().set_text("_run_id", provenance.run());
    let at = session.len(List::Messages);
    session.push_message(&row)?;
    add_to_context(session, at + 1, &[row])?;
    Ok(Turn { user: Some(at), rows: at + 1..at + 1 })
}

/// A dead turn: the prompt and everything that arrived come into the transcript, with a word on what happened.
fn recover_turn(
    session: &mut Session,
    pending: &PendingTurn,
    run: &str,
    evidence: &Evidence,
    facts: &Facts<'_>,
) -> Result<Step, NotAList> {
    if let Some(core) = facts.core.as_ref().filter(|_| session.is_empty(List::Messages)) {
        take_over(session, core)?;
    }
    session.clear_pending();
    let provenance = Provenance::Recovered(run);
    let mut turn = place_turn(session, pending, provenance, facts.now)?;
    let saved_error = evidence.error_row.as_ref().and_then(|error| find_error(session, &turn, error));
    turn.rows.end = saved_error.unwrap_or(turn.rows.end);
    let merged = merge(session, &turn, &evidence.folded, provenance, facts.now.whole_seconds())?;
    if evidence.ending == Ending::Completed {
        return Ok(Step::Folded);
    }
    match (&evidence.error_row, saved_error) {
        (Some(error), Some(at)) => tag_error(session, at + merged.added, error)?,
        (Some(error), None) => session.push_message(error)?,
        (None, _) => return mark_turn(session, run, pending, evidence, merged, facts),
    }
    Ok(Step::Recovered { rows: merged.added })
}

fn mark_turn(
    session: &mut Session,
    run: &str,
    pending: &PendingTurn,
    evidence: &Evidence,
    merged: Merged,
    facts: &Facts<'_>,
) -> Result<Step, NotAList> {
    let now = facts.now.whole_seconds();
    if evidence.is_ours {
        let marker = final_marker(evidence, run, now);
        marker.map_or(Ok(()), |marker| session.push_message(&marker))?;
        return Ok(Step::Folded);
    }
    let finding = finding_of(evidence);
    let mut row = interrupted_marker(&finding, cause(pending, facts), run, now);
    let is_open = matches!(finding, Finding::Pending | Finding::FailedPending(_));
    if is_open {
        marker::arm(&mut row, run, 0, now);
    } else {
        marker::set_folded_bytes(&mut row, unsealed_bytes(evidence));
    }
    session.push_message(&row)?;
    Ok(if is_open { Step::Armed } else { Step::Recovered { rows: merged.added } })
}

/// Why the turn has no producer any more, in the reference program's words.
fn cause(pending: &PendingTurn, facts: &Facts<'_>) -> &'static str {
    match pending.started_at {
        Some(began) if began != 0.0 && facts.process_began.seconds() > began => "process_restart",
        _ => "lost_worker_bookkeeping",
    }
}

fn unsealed_bytes(evidence: &Evidence) -> Option<u64> {
    match evidence.journal {
        JournalState::Unsealed { bytes } => Some(bytes),
        _ => None,
    }
}

/// The rows and cards of the agent's own transcript become the session's.
fn take_over(session: &mut Session, core: &Session) -> Result<(), NotAList> {
    for list in [List::Messages, List::ToolCalls] {
        core.texts(list).try_for_each(|item| session.push_item(list, item))?;
    }
    Ok(())
}

/// An error row of the turn that says the same.
fn find_error(session: &Session, turn: &Turn, error: &Row) -> Option<usize> {
    let words = normal_form(&error.content());
    let is_same = |row: &Row| row.is_error() && normal_form(&row.content()) == words;
    turn.rows.clone().find(|at| session.message(*at).is_some_and(|row| is_same(&row)))
}

/// Lets an error row that was saved already say which event it comes from.
fn tag_error(session: &mut Session, at: usize, error: &Row) -> Result<(), NotAList> {
    let mut row = session.message(at).unwrap_or_default();
    for (key, value) in error.fields().iter().filter(|(key, _)| key.starts_with("_recovered")) {
        row.fields_mut().set(key, value);
    }
    session.replace_message(at, &row)
}

/// One marker: resolved if its run's journal tells more than it did, counted or given up if not.
fn resolve_marker(plan: &mut Plan, at: usize, facts: &Facts<'_>) -> Result<(), NotAList> {
    let row = plan.session.message(at).unwrap_or_default();
    let step = match (Retry::of(&row), growing_run(&plan.session, at, &row)) {
        (Some(retry), _) => match facts.runs.get(&retry.run) {
            _ if retry.run.is_empty() => Some((retry.run, give_up(&mut plan.session, at, row, "")?)),
            Some(evidence) => retry_marker(plan, at, row, &retry, evidence, facts)?.map(|step| (retry.run, step)),
            None => None,
        },
        (None, Some(growing)) => match facts.runs.get(&growing.run) {
            Some(evidence) => grow(plan, at, &growing.run, evidence, facts)?.map(|step| (growing.run, step)),
            None => None,
        },
        (None, None) => None,
    };
    plan.steps.extend(step);
    Ok(())
}

fn retry_marker(
    plan: &mut Plan,
    at: usize,
    row: Row,
    retry: &Retry,
    evidence: &Evidence,
    facts: &Facts<'_>,
) -> Result<Option<Step>, NotAList> {
    let is_told = evidence.is_ours || evidence.ending == Ending::Stopped;
    if evidence.has_output() || evidence.error_row.is_some() || is_told {
        let merged = merge_above(&mut plan.session, at, &retry.run, evidence, facts)?;
        return Ok(Some(Step::Promoted { rows: merged.added }));
    }
    let attempts = retry.attempts.unwrap_or(0);
    let age = match retry.first_seen {
        FirstSeen::At(first) => facts.now.seconds() - first,
        FirstSeen::Unknown | FirstSeen::Unusable => 0.0,
    };
    if attempts >= facts.options.attempts_max || age > facts.options.give_up_after.as_secs_f64() {
        return give_up(&mut plan.session, at, row, &retry.run).map(Some);
    }
    match evidence.journal {
        JournalState::Arriving => mend(&mut plan.session, at, row, retry, facts),
        _ if attempts + 1 >= facts.options.attempts_max => give_up(&mut plan.session, at, row, &retry.run).map(Some),
        _ => spend(&mut plan.session, at, row, retry, attempts + 1, facts).map(Some),
    }
}

fn give_up(session: &mut Session, at: usize, mut row: Row, run: &str) -> Result<Step, NotAList> {
    marker::settle(&mut row, &Finding::Lost, run);
    session.replace_message(at, &row)?;
    Ok(Step::GaveUp)
}

fn spend(
    session: &mut Session,
    at: usize,
    mut row: Row,
    retry: &Retry,
    attempts: u32,
    facts: &Facts<'_>,
) -> Result<Step, NotAList> {
    let is_known = matches!(retry.first_seen, FirstSeen::At(_));
    marker::spend(&mut row, attempts, (!is_known).then(|| facts.now.whole_seconds()));
    session.replace_message(at, &row)?;
    Ok(Step::Spent { attempts })
}

/// A journal that may still appear costs nothing. Only notes that are no numbers are put right, or they would never
/// count.
fn mend(
    session: &mut Session,
    at: usize,
    row: Row,
    retry: &Retry,
    facts: &Facts<'_>,
) -> Result<Option<Step>, NotAList> {
    if retry.attempts.is_some() && retry.first_seen != FirstSeen::Unusable {
        return Ok(None);
    }
    spend(session, at, row, retry, retry.attempts.unwrap_or(0), facts)?;
    Ok(Some(Step::Mended))
}

/// A journal grew after its rows were recovered.
fn grow(
    plan: &mut Plan,
    at: usize,
    run: &str,
    evidence: &Evidence,
    facts: &Facts<'_>,
) -> Result<Option<Step>, NotAList> {
    let mut grown = plan.session.clone();
    let merged = merge_above(&mut grown, at, run, evidence, facts)?;
    let is_sealed = matches!(evidence.journal, JournalState::Sealed { .. }) && growing_note(&plan.session, at);
    if merged == Merged::default() && !is_sealed {
        return Ok(None);
    }
    plan.session = grown;
    Ok(Some(Step::Promoted { rows: merged.added }))
}

/// Whether a marker of ours still says that more may come.
fn growing_note(session: &Session, at: usize) -> bool {
    session.message(at).is_some_and(|row| marker::folded_bytes(&row).is_some())
}

/// The run's rows land above its marker, and the marker says what is known now, or goes.
fn merge_above(
    session: &mut Session,
    at: usize,
    run: &str,
    evidence: &Evidence,
    facts: &Facts<'_>,
) -> Result<Merged, NotAList> {
    let turn = Turn::above(session, at);
    let now = facts.now;
    let merged = merge(session, &turn, &evidence.folded, Provenance::Recovered(run), now.whole_seconds())?;
    close_marker(session, at + merged.added, evidence, run, now)?;
    Ok(merged)
}

fn close_marker(
    session: &mut Session,
    at: usize,
    evidence: &Evidence,
    run: &str,
    now: Timestamp,
) -> Result<(), NotAList> {
    if let Some(error) = &evidence.error_row {
        let turn = Turn::above(session, at);
        return match find_error(session, &turn, error) {
            Some(saved) => tag_error(session, saved, error).and_then(|()| session.splice_messages(at..at + 1, &[])),
            None => session.replace_message(at, error),
        };
    }
    if evidence.is_ours {
        let marker = final_marker(evidence, run, now.whole_seconds());
        return session.splice_messages(at..at + 1, marker.as_slice());
    }
    let mut row = session.message(at).unwrap_or_default();
    marker::settle(&mut row, &finding_of(evidence), run);
    marker::set_folded_bytes(&mut row, unsealed_bytes(evidence));
    session.replace_message(at, &row)
}
