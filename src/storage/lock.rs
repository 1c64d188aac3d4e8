//! The writer's lock: one writer a data directory, by an advisory lock on `_lock`, with a note of its holder.
//!
//! The note is rewritten through the locked file, so that it needs no further descriptor.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use super::contract::Durability;
use super::disk::{Access, Disk, DiskLock, FileStat, SharedDisk, read_full, write_full};
use super::error::{Attempt, StorageError, optional};
use super::layout::Layout;
use super::os::is_process_alive;
use crate::clock::{Stopwatch, Timestamp};

/// The length of the note, without its line feed, and how much of one is read.
const NOTE_BYTES: usize = 255;
const NOTE_BYTES_READ_MAX: usize = 4096;

/// How often the lock is tried: its file may be replaced between opening and locking it, and a reader that looks whether
/// it is held has it for a moment.
const ATTEMPTS_MAX: usize = 64;

/// How often a writer compares the lock file with the locked one, at the least, and how long one that lost it may take to
/// stop.
pub(super) const LOCK_CHECK_EVERY: Duration = Duration::from_millis(900);
const LAST_WRITER_STOPS_WITHIN: Duration = Duration::from_millis(1_500);

/// Who holds a data directory, or held it last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// When it took the lock, in seconds since 1970.
    pub started_at: f64,
    /// In which boot of the machine.
    pub boot_id: String,
    /// Whether an fsync failed in that boot, so that pages that look written may never reach the medium.
    #[serde(default, rename = "unsure", skip_serializing_if = "std::ops::Not::not")]
    pub is_unsure: bool,
    /// How durable an event is before it is shown. Readers in other processes keep to it.
    #[serde(default)]
    pub durability: Durability,
    /// Whether it has stopped since, so that what it wrote last is not durable, whatever a later fsync says.
    #[serde(default, rename = "stopped", skip_serializing_if = "std::ops::Not::not")]
    pub is_stopped: bool,
    /// Whether it has closed the store since.
    #[serde(default, rename = "closed", skip_serializing_if = "std::ops::Not::not")]
    pub is_closed: bool,
    /// Whether it has replayed the commit log: then the journals lack nothing until the next power cut.
    #[serde(default, rename = "replayed", skip_serializing_if = "std::ops::Not::not")]
    pub has_replayed: bool,
}

impl Holder {
    /// Always as long, so that one write replaces the note of an earlier holder, and takes no room on a full disk.
    fn note(&self) -> Vec<u8> {
        let note = serde_json::to_string(self).expect("numbers and text become JSON");
        format!("{note:<NOTE_BYTES$}\n").into_bytes()
    }
}

/// The right to write a data directory, for as long as this value lives.
#[derive(Debug)]
pub(crate) struct WriterLock {
    lock: Box<dyn DiskLock>,
    /// The locked file, which is held open: its inode cannot be reused.
    locked: FileStat,
    disk: SharedDisk,
    path: PathBuf,
    holder: Mutex<Holder>,
}

impl WriterLock {
    /// Takes the lock and notes who took it. The kernel releases it when the process ends, however it ends, so a note
    /// that is found without a held lock is history.
    pub(crate) fn take(
        disk: &SharedDisk,
        layout: &Layout,
        now: Timestamp,
        durability: Durability,
    ) -> Result<Self, StorageError> {
        let path = layout.lock();
        let (lock, locked) = lock_named_file(&**disk, layout)?;
        let boot_id = disk.boot_id();
        let last = holder(&**disk, layout);
        if last.as_ref().is_none_or(|last| may_be_at_work(last, &boot_id)) && is_in_use(&**disk, layout) {
            wait_for_last_writer();
        }
        let is_unsure = last.is_some_and(|last| last.is_unsure && last.boot_id == boot_id);
        let (pid, started_at) = (std::process::id(), now.seconds());
        let (is_stopped, is_closed, has_replayed) = (false, false, false);
        let own = Holder { pid, started_at, boot_id, is_unsure, durability, is_stopped, is_closed, has_replayed };
        let lock = WriterLock { lock, locked, disk: disk.clone(), path, holder: Mutex::new(own) };
        lock.write_note(&lock.holder.lock())?;
        Ok(lock)
    }

    /// Whether an fsync failed in this boot, by this holder or one before it. After a restart of the machine every page
    /// is what the medium holds.
    pub(crate) fn is_unsure(&self) -> bool {
        self.holder.lock().is_unsure
    }

    /// Whether this holder shows nothing before it is durable.
    pub(crate) fn is_durable(&self) -> bool {
        self.holder.lock().durability == Durability::Durable
    }

    /// Notes that an fsync failed. It has to survive this process, not a power cut. If even this fails, nothing more can
    /// be done here.
    pub(crate) fn mark_unsure(&self) {
        let _ = self.change_note(|holder| (holder.is_unsure, holder.is_stopped) = (true, true));
    }

    /// Notes that an fsync found no space, so that the next writer of this boot trusts no page. This holder goes on.
    pub(crate) fn mark_unsure_and_go_on(&self) {
        let _ = self.change_note(|holder| holder.is_unsure = true);
    }

    /// Notes that the commit log was replayed.
    pub(crate) fn mark_replayed(&self) -> Result<(), StorageError> {
        self.change_note(|holder| holder.has_replayed = true)
    }

    /// Notes that this holder writes no more.
    pub(crate) fn mark_closed(&self) {
        let _ = self.change_note(|holder| holder.is_closed = true);
    }

    /// Whether the name still stands for the locked file. If it does not, another process may hold a lock on the file
    /// that took its place. A failure to find out is no answer.
    pub(crate) fn is_named(&self) -> bool {
        match self.disk.stat(&self.path) {
            Ok(named) => named.is_same_file(&self.locked),
            Err(cause) => cause.kind() != io::ErrorKind::NotFound,
        }
    }

    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    fn change_note(&self, change: impl FnOnce(&mut Holder)) -> Result<(), StorageError> {
        let mut holder = self.holder.lock();
        change(&mut holder);
        self.write_note(&holder)
    }

    fn write_note(&self, holder: &Holder) -> Result<(), StorageError> {
        write_full(self.lock.file(), &holder.note(), 0)
            .map_err(|(_, cause)| StorageError::io("write", &self.path, cause))
    }
}

/// Locks the file that the name stands for. One that was removed or replaced before it was locked keeps no writer out.
fn lock_named_file(disk: &dyn Disk, layout: &Layout) -> Result<(Box<dyn DiskLock>, FileStat), StorageError> {
    let path = layout.lock();
    for _ in 0..ATTEMPTS_MAX {
        let lock = match disk.lock(&path) {
            Ok(lock) => lock,
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                std::thread::yield_now();
                continue;
            }
            Err(cause) => return Err(StorageError::io("lock", &path, cause)),
        };
        let locked = lock.file().stat().attempt("lock", &path)?;
        match disk.stat(&path) {
            Ok(named) if named.is_same_file(&locked) => return Ok((lock, locked)),
            Ok(_) => {}
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(StorageError::io("lock", &path, cause)),
        }
    }
    Err(StorageError::Busy { path: layout.root().to_owned(), holder: holder(disk, layout) })
}

/// Whether a directory has had a writer, on a disk that other processes write too.
fn is_in_use(disk: &dyn Disk, layout: &Layout) -> bool {
    !disk.is_by_hand() && disk.stat(&layout.identity()).is_ok()
}

/// Whether the process that wrote a note may still write, although the file is not locked: the file may be a copy.
fn may_be_at_work(last: &Holder, boot_id: &str) -> bool {
    let is_other = last.pid != std::process::id() && last.boot_id == boot_id;
    is_other && !last.is_closed && !last.is_stopped && is_process_alive(last.pid)
}

/// The lock file may have been removed under a writer, which notices within [`LOCK_CHECK_EVERY`], and stops. A new lock
/// file gets its note only then, so that a crash before that has the next process wait too.
fn wait_for_last_writer() {
    let (never, wake) = (Mutex::new(()), Condvar::new());
    let watch = Stopwatch::start();
    let mut guard = never.lock();
    while let Some(rest) = LAST_WRITER_STOPS_WITHIN.checked_sub(watch.elapsed()).filter(|rest| !rest.is_zero()) {
        wake.wait_for(&mut guard, rest);
    }
}

/// Who last took the lock, if the note tells. Whether it is still held only the lock itself tells.
pub(crate) fn holder(disk: &dyn Disk, layout: &Layout) -> Option<Holder> {
    read_note(disk, layout).ok().flatten()
}

/// The same; a note that cannot be read, or is just being written, is an error. So is an empty one: a writer that finds no
/// lock file makes it, and notes itself there only after it has waited for the last writer.
pub(crate) fn read_note(disk: &dyn Disk, layout: &Layout) -> Result<Option<Holder>, StorageError> {
    let path = layout.lock();
    let Some(file) = optional(disk.open(&path, Access::Read)).attempt("open", &path)? else { return Ok(None) };
    let mut note = [0; NOTE_BYTES_READ_MAX];
    let len = read_full(&*file, &mut note, 0).attempt("read", &path)?;
    let damaged = |cause: serde_json::Error| StorageError::Damaged { path, reason: cause.to_string() };
    serde_json::from_slice(&note[..len]).map(Some).map_err(damaged)
}

#[cfg(test)]
mod tests;
