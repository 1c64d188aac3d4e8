//! The store: sessions, runs, followers. The only handle that the layers above hold.
//!
//! Blocking, and safe to share between threads. Knows no terminal and no HTTP.

mod attachments;
mod branches;
mod context;
mod error;
mod follow;
mod list;
mod liveness;
mod news;
mod options;
mod processes;
mod read;
mod recover;
mod regenerate;
mod run_handle;
mod run_list;
mod runs;
mod session_locks;
mod sessions;
mod settle;
mod stop;

use std::path::Path;
use std::sync::Arc;

use crate::sync::Mutex;

pub use self::error::StoreError;
pub use self::follow::{After, Follow};
pub use self::list::{Listed, Page};
pub(crate) use self::liveness::{Began, Journal, LastSign, LeaseFacts, Now, Origin, RunFacts, judge};
pub use self::liveness::{KeptAlive, Liveness};
use self::liveness::{Registry, TimerThread, Waiting};
pub use self::news::Change;
use self::news::News;
pub use self::options::{Freshness, Options};
use self::read::Cached;
pub use self::regenerate::{AskedBefore, Replaces};
pub use self::run_handle::Run;
use self::run_list::RememberedDetails;
pub use self::run_list::{RunInfo, RunList};
pub use self::runs::UserTurn;
use self::session_locks::{SessionLock, SessionLocks};
pub use self::sessions::NewSession;
use self::stop::UnreportedStops;
use crate::cache::Cache;
use crate::clock::{Clock, Timestamp};
use crate::entropy::Entropy;
use crate::index::Index;
use crate::journal::{AppendWaker, OpenFileBudget, RunJournal};
use crate::limits::SIDECAR_BYTES_MAX;
use crate::meter::Meter;
use crate::model::{RunEnd, RunId, SessionId};
use crate::storage::{
    Durability, FileStorage, FilesOptions, Finding, Holder, Mode, OsDisk, Purpose, SharedDisk, Storage,
};

/// How a run is to end, for [`Run::finish`].
pub type Outcome = RunEnd;

/// A data directory, open.
#[derive(Debug, Clone)]
pub struct Store {
    /// Before what it works on, so that it is joined before that is closed.
    timer: Arc<TimerThread>,
    shared: Arc<Shared>,
}

/// What all handles of a store share.
#[derive(Debug)]
struct Shared {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    locks: SessionLocks,
    liveness: Arc<Registry>,
    open_files: Arc<OpenFileBudget>,
    cache: Cache<Cached, StoreError>,
    index: Index,
    news: News,
    /// What the journals say that were read for lists of runs.
    remembered: RememberedDetails,
    unreported_stops: UnreportedStops,
    /// Runs with events that followers must not see: they could not be made durable, or the answer could not be saved. Held
    /// open, with their locks, because only an open journal knows what it hides.
    hidden: Mutex<Vec<(Arc<SessionLock>, Arc<RunJournal>)>>,
    /// When this process took the directory over: turns that began before have no producer here.
    began_at: Timestamp,
    options: Options,
}

impl Shared {
    fn meter(&self) -> &Arc<Meter> {
        &self.options.meter
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.index.flush();
    }
}

impl Store {
    /// Opens a data directory as its one writer, and creates it if it is not there.
    ///
    /// ```
    /// use lastword::{Event, NewSession, Options, Outcome, Store, UserTurn};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("data");
    /// let store = Store::open(&path, Options::default())?;
    /// let id = store.create(NewSession::titled("Plan a trip"))?;
    /// let run = store.begin_run(&id, UserTurn::text("Where should we go?"))?;
    /// run.append(Event::token("To the sea"))?;
    /// run.append_durable(Event::token("side."))?.wait()?;
    /// run.finish(Outcome::Completed)?;
    /// let session = store.get_session(&id)?;
    /// assert_eq!(session.message(1).unwrap().content(), "To the seaside.");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        Self::open_on(Arc::new(OsDisk), path, options)
    }

    /// Opens a data directory to read it, beside a writer or without one. Nothing is created or changed.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        Self::open_read_only_on(Arc::new(OsDisk), path, options)
    }

    /// The same on a disk of the caller's choice.
    pub fn open_read_only_on(disk: SharedDisk, path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        Self::open_in_mode(disk, path.as_ref(), options, Mode::ReadOnly)
    }

    /// Opens a data directory on a disk of the caller's choice, as its one writer.
    pub fn open_on(disk: SharedDisk, path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        Self::open_in_mode(disk, path.as_ref(), options, Mode::Write)
    }

    fn open_in_mode(disk: SharedDisk, path: &Path, options: Options, mode: Mode) -> Result<Self, StoreError> {
        let files = FilesOptions {
            mode,
            purpose: Purpose::Serve,
            allow_network_fs: options.allow_network_fs,
            clock: options.clock.clone(),
            entropy: options.entropy.clone(),
            core_dir: options.core_dir.clone(),
            commit: options.commit,
            meter: options.meter.clone(),
            durability: options.durability,
            on_finding: options.on_finding.clone(),
        };
        let storage = FileStorage::open(disk, path, files)?;
        Ok(Self::on_storage(Arc::new(storage), options))
    }

    /// A store on any storage.
    pub fn on_storage(storage: Arc<dyn Storage>, mut options: Options) -> Self {
        options.document_bytes_max = options.document_bytes_max.min(SIDECAR_BYTES_MAX);
        let (clock, entropy) = (options.clock.clone(), options.entropy.clone());
        options.meter.findings.add(storage.findings().len() as u64);
        let liveness = Arc::new(Registry::of(&options));
        let (locks, open_files) = (SessionLocks::default(), Arc::new(OpenFileBudget::new(options.open_journals_max)));
        let (cache, began_at) = (Cache::new(options.cache), clock.now());
        let index = Index::new(storage.clone(), clock.clone());
        let (news, remembered, hidden) = (News::default(), RememberedDetails::default(), Mutex::default());
        let timer = Arc::new(TimerThread::new(liveness.clone()));
        let shared = Arc::new(Shared {
            storage,
            clock,
            entropy,
            locks,
            liveness,
            open_files,
            cache,
            index,
            news,
            remembered,
            unreported_stops: UnreportedStops::default(),
            hidden,
            began_at,
            options,
        });
        if shared.options.serves_producers {
            // The first reader that waits tries again, and reports it.
            let _ = timer.ensure(&shared);
        }
        Store { timer, shared }
    }

    /// Registers a reader that waits for a run: if the run is orphaned, the timer seals it, and wakes the reader.
    fn wait_for(&self, session: &SessionId, run: &RunId, waker: AppendWaker) -> Result<Waiting, StoreError> {
        self.timer.ensure(&self.shared).map_err(|cause| StoreError::NoTimer { reason: cause.to_string() })?;
        Ok(self.shared.liveness.wait_for((session.clone(), run.clone()), waker))
    }

    /// Whether a run is over, and what can be done about it.
    pub fn liveness(&self, session: &SessionId, run: &RunId) -> Result<Liveness, StoreError> {
        self.shared.liveness_of(&self.shared.locks.of(session), session, run)
    }

    /// Makes everything that was appended so far survive a power cut, now, with one sync. By default that happens in
    /// the background anyway; see [`CommitOptions`](crate::CommitOptions).
    pub fn commit(&self) -> Result<(), StoreError> {
        Ok(self.shared.storage.commit()?)
    }

    /// Whether anything can be written: not by a reader, and not after a failed sync.
    pub fn is_writable(&self) -> bool {
        self.shared.storage.can_write()
    }

    /// Why this store writes nothing any more although it was opened to: the failed sync that stopped it. It has to be opened
    /// again.
    pub fn stopped_reason(&self) -> Option<StoreError> {
        self.shared.storage.stopped_by().map(StoreError::from)
    }

    /// How lasting an append is before it returns, unless it asks for more.
    pub fn durability(&self) -> Durability {
        self.shared.options.durability
    }

    /// What was found wrong when the directory was opened, and what was done about it.
    pub fn findings(&self) -> Vec<Finding> {
        self.shared.storage.findings()
    }

    /// What is wrong now, and was not when the directory was opened: [`Options::on_finding`] is called when it begins.
    pub fn live_findings(&self) -> Vec<Finding> {
        self.shared.storage.live_findings()
    }

    /// What the store has done so far, in numbers.
    pub fn meter(&self) -> &Arc<Meter> {
        self.shared.meter()
    }

    /// Who last took the writer's lock of a data directory, whether or not it still holds it.
    pub fn last_holder(path: impl AsRef<Path>) -> Option<Holder> {
        FileStorage::last_holder(&OsDisk, path.as_ref())
    }
}
