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

/// Bytes that a row or a card takes beside the text that its events carry: its keys, ids, times, and the arguments that
/// a card shows.
const ROW_BYTES: u64 = 1024;
const CARD_BYTES: u64 = 4 * 1024;

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
        Budget { limit, used: 0, last_seq: 0, cut_from: None }
    }

    /// Whether there is room for what an event shows. After the first for which there is none, there is none for any.
    ///
    /// A payload is JSON, and its text takes no more bytes in the document than in the payload. A value that is no text
    /// is spelt out, which at most doubles it.
    pub(super) fn admits(&mut self, event: &FoldEvent<'_>) -> bool {
        let bytes = 2 * event.payload.len() as u64;
        let cost = match event.name {
            "token" | "reasoning" if event.payload.starts_with("{\"text\":\"") => event.payload.len() as u64,
            "token" | "reasoning" => bytes,
            "interim_assistant" => bytes + ROW_BYTES,
            "tool" | "tool_complete" => bytes + ROW_BYTES + CARD_BYTES,
            _ => return true,
        };
        self.used = self.used.saturating_add(cost + if self.used == 0 { ROW_BYTES } else { 0 });
        let was_left_out = self.limit.before_seq.is_some_and(|before| event.seq.is_some_and(|seq| seq >= before));
        if self.cut_from.is_none() && (was_left_out || self.used > self.limit.bytes) {
            self.cut_from = Some(self.limit.before_seq.or(event.seq).unwrap_or(self.last_seq + 1));
        }
        self.last_seq = event.seq.unwrap_or(self.last_seq);
        self.cut_from.is_none()
    }

    pub(super) fn cut_from(&self) -> Option<u64> {
        self.cut_from
    }
}
