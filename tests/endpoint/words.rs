//! What endpoints send: heads, chunks, ends.

use serde_json::{Value, json};

use crate::server::{Reply, Step};

/// The head of a stream that ends when the connection does.
pub(crate) const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// The head of a stream whose every piece says how long it is.
pub(crate) const CHUNKED_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// What ends a stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// A line that keeps a connection open and says nothing.
pub(crate) const PING: &str = ": ping\n\n";

/// Sends these, one behind the other, at once.
pub(crate) fn send(parts: &[&str]) -> Step {
    Step::Send(parts.concat().into_bytes())
}

/// A reply that sends these and closes the connection.
pub(crate) fn sends(parts: &[&str]) -> Reply {
    vec![send(parts)]
}

pub(crate) fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A chunk that adds this to the answer.
pub(crate) fn delta(value: Value) -> String {
    data(&json!({"choices": [{"index": 0, "delta": value}]}))
}

/// A chunk that adds a word.
pub(crate) fn word(text: &str) -> String {
    delta(json!({"content": text}))
}

/// A chunk that adds a thought.
pub(crate) fn thought(text: &str) -> String {
    delta(json!({"reasoning_content": text}))
}

/// A chunk that adds a part of a tool call.
pub(crate) fn call(part: Value) -> String {
    delta(json!({"tool_calls": [part]}))
}

/// A chunk that says who speaks, and nothing else.
pub(crate) fn role() -> String {
    delta(json!({"role": "assistant", "content": ""}))
}

/// A chunk that says that the answer is complete, and why.
pub(crate) fn finish(reason: &str) -> String {
    data(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

/// An answer without fault.
pub(crate) fn fine(text: &str) -> Reply {
    sends(&[HEAD, &role(), &word(text), &finish("stop"), DONE])
}

/// One document with a status, perhaps further headers, and a body.
pub(crate) fn document(status: &str, headers: &str, body: &str) -> Reply {
    let length = body.len();
    sends(&[&format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}")])
}

/// A piece of a chunked stream.
pub(crate) fn piece(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}
