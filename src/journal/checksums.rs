//! Which lines of a journal must carry a checksum: those that this program wrote.
//!
//! A flipped bit in a checksum may make it look like none. In a journal of another program that is an ordinary line, in one
//! of ours it is damage.

use std::cell::OnceCell;
use std::sync::Arc;

use crate::format::Record;
use crate::model::{RunId, SessionId};
use crate::storage::Storage;

/// Asks storage whose journal it is, once, when the first line without a checksum comes.
#[derive(Debug)]
pub(super) struct ChecksumRule {
    storage: Arc<dyn Storage>,
    session: SessionId,
    run: RunId,
    checked_after: OnceCell<Option<u64>>,
}

impl ChecksumRule {
    pub(super) fn new(storage: &Arc<dyn Storage>, session: &SessionId, run: &RunId) -> Self {
        let (storage, session, run) = (storage.clone(), session.clone(), run.clone());
        ChecksumRule { storage, session, run, checked_after: OnceCell::new() }
    }

    /// The record, or the damage that it is.
    pub(super) fn judged<'a>(&self, record: Record<'a>) -> Record<'a> {
        match record.lacks_checksum() {
            true => record.in_journal_checked_after(self.checked_after()),
            false => record,
        }
    }

    /// If that cannot be told now, the line is believed.
    fn checked_after(&self) -> Option<u64> {
        let ask = || self.storage.checked_after(&self.session, &self.run).unwrap_or_default();
        *self.checked_after.get_or_init(ask)
    }
}
