//! The latch that stops a store for good: after a failed fsync, a lost lock, or a commit that panicked.
//!
//! A kernel marks pages clean although it could not write them, and the next fsync reports success. So the first failed
//! one stops the store, and a mark in the lock's note tells the next writer of this boot to trust no page.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use crate::sync::Mutex;

use crate::clock::Stopwatch;
use crate::storage::error::StorageError;
use crate::storage::lock::{LOCK_CHECK_EVERY, WriterLock};

/// Stops a store. Only a failed fsync, a lost lock and a panic do; a failed open, read or write does not.
pub(in crate::storage) struct Latch {
    is_stopped: AtomicBool,
    began: Stopwatch,
    /// When the lock file was last looked at, in milliseconds since the beginning.
    looked_at: AtomicU64,
    cause: Mutex<Option<Box<StorageError>>>,
    /// Weak, because a ticket may outlive the store and must not keep its lock.
    lock: OnceLock<Weak<WriterLock>>,
}

impl Default for Latch {
    fn default() -> Self {
        Latch {
            is_stopped: AtomicBool::new(false),
            began: Stopwatch::start(),
            looked_at: AtomicU64::new(0),
            cause: Mutex::default(),
            lock: OnceLock::new(),
        }
    }
}

impl Latch {
    /// Watches over this lock from now on.
    pub(in crate::storage) fn guard(&self, lock: &Arc<WriterLock>) {
        let _ = self.lock.set(Arc::downgrade(lock));
    }

    #[inline]
    pub(in crate::storage) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Whether the store may append. The lock file is looked at if that is long ago: the thread that does it regularly may
    /// be waiting for a disk, and the whole process may have been stopped.
    #[inline]
    pub(in crate::storage) fn may_append(&self) -> bool {
        let since = self.millis().saturating_sub(self.looked_at.load(Ordering::Relaxed));
        match u128::from(since) < LOCK_CHECK_EVERY.as_millis() {
            true => !self.is_stopped(),
            false => self.check_lock().is_ok(),
        }
    }

    fn millis(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Whether the store may write; the first failure if not.
    pub(in crate::storage) fn check(&self) -> Result<(), StorageError> {
        match self.is_stopped() {
            false => Ok(()),
            true => Err(self.refusal()),
        }
    }

    /// The same, after a stat of the lock file: if another file has its name, another writer may be at work, and the store
    /// stops.
    pub(in crate::storage) fn check_lock(&self) -> Result<(), StorageError> {
        self.check()?;
        let now = self.millis();
        if let Some(lock) = self.writer_lock().filter(|lock| !lock.is_named()) {
            self.stop(&StorageError::LockLost { path: lock.path().clone() });
        }
        self.check()?;
        // Only now: until it is known, no other thread may rely on it.
        self.looked_at.fetch_max(now, Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    pub(in crate::storage) fn refusal(&self) -> StorageError {
        let source = self.cause.lock().clone().expect("a store is stopped for a reason");
        match *source {
            StorageError::Closed => StorageError::Closed,
            _ => StorageError::Stopped { source },
        }
    }

    /// Stops the store because of a failure. The first cause stands.
    pub(in crate::storage) fn stop(&self, cause: &StorageError) {
        if self.set(cause)
            && matches!(cause, StorageError::SyncFailed { .. })
            && let Some(lock) = self.writer_lock()
        {
            lock.mark_unsure();
        }
    }

    /// Tells the next writer of this boot to trust no page, because an fsync found no space. The store goes on: it knows which
    /// journal to write again.
    pub(in crate::storage) fn leave_doubt(&self) {
        if let Some(lock) = self.writer_lock() {
            lock.mark_unsure_and_go_on();
        }
    }

    /// Stops the store because it is closed.
    pub(in crate::storage) fn close(&self) {
        self.set(&StorageError::Closed);
    }

    fn writer_lock(&self) -> Option<Arc<WriterLock>> {
        self.lock.get().and_then(Weak::upgrade)
    }

    fn set(&self, cause: &StorageError) -> bool {
        let mut first = self.cause.lock();
        let is_first = first.is_none();
        first.get_or_insert_with(|| Box::new(cause.clone()));
        self.is_stopped.store(true, Ordering::Release);
        is_first
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("cause", &self.cause.lock()).finish_non_exhaustive()
    }
}
