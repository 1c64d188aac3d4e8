//! The ids by which a chat UI names messages: the client's own, else one that is made of the run or of the row's place.

use super::row::Row;
use super::session::{List, Session};

/// The key of a user row that holds the client's id of the message.
pub(crate) const MESSAGE_ID: &str = "_message_id";

/// The key of a user row that holds the client's metadata of the message, a JSON object.
pub(crate) const METADATA: &str = "_metadata";

/// The id of a user's message: the client's, else `<run>-user`, else `row-<index>`.
pub fn user_message_id(row: &Row, index: usize) -> String {
    if let Some(own) = row.fields().text(MESSAGE_ID).filter(|id| !id.is_empty()) {
        return own.into_owned();
    }
    match row.run().filter(|run| !run.is_empty()) {
        Some(run) => format!("{run}-user"),
        None => format!("row-{index}"),
    }
}

/// The id of an answer, asked of one of its rows: its run, else `row-<index of the answer's first row>`.
pub fn answer_id(user: Option<(&Row, usize)>, row: &Row, index: usize) -> String {
    match row.run().filter(|run| !run.is_empty()) {
        Some(run) => run.into_owned(),
        None => format!("row-{}", user.map_or(index, |(_, at)| at + 1)),
    }
}

/// The last user row with this id.
pub(crate) fn find_user(session: &Session, id: &str) -> Option<usize> {
    let rows = session.texts(List::Messages).enumerate().rev().filter(|(_, json)| may_have_id(json, id));
    let mut rows = rows.map(|(at, json)| (at, Row::parse(json)));
    rows.find(|(at, row)| row.is_question() && user_message_id(row, *at) == id).map(|(at, _)| at)
}

/// Spares the JSON reader most rows: a row that has an id spells it, or its run, unless the id is one of a place or is escaped.
fn may_have_id(json: &str, id: &str) -> bool {
    let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    let spells_run = || id.strip_suffix("-user").is_some_and(|run| json.contains(run));
    !is_plain || id.starts_with("row-") || json.contains(id) || spells_run()
}

/// The last user row that is named by this id itself or by its answer's: a run, or `row-N`.
pub(crate) fn find_answered(session: &Session, id: &str) -> Option<usize> {
    let mut answer = Vec::new();
    for (at, row) in session.messages().enumerate().rev() {
        if !row.is_question() {
            answer.push((at, row));
            continue;
        }
        let user = Some((&row, at));
        let is_named = user_message_id(&row, at) == id
            || row.run().is_some_and(|run| run == id)
            || answer.iter().any(|(at, row)| answer_id(user, row, *at) == id);
        if is_named {
            return Some(at);
        }
        answer.clear();
    }
    None
}

/// The rows in which the user asks something, the last one first.
pub(crate) fn user_rows(session: &Session) -> impl Iterator<Item = (usize, Row)> {
    let rows = session.texts(List::Messages).enumerate().rev();
    rows.map(|(at, text)| (at, Row::parse(text))).filter(|(_, row)| row.is_question())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::model::SessionId;

    fn session(rows: &[&str]) -> Session {
        let mut session = Session::new(SessionId::parse("s").unwrap(), "", Timestamp::from_seconds(1.0));
        rows.iter().try_for_each(|row| session.push_item(List::Messages, row)).unwrap();
        session
    }

    #[test]
    fn a_message_is_named_by_the_client_else_by_its_run_else_by_its_place() {
        for (row, id) in [
            (r#"{"role":"user","_run_id":"r","_message_id":"m"}"#, "m"),
            (r#"{"role":"user","_run_id":"r","_message_id":""}"#, "r-user"),
            (r#"{"role":"user","_recovered_stream_id":"q"}"#, "q-user"),
            (r#"{"role":"user","_run_id":""}"#, "row-4"),
            (r#"{"role":"user"}"#, "row-4"),
        ] {
            assert_eq!(user_message_id(&Row::parse(row), 4), id, "{row}");
        }
        let (user, answer) = (Row::parse("{}"), Row::parse(r#"{"_run_id":"r"}"#));
        assert_eq!(answer_id(Some((&user, 4)), &answer, 6), "r");
        assert_eq!(answer_id(Some((&user, 4)), &Row::default(), 6), "row-5");
        assert_eq!(answer_id(None, &Row::default(), 0), "row-0");
    }

    #[test]
    fn messages_are_found_by_each_of_their_names() {
        let session = session(&[
            r#"{"role":"user","_run_id":"a","_message_id":"m"}"#,
            r#"{"role":"assistant","_run_id":"a"}"#,
            r#"{"role":"user"}"#,
            r#"{"role":"assistant"}"#,
            r#"{"role":"assistant"}"#,
            r#"{"role":"user","_message_id":"m"}"#,
        ]);
        assert_eq!(find_user(&session, "m"), Some(5), "the last one counts");
        assert_eq!((find_user(&session, "row-2"), find_user(&session, "row-3")), (Some(2), None));
        for (id, at) in [("m", 5), ("a", 0), ("row-2", 2), ("row-3", 2)] {
            assert_eq!(find_answered(&session, id), Some(at), "{id}");
        }
        for id in ["row-4", "row-1", "a-user", "", "x"] {
            assert_eq!(find_answered(&session, id), None, "{id:?}");
        }
    }
}
