//! What can be asked about runs.

use reqwest::Method;
use reqwest::header::ACCEPT;

use super::lines::EventLines;
use super::transport::Request;
use super::{Client, ClientError};
use crate::model::{Event, Object, RunId, SessionId};
use crate::storage::Durability;
use crate::store::UserTurn;

const JSON_LINES: &str = "application/x-ndjson";

/// A turn to be answered.
#[derive(Debug, Clone, Default)]
pub struct NewRun {
    /// What the user says. Where it came from is not sent.
    pub turn: UserTurn,
    /// Who answers: the name of a runner that the server knows. Without one the caller appends the events.
    pub runner: Option<String>,
}

/// Events to be appended: JSON lines `{"event","payload"}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventBatch {
    pub(super) text: String,
    pub(super) count: u64,
}

impl EventBatch {
    /// Lines as producers write them. Blank ones are none.
    pub fn of_lines(text: &str) -> Self {
        let mut batch = EventBatch::default();
        text.lines().filter(|line| !line.trim().is_empty()).for_each(|line| batch.push(line));
        batch
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many events it holds.
    pub fn len(&self) -> u64 {
        self.count
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        self.count += 1;
    }
}

impl From<&[Event]> for EventBatch {
    fn from(events: &[Event]) -> Self {
        let mut batch = EventBatch::default();
        for event in events {
            let mut line = Object::default();
            line.set_text("event", event.name());
            line.set("payload", event.payload());
            batch.push(&line.to_json());
        }
        batch
    }
}

/// How events are appended.
#[derive(Debug, Clone, Copy, Default)]
pub struct AppendOptions {
    /// How lasting they are before the server says so.
    pub durability: Durability,
    /// The number that the first of them is to get. Only with it may the same be sent twice.
    pub expect_seq: Option<u64>,
}

impl Client {
    /// Begins a turn.
    pub async fn begin_run(&self, session: &SessionId, new: &NewRun) -> Result<RunId, ClientError> {
        let attempt = format!("begin a turn in session {session}");
        let request = self.request(Method::POST, &["v1", "sessions", session.as_str(), "runs"], attempt);
        let (begun, asked) = request.json(&body_of(new)).send().await?.object().await?;
        let run = begun.text("run_id").and_then(|run| RunId::parse(&run).ok());
        run.ok_or_else(|| asked.bad_answer("it has no `run_id`"))
    }

    /// Appends events and gives the number of the last one.
    pub async fn append(
        &self,
        session: &SessionId,
        run: &RunId,
        events: &EventBatch,
        options: AppendOptions,
    ) -> Result<u64, ClientError> {
        let mut url = self.place(&["v1", "sessions", session.as_str(), "runs", run.as_str(), "events"]);
        let durability = match options.durability {
            Durability::Buffered => "buffered",
            Durability::Durable => "durable",
        };
        url.query_pairs_mut().append_pair("durability", durability);
        if let Some(seq) = options.expect_seq {
            url.query_pairs_mut().append_pair("expect_seq", &seq.to_string());
        }
        let request = self.request_at(Method::POST, url, format!("append to run {run} of session {session}"));
        last_seq(request.body(JSON_LINES, events.text.clone())).await
    }

    /// Says that the producer is alive, and gives the number of the last event.
    pub async fn renew_lease(&self, session: &SessionId, run: &RunId) -> Result<u64, ClientError> {
        let request = self.on_run(Method::POST, session, run, "events", "renew the lease of");
        last_seq(request.body(JSON_LINES, String::new())).await
    }

    /// Stops a run and keeps what it said. False if it had ended before.
    pub async fn stop(&self, session: &SessionId, run: &RunId) -> Result<bool, ClientError> {
        let request = self.on_run(Method::POST, session, run, "stop", "stop");
        let (stopped, asked) = request.send().await?.object().await?;
        match stopped.get("stopped") {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => Err(asked.bad_answer("it does not say whether anything was stopped")),
        }
    }

    /// The events behind this one (0: all) that are there now.
    pub async fn events(&self, session: &SessionId, run: &RunId, after_seq: u64) -> Result<EventLines, ClientError> {
        let mut url = self.place(&["v1", "sessions", session.as_str(), "runs", run.as_str(), "events"]);
        if after_seq > 0 {
            url.query_pairs_mut().append_pair("after", &after_seq.to_string());
        }
        let request = self.request_at(Method::GET, url, format!("read run {run} of session {session}"));
        Ok(EventLines::new(request.header(ACCEPT, JSON_LINES).send().await?.of_kind(JSON_LINES)?))
    }

    fn on_run(&self, method: Method, session: &SessionId, run: &RunId, what: &str, verb: &str) -> Request {
        let path = ["v1", "sessions", session.as_str(), "runs", run.as_str(), what];
        self.request(method, &path, format!("{verb} run {run} of session {session}"))
    }
}

fn body_of(new: &NewRun) -> Object {
    let mut body = Object::default();
    body.set_text("message", &new.turn.message);
    if let Some(run) = &new.turn.run {
        body.set_text("run_id", run.as_str());
    }
    if let Some(runner) = &new.runner {
        body.set_text("runner", runner);
    }
    if let Some(seconds) = new.turn.lease_seconds {
        body.set("lease_seconds", seconds.to_string());
    }
    if !new.turn.attachments.is_empty() {
        body.set("attachments", new.turn.attachments.trim());
    }
    body
}

async fn last_seq(request: Request) -> Result<u64, ClientError> {
    let (appended, asked) = request.send().await?.object().await?;
    let last_seq = appended.get("last_seq").and_then(|seq| seq.parse().ok());
    last_seq.ok_or_else(|| asked.bad_answer("it has no `last_seq`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_lines_that_a_server_takes() {
        let events = [Event::token("a\n\"b\""), Event::done()];
        let batch = EventBatch::from(&events[..]);
        assert_eq!(batch.len(), 2);
        let read: Vec<Event> = batch.text.lines().map(|line| Event::parse(line).unwrap()).collect();
        assert_eq!(read, events);
        assert_eq!(EventBatch::of_lines(&format!("\n{}\r\n \n", batch.text)).len(), 2);
        assert!(EventBatch::of_lines("\n \n").is_empty());
    }

    #[test]
    fn a_turn_says_what_was_given_and_nothing_else() {
        let plain = NewRun { turn: UserTurn::text("Hi"), runner: None };
        assert_eq!(body_of(&plain).to_json(), r#"{"message":"Hi"}"#);
        let turn = UserTurn { lease_seconds: Some(5.0), attachments: " [1] ".to_owned(), ..UserTurn::text("Hi") };
        let full = NewRun { turn: turn.with_run(RunId::parse("r").unwrap()), runner: Some("demo".to_owned()) };
        let expected = r#"{"message":"Hi","run_id":"r","runner":"demo","lease_seconds":5,"attachments":[1]}"#;
        assert_eq!(body_of(&full).to_json(), expected);
    }
}
