//! How journals become durable, as a store can be told.

use std::time::Duration;

/// How appended lines become durable. The defaults are meant for production.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitOptions {
    /// Everything that is appended becomes durable within this time, whether or not anybody asked. Without it, only
    /// what somebody asked for, when a run ends, and when the store is closed.
    pub background: Option<Duration>,
    /// Bytes that the log may take on the disk.
    pub log_bytes: u64,
    /// Bytes of one of its files. Lines of one journal that are longer are synced in the journal itself.
    pub segment_bytes: u64,
}

/// Segments that a log has at least: one to write to, and one to make free meanwhile.
const SEGMENTS_MIN: u64 = 2;
/// Bytes of the smallest segment that is any use.
const SEGMENT_BYTES_MIN: u64 = 1024;
/// Bytes of the largest: what one of them holds is read into memory.
const SEGMENT_BYTES_MAX: u64 = 256 * 1024 * 1024;

impl Default for CommitOptions {
    fn default() -> Self {
        CommitOptions {
            background: Some(Duration::from_millis(50)),
            log_bytes: 64 * 1024 * 1024,
            segment_bytes: 1024 * 1024,
        }
    }
}

impl CommitOptions {
    pub(in crate::storage) fn segment_bytes(&self) -> u64 {
        self.segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX).next_multiple_of(8)
    }

    pub(super) fn segments_max(&self) -> usize {
        (self.log_bytes / self.segment_bytes()).max(SEGMENTS_MIN) as usize
    }
}
