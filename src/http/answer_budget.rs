//! The budget of bytes that large answers may take in memory, all of them together, and the permit that each one holds until
//! it was sent or dropped. Answers that share what the cache has anyway are not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use bytes::Bytes;

use super::error::ApiError;
use super::peers::keeping;

/// Bytes of all large answers.
const BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes from which on an answer is large.
const LARGE_BYTES_MIN: usize = 64 * 1024;

/// Bytes of large answers that are being sent.
#[derive(Debug)]
pub(super) struct AnswerBudget {
    max: usize,
    taken: AtomicUsize,
}

impl Default for AnswerBudget {
    fn default() -> Self {
        Self::new(BYTES_MAX)
    }
}

impl AnswerBudget {
    pub(super) fn new(max: usize) -> Self {
        AnswerBudget { max, taken: AtomicUsize::new(0) }
    }

    /// Bytes of large answers that are being sent.
    pub(super) fn bytes(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// The answer as a body that counts until it was sent. Where there is no room it is refused; one alone always has room.
    pub(super) fn body(self: &Arc<Self>, answer: Bytes) -> Result<Body, ApiError> {
        match self.hold(answer.len()) {
            Some(permit) => Ok(keeping(Body::from(answer), permit)),
            None => Err(ApiError::too_many_answers()),
        }
    }

    /// Room for an answer of this size, none if there is none now.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Option<AnswerPermit> {
        let bytes = if bytes < LARGE_BYTES_MIN { 0 } else { bytes };
        let fits = |taken: usize| (taken == 0 || taken + bytes <= self.max || bytes == 0).then_some(taken + bytes);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.is_ok().then(|| AnswerPermit { budget: self.clone(), bytes })
    }
}

/// Room in the budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct AnswerPermit {
    budget: Arc<AnswerBudget>,
    bytes: usize,
}

impl Drop for AnswerPermit {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_answers_have_a_budget_small_ones_and_one_alone_always_have_room() {
        let budget = Arc::new(AnswerBudget::new(200_000));
        let alone = budget.hold(900_000).expect("it is the only one");
        assert!(budget.hold(LARGE_BYTES_MIN).is_none());
        assert!(budget.hold(LARGE_BYTES_MIN - 1).is_some(), "a small one needs no room");
        drop(alone);
        let held: Vec<_> = (0..2).map(|_| budget.hold(100_000).unwrap()).collect();
        assert_eq!((budget.bytes(), budget.hold(100_000).is_none()), (200_000, true));
        assert!(budget.body(Bytes::from(vec![0; 100_000])).is_err());
        drop(held);
        assert_eq!(budget.bytes(), 0);
        let body = budget.body(Bytes::from(vec![0; 100_000])).unwrap();
        assert_eq!(budget.bytes(), 100_000);
        drop(body);
        assert_eq!(budget.bytes(), 0);
    }
}
