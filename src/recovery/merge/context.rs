//! The conversation as a model was last shown it goes on with the transcript, in its own turn's place.

use crate::model::{List, NotAList, Row, Session, normal_form};

/// A conversation that was shortened for the model goes on as well, without reasoning: in its own turn's place.
pub(in crate::recovery) fn add_to_context(
    session: &mut Session,
    turn_end: usize,
    rows: &[Row],
) -> Result<(), NotAList> {
    if session.is_empty(List::ContextMessages) {
        return Ok(());
    }
    let first = context_place(session, turn_end);
    for (at, row) in (first..).zip(rows) {
        session.insert_item(List::ContextMessages, at, &without_reasoning(row))?;
    }
    Ok(())
}

/// Before the user row that follows the turn in the transcript, if the context has it; else at the end.
fn context_place(session: &Session, turn_end: usize) -> usize {
    let len = session.len(List::ContextMessages);
    let rows = turn_end..session.len(List::Messages);
    let next = rows.filter_map(|at| session.message(at)).find(|row| row.role() == "user");
    let Some(next) = next.map(|row| normal_form(&row.content())) else { return len };
    let is_next = |json: &str| {
        let row = Row::parse(json);
        row.role() == "user" && normal_form(&row.content()) == next
    };
    session.texts(List::ContextMessages).rposition(is_next).unwrap_or(len)
}

pub(super) fn replace_in_context(session: &mut Session, old: &Row, new: &Row) -> Result<(), NotAList> {
    let is_old = |json: &str| {
        let row = Row::parse(json);
        row.role() == "assistant" && row.content() == old.content()
    };
    let place = session.texts(List::ContextMessages).rposition(is_old);
    match place {
        Some(at) => session.replace_item(List::ContextMessages, at, &without_reasoning(new)),
        None => Ok(()),
    }
}

fn without_reasoning(row: &Row) -> String {
    let mut row = row.clone();
    row.fields_mut().remove("reasoning");
    row.fields().to_json()
}
