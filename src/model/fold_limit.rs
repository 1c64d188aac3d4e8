//! The bound on what a fold may add to a session, so that its document can still be loaded.

use super::fold::FoldEvent;

/// How much of a run's answer fits into its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldLimit {
    /// Bytes of the document that its rows and cards may take.
    pub bytes: u64,
    /// The first event that an earlier fold had to leave out: no later one takes it, however much room there is.
    pub before_seq: Option<u64>,
}

impl FoldLimit {
    /// No bound.
    pub const NONE: FoldLimit = FoldLimit { bytes: u64::MAX, before_seq: None };
}

/// Bytes that a row takes beside the text that its events carry: its keys, ids and times.
const ROW_BYTES: u64 = 1024;
/// Bytes of the keys with which a card names its run and its row.
const CARD_TAG_BYTES: u64 = 512;

/// What is left of a limit while events are folded.
#[derive(Debug)]
pub(super) struct Budget {
    limit: FoldLimit,
    used: u64,
    last_seq: u64,
    /// The first event that was left out.
    cut_from: Option<u64>,
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(FoldLimit::NONE)
    }
}

impl Budget {
    pub(super) fn new(limit: FoldLimit) -> Self {
        // The first event makes a row.
        Budget { limit, used: ROW_BYTES, last_seq: 0, cut_from: None }
    }

    /// Whether there is room for the text of an event. A payload is JSON, and its text takes no more bytes in the document than
    /// in the payload.
    #[inline(always)]
    pub(super) fn admits_text(&mut self, event: &FoldEvent<'_>) -> bool {
        match event.payload.starts_with("{\"text\":\"") {
            true => self.admits(event, event.payload.len() as u64),
            false => self.admits(event, spelt_out(event)),
        }
    }

    /// The same for an event that makes a row.
    pub(super) fn admits_row(&mut self, event: &FoldEvent<'_>) -> bool {
        self.admits(event, spelt_out(event) + ROW_BYTES)
    }

    /// The same for an event that puts this many bytes into the document, beside the row or the card that it may make.
    pub(super) fn admits_bytes(&mut self, event: &FoldEvent<'_>, bytes: usize) -> bool {
        self.admits(event, bytes as u64 + ROW_BYTES + CARD_TAG_BYTES)
    }

    /// After the first event for which there is no room, there is none for any.
    #[inline(always)]
    fn admits(&mut self, event: &FoldEvent<'_>, cost: u64) -> bool {
        self.used = self.used.saturating_add(cost);
        let is_left_out = || self.limit.before_seq.is_some_and(|before| event.seq.is_some_and(|seq| seq >= before));
        if self.cut_from.is_some() || self.used > self.limit.bytes || is_left_out() {
            self.cut(event);
            return false;
        }
        self.last_seq = event.seq.unwrap_or(self.last_seq);
        true
    }

    #[cold]
    fn cut(&mut self, event: &FoldEvent<'_>) {
        let from = self.limit.before_seq.or(event.seq).unwrap_or(self.last_seq + 1);
        self.cut_from.get_or_insert(from);
    }

    #[inline]
    pub(super) fn cut_from(&self) -> Option<u64> {
        self.cut_from
    }
}

/// Bytes of a payload in a document. A value that is no text is spelt out, which at most doubles it.
fn spelt_out(event: &FoldEvent<'_>) -> u64 {
    2 * event.payload.len() as u64
}
