//! The rows and cards that scenarios share, and how those look that recovery makes.

use lastword::{RunId, SessionId};
use serde_json::{Value, json};

pub(super) const SESSION: &str = "5e55a0c0ffee";
/// The run of the pending turn, or of the newest marker.
pub(super) const RUN: &str = "a1b2c3d4e5f60718293a4b5c6d7e8f90";
/// Another run of the session.
pub(super) const OTHER_RUN: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";

/// When most scenarios read.
pub(super) const NOW: i64 = 1_800_000_000;
/// When the first event of most journals was written.
pub(super) const STREAMED: i64 = 1_799_996_500;
/// When the pending turn began.
pub(super) const ASKED: i64 = 1_799_996_400;
/// When the markers were made that a scenario begins with.
pub(super) const ARMED: i64 = 1_799_999_400;

pub(super) fn session() -> SessionId {
    SessionId::parse(SESSION).unwrap()
}

pub(super) fn run() -> RunId {
    RunId::parse(RUN).unwrap()
}

pub(super) fn user(text: &str, at: i64) -> Value {
    json!({"role": "user", "content": text, "timestamp": at})
}

pub(super) fn assistant(text: &str, at: i64) -> Value {
    json!({"role": "assistant", "content": text, "timestamp": at})
}

/// The turn that most transcripts begin with.
pub(super) fn first_turn() -> [Value; 2] {
    [user("first question", 1_799_990_000), assistant("first answer", 1_799_990_005)]
}

/// The pending turn's row, as recovery adds it.
pub(super) fn prompt() -> Value {
    recovered_prompt("please continue the work", ASKED)
}

pub(super) fn recovered_prompt(text: &str, at: i64) -> Value {
    with(user(text, at), json!({"_recovered": true}))
}

/// A row that was recovered from the journal of [`RUN`].
pub(super) fn recovered(text: &str, at: i64) -> Value {
    recovered_of(RUN, text, at)
}

pub(super) fn recovered_of(run: &str, text: &str, at: i64) -> Value {
    with(assistant(text, at), json!({"_recovered_from_run_journal": true, "_recovered_stream_id": run}))
}

/// A marker that is decided: `recovered` or `lost`.
pub(super) fn marker(kind: &str, at: i64) -> Value {
    let words = format!("@marker:{kind}");
    let known = json!({"_error": true, "type": "interrupted", "interruption_cause": "lost_worker_bookkeeping"});
    with(assistant(&words, at), known)
}

/// A marker that waits for its journal.
pub(super) fn armed(at: i64, run: &str, attempts: i64, first_seen: i64) -> Value {
    let retry = json!({
        "_pending_journal_recovery": true,
        "_journal_retry_stream_id": run,
        "_journal_retry_attempts": attempts,
        "_journal_retry_first_seen_ts": first_seen,
    });
    with(marker("pending", at), retry)
}

/// A card of a tool that did not answer, recovered from the journal of [`RUN`].
pub(super) fn open_card(name: &str, preview: &str, seq: u64, row: usize) -> Value {
    json!({
        "name": name,
        "preview": preview,
        "snippet": preview,
        "tid": format!("journal-{seq}"),
        "assistant_msg_idx": row,
        "args": {},
        "done": false,
        "_recovered_from_run_journal": true,
        "_recovered_stream_id": RUN,
    })
}

/// A row with more keys.
pub(super) fn with(mut row: Value, more: Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        row[key] = value.clone();
    }
    row
}

/// The first turn and these rows.
pub(super) fn after_first_turn<const N: usize>(rows: [Value; N]) -> Value {
    first_turn().into_iter().chain(rows).collect()
}

pub(super) fn none() -> Value {
    json!([])
}
