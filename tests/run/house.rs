//! A data directory, a supervisor, and producers that do what a test says.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lastword::clock::Steady;
use lastword::model::Object;
use lastword::run::{
    BudgetSettings, Failure, Finish, OnStderr, Outlet, Producing, Prompt, Retries, RunOptions, RunReport, Runner,
    Runners, Started, Supervisor,
};
use lastword::{Event, JournalEvent, NewSession, Options, ReadOptions, RunId, Session, SessionId, Store, UserTurn};

/// A producer that follows a script.
pub(crate) struct Scripted<F>(pub(crate) F);

impl<F> fmt::Debug for Scripted<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a script")
    }
}

impl<F, P> Runner for Scripted<F>
where
    F: Fn(Prompt, Outlet) -> P + Send + Sync,
    P: Future<Output = Result<Finish, Failure>> + Send + 'static,
{
    fn produce(&self, prompt: Prompt, outlet: Outlet) -> Producing {
        let (listener, working) = (outlet.clone(), (self.0)(prompt, outlet));
        Box::pin(async move { listener.unless_stopped(working).await? })
    }
}

/// A producer that says nothing, and takes [`Lingering::SECONDS`] to end when it is told to.
#[derive(Debug)]
pub(crate) struct Lingering;

impl Lingering {
    pub(crate) const SECONDS: f64 = 5.0;
}

impl Runner for Lingering {
    fn produce(&self, _: Prompt, outlet: Outlet) -> Producing {
        Box::pin(async move {
            outlet.stopped().await;
            pause(Self::SECONDS).await;
            Err(Failure::new("stopped", "It took its time."))
        })
    }
}

/// A clock that shows the runtime's own time, and what a test adds to it.
#[derive(Debug)]
pub(crate) struct TestSteady {
    since: tokio::time::Instant,
    added_seconds: AtomicU64,
}

impl TestSteady {
    /// A clock that begins now.
    pub(crate) fn begin() -> Arc<Self> {
        Arc::new(TestSteady { since: tokio::time::Instant::now(), added_seconds: AtomicU64::new(0) })
    }

    /// The machine wakes up, and so much later it is.
    pub(crate) fn add(&self, seconds: u64) {
        self.added_seconds.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Steady for TestSteady {
    fn now(&self) -> Duration {
        self.since.elapsed() + Duration::from_secs(self.added_seconds.load(Ordering::SeqCst))
    }
}

/// A store with one session, and a supervisor whose default runner follows a script.
pub(crate) struct House {
    pub(crate) store: Store,
    pub(crate) supervisor: Supervisor,
    pub(crate) session: SessionId,
    pub(crate) steady: Arc<TestSteady>,
    complaints: Arc<Mutex<Vec<(String, bool)>>>,
    dir: tempfile::TempDir,
}

impl House {
    pub(crate) fn new<F, P>(script: F) -> Self
    where
        F: Fn(Prompt, Outlet) -> P + Send + Sync + 'static,
        P: Future<Output = Result<Finish, Failure>> + Send + 'static,
    {
        Self::with(BudgetSettings::default(), Retries::default(), script)
    }

    pub(crate) fn with<F, P>(budgets: BudgetSettings, retries: Retries, script: F) -> Self
    where
        F: Fn(Prompt, Outlet) -> P + Send + Sync + 'static,
        P: Future<Output = Result<Finish, Failure>> + Send + 'static,
    {
        Self::of(budgets, retries, Scripted(script))
    }

    /// A house whose default runner is this one.
    pub(crate) fn of(budgets: BudgetSettings, retries: Retries, runner: impl Runner + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("data"), Options::default()).unwrap();
        let session = store.create(NewSession::titled("t")).unwrap();
        let steady = TestSteady::begin();
        let complaints: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
        let heard = complaints.clone();
        let on_stderr = OnStderr::new(move |tail| heard.lock().unwrap().push((tail.text.to_owned(), tail.has_failed)));
        let options = RunOptions {
            budgets,
            retries,
            steady: steady.clone(),
            on_stderr: Some(on_stderr),
            ..RunOptions::default()
        };
        let runners = Runners::default().with("script", runner).with_default("script");
        let supervisor = Supervisor::new(store.clone(), runners, options).unwrap();
        House { store, supervisor, session, steady, complaints, dir }
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) async fn start(&self, message: &str) -> Started {
        self.supervisor.start(&self.session, UserTurn::text(message), None).await.unwrap()
    }

    /// Starts a turn and waits for its end.
    pub(crate) async fn answer(&self, message: &str) -> (RunId, RunReport) {
        let mut started = self.start(message).await;
        let end = started.ended().await;
        started.gone().await;
        (started.run().clone(), end)
    }

    /// What commands have printed on stderr, and whether their attempts failed.
    pub(crate) fn complaints(&self) -> Vec<(String, bool)> {
        self.complaints.lock().unwrap().clone()
    }

    pub(crate) fn events(&self, run: &RunId) -> Vec<JournalEvent> {
        self.store.read_events(&self.session, run, ReadOptions::default()).unwrap().events
    }

    pub(crate) fn names(&self, run: &RunId) -> Vec<String> {
        self.events(run).into_iter().map(|event| event.name).collect()
    }

    /// The payload of the run's last event.
    pub(crate) fn last_words(&self, run: &RunId) -> Object {
        Object::parse(self.events(run).last().expect("there are events").payload()).unwrap()
    }

    pub(crate) fn transcript(&self) -> Arc<Session> {
        self.store.get_session(&self.session).unwrap()
    }

    /// Role and words of each row; a notice is known by its type.
    pub(crate) fn rows(&self) -> Vec<(String, String)> {
        let said = |row: lastword::Row| match row.is_error() {
            true => ("notice".to_owned(), row.fields().text("type").unwrap_or_default().into_owned()),
            false => (row.role().into_owned(), row.content().into_owned()),
        };
        self.transcript().messages().map(said).collect()
    }
}

pub(crate) fn rows(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(who, what)| (who.to_string(), what.to_string())).collect()
}

pub(crate) async fn pause(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

pub(crate) fn seconds_since(begin: tokio::time::Instant) -> f64 {
    begin.elapsed().as_secs_f64()
}

/// Waits until something holds. Time passes only as the runtime lets it.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        pause(0.01).await;
    }
    panic!("it never came to this: {what}");
}

pub(crate) fn token(text: &str) -> Event {
    Event::token(text)
}
