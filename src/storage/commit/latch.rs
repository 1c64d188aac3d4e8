//! What happens after a failed sync: nothing more is written.
//!
//! A kernel marks pages clean although it could not write them, and the next sync says that all is well. So the first
//! failure stops the store for good, and a mark on the disk tells the next one to trust no page of this boot.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::storage::disk::{Access, SharedDisk, write_full};
use crate::storage::error::StorageError;

/// Stops a store at its first failed sync.
pub(in crate::storage) struct Latch {
    is_stopped: AtomicBool,
    cause: Mutex<Option<Box<StorageError>>>,
    disk: SharedDisk,
    mark: PathBuf,
    boot_id: String,
}

impl Latch {
    pub(in crate::storage) fn new(disk: SharedDisk, mark: PathBuf) -> Self {
        let boot_id = disk.boot_id();
        Latch { is_stopped: AtomicBool::new(false), cause: Mutex::default(), disk, mark, boot_id }
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
            self.leave_mark();
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

    /// It has to survive this process, not a power cut, after which every page is what the medium holds. If even this
    /// fails, nothing more can be done here.
    fn leave_mark(&self) {
        if let Ok(file) = self.disk.open(&self.mark, Access::CreateNew) {
            let _ = write_full(&*file, self.boot_id.as_bytes(), 0);
        }
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch").field("cause", &self.cause.lock()).finish_non_exhaustive()
    }
}
