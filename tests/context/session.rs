//! Sessions from JSON, and what is made of them.

use crate::provider::assert_provider_valid;
use lastword::format::read_session;
use lastword::{Session, SessionId};
use serde_json::{Value, json};

pub(crate) fn session(text: &str) -> Session {
    read_session(&SessionId::parse("s").unwrap(), text.as_bytes().to_vec()).unwrap()
}

/// The context as JSON, after the validator has seen it.
pub(crate) fn valid_context(session: &Session) -> Value {
    let text = session.context().to_json();
    assert!(!text.contains('\n'), "more than a line: {text}");
    let messages = serde_json::from_str(&text).unwrap_or_else(|cause| panic!("{cause}: {text}"));
    assert_provider_valid(&messages);
    messages
}

/// Of a session with these keys, this is the context.
#[track_caller]
pub(crate) fn check(keys: Value, expected: Value) {
    let shown = valid_context(&session(&keys.to_string()));
    assert_eq!(shown, expected, "got {shown:#}");
}

/// Of a transcript with these rows, this is the context.
#[track_caller]
pub(crate) fn check_rows(rows: Value, expected: Value) {
    check(json!({ "messages": rows }), expected);
}

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(crate) fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// An assistant's message with calls of `(id, name, arguments)`; also a row in that shape.
pub(crate) fn calling(text: Option<&str>, calls: &[(&str, &str, &str)]) -> Value {
    let call = |&(id, name, arguments): &(&str, &str, &str)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    json!({"role": "assistant", "content": text, "tool_calls": calls.iter().map(call).collect::<Vec<_>>()})
}

/// A tool's message; also a row in that shape.
pub(crate) fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

pub(crate) fn interrupted(id: &str) -> Value {
    result(id, "The tool was interrupted before it answered.")
}
