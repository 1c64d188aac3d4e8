//! The turn that waits for its answer: folded when its run ends, recovered when its run is dead.

use super::errors::{find_error, tag_error};
use super::evidence::Evidence;
use super::finding::{final_marker, finding_of};
use super::merge::{Merged, add_to_context, merge};
use super::plan::{Answer, Facts, Step};
use super::replace::{Replacing, place_of};
use super::run_note::note_run;
use super::turn::{Turn, note_known_message, note_message, user_row};
use crate::clock::Timestamp;
use crate::model::fold::Provenance;
use crate::model::marker::{self, Finding, interrupted_marker};
use crate::model::{Branch, List, NotAList, PendingTurn, RunEnd, Session, TurnNote};

/// Folds a run that has ended into the pending turn that waits for it. If it was to replace a turn, the one of the two that does
/// not stand in the transcript then.
pub fn fold_ended(
    session: &mut Session,
    run: &str,
    evidence: &Evidence,
    note: &TurnNote,
    now: Timestamp,
) -> Result<Option<Branch>, NotAList> {
    let replacing = Replacing { run, evidence, note, place: place_of(session, note), now };
    let settled = replacing.settle(session, |session| fold_turn(session, run, evidence, note, now))?;
    Ok(settled.1)
}

fn fold_turn(
    session: &mut Session,
    run: &str,
    evidence: &Evidence,
    note: &TurnNote,
    now: Timestamp,
) -> Result<(), NotAList> {
    let pending = session.pending_turn();
    session.clear_pending();
    let provenance = Provenance::Live(run);
    let turn = match &pending {
        Some(pending) => place_turn(session, pending, note, provenance, now)?,
        None => Turn::at_end(session),
    };
    merge(session, &turn, &evidence.folded, provenance, now.whole_seconds())?;
    note_agent(session, &turn, evidence)?;
    note_run(session, turn.user, run, evidence, pending.and_then(|pending| pending.started_at))?;
    match final_marker(evidence, run, now.whole_seconds()) {
        Some(marker) => session.push_message(&marker),
        None => Ok(()),
    }
}

/// Notes what the agent calls the conversation in the row of the turn that it answered completely.
fn note_agent(session: &mut Session, turn: &Turn, evidence: &Evidence) -> Result<(), NotAList> {
    let (Some(agent), Some(user), Some(RunEnd::Completed)) = (&evidence.agent, turn.user, evidence.ending) else {
        return Ok(());
    };
    let mut row = session.message(user).unwrap_or_default();
    agent.note_in(&mut row);
    session.replace_message(user, &row)
}

/// Lets a prompt that waits for no run become a row, before another one takes its place.
pub fn keep_unanswered(session: &mut Session, now: Timestamp) -> Result<(), NotAList> {
    if let Some(pending) = session.pending_turn() {
        session.clear_pending();
        place_turn(session, &pending, &TurnNote::default(), Provenance::Recovered(""), now)?;
    }
    Ok(())
}

/// The pending turn's place in the transcript; its user row is added if it is not there.
fn place_turn(
    session: &mut Session,
    pending: &PendingTurn,
    note: &TurnNote,
    provenance: Provenance<'_>,
    now: Timestamp,
) -> Result<Turn, NotAList> {
    if let Some(turn) = Turn::of_pending(session, pending, provenance) {
        note_known_message(session, &turn, note)?;
        return Ok(turn);
    }
    let mut row = user_row(pending, now.whole_seconds());
    if !provenance.is_live() {
        row.fields_mut().set("_recovered", "true");
    }
    if !provenance.run().is_empty() {
        row.fields_mut().set_text("_run_id", provenance.run());
    }
    note_message(&mut row, note);
    session.push_message(&row)?;
    add_to_context(session, session.len(List::Messages), &[row])?;
    let turn = Turn::at_end(session);
    Ok(Turn { user: Some(turn.rows.start - 1), ..turn })
}

/// A dead turn: the prompt and everything that arrived come into the transcript, with a word on what happened.
pub(super) fn recover_turn(
    session: &mut Session,
    pending: &PendingTurn,
    answer: &Answer<'_>,
    facts: &Facts<'_>,
) -> Result<Step, NotAList> {
    let Answer { run, evidence, now } = answer;
    let provenance = evidence.provenance(run);
    let core_turn = match facts.core.as_ref().filter(|_| session.is_empty(List::Messages)) {
        Some(core) => take_over(session, core).map(|()| Turn::with_words(session, &pending.message))?,
        None => None,
    };
    session.clear_pending();
    let mut turn = match core_turn {
        Some(turn) => turn,
        None => place_turn(session, pending, facts.turn, provenance, *now)?,
    };
    let saved_error = evidence.error_row.as_ref().and_then(|error| find_error(session, &turn, error));
    turn.rows.end = saved_error.unwrap_or(turn.rows.end);
    let merged = merge(session, &turn, &evidence.folded, provenance, now.whole_seconds())?;
    note_run(session, turn.user, run, evidence, pending.started_at)?;
    if evidence.ending == Some(RunEnd::Completed) {
        note_agent(session, &turn, evidence)?;
        return Ok(Step::Folded);
    }
    match (&evidence.error_row, saved_error) {
        (Some(error), Some(at)) => tag_error(session, at + merged.added, error)?,
        (Some(error), None) => session.push_message(error)?,
        (None, _) => return mark_turn(session, answer, cause(pending, facts), merged),
    }
    Ok(Step::Recovered { rows: merged.added })
}

fn mark_turn(session: &mut Session, answer: &Answer<'_>, cause: &str, merged: Merged) -> Result<Step, NotAList> {
    let Answer { run, evidence, now } = answer;
    let now = now.whole_seconds();
    if evidence.is_ours {
        let marker = final_marker(evidence, run, now);
        marker.map_or(Ok(()), |marker| session.push_message(&marker))?;
        return Ok(Step::Folded);
    }
    let finding = finding_of(evidence);
    let mut row = interrupted_marker(&finding, cause, run, now);
    let is_open = matches!(finding, Finding::Pending | Finding::FailedPending(_));
    if is_open {
        marker::arm(&mut row, run, 0, now);
    } else {
        marker::set_folded_records(&mut row, evidence.unsealed_records());
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

/// The rows and cards of the agent's own transcript become the session's, if it has any rows.
fn take_over(session: &mut Session, core: &Session) -> Result<(), NotAList> {
    if core.is_empty(List::Messages) {
        return Ok(());
    }
    for list in [List::Messages, List::ToolCalls] {
        core.texts(list).try_for_each(|item| session.push_item(list, item))?;
    }
    Ok(())
}
