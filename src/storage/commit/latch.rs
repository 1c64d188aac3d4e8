//! What happens after a failed sync: nothing more is written.
//!
//! A kernel marks pages clean although it could not write them, and the next sync says that all is well. So the first
//! failure stops the store for good, and a mark in the lock's note tells the next one to trust no page of this boot.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::storage::disk::SharedDisk;
use crate::storage::error::StorageError;
use crate::storage::layout::Layout;
use crate::storage::lock;

/// Stops a store at its first failed sync.
pub(in crate::storage) struct Latch {
    is_stopped: AtomicBool,
    cause: Mutex<Option<Box<StorageError>>>,
    disk: SharedDisk,
    layout: Layout,
}

impl Latch {
    pub(in crate::storage) fn new(disk: SharedDisk, layout: Layout) -> Self {
        Latch { is_stopped: AtomicBool::new(false), cause: Mutex::default(), disk, layout }
    }

    #[inline]
    pub(in crate::storage) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Whether the store may write; the first failure if not.
    pub(in crate::storage) fn check(&self) -> Result<(), StorageError> {
        match self.is_stopped() {
            false => Ok(()),
            true => Err(self.refusal()),
        }
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
        if self.set(cause) {
            lock::mark_unsure(&*self.disk, &self.layout);
        }
    }

    /// Stops the store because it is closed.
    pub(in crate::storage) fn close(&self) {
        self.set(&StorageError::Closed);
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
