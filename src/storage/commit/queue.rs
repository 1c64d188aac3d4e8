//! What has arrived since the committer last looked.

use std::sync::Arc;

use super::stream::Stream;
use crate::storage::ticket::Batch;

/// Lines that somebody wants durable.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stream: Arc<Stream>,
    /// Where they stand in the journal.
    pub(super) offset: u64,
    /// Where they stand among the gathered lines.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What one step takes on.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) entries: Vec<Entry>,
    pub(super) lines: Vec<u8>,
    /// Journals with lines that nobody waits for. They are read back.
    pub(super) noted: Vec<Arc<Stream>>,
    pub(super) batch: Arc<Batch>,
}

impl Gathered {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.noted.is_empty()
    }

    pub(super) fn push(&mut self, stream: &Arc<Stream>, offset: u64, lines: &[u8]) {
        let start = self.lines.len();
        self.lines.extend_from_slice(lines);
        self.entries.push(Entry { stream: stream.clone(), offset, start, end: self.lines.len() });
    }

    /// Every journal in it, some more than once.
    pub(super) fn streams(&self) -> impl Iterator<Item = &Arc<Stream>> {
        self.entries.iter().map(|entry| &entry.stream).chain(&self.noted)
    }

    /// Ready for another step, with the room it has.
    pub(super) fn clear(&mut self, lines_bytes_max: usize) {
        self.entries.clear();
        self.lines.clear();
        self.lines.shrink_to(lines_bytes_max);
        self.noted.clear();
    }
}
