//! One session of a server, as its producers and readers use it.

use std::time::{Duration, Instant};

use lastword::client::{AppendOptions, Client, ClientError};
use lastword::{Durability, Event, SessionId};
use serde_json::Value;

use crate::event_source::{EventSource, Frame};
use crate::host::{Host, begin, create, outside, read, run_id, session_id};
use crate::verdict::rows;

/// A session, and how to reach it.
#[derive(Clone)]
pub(crate) struct Conversation {
    pub(crate) client: Client,
    pub(crate) address: String,
    pub(crate) session: SessionId,
}

impl Conversation {
    /// Creates a session.
    pub(crate) async fn create(host: &Host, name: &str) -> Self {
        let conversation = Conversation { client: host.client(), address: host.address(), session: session_id(name) };
        create(&conversation.client, &conversation.session).await;
        conversation
    }

    /// Begins a run for a producer with a lease, and appends tokens. Gives the moment before.
    pub(crate) async fn begin(&self, run: &str, lease_seconds: f64, words: &[&str]) -> Instant {
        let began = Instant::now();
        let new = outside(&run_id(run), &question(run), Some(lease_seconds));
        begin(&self.client, &self.session, &new).await;
        if !words.is_empty() {
            self.must_say(run, 1, words).await;
        }
        began
    }

    /// Appends tokens, the first of them as this number.
    pub(crate) async fn say(&self, run: &str, first_seq: u64, words: &[&str]) -> Result<u64, ClientError> {
        let tokens: Vec<Event> = words.iter().map(|word| Event::token(word)).collect();
        self.append(run, first_seq, &tokens).await
    }

    pub(crate) async fn append(&self, run: &str, first_seq: u64, events: &[Event]) -> Result<u64, ClientError> {
        let options = AppendOptions { durability: Durability::Buffered, expect_seq: Some(first_seq) };
        self.client.append(&self.session, &run_id(run), &events.into(), options).await
    }

    pub(crate) async fn must_say(&self, run: &str, first_seq: u64, words: &[&str]) {
        let appended = self.say(run, first_seq, words).await;
        let last_seq =
            appended.unwrap_or_else(|error| panic!("{} of {run} from {first_seq} on: {error}", self.session));
        assert_eq!(last_seq, first_seq + words.len() as u64 - 1);
    }

    /// Ends a run with `done` as this number.
    pub(crate) async fn finish(&self, run: &str, seq: u64) {
        let appended = self.append(run, seq, &[Event::done()]).await;
        assert_eq!(appended.unwrap_or_else(|error| panic!("the end of {run} of {}: {error}", self.session)), seq);
    }

    /// Renews the lease of a run.
    pub(crate) async fn renew(&self, run: &str) {
        let renewed = self.client.renew_lease(&self.session, &run_id(run)).await;
        renewed.unwrap_or_else(|error| panic!("the lease of {run} of {}: {error}", self.session));
    }

    /// Renews the lease of a run at this interval for this time.
    pub(crate) async fn renew_for(&self, run: &str, every: Duration, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.renew(run).await;
            tokio::time::sleep(every).await;
        }
    }

    pub(crate) async fn read(&self) -> Value {
        read(&self.client, &self.session).await
    }

    /// The roles and contents of its rows.
    pub(crate) async fn rows(&self) -> Vec<(String, String)> {
        rows(&self.read().await)
    }

    /// Whether a full read shows a marker.
    pub(crate) async fn is_marked(&self) -> bool {
        self.rows().await.iter().any(|(role, _)| role == "notice")
    }

    pub(crate) fn path_of_run(&self, run: &str) -> String {
        format!("/v1/sessions/{}/runs/{run}/events", self.session)
    }

    pub(crate) fn path(&self) -> String {
        format!("/v1/sessions/{}/events", self.session)
    }

    /// A connection to a run's stream.
    pub(crate) async fn follow_run(&self, run: &str, last_id: Option<&str>) -> EventSource {
        self.connect(&self.path_of_run(run), last_id).await
    }

    /// A connection to the session's stream, with this query.
    pub(crate) async fn follow(&self, query: &str, last_id: Option<&str>) -> EventSource {
        self.connect(&format!("{}{query}", self.path()), last_id).await
    }

    /// A connection to the AI SDK's stream of chunks.
    pub(crate) async fn follow_chunks(&self) -> EventSource {
        self.connect(&format!("/api/chat/{}/stream", self.session), None).await
    }

    async fn connect(&self, path: &str, last_id: Option<&str>) -> EventSource {
        let connected = EventSource::connect(&self.address, path, last_id).await;
        connected.unwrap_or_else(|error| panic!("{path} after {last_id:?}: {error}"))
    }
}

/// What the user asks before a run.
pub(crate) fn question(run: &str) -> String {
    format!("What does {run} say?")
}

/// Rows as a test writes them.
pub(crate) fn expected_rows(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(role, content)| ((*role).to_owned(), (*content).to_owned())).collect()
}

/// The same rows without the text of markers.
pub(crate) fn without_notices(rows: Vec<(String, String)>) -> Vec<(String, String)> {
    rows.into_iter().map(|(role, text)| if role == "notice" { (role, String::new()) } else { (role, text) }).collect()
}

/// A stream of chunks as the AI SDK reads it, of an answer that was interrupted: its text part and its step are closed before
/// the error, with what is known of the run before that, and nothing follows.
pub(crate) fn check_chunks(frames: &[Frame]) {
    let kind = |frame: &Frame| frame.object()["type"].as_str().map(str::to_owned);
    let kinds: Vec<String> = frames.iter().filter_map(kind).collect();
    let (text, end) = (["text-start", "text-delta", "text-end"], ["message-metadata", "finish-step", "error"]);
    assert_eq!(kinds, [&["start", "start-step"], &text[..], &end].concat());
    assert_eq!(frames.last().and_then(|frame| frame.data.as_deref()), Some("[DONE]"), "{frames:?}");
}
