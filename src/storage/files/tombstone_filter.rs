//! A Bloom filter over the ids of deleted sessions, so that most reads need not stat a tombstone.

use crate::sync::atomic::{AtomicU64, Ordering};

use crate::model::SessionId;

const WORDS: usize = 1024;

/// One bit for many ids: a bit that is not set says that none of them was deleted, one that is set says nothing.
///
/// Only a writer can know, because nobody else deletes while it holds the lock. It notes an id before the tombstone is
/// written; what counts is still the tombstone.
#[derive(Debug)]
pub(super) struct TombstoneFilter {
    bits: Box<[AtomicU64]>,
}

impl TombstoneFilter {
    /// Nothing is known: each session may have been deleted.
    pub(super) fn unknown() -> Self {
        TombstoneFilter { bits: (0..WORDS).map(|_| AtomicU64::new(u64::MAX)).collect() }
    }

    /// These are all the sessions that were deleted.
    pub(super) fn only<'a>(deleted: impl IntoIterator<Item = &'a SessionId>) -> Self {
        let filter = TombstoneFilter { bits: (0..WORDS).map(|_| AtomicU64::new(0)).collect() };
        deleted.into_iter().for_each(|session| filter.note(session));
        filter
    }

    /// Notes that a session may be deleted from now on.
    pub(super) fn note(&self, session: &SessionId) {
        let (word, bit) = place(session);
        self.bits[word].fetch_or(bit, Ordering::SeqCst);
    }

    /// Whether a session may have been deleted.
    pub(super) fn may_hold(&self, session: &SessionId) -> bool {
        let (word, bit) = place(session);
        self.bits[word].load(Ordering::SeqCst) & bit != 0
    }
}

fn place(session: &SessionId) -> (usize, u64) {
    let hash = crc32c::crc32c(session.as_str().as_bytes()) as usize;
    (hash / 64 % WORDS, 1 << (hash % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_noted_may_be_deleted_and_hardly_anybody_else() {
        let ids = |range: std::ops::Range<u32>| range.map(|at| SessionId::parse(&format!("id-{at}")).unwrap());
        let deleted: Vec<_> = ids(0..100).collect();
        let filter = TombstoneFilter::only(&deleted);
        assert!(deleted.iter().all(|session| filter.may_hold(session)));
        assert!(ids(100..1_100).filter(|session| filter.may_hold(session)).count() < 20);
        filter.note(&SessionId::parse("late").unwrap());
        assert!(filter.may_hold(&SessionId::parse("late").unwrap()));
        assert!(ids(0..1_000).all(|session| TombstoneFilter::unknown().may_hold(&session)));
    }
}
