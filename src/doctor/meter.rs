//! How far an examination has come, for whoever wants to know: told with each session, and within long journals.

use std::sync::atomic::{AtomicU64, Ordering};

use super::options::{OnProgress, Progress};
use crate::storage::{JournalBytes, StorageError};

/// Bytes after which it is told again how far it has come.
const TOLD_EVERY_BYTES: u64 = 32 * 1024 * 1024;

/// Counts what was done.
#[derive(Default)]
pub(super) struct Meter {
    tell: Option<OnProgress>,
    total: AtomicU64,
    sessions: AtomicU64,
    bytes: AtomicU64,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

impl Meter {
    pub(super) fn new(tell: Option<OnProgress>) -> Self {
        Meter { tell, ..Meter::default() }
    }

    /// Begins with so many sessions to go.
    pub(super) fn begin(&self, sessions: usize) {
        self.total.store(sessions as u64, Ordering::Relaxed);
        self.sessions.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    pub(super) fn count_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    fn count_bytes(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if before / TOLD_EVERY_BYTES != (before + bytes as u64) / TOLD_EVERY_BYTES {
            self.tell();
        }
    }

    fn tell(&self) {
        if let Some(tell) = &self.tell {
            let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
            tell(Progress { sessions: now(&self.sessions), sessions_total: now(&self.total), bytes: now(&self.bytes) });
        }
    }
}

/// A journal whose bytes are counted as they are read.
#[derive(Debug)]
pub(super) struct Counted<'m> {
    pub(super) bytes: Box<dyn JournalBytes>,
    pub(super) meter: &'m Meter,
}

impl JournalBytes for Counted<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StorageError> {
        let len = self.bytes.read_at(buffer, offset)?;
        self.meter.count_bytes(len);
        Ok(len)
    }
}
