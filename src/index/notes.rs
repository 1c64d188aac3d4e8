//! What is written down of the list: how much of it there is, and when it is worth writing anew.

use super::listing::Listing;
use crate::format::write_index_line;
use crate::limits::{INDEX_BYTES_MAX, INDEX_SLACK_BYTES};
use crate::model::Summary;
use crate::storage::Storage;

/// About as many bytes as a line has beside its JSON.
const LINE_FRAME_BYTES: usize = 100;

/// The lines that were written down, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Bytes of all lines.
    bytes: u64,
    /// About as many as one line for each session would have.
    needed_bytes: u64,
    must_replace: bool,
}

impl Notes {
    /// So many bytes were found written down.
    pub(super) fn found(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Takes in how much this listing needs. Lines that say little of it are not worth being added to.
    pub(super) fn measure(&mut self, listing: &Listing, says_little: bool) {
        let line_bytes = |summary: &Summary| (summary.noted().len() + LINE_FRAME_BYTES) as u64;
        self.needed_bytes = listing.summaries().map(line_bytes).sum();
        self.must_replace |= says_little;
    }

    /// Adds a line for each of these. A failure is nobody's loss.
    pub(super) fn append<'a>(&mut self, storage: &dyn Storage, summaries: impl Iterator<Item = &'a Summary>) {
        let lines = lines(summaries);
        if lines.is_empty() || !storage.can_write() {
            return;
        }
        if let Ok(bytes) = storage.append_index_notes(&lines) {
            self.bytes = bytes;
        }
        if self.bytes > INDEX_BYTES_MAX && storage.replace_index_notes(&lines).is_ok() {
            self.bytes = lines.len() as u64;
        }
    }

    /// Whether most of what is written down is out of date.
    pub(super) fn are_wasteful(&self) -> bool {
        self.must_replace || self.bytes > self.needed_bytes * 4 + INDEX_SLACK_BYTES
    }

    /// Writes all of the list anew.
    pub(super) fn replace(&mut self, storage: &dyn Storage, listing: &Listing) {
        self.must_replace = false;
        self.measure(listing, false);
        if !storage.can_write() || self.needed_bytes > INDEX_BYTES_MAX {
            return;
        }
        let lines = lines(listing.summaries());
        if storage.replace_index_notes(&lines).is_ok() {
            self.bytes = lines.len() as u64;
        }
    }
}

fn lines<'a>(summaries: impl Iterator<Item = &'a Summary>) -> Vec<u8> {
    let mut lines = Vec::new();
    summaries.for_each(|summary| write_index_line(summary, &mut lines));
    lines
}
