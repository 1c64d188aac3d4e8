//! For repair: markers that hope for nothing any more, and answers whose turn is not known any more. Pure.

use std::collections::HashSet;
use std::ops::Range;

use super::evidence::Evidence;
use super::finding::{final_marker, finding_of};
use super::merge::merge;
use super::run_note::note_run;
use super::turn::Turn;
use crate::clock::Timestamp;
use crate::model::marker::{self, Retry, interrupted_marker, is_interrupted, says_recovered};
use crate::model::{List, NotAList, Row, RunEnd, Session, normal_form};

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
    /// The rows of its turn, those below it included.
    turn: Range<usize>,
}

impl GivenUp {
    /// Whether an answer stands in the marker's turn already, in rows that do not say where they come from. Without the
    /// marker's own word on which run it belongs to, an answer that stands anywhere is another turn's.
    pub fn is_answered_by(&self, session: &Session, evidence: &Evidence) -> bool {
        let rows = if self.run.is_some() { self.turn.clone() } else { 0..session.len(List::Messages) };
        Said::of(session, rows).holds(evidence)
    }
}

/// What the answers in some rows say, to be compared with many others.
#[derive(Debug, Default)]
pub struct Said {
    texts: HashSet<String>,
    /// The runs whose prompts stand there.
    prompted: HashSet<String>,
}

impl Said {
    /// What stands in these rows.
    pub fn of(session: &Session, rows: Range<usize>) -> Self {
        let mut said = Said::default();
        for row in rows.filter_map(|at| session.message(at)).filter(|row| !row.is_error()) {
            match (&*row.role(), row.run()) {
                ("assistant", _) => drop(said.texts.insert(normal_form(&row.content()))),
                ("user", Some(run)) => drop(said.prompted.insert(run.into_owned())),
                _ => {}
            }
        }
        said
    }

    /// What stands anywhere.
    pub fn anywhere(session: &Session) -> Self {
        Said::of(session, 0..session.len(List::Messages))
    }

    /// Whether any of an answer's words are among it.
    pub fn holds(&self, evidence: &Evidence) -> bool {
        let mut words =
            evidence.folded.rows.iter().map(|row| normal_form(&row.content)).filter(|text| !text.is_empty());
        words.any(|words| self.texts.contains(&words) || self.texts.iter().any(|said| said.contains(&words)))
    }

    /// Whether an answer would be a second one: its words are among it, and no prompt says that it belongs to it.
    pub fn repeats(&self, run: &str, evidence: &Evidence) -> bool {
        !self.prompted.contains(run) && self.holds(evidence)
    }
}

/// The markers that gave up.
pub fn given_up(session: &Session) -> Vec<GivenUp> {
    let at = session.messages_with("\"interrupted\"").into_iter();
    at.filter_map(|at| given_up_at(session, at)).collect()
}

fn given_up_at(session: &Session, at: usize) -> Option<GivenUp> {
    let row = session.message(at)?;
    let is_final = row.fields().text("interruption_cause").as_deref() == Some("stopped_by_user");
    if !is_interrupted(&row) || Retry::of(&row).is_some() || is_final || says_recovered(&row) {
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
    let next = (at + 1..session.len(List::Messages)).find(|at| user_at(*at).is_some());
    let until = next.and_then(user_at).and_then(|row| row.timestamp());
    let turn = turn.rows.start..next.unwrap_or(session.len(List::Messages));
    Some(GivenUp { at, run, since, until, turn })
}

/// Lets a marker that gave up look for its run once more.
pub fn hope_again(session: &mut Session, at: usize, run: &str, now: Timestamp) -> Result<(), NotAList> {
    let mut row = session.message(at).unwrap_or_default();
    marker::arm(&mut row, run, 0, now.whole_seconds());
    session.replace_message(at, &row)
}

/// Adds an answer to a transcript that has lost it, with a word on how it ended: behind its prompt if that is there, else
/// before the first turn that began later. Nothing is added where its words stand. Gives the number of rows.
pub fn add_answer(
    session: &mut Session,
    run: &str,
    evidence: &Evidence,
    began: f64,
    said: &Said,
    now: Timestamp,
) -> Result<usize, NotAList> {
    // Where nothing names the run, its words may stand anywhere.
    if said.repeats(run, evidence) {
        return Ok(0);
    }
    let turn = place_of(session, run, began);
    let provenance = evidence.provenance(run);
    let merged = merge(session, &turn, &evidence.folded, provenance, now.whole_seconds())?;
    if merged.added == 0 {
        return Ok(0);
    }
    note_run(session, turn.user, run, evidence, Some(began))?;
    let marker = match (&evidence.error_row, evidence.ending) {
        (_, Some(RunEnd::Completed)) => None,
        (Some(error), _) => Some(error.clone()),
        (None, _) if evidence.is_ours => final_marker(evidence, run, now.whole_seconds()),
        (None, _) => Some(open_marker(evidence, run, now)),
    };
    let end = turn.rows.end + merged.added;
    let has_marker = session.message(end).is_some_and(|row| row.is_error() && row.run().as_deref() == Some(run));
    let marker = marker.filter(|_| !has_marker);
    session.splice_messages(end..end, marker.as_slice())?;
    Ok(merged.added)
}

/// The turn that a run's answer belongs to: that of its prompt, or a place between turns.
fn place_of(session: &Session, run: &str, began: f64) -> Turn {
    let len = session.len(List::Messages);
    let users: Vec<(usize, Row)> = session.messages().enumerate().filter(|(_, row)| row.role() == "user").collect();
    let own = users.iter().position(|(_, row)| row.run().as_deref() == Some(run));
    let end_of = |nth: usize| users.get(nth + 1).map_or(len, |(at, _)| *at);
    if let Some(nth) = own {
        let user = users[nth].0;
        // Up to the run's marker, or to what another run said whose own prompt is lost.
        let ends = |at: &usize| {
            let row = session.message(*at).unwrap_or_default();
            row.run().is_some_and(|other| other != run || row.is_error())
        };
        let end = (user + 1..end_of(nth)).find(ends).unwrap_or(end_of(nth));
        return Turn { user: Some(user), rows: user + 1..end };
    }
    let later = users.iter().find(|(_, row)| row.timestamp().is_some_and(|at| at as f64 > began));
    let at = later.map_or(len, |(at, _)| *at);
    let start = users.iter().rev().find(|(user, _)| *user < at).map_or(0, |(user, _)| user + 1);
    Turn { user: None, rows: start..at }
}

fn open_marker(evidence: &Evidence, run: &str, now: Timestamp) -> Row {
    let mut row = interrupted_marker(&finding_of(evidence), "process_restart", run, now.whole_seconds());
    marker::set_folded_records(&mut row, evidence.unsealed_records());
    row
}

#[cfg(test)]
mod tests;
