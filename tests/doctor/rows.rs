//! Rows, sidecars and journal lines as the reference program writes them, and lines as we do.

use lastword::Event;
use lastword::clock::Timestamp;
use lastword::format::LineEncoder;
use serde_json::{Value, json};

use crate::data::{BEGAN, rid, sid};

pub(crate) fn user(content: &str, at: i64) -> Value {
    json!({"role": "user", "content": content, "timestamp": at})
}

pub(crate) fn assistant(content: &str, at: i64) -> Value {
    json!({"role": "assistant", "content": content, "timestamp": at})
}

/// A marker that gave up; of ours if it names a run.
pub(crate) fn lost(run: Option<&str>, at: i64) -> Value {
    let mut row = json!({
        "role": "assistant", "content": "interrupted, no agent output was recovered", "timestamp": at, "_error": true,
        "type": "interrupted", "interruption_cause": "process_restart",
    });
    if let Some(run) = run {
        row["_run_id"] = json!(run);
    }
    row
}

/// A marker that asks for another look.
pub(crate) fn armed(run: &str, attempts: u32, first_seen: i64) -> Value {
    json!({
        "role": "assistant", "content": "interrupted", "timestamp": first_seen, "_error": true, "type": "interrupted",
        "_pending_journal_recovery": true, "_journal_retry_stream_id": run, "_journal_retry_attempts": attempts,
        "_journal_retry_first_seen_ts": first_seen,
    })
}

/// A session with these rows that waits for nothing.
pub(crate) fn session(rows: &[Value]) -> Value {
    json!({
        "session_id": "talk", "title": "A talk", "created_at": 1.0, "updated_at": BEGAN as f64,
        "active_stream_id": null, "pending_user_message": null, "pending_attachments": [], "pending_started_at": null,
        "pending_user_source": null, "message_count": rows.len(), "messages": rows, "tool_calls": [],
    })
}

/// The same with a turn that waits for a run.
pub(crate) fn pending(rows: &[Value], prompt: &str, run: &str) -> Value {
    let mut session = session(rows);
    session["pending_user_message"] = json!(prompt);
    session["pending_started_at"] = json!(BEGAN);
    session["active_stream_id"] = json!(run);
    session
}

/// A line as the reference program writes it.
pub(crate) fn plain_line(ids: [&str; 2], seq: u64, name: &str, payload: &Value) -> Vec<u8> {
    let [session, run] = ids;
    let state = match name {
        "done" | "stream_end" => "\"completed\"",
        "cancel" => "\"interrupted-by-user\"",
        "apperror" => "\"errored\"",
        _ => "null",
    };
    let (terminal, at) = (state != "null", BEGAN + seq as i64);
    let text = format!(
        "{{\"version\":1,\"event_id\":\"{run}:{seq}\",\"seq\":{seq},\"run_id\":\"{run}\",\"session_id\":\"{session}\",\
         \"event\":\"{name}\",\"type\":\"{name}\",\"created_at\":{at}.5,\"terminal\":{terminal},\
         \"terminal_state\":{state},\"payload\":{payload}}}\n"
    );
    text.into_bytes()
}

/// A journal of the reference program.
pub(crate) fn plain_journal(ids: [&str; 2], events: &[(&str, Value)]) -> Vec<u8> {
    let numbered = (1..).zip(events);
    numbered.flat_map(|(seq, (name, payload))| plain_line(ids, seq, name, payload)).collect()
}

/// The tokens of a run that ended.
pub(crate) fn plain_answer(ids: [&str; 2], words: &[&str]) -> Vec<u8> {
    let mut events: Vec<(&str, Value)> = words.iter().map(|word| ("token", json!({"text": word}))).collect();
    events.push(("done", json!({})));
    plain_journal(ids, &events)
}

/// A line as we write it.
pub(crate) fn own_line(ids: [&str; 2], seq: u64, event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    let at = Timestamp::from_seconds((BEGAN + seq as i64) as f64);
    LineEncoder::new(&sid(ids[0]), &rid(ids[1])).encode(seq, at, event, &mut bytes);
    bytes
}
