//! A store under a schedule, what it acknowledged, and the moments at which the power could have been cut.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lastword::clock::{ManualClock, Timestamp};
use lastword::entropy::SeededEntropy;
use lastword::storage::sim::SimDisk;
use lastword::storage::sim::schedule::{Explored, Explorer};
use lastword::{
    CommitOptions, Durability, Event, NewSession, Options, Run, RunId, SessionId, Store, StoreError, UserTurn,
};

use crate::promises::check_moments;

/// What every clock shows.
const NOW: f64 = 1_800_000_000.0;

/// A log of so many segments.
pub(crate) const fn log_of(segment_bytes: u64, segments: u64) -> CommitOptions {
    CommitOptions { background: Some(Duration::from_millis(50)), segment_bytes, log_bytes: segment_bytes * segments }
}

/// Two segments of the smallest size: the log fills, is swept and begins again every few events.
pub(crate) const TINY_LOG: CommitOptions = log_of(1024, 2);
/// More than two can be in use while the thread that tends the log makes another, or makes them free.
pub(crate) const SMALL_LOG: CommitOptions = log_of(1024, 6);

pub(crate) fn session_id(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

/// The session and the run, by their names.
pub(crate) type RunKey = (String, String);

pub(crate) fn key_of(run: &Run) -> RunKey {
    (run.session().to_string(), run.id().to_string())
}

/// What was acknowledged of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RunAcks {
    /// Text by number of each event whose append has returned.
    pub(crate) appended: BTreeMap<u64, String>,
    /// The last event that was acknowledged as durable.
    pub(crate) durable_to: u64,
    /// The last event that a reader was shown.
    pub(crate) shown_to: u64,
    /// Whether its end was acknowledged.
    pub(crate) has_ended: bool,
}

/// What was acknowledged of everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Acks {
    pub(crate) runs: BTreeMap<RunKey, RunAcks>,
    /// Sessions whose deletion has begun, and whether it was acknowledged.
    pub(crate) deleted: BTreeMap<String, bool>,
}

/// The disk before an operation, and what had been acknowledged by then.
pub(crate) struct Moment {
    pub(crate) disk: SimDisk,
    pub(crate) acks: Acks,
    pub(crate) options: StoreOptions,
}

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreOptions {
    pub(crate) log: CommitOptions,
    pub(crate) durability: Durability,
}

impl StoreOptions {
    pub(crate) fn open(&self, disk: &SimDisk) -> Result<Store, StoreError> {
        self.open_at(disk, NOW)
    }

    fn open_at(&self, disk: &SimDisk, now: f64) -> Result<Store, StoreError> {
        let options = Options {
            clock: Arc::new(ManualClock::at(Timestamp::from_seconds(now))),
            entropy: Arc::new(SeededEntropy::new(disk.operations())),
            commit: self.log,
            durability: self.durability,
            ..Options::default()
        };
        Store::open_on(Arc::new(disk.clone()), "/data", options)
    }
}

/// A disk under a schedule. Clones are the same.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) disk: SimDisk,
    pub(crate) options: StoreOptions,
    acks: Arc<Mutex<Acks>>,
    moments: Arc<Mutex<Vec<Moment>>>,
}

impl World {
    fn new(disk: &SimDisk, options: StoreOptions) -> Self {
        let world = World { disk: disk.copy(), options, acks: Arc::default(), moments: Arc::default() };
        world.observe_also(|_| ());
        world
    }

    /// Notes the moment before each operation, and calls this.
    pub(crate) fn observe_also(&self, observer: impl Fn(&SimDisk) + Send + Sync + 'static) {
        let (acks, moments, options) = (Arc::downgrade(&self.acks), Arc::downgrade(&self.moments), self.options);
        self.disk.observe(move |disk| {
            if let (Some(acks), Some(moments)) = (acks.upgrade(), moments.upgrade()) {
                let acks = acks.lock().unwrap().clone();
                moments.lock().unwrap().push(Moment { disk: disk.copy(), acks, options });
            }
            observer(disk);
        });
    }

    pub(crate) fn open(&self) -> Store {
        self.options.open(&self.disk).unwrap()
    }

    /// The same in a process that began an hour later.
    pub(crate) fn open_later(&self) -> Store {
        self.options.open_at(&self.disk, NOW + 3_600.0).unwrap()
    }

    pub(crate) fn begin(&self, store: &Store, session: &str, run: &str) -> Run {
        let turn = UserTurn::text("x").with_run(RunId::parse(run).unwrap());
        store.begin_run(&session_id(session), turn).unwrap()
    }

    pub(crate) fn with_acks<T>(&self, work: impl FnOnce(&mut Acks) -> T) -> T {
        work(&mut self.acks.lock().unwrap())
    }

    pub(crate) fn with_run<T>(&self, run: &Run, work: impl FnOnce(&mut RunAcks) -> T) -> T {
        self.with_acks(|acks| work(acks.runs.entry(key_of(run)).or_default()))
    }

    /// Appends, and says whether it was taken.
    pub(crate) fn append(&self, run: &Run, text: &str) -> bool {
        let Ok(appended) = run.append(Event::token(text)) else { return false };
        self.with_run(run, |acks| acks.appended.insert(appended.last_seq, text.to_owned()));
        true
    }

    /// The same, and waits until it is durable.
    pub(crate) fn append_durable(&self, run: &Run, text: &str) -> bool {
        let Ok(appended) = run.append_durable(Event::token(text)) else { return false };
        let seq = appended.last_seq;
        self.with_run(run, |acks| acks.appended.insert(seq, text.to_owned()));
        let is_durable = appended.wait().is_ok();
        if is_durable {
            self.note_durable(&key_of(run), seq);
        }
        is_durable
    }

    pub(crate) fn note_durable(&self, run: &RunKey, seq: u64) {
        self.with_acks(|acks| {
            let acks = acks.runs.entry(run.clone()).or_default();
            acks.durable_to = acks.durable_to.max(seq);
        });
    }

    pub(crate) fn finish(&self, run: &Run) {
        run.finish(lastword::Outcome::Completed).unwrap();
        self.with_run(run, |acks| acks.has_ended = true);
    }

    /// The moments of a life that is over, with the last one.
    fn moments(self) -> Vec<Moment> {
        let last = Moment { disk: self.disk.copy(), acks: self.with_acks(|acks| acks.clone()), options: self.options };
        let mut moments = std::mem::take(&mut *self.moments.lock().unwrap());
        moments.push(last);
        moments
    }
}

/// What is tried, and how often.
pub(crate) struct Trial {
    pub(crate) log: CommitOptions,
    pub(crate) durability: Durability,
    pub(crate) explorer: Explorer,
}

impl Default for Trial {
    fn default() -> Self {
        let times = std::env::var("LASTWORD_SCHEDULES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
        let explorer = Explorer {
            singles_max: 60 * times,
            pairs_max: 40 * times,
            seeds: 40 * times as u64,
            ..Explorer::default()
        };
        Trial { log: SMALL_LOG, durability: Durability::Buffered, explorer }
    }
}

impl Trial {
    /// Runs `work` under many schedules on a disk with the sessions `a` and `b`, and holds the store to its word at every
    /// operation of each.
    pub(crate) fn run(&self, work: impl Fn(&World) + Send + Sync + 'static) -> Explored {
        let options = StoreOptions { log: self.log, durability: self.durability };
        let disk = SimDisk::new();
        let store = options.open(&disk).unwrap();
        for name in ["a", "b"] {
            store.create(NewSession::titled(name).with_id(session_id(name))).unwrap();
        }
        drop(store);
        let live = move || {
            let world = World::new(&disk, options);
            work(&world);
            world.moments()
        };
        self.explorer.explore(live, |moments| check_moments(&moments))
    }
}
