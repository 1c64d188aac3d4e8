//! A data directory, a supervisor whose runner asks a server on this machine, and what must hold when a run has ended.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastword::RunEnd;
use lastword::RunId;
use lastword::model::Object;
use lastword::run::{BudgetSettings, OpenAiRunner, Retries, RunFailure, RunReport};

use crate::base;
pub(crate) use crate::base::{pause, until};
use crate::server::{Reply, Server};

/// Budgets that no server which answers at all overdraws, however busy the machine is.
pub(crate) const PATIENT: BudgetSettings = budgets(30.0, 30.0);

pub(crate) const fn budgets(first: f64, idle: f64) -> BudgetSettings {
    BudgetSettings { first_event_seconds: Some(first), idle_seconds: Some(idle), tool_seconds: None }
}

/// A store with one session, and a supervisor that asks a server.
pub(crate) struct House {
    pub(crate) server: Server,
    base: base::House,
    _folder: tempfile::TempDir,
}

impl Deref for House {
    type Target = base::House;

    fn deref(&self) -> &base::House {
        &self.base
    }
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) run: RunId,
    pub(crate) end: RunReport,
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
        let folder = tempfile::tempdir().unwrap();
        let mut runner = OpenAiRunner::new(&server.base_url(), "test-model").unwrap();
        configure(&mut runner, folder.path());
        let retries = Retries { first_pause: Duration::from_millis(20), ..Retries::default() };
        House { server, base: base::House::of(budgets, retries, runner), _folder: folder }
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

    /// The payloads of the events of one name.
    pub(crate) fn told(&self, run: &RunId, name: &str) -> Vec<Object> {
        let named = self.events(run).into_iter().filter(|event| event.name == name);
        named.map(|event| Object::parse(event.payload()).unwrap()).collect()
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
        let is_told = match (&answered.end.end, &answered.end.failure) {
            (Err(_), _) => false,
            (Ok(_), Some(failure)) => last == "apperror" && text(&self.told(run, last)[0], "type") == failure.kind,
            (Ok(RunEnd::InterruptedByUser), None) => last == "cancel",
            (Ok(_), None) => last == "done",
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
    let Some(RunFailure { message, .. }) = &answered.end.failure else { panic!("{answered:?}") };
    message
}

/// What comes of something that must come: a run that nobody ends is a test that fails, not one that hangs.
pub(crate) async fn in_time<T>(something: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(40), something).await.expect("it never ended")
}

/// All files under a folder.
pub(crate) fn files_under(folder: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_under(&path) } else { vec![path] }).collect()
}
