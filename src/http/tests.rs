//! Fixtures of the server's unit tests: its parts on a simulated disk, whose log is committed only by hand.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::app::{App, SharedApp};
use super::options::ServerOptions;
use super::time::{sleep, within};
use crate::clock::{ManualClock, ManualSteady, Timestamp};
use crate::journal::ReadOptions;
use crate::model::{Event, RunId, SessionId};
use crate::run::{RunOptions, Runners, Supervisor};
use crate::storage::sim::{Crash, SimDisk};
use crate::storage::{CommitOptions, Durability};
use crate::store::{NewSession, Options, Run, Store, StoreError, UserTurn};

/// How long a test waits for something that comes at once unless it is broken.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// The lease of a test's runs, in seconds.
pub(super) const LEASE_SECONDS: f64 = 60.0;

const DATA: &str = "/data";
const NOW: f64 = 1_800_000_000.0;

/// A server's parts, without a socket. To be made inside a tokio runtime.
pub(super) struct TestServer {
    pub(super) disk: SimDisk,
    pub(super) app: SharedApp,
    clock: Arc<ManualClock>,
    steady: Arc<ManualSteady>,
    _closing: watch::Sender<bool>,
}

impl TestServer {
    pub(super) fn new() -> Self {
        Self::with(Durability::Buffered, ServerOptions::default())
    }

    /// The same with a store of this durability, and these options.
    pub(super) fn with(durability: Durability, options: ServerOptions) -> Self {
        let disk = SimDisk::new();
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
        let steady = Arc::new(ManualSteady::default());
        let store_options = Options { durability, clock: clock.clone(), steady: steady.clone(), ..Options::default() };
        let store = open(&disk, store_options).unwrap();
        store.create(NewSession { id: Some(session()), ..NewSession::titled("t") }).unwrap();
        let supervisor = Supervisor::new(store.clone(), Runners::default(), RunOptions::default()).unwrap();
        let (closing, closes) = watch::channel(false);
        let app = App::new(store, supervisor, options, closes);
        TestServer { disk, app, clock, steady, _closing: closing }
    }

    pub(super) fn store(&self) -> &Store {
        &self.app.store
    }

    /// Begins a run that is produced outside.
    pub(super) fn begin(&self, id: &str) -> Run {
        let turn = UserTurn { lease_seconds: Some(LEASE_SECONDS), ..UserTurn::text("m").with_run(run(id)) };
        self.store().begin_run(&session(), turn).unwrap()
    }

    /// Time passes, on every clock.
    pub(super) fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.steady.advance(time);
    }

    /// The numbers of a run's events that readers see.
    pub(super) fn seqs(&self, id: &str) -> Vec<u64> {
        seqs(self.store(), id)
    }

    /// The numbers of a run's events that survive a power cut now, if everything is lost that can be.
    pub(super) fn seqs_after_power_cut(&self, id: &str) -> Vec<u64> {
        let disk = self.disk.copy();
        disk.power_cut(Crash::LoseAll);
        seqs(&open(&disk, Options::default()).unwrap(), id)
    }

    /// The bytes of the session's document.
    pub(super) fn document(&self) -> String {
        let files = self.disk.files();
        String::from_utf8(files[&PathBuf::from(format!("{DATA}/{}.json", session()))].clone()).unwrap()
    }

    /// Where a run's journal is.
    pub(super) fn journal(&self, id: &str) -> PathBuf {
        PathBuf::from(format!("{DATA}/_run_journal/{}/{id}.jsonl", session()))
    }
}

fn open(disk: &SimDisk, options: Options) -> Result<Store, StoreError> {
    let commit = CommitOptions { background: None, segment_bytes: 4096, log_bytes: 4 * 4096 };
    Store::open_on(Arc::new(disk.clone()), DATA, Options { commit, ..options })
}

fn seqs(store: &Store, id: &str) -> Vec<u64> {
    let read = store.read_events(&session(), &run(id), ReadOptions::default()).unwrap();
    read.events.iter().map(|event| event.seq.unwrap()).collect()
}

/// The session that every test server has.
pub(super) fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

pub(super) fn run(id: &str) -> RunId {
    RunId::parse(id).unwrap()
}

/// An event that ends a run, and after which a `stream_end` may come.
pub(super) fn done() -> Event {
    Event::parse(r#"{"event":"done"}"#).unwrap()
}

/// Waits until something is so.
#[track_caller]
pub(super) fn until(is_so: impl Fn() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let waited = within(DEADLINE, async {
            while !is_so() {
                sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(waited.await.is_some(), "waited in vain at {place}");
    }
}

/// The tasks of this runtime that have not ended.
pub(super) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
