//! What every subject works with: a store of its own, and beside its directory a folder for raw files.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lastword::clock::{Clock, SystemClock};
use lastword::entropy::SystemEntropy;
use lastword::format::LineEncoder;
use lastword::storage::Layout;
use lastword::{
    CacheOptions, Event, NewSession, Options, RecoveryOptions, Run, RunId, SessionId, Store, StoreError, UserTurn,
};

use super::Outcomes;
use super::rounds::Rounds;
use super::table::Table;

pub(super) const TOKEN: &str = "a piece of the answer, ";
/// Events of one append where several are appended at a time.
pub(super) const BATCH: usize = 16;
/// Short ids, so that an event of ours has about 270 bytes.
const ID_CHARS: usize = 12;
/// Threads that begin runs.
const BEGINNERS: usize = 16;

/// What was asked for.
pub(super) struct Bench<'a> {
    pub(super) folder: &'a Path,
    pub(super) allow_network_fs: bool,
    pub(super) rounds: Rounds,
    pub(super) scale: f64,
    pub(super) table: Table,
}

impl Bench<'_> {
    /// A size as it was asked for, but never less than two.
    pub(super) fn size(&self, full: usize) -> usize {
        ((full as f64 * self.scale).round() as usize).max(2)
    }

    pub(super) fn options(&self) -> Options {
        // A run that nobody holds any more is dead at once.
        let recovery = RecoveryOptions { grace: Duration::ZERO, ..RecoveryOptions::default() };
        Options { allow_network_fs: self.allow_network_fs, recovery, ..Options::default() }
    }

    pub(super) fn open(&self, data: &Path) -> Result<Store, StoreError> {
        Store::open(data, self.options())
    }

    pub(super) fn scene(&self, name: &str, cache: CacheOptions) -> Outcomes<Scene> {
        let (data, raw) = (self.folder.join(name).join("data"), self.folder.join(name).join("raw"));
        fs::create_dir_all(&raw)?;
        Ok(Scene { store: Store::open(&data, Options { cache, ..self.options() })?, data, raw })
    }
}

/// The store under test, and a folder for the raw files.
pub(super) struct Scene {
    pub(super) store: Store,
    pub(super) data: PathBuf,
    pub(super) raw: PathBuf,
}

impl Scene {
    pub(super) fn begin_run(&self) -> Outcomes<Run> {
        let (session, run) = (SessionId::fresh(&SystemEntropy), RunId::fresh(&SystemEntropy));
        let session = SessionId::parse(&session.as_str()[..ID_CHARS])?;
        let run = RunId::parse(&run.as_str()[..ID_CHARS])?;
        self.store.create(NewSession::titled("A bench").with_id(session.clone()))?;
        Ok(self.store.begin_run(&session, UserTurn::text("How fast?").with_run(run))?)
    }

    /// Runs of as many sessions, begun by several threads: most of it is waiting for syncs.
    pub(super) fn begin_runs(&self, count: usize) -> Outcomes<Vec<Run>> {
        let left = AtomicUsize::new(count);
        let take_one = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let begin = || {
            let mut runs = Vec::new();
            while take_one() {
                runs.push(self.begin_run().map_err(|cause| cause.to_string())?);
            }
            Ok::<_, String>(runs)
        };
        let mut runs = Vec::new();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..BEGINNERS).map(|_| scope.spawn(begin)).collect();
            for thread in threads {
                runs.extend(thread.join().map_err(|_| "a thread that begins runs panicked")??);
            }
            Ok(runs)
        })
    }

    pub(super) fn raw_file(&self, name: &str) -> Outcomes<File> {
        Ok(File::create_new(self.raw.join(name))?)
    }

    pub(super) fn raw_files(&self, name: &str, count: usize) -> Outcomes<Vec<File>> {
        (0..count).map(|at| self.raw_file(&format!("{name}-{at}"))).collect()
    }

    pub(super) fn layout(&self) -> Layout {
        Layout::new(&self.data)
    }

    /// The fewest system calls that replace a file for good.
    pub(super) fn raw_save(&self, bytes: &[u8]) -> Outcomes<()> {
        let temp = self.raw.join("temp");
        let mut file = File::create(&temp)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temp, self.raw.join("saved"))?;
        sync_folder(&self.raw)
    }
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> Outcomes<()> {
    Ok(File::open(folder)?.sync_all()?)
}

/// Other systems give no way to do it, to us neither.
#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> Outcomes<()> {
    Ok(())
}

/// The line that an event of this run becomes.
pub(super) fn line_of(run: &Run) -> Vec<u8> {
    let mut line = Vec::new();
    LineEncoder::new(run.session(), run.id()).encode(10_000, SystemClock.now(), &Event::token(TOKEN), &mut line);
    line
}

/// A row counts only if the work was done.
pub(super) fn check(is_done: bool, what: &str) -> Outcomes<()> {
    if is_done { Ok(()) } else { Err(format!("the work was not done: {what}").into()) }
}
