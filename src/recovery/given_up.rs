//! For repair: markers that hope for nothing any more, and answers whose turn is not known any more. Pure.

use super::evidence::{Ending, Evidence};
use super::finding::{final_marker, finding_of};
use super::merge::merge;
use super::turn::Turn;
use crate::clock::Timestamp;
use crate::model::marker::{self, Retry, interrupted_marker, is_interrupted};
use crate::model::{List, NotAList, Row, Session};

/// A marker that hopes for nothing any more, above which no journal's output stands.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenUp {
    /// Its row.
    pub at: usize,
    /// Its run, if it says so. The reference program's do not.
    pub run: Option<String>,
    /// When its turn began, in seconds.
    pub since: Option<i64>,
    /// When the next turn began.
    pub until: Option<i64>,
}

/// The markers that gave up.
pub fn given_up(session: &Session) -> Vec<GivenUp> {
    let at = session.messages_with("\"interrupted\"").into_iter();
    at.filter_map(|at| given_up_at(session, at)).collect()
}

fn given_up_at(session: &Session, at: usize) -> Option<GivenUp> {
    let row = session.message(at)?;
    let is_final = row.fields().text("interruption_cause").as_deref() == Some("stopped_by_user");
    if !is_interrupted(&row) || Retry::of(&row).is_some() || is_final {
        return None;
    }
    let run = row.run().map(|run| run.into_owned());
    let turn = Turn::above(session, at);
    let answers = |row: &Row| match &run {
        Some(run) => row.run().as_deref() == Some(run.as_str()),
        None => row.fields().is_true("_recovered_from_run_journal"),
    };
    if turn.rows.clone().filter_map(|at| session.message(at)).any(|row| answers(&row)) {
        return None;
    }
    let user_at = |at: usize| session.message(at).filter(|row| row.role() == "user");
    let since = turn.user.and_then(user_at).and_then(|row| row.timestamp());
    let until = (at + 1..session.len(List::Messages)).find_map(user_at).and_then(|row| row.timestamp());
    Some(GivenUp { at, run, since, until })
}

/// Lets a marker that gave up look for its run once more.
pub fn hope_again(session: &mut Session, at: usize, run: &str, now: Timestamp) -> Result<(), NotAList> {
    let mut row = session.message(at).unwrap_or_default();
    marker::arm(&mut row, run, 0, now.whole_seconds());
    session.replace_message(at, &row)
}

/// Adds an answer at the end of a transcript that does not know its turn any more, with a word on how it ended.
pub fn append_answer(session: &mut Session, run: &str, evidence: &Evidence, now: Timestamp) -> Result<(), NotAList> {
    let provenance = evidence.provenance(run);
    merge(session, &Turn::at_end(session), &evidence.folded, provenance, now.whole_seconds())?;
    let marker = match (&evidence.error_row, evidence.ending) {
        (_, Ending::Completed) => None,
        (Some(error), _) => Some(error.clone()),
        (None, _) if evidence.is_ours => final_marker(evidence, run, now.whole_seconds()),
        (None, _) => Some(open_marker(evidence, run, now)),
    };
    marker.map_or(Ok(()), |marker| session.push_message(&marker))
}

fn open_marker(evidence: &Evidence, run: &str, now: Timestamp) -> Row {
    let mut row = interrupted_marker(&finding_of(evidence), "process_restart", run, now.whole_seconds());
    marker::set_folded_bytes(&mut row, evidence.unsealed_bytes());
    row
}
