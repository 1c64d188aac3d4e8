//! The rows that tell the user that an answer did not end by itself, and their words.

use super::row::Row;

const STOPPED: &str = "You stopped this answer. What had arrived is kept above; send another message to go on.";
const FAILED: &str = "The answer failed before it was complete. What had arrived is kept above; please try again.";

/// The marker of an answer that the user stopped. It is final: nothing is left to recover.
pub fn stopped_marker(now_seconds: i64) -> Row {
    let mut row = marker("interrupted", STOPPED, now_seconds);
    row.fields_mut().set_text("interruption_cause", "stopped_by_user");
    row
}

/// The marker of an answer whose producer reported a failure, in the producer's words where it has any.
pub fn failed_marker(kind: &str, message: &str, now_seconds: i64) -> Row {
    let message = if message.trim().is_empty() { FAILED } else { message };
    marker(if kind.is_empty() { "error" } else { kind }, message, now_seconds)
}

fn marker(kind: &str, words: &str, now_seconds: i64) -> Row {
    let mut row = Row::assistant(words, now_seconds);
    row.fields_mut().set("_error", "true");
    row.fields_mut().set_text("type", kind);
    row
}
