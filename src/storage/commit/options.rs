//! Commit options: the background interval and the size of the commit log.

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
/// Each segment is an open file, and the log takes no more than this part of what the process may open.
const OPEN_FILES_PART: u64 = 32;
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

    /// How many segments the log may have, where the process may open `open_files_max` files.
    pub(in crate::storage) fn segments_max(&self, open_files_max: usize) -> usize {
        let by_files = open_files_max as u64 / OPEN_FILES_PART;
        (self.log_bytes / self.segment_bytes()).min(by_files).max(SEGMENTS_MIN) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_may_open_few_files_has_a_log_of_few_segments() {
        let options = CommitOptions::default();
        assert_eq!(options.segments_max(usize::MAX), 64);
        assert_eq!(options.segments_max(1024), 32);
        assert_eq!(options.segments_max(256), 8);
        assert_eq!(options.segments_max(10), 2);
    }
}
