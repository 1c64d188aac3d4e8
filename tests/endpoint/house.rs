//! A data directory, a supervisor whose runner asks a server on this machine, and what must hold when a run has ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lastword::model::Object;
use lastword::run::{BudgetSettings, OpenAiRunner, Retries, RunEnd, RunOptions, Runners, Started, Supervisor};
use lastword::{JournalEvent, NewSession, Options, ReadOptions, Row, RunId, Session, SessionId, Store, UserTurn};

use crate::server::{Reply, Server};

/// Budgets that no server which answers at all overdraws, however busy the machine is.
pub(crate) const PATIENT: BudgetSettings = budgets(30.0, 30.0);

pub(crate) const fn budgets(first: f64, idle: f64) -> BudgetSettings {
    BudgetSettings { first_event_seconds: Some(first), idle_seconds: Some(idle), tool_seconds: None }
}

/// A store with one session, and a supervisor that asks a server.
pub(crate) struct House {
    pub(crate) store: Store,
    pub(crate) supervisor: Supervisor,
    pub(crate) session: SessionId,
    pub(crate) server: Server,
    dir: tempfile::TempDir,
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) run: RunId,
    pub(crate) end: RunEnd,
    pub(crate) seconds: f64,
}

/// What a run should have left.
pub(crate) struct Outcome<'a> {
    /// The names of the journal's events.
    pub(crate) events: &'a str,
    /// What ended each attempt that failed or was stopped.
    pub(crate) closed_by: &'a str,
    /// Role and words of each row of the transcript; a notice is known by its type.
    pub(crate) rows: &'a [(&'a str, &'a str)],
    /// How often the server was asked.
    pub(crate) requests: usize,
}

impl House {
    pub(crate) async fn new(replies: Vec<Reply>) -> Self {
        Self::with(PATIENT, replies).await
    }

    pub(crate) async fn with(budgets: BudgetSettings, replies: Vec<Reply>) -> Self {
        Self::at(Server::start(replies).await, budgets, |_, _| {})
    }

    /// A house whose runner a test configures. The folder is one outside of the data directory.
    pub(crate) fn at(
        server: Server,
        budgets: BudgetSettings,
        configure: impl FnOnce(&mut OpenAiRunner, &Path),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("data"), Options::default()).unwrap();
        let session = store.create(NewSession::titled("t")).unwrap();
        let mut runner = OpenAiRunner::new(&server.base_url(), "test-model").unwrap();
        configure(&mut runner, dir.path());
        let retries = Retries { first_pause: Duration::from_millis(20), ..Retries::default() };
        let options = RunOptions { budgets, retries, ..RunOptions::default() };
        let runners = Runners::default().with("endpoint", runner).with_default("endpoint");
        let supervisor = Supervisor::new(store.clone(), runners, options).unwrap();
        House { store, supervisor, session, server, dir }
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) async fn start(&self, message: &str) -> Started {
        self.supervisor.start(&self.session, UserTurn::text(message), None).await.unwrap()
    }

    /// Starts a turn and waits for its end.
    pub(crate) async fn answer(&self, message: &str) -> Answered {
        let begin = tokio::time::Instant::now();
        let mut started = self.start(message).await;
        let end = in_time(started.ended()).await;
        let seconds = begin.elapsed().as_secs_f64();
        started.gone().await;
        Answered { run: started.run().clone(), end, seconds }
    }

    pub(crate) fn events(&self, run: &RunId) -> Vec<JournalEvent> {
        self.store.read_events(&self.session, run, ReadOptions::default()).unwrap().events
    }

    pub(crate) fn names(&self, run: &RunId) -> Vec<String> {
        self.events(run).into_iter().map(|event| event.name).collect()
    }

    /// The payloads of the events of one name.
    pub(crate) fn told(&self, run: &RunId, name: &str) -> Vec<Object> {
        let named = self.events(run).into_iter().filter(|event| event.name == name);
        named.map(|event| Object::parse(event.payload()).unwrap()).collect()
    }

    pub(crate) fn transcript(&self) -> Arc<Session> {
        self.store.get_session(&self.session).unwrap()
    }

    fn rows(&self) -> Vec<(String, String)> {
        let said = |row: Row| match row.is_error() {
            true => ("notice".to_owned(), text(row.fields(), "type")),
            false => (row.role().into_owned(), row.content().into_owned()),
        };
        self.transcript().messages().map(said).collect()
    }

    fn closed_by(&self, run: &RunId) -> Vec<String> {
        let payloads = self.events(run).into_iter().filter_map(|event| Object::parse(event.payload()));
        payloads.filter_map(|payload| payload.text("close_reason").map(|reason| reason.into_owned())).collect()
    }

    /// Whether a run left what it should have, and was told to end as its journal says.
    #[track_caller]
    pub(crate) fn check(&self, answered: &Answered, expected: &Outcome<'_>) {
        let run = &answered.run;
        let events = self.events(run);
        assert_eq!(self.names(run).join(" "), expected.events, "{events:?}");
        assert_eq!(self.closed_by(run).join(" "), expected.closed_by, "{events:?}");
        let rows = expected.rows.iter().map(|(who, what)| (who.to_string(), what.to_string()));
        assert_eq!(self.rows(), rows.collect::<Vec<_>>());
        assert_eq!(self.server.seen().len(), expected.requests, "requests");
        let last = events.last().expect("there are events").name.as_str();
        let is_told = match &answered.end {
            RunEnd::Completed => last == "done",
            RunEnd::Stopped => last == "cancel",
            RunEnd::Failed { kind, .. } => last == "apperror" && text(&self.told(run, last)[0], "type") == *kind,
            RunEnd::Unwritten(_) => false,
        };
        assert!(is_told, "{answered:?}");
    }
}

pub(crate) fn text(payload: &Object, key: &str) -> String {
    payload.text(key).unwrap_or_default().into_owned()
}

/// What a run that failed said to people.
#[track_caller]
pub(crate) fn message(answered: &Answered) -> &str {
    let RunEnd::Failed { message, .. } = &answered.end else { panic!("{answered:?}") };
    message
}

pub(crate) async fn pause(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

/// What comes of something that must come: a run that nobody ends is a test that fails, not one that hangs.
pub(crate) async fn in_time<T>(something: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(40), something).await.expect("it never ended")
}

/// Waits until something holds, which should be soon.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        pause(0.01).await;
    }
    panic!("it never came to this: {what}");
}

/// All files under a folder.
pub(crate) fn files_under(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_under(&path) } else { vec![path] }).collect()
}
