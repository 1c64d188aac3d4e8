//! The budget of bytes that large answers may take in memory, all of them together, and the permit that each one holds until
//! it was sent or dropped. Answers that share what the cache has anyway are not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use bytes::Bytes;

use super::error::ApiError;

/// Bytes of all large answers. One half is for those that are huge, so that these do not keep the others out.
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes from which on an answer is large.
const LARGE_BYTES_MIN: usize = 64 * 1024;
/// Bytes from which on it is huge.
const HUGE_BYTES_MIN: usize = 1024 * 1024;

/// Bytes of large answers that are being sent.
#[derive(Debug)]
pub(super) struct AnswerBudget {
    half: usize,
    large: AtomicUsize,
    huge: AtomicUsize,
}

impl Default for AnswerBudget {
    fn default() -> Self {
        Self::new(BYTES_MAX)
    }
}

impl AnswerBudget {
    pub(super) fn new(max: usize) -> Self {
        AnswerBudget { half: max / 2, large: AtomicUsize::new(0), huge: AtomicUsize::new(0) }
    }

    /// Bytes of large answers that are being sent.
    pub(super) fn bytes(&self) -> usize {
        self.large.load(Ordering::Relaxed) + self.huge.load(Ordering::Relaxed)
    }

    /// The answer, counted for as long as its bytes are in memory. Where there is no room it is refused; one alone always has
    /// room.
    pub(super) fn body(self: &Arc<Self>, answer: Bytes) -> Result<Body, ApiError> {
        self.counted(answer).map(Body::from).ok_or_else(ApiError::too_many_answers)
    }

    /// The bytes of an answer, counted until the last copy of them is dropped. None if there is no room now.
    pub(super) fn counted(self: &Arc<Self>, answer: Bytes) -> Option<Bytes> {
        let bytes = answer.len();
        if bytes < LARGE_BYTES_MIN {
            return Some(answer);
        }
        let fits = |taken: usize| (taken == 0 || taken + bytes <= self.half).then_some(taken + bytes);
        self.pool(bytes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Bytes::from_owner(Counted { budget: self.clone(), answer }))
    }

    fn pool(&self, bytes: usize) -> &AtomicUsize {
        if bytes < HUGE_BYTES_MIN { &self.large } else { &self.huge }
    }
}

/// An answer that takes room in the budget, which is given back when it is dropped. A server that takes the bytes from a body
/// and lets the body go has the answer still.
#[derive(Debug)]
struct Counted {
    budget: Arc<AnswerBudget>,
    answer: Bytes,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.pool(self.answer.len()).fetch_sub(self.answer.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: usize) -> Bytes {
        Bytes::from(vec![0; bytes])
    }

    #[test]
    fn large_answers_have_a_budget_small_ones_and_one_alone_always_have_room() {
        let budget = Arc::new(AnswerBudget::new(400_000));
        let alone = budget.counted(answer(900_000)).expect("it is the only one");
        assert!(budget.counted(answer(LARGE_BYTES_MIN)).is_none());
        assert!(budget.counted(answer(LARGE_BYTES_MIN - 1)).is_some(), "a small one needs no room");
        let huge = budget.counted(answer(HUGE_BYTES_MIN)).expect("a huge one has room of its own");
        assert!(budget.body(answer(HUGE_BYTES_MIN)).is_err());
        drop(alone);
        let held: Vec<_> = (0..2).map(|_| budget.counted(answer(100_000)).unwrap()).collect();
        assert!(budget.counted(answer(100_000)).is_none());
        assert_eq!(budget.bytes(), 200_000 + HUGE_BYTES_MIN);
        drop((held, huge));
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn an_answer_is_counted_for_as_long_as_a_part_of_it_is_there() {
        let budget = Arc::new(AnswerBudget::new(400_000));
        let mut whole = budget.counted(answer(100_000)).unwrap();
        let part = whole.split_off(99_999);
        drop(whole);
        assert_eq!(budget.bytes(), 100_000);
        drop(part);
        assert_eq!(budget.bytes(), 0);
    }
}
