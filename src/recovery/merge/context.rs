//! The conversation as a model was last shown it goes on with the transcript, in its own turn's place.

use crate::model::{List, NotAList, Row, Session, normal_form};

/// A conversation that was shortened for the model gets the turn's new rows as well, without reasoning.
pub(in crate::recovery) fn add_to_context(
    session: &mut Session,
    turn_end: usize,
    rows: &[Row],
) -> Result<(), NotAList> {
    if session.is_empty(List::ContextMessages) || rows.is_empty() {
        return Ok(());
    }
    let first = context_place(session, turn_end);
    for (at, row) in (first..).zip(rows) {
        session.insert_item(List::ContextMessages, at, &without_reasoning(row))?;
    }
    Ok(())
}

/// Before the user row that follows the turn in the transcript, if the context has it; else at the end. The same words
/// may follow more than once: then it is as far from the end here as there.
fn context_place(session: &Session, turn_end: usize) -> usize {
    let len = session.len(List::ContextMessages);
    let behind = (turn_end..session.len(List::Messages)).filter_map(|at| session.message(at));
    let mut said: Vec<String> =
        behind.filter(|row| row.role() == "user").map(|row| normal_form(&row.content())).collect();
    let Some(next) = said.first().cloned() else { return len };
    said.retain(|words| *words == next);
    let is_next = |json: &str| {
        let row = Row::parse(json);
        row.role() == "user" && normal_form(&row.content()) == next
    };
    let places = session.texts(List::ContextMessages).enumerate().rev().filter(|(_, json)| is_next(json));
    places.map(|(at, _)| at).take(said.len()).last().unwrap_or(len)
}

/// The rows of the context that came from a run, found once for all that may change.
pub(in crate::recovery) struct ContextRows {
    places: Vec<usize>,
}

impl ContextRows {
    /// Those that name this run. Few do, and the others need no parsing.
    pub(in crate::recovery) fn of(session: &Session, run: &str) -> Self {
        let names_run = |json: &str| !run.is_empty() && json.contains(run);
        let rows = session.texts(List::ContextMessages).enumerate().filter(|(_, json)| names_run(json));
        ContextRows { places: rows.map(|(at, _)| at).collect() }
    }

    /// A row that changed in the transcript changes here too. Only one that says that it is the same is touched.
    pub(in crate::recovery) fn replace(&self, session: &mut Session, old: &Row, new: &Row) -> Result<(), NotAList> {
        let same = |key: &str, row: &Row| row.fields().get(key) == old.fields().get(key);
        let is_old = |at: &&usize| {
            let row = session.item(List::ContextMessages, **at).map(Row::parse).unwrap_or_default();
            row.run() == old.run() && ["role", "content", "_recovered_seq"].iter().all(|key| same(key, &row))
        };
        match self.places.iter().find(is_old) {
            Some(at) => session.replace_item(List::ContextMessages, *at, &without_reasoning(new)),
            None => Ok(()),
        }
    }
}

fn without_reasoning(row: &Row) -> String {
    let mut row = row.clone();
    row.fields_mut().remove("reasoning");
    row.fields().to_json()
}
