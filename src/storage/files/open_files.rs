//! The journal files that are open for appending: one a live run, and only so many of them.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::storage::disk::{Access, Disk, DiskFile};

/// The place of one journal's open file. It may be closed behind its writer's back and is then opened again.
#[derive(Debug, Default)]
pub(super) struct OpenFile {
    state: Mutex<State>,
    last_used: AtomicU64,
    has_unsynced: AtomicBool,
}

/// Whether a journal's file is open.
#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    Open(Box<dyn DiskFile>),
    /// It was closed, and what was not synced yet may be lost. Its writer has to hear of it.
    Failed(io::Error),
}

/// All open journal files, least recently used first out.
#[derive(Debug)]
pub(super) struct OpenFiles {
    max: usize,
    uses: AtomicU64,
    files: Mutex<Vec<Weak<OpenFile>>>,
}

impl OpenFiles {
    pub(super) fn new(max: usize) -> Self {
        OpenFiles { max, uses: AtomicU64::new(0), files: Mutex::new(Vec::new()) }
    }

    /// Works on a journal's file, opening it if it is not open.
    pub(super) fn with<T>(
        &self,
        place: &Arc<OpenFile>,
        disk: &dyn Disk,
        path: &Path,
        work: impl FnOnce(&dyn DiskFile) -> T,
    ) -> io::Result<T> {
        self.note_use(place);
        let mut state = place.state.lock();
        if let State::Open(file) = &*state {
            return Ok(work(&**file));
        }
        if let State::Failed(failure) = std::mem::take(&mut *state) {
            return Err(failure);
        }
        self.make_room(place);
        let file = disk.open(path, Access::Write)?;
        let done = work(&*file);
        *state = State::Open(file);
        Ok(done)
    }

    /// The counter is shared by all journals, so the one that was used last leaves it alone.
    fn note_use(&self, place: &OpenFile) {
        if place.last_used() != self.uses.load(Ordering::Relaxed) {
            place.last_used.store(self.uses.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Forgets files whose runs are gone, and closes the one that was not used for longest if there are too many.
    fn make_room(&self, newcomer: &Arc<OpenFile>) {
        let mut files = self.files.lock();
        files.retain(|place| place.upgrade().is_some_and(|place| !Arc::ptr_eq(&place, newcomer)));
        if files.len() >= self.max
            && let Some(oldest) = files.iter().filter_map(Weak::upgrade).min_by_key(|place| place.last_used())
            && oldest.close()
        {
            files.retain(|place| !place.ptr_eq(&Arc::downgrade(&oldest)));
        }
        files.push(Arc::downgrade(newcomer));
    }
}

impl OpenFile {
    pub(super) fn mark_unsynced(&self, has_unsynced: bool) {
        self.has_unsynced.store(has_unsynced, Ordering::Relaxed);
    }

    /// Whether a failure waits for the writer's next call.
    pub(super) fn has_failed(&self) -> bool {
        matches!(*self.state.lock(), State::Failed(_))
    }

    fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Relaxed)
    }

    /// Closes the file unless its writer is at work. What it has not synced is synced first: a write error that the
    /// kernel would report to this file alone must not be lost with it. A failure waits for the writer's next call.
    fn close(&self) -> bool {
        let Some(mut state) = self.state.try_lock() else { return false };
        let State::Open(file) = &*state else { return true };
        let is_unsynced = self.has_unsynced.swap(false, Ordering::Relaxed);
        let synced = if is_unsynced { file.sync() } else { Ok(()) };
        *state = synced.map_or_else(State::Failed, |()| State::Closed);
        true
    }
}
