//! Where a scenario is played: a copy of its files, a clock that stands still, the store, and who else is about, live
//! streams and holders of a session's lock.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use lastword::clock::{ManualClock, Timestamp};
use lastword::{CacheOptions, KeptAlive, Options, RunId, SaveOptions, SessionId, Store};

use crate::files::Snapshot;
use crate::scenario::Scenario;

pub(crate) struct Stage {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    server_start_time: f64,
    sessions_max: Option<usize>,
    store: Option<Store>,
    /// Live streams and workers, by kind and id.
    live: BTreeMap<(String, String), Vec<KeptAlive>>,
    held: BTreeMap<String, HeldLock>,
}

/// Somebody who changes a session and takes his time.
struct HeldLock {
    release: mpsc::Sender<()>,
    holder: JoinHandle<()>,
}

impl Stage {
    /// Copies what the scenario begins with and opens the store on it.
    pub(crate) fn set(scenario: &Scenario) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for part in ["sessions", "core"] {
            copy(&scenario.folder.join("before").join(part), &folder.path().join(part));
        }
        let mut stage = Stage {
            folder,
            clock: Arc::new(ManualClock::at(Timestamp::from_seconds(0.0))),
            server_start_time: scenario.server_start_time,
            sessions_max: None,
            store: None,
            live: BTreeMap::new(),
            held: BTreeMap::new(),
        };
        stage.open();
        stage
    }

    /// The store's process starts: what the clock shows then is its start.
    fn open(&mut self) {
        self.set_clock(self.server_start_time);
        let cache = match self.sessions_max {
            Some(sessions_max) => CacheOptions { sessions_max, ..CacheOptions::default() },
            None => CacheOptions::default(),
        };
        let core_dir = Some(self.folder.path().join("core"));
        let options = Options { clock: self.clock.clone(), cache, core_dir, ..Options::default() };
        self.store = Some(Store::open(self.folder.path().join("sessions"), options).unwrap());
    }

    /// Everything in memory is gone.
    pub(crate) fn restart(&mut self, server_start_time: Option<f64>) {
        self.live.clear();
        self.server_start_time = server_start_time.unwrap_or(self.server_start_time);
        self.reopen();
    }

    /// The cache holds so many sessions from now on.
    pub(crate) fn limit_cache(&mut self, sessions_max: usize) {
        self.sessions_max = Some(sessions_max);
        self.reopen();
    }

    fn reopen(&mut self) {
        self.release_all();
        let live: Vec<_> = std::mem::take(&mut self.live).into_keys().collect();
        self.store = None;
        self.open();
        live.iter().for_each(|(kind, run)| self.register(kind, run));
    }

    pub(crate) fn store(&self) -> &Store {
        self.store.as_ref().expect("the store is open between two steps")
    }

    pub(crate) fn set_clock(&self, seconds: f64) {
        self.clock.set(Timestamp::from_seconds(seconds));
    }

    /// The folder that holds `sessions` and `core`.
    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.root())
    }

    /// Puts a file in its place as a whole, as another program would.
    pub(crate) fn replace_file(&self, path: &str, bytes: &[u8]) {
        let (temporary, place) = (self.root().join("incoming"), self.place_for(path));
        fs::write(&temporary, bytes).unwrap();
        fs::rename(temporary, place).unwrap();
    }

    /// A path of the scenario, with the folders above it.
    pub(crate) fn place_for(&self, path: &str) -> PathBuf {
        let place = self.root().join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        place
    }

    /// A live stream or a live worker with this id is there. Scenarios do not say whose it is.
    pub(crate) fn register(&mut self, kind: &str, run: &str) {
        let kept_alive = RunId::parse(run).map(|run| self.keep_alive(&run)).unwrap_or_default();
        self.live.insert((kind.to_owned(), run.to_owned()), kept_alive);
    }

    pub(crate) fn unregister(&mut self, kind: &str, run: &str) {
        self.live.remove(&(kind.to_owned(), run.to_owned()));
    }

    fn keep_alive(&self, run: &RunId) -> Vec<KeptAlive> {
        let files = self.snapshot();
        let sessions = files.sessions().filter_map(|id| SessionId::parse(id).ok());
        sessions.map(|session| self.store().keep_alive(&session, run)).collect()
    }

    /// Somebody else changes the session until told to stop.
    pub(crate) fn hold_lock(&mut self, session: &SessionId) {
        let (release, released) = mpsc::channel();
        let (tell_held, is_held) = mpsc::channel();
        let (store, id) = (self.store().clone(), session.clone());
        let holder = thread::spawn(move || {
            let options = SaveOptions { touch_updated_at: false, ..SaveOptions::default() };
            // A session that is not there has no lock to hold.
            let _ = store.update(&id, options, |_| {
                let _ = tell_held.send(());
                let _ = released.recv();
            });
        });
        let _ = is_held.recv();
        self.held.insert(session.to_string(), HeldLock { release, holder });
    }

    pub(crate) fn release_lock(&mut self, session: &SessionId) {
        if let Some(held) = self.held.remove(session.as_str()) {
            held.let_go();
        }
    }

    fn release_all(&mut self) {
        std::mem::take(&mut self.held).into_values().for_each(HeldLock::let_go);
    }
}

impl HeldLock {
    fn let_go(self) {
        let _ = self.release.send(());
        self.holder.join().expect("the holder of a lock ends");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.release_all();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).into_iter().flatten().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => fs::write(target, fs::read(entry.path()).unwrap()).unwrap(),
        }
    }
}
