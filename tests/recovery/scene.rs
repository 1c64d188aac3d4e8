//! A data directory with one session in it, as an earlier process may have left it, and a store that opens it later.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lastword::clock::{Clock, ManualClock, ManualSteady, Timestamp};
use lastword::{List, Options, Row, RunId, Session, SessionId, Store};
use serde_json::{Value, json};

use crate::slow_disk::SlowDisk;

pub(crate) const RUN: &str = "run-1";
/// When the turn began, in seconds.
pub(crate) const BEGAN: i64 = 1_800_000_000;
/// When the store is opened.
pub(crate) const OPENED: i64 = BEGAN + 3_600;

pub(crate) struct Scene {
    _folder: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) disk: Arc<SlowDisk>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) steady: Arc<ManualSteady>,
    pub(crate) options: Options,
}

pub(crate) fn id() -> SessionId {
    SessionId::parse("talk").unwrap()
}

pub(crate) fn run(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

pub(crate) fn user(content: &str, at: i64) -> Value {
    json!({"role": "user", "content": content, "timestamp": at})
}

pub(crate) fn assistant(content: &str, at: i64) -> Value {
    json!({"role": "assistant", "content": content, "timestamp": at})
}

/// A marker that asks for another look.
pub(crate) fn armed(run: &str, attempts: u32, first_seen: i64) -> Value {
    json!({
        "role": "assistant", "content": "interrupted", "timestamp": first_seen, "_error": true, "type": "interrupted",
        "_pending_journal_recovery": true, "_journal_retry_stream_id": run, "_journal_retry_attempts": attempts,
        "_journal_retry_first_seen_ts": first_seen,
    })
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(OPENED as f64)));
        let steady = Arc::new(ManualSteady::default());
        let options = Options { clock: clock.clone(), steady: steady.clone(), ..Options::default() };
        let root = folder.path().to_owned();
        Scene { _folder: folder, root, disk: SlowDisk::new(), clock, steady, options }
    }

    /// A session with these rows, as the reference program writes it.
    pub(crate) fn session(&self, rows: &[Value]) {
        self.write_session(rows, Value::Null, Value::Null);
    }

    /// The same with a turn that waits for a run.
    pub(crate) fn pending(&self, rows: &[Value], prompt: &str) {
        self.write_session(rows, json!(prompt), json!(RUN));
    }

    fn write_session(&self, rows: &[Value], prompt: Value, run: Value) {
        let began = if prompt.is_null() { Value::Null } else { json!(BEGAN) };
        let session = json!({
            "session_id": "talk", "title": "A talk", "created_at": 1.0, "updated_at": 2.0, "active_stream_id": run,
            "pending_user_message": prompt, "pending_attachments": [], "pending_started_at": began,
            "pending_user_source": null, "message_count": rows.len(), "messages": rows, "tool_calls": [],
        });
        fs::write(self.root.join("talk.json"), serde_json::to_vec_pretty(&session).unwrap()).unwrap();
    }

    /// Adds events to a journal as the reference program writes them, numbered from the given one on.
    pub(crate) fn journal(&self, run: &str, first_seq: u64, events: &[(&str, Value)]) {
        let folder = self.root.join("_run_journal/talk");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{run}.jsonl"));
        let mut text = fs::read_to_string(&path).unwrap_or_default();
        for (seq, (name, payload)) in (first_seq..).zip(events) {
            let state = match *name {
                "done" | "stream_end" => json!("completed"),
                "cancel" => json!("interrupted-by-user"),
                "apperror" | "error" => json!("errored"),
                _ => Value::Null,
            };
            let line = json!({
                "version": 1, "event_id": format!("{run}:{seq}"), "seq": seq, "run_id": run, "session_id": "talk",
                "event": name, "type": name, "created_at": BEGAN + seq as i64, "terminal": !state.is_null(),
                "terminal_state": state, "payload": payload,
            });
            text.push_str(&format!("{line}\n"));
        }
        fs::write(path, text).unwrap();
    }

    /// Changes the stored session as another program would.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) {
        let path = self.root.join("talk.json");
        let mut stored = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut stored);
        fs::write(&path, stored.to_string()).unwrap();
    }

    pub(crate) fn open(&self) -> Store {
        Store::open_on(self.disk.clone(), &self.root, self.options.clone()).unwrap()
    }

    /// Lets half a second pass: less than what a server takes for a pause.
    pub(crate) fn wait_a_moment(&self) {
        self.clock.advance(Duration::from_millis(500));
        self.steady.advance(Duration::from_millis(500));
    }

    pub(crate) fn wait(&self, seconds: i64) {
        let now = self.clock.now().seconds() + seconds as f64;
        self.clock.set(Timestamp::from_seconds(now));
        self.steady.advance(Duration::from_secs(seconds as u64));
    }
}

/// The rows of a session as JSON.
pub(crate) fn rows(session: &Session) -> Vec<Value> {
    session.messages().map(|row| serde_json::from_str(&row.fields().to_json()).unwrap()).collect()
}

/// Who says what.
pub(crate) fn said(session: &Session) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows(session).iter().map(|row| (text(&row["role"]), text(&row["content"]))).collect()
}

/// What the rows say that are no markers.
pub(crate) fn contents(session: &Session) -> Vec<String> {
    session.messages().filter(|row| !row.is_error()).map(|row| row.content().into_owned()).collect()
}

/// What a model was last shown.
pub(crate) fn context(session: &Session) -> Vec<String> {
    session.texts(List::ContextMessages).map(|row| Row::parse(row).content().into_owned()).collect()
}

/// The markers.
pub(crate) fn markers(session: &Session) -> Vec<Value> {
    rows(session).into_iter().filter(|row| row["_error"] == true).collect()
}
