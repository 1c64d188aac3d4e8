//! The error row that a failed run carries for the transcript: there already, or to be placed.

use super::turn::Turn;
use crate::model::{NotAList, Row, Session, normal_form};

/// An error row of the turn that says the same.
pub(super) fn find_error(session: &Session, turn: &Turn, error: &Row) -> Option<usize> {
    let words = normal_form(&error.content());
    let is_same = |row: &Row| row.is_error() && normal_form(&row.content()) == words;
    turn.rows.clone().find(|at| session.message(*at).is_some_and(|row| is_same(&row)))
}

/// Lets an error row that was saved already say which event it comes from.
pub(super) fn tag_error(session: &mut Session, at: usize, error: &Row) -> Result<(), NotAList> {
    let mut row = session.message(at).unwrap_or_default();
    for (key, value) in error.fields().iter().filter(|(key, _)| key.starts_with("_recovered")) {
        row.fields_mut().set(key, value);
    }
    session.replace_message(at, &row)
}
