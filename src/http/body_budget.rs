//! The budget of bytes that request bodies may take in memory, all of them together, and the permit that each body holds.
//!
//! A permit grows with what has arrived, never with what was announced alone, and it never waits: where there is no room the
//! request is refused, so that half-read bodies cannot wait for each other. The permit belongs to the request. The handler
//! and every piece of blocking work that it starts share it, and the last of them gives the bytes back, however it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::meter::Counter;

/// Bytes of a small body. Small bodies use a share of the budget that larger ones cannot take.
pub(super) const SMALL_BODY_BYTES_MAX: usize = 64 * 1024;

/// The part of the budget that is kept for small bodies: one in so many bytes.
const SMALL_SHARE: usize = 8;

/// There is no room for more bytes of bodies now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom;

/// Bytes of request bodies in memory.
#[derive(Debug)]
pub(super) struct BodyBudget {
    total_max: usize,
    large_max: usize,
    /// Bytes of all bodies.
    total: AtomicUsize,
    /// Bytes of those that are larger than [`SMALL_BODY_BYTES_MAX`].
    large: AtomicUsize,
    /// Requests that were refused for want of room.
    pub(super) refused: Counter,
}

impl BodyBudget {
    /// A budget in which a body of `body_max` bytes always fits when there is no other.
    pub(super) fn new(total_max: usize, body_max: usize) -> Arc<Self> {
        let small_share = (total_max / SMALL_SHARE).min(total_max.saturating_sub(body_max));
        Arc::new(BodyBudget {
            total_max,
            large_max: total_max - small_share,
            total: AtomicUsize::new(0),
            large: AtomicUsize::new(0),
            refused: Counter::default(),
        })
    }

    /// Bytes that bodies take now.
    pub(super) fn bytes(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Whether large bodies take more than half of what they can have.
    fn is_crowded(&self) -> bool {
        self.large.load(Ordering::Relaxed) > self.large_max / 2
    }

    fn has_room(&self, bytes: usize) -> bool {
        let taken = match bytes > SMALL_BODY_BYTES_MAX {
            true => self.large.load(Ordering::Relaxed) + bytes <= self.large_max,
            false => true,
        };
        taken && self.bytes() + bytes <= self.total_max
    }

    fn take(&self, grown: Growth) -> Result<(), NoRoom> {
        take(&self.large, grown.large, self.large_max)?;
        take(&self.total, grown.total, self.total_max).inspect_err(|_| give(&self.large, grown.large))
    }

    fn give(&self, shrunk: Growth) {
        give(&self.total, shrunk.total);
        give(&self.large, shrunk.large);
    }
}

/// Adds to a sum that never exceeds its bound, not even for a moment: a body that does not fit disturbs no other.
fn take(sum: &AtomicUsize, more: usize, max: usize) -> Result<(), NoRoom> {
    if more == 0 {
        return Ok(());
    }
    let fits = |now: usize| now.checked_add(more).filter(|sum| *sum <= max);
    sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map(drop).map_err(|_| NoRoom)
}

fn give(sum: &AtomicUsize, less: usize) {
    if less > 0 {
        sum.fetch_sub(less, Ordering::Relaxed);
    }
}

/// How much one body adds to both sums.
#[derive(Debug, Clone, Copy)]
struct Growth {
    total: usize,
    large: usize,
}

impl Growth {
    fn between(old: usize, new: usize) -> Self {
        let large = |bytes: usize| if bytes > SMALL_BODY_BYTES_MAX { bytes } else { 0 };
        Growth { total: new - old, large: large(new) - large(old) }
    }
}

/// The bytes that the body of one request takes. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct BodyPermit {
    budget: Arc<BodyBudget>,
    /// Changed by the one reader of the body alone.
    held: AtomicUsize,
}

tokio::task_local! {
    /// The permit of the request that this task answers.
    static OF_REQUEST: Arc<BodyPermit>;
}

impl BodyPermit {
    pub(super) fn new(budget: &Arc<BodyBudget>) -> Arc<Self> {
        Arc::new(BodyPermit { budget: budget.clone(), held: AtomicUsize::new(0) })
    }

    /// The permit of the request that this task answers; none if it has no body.
    pub(super) fn of_request() -> Option<Arc<Self>> {
        OF_REQUEST.try_with(Arc::clone).ok()
    }

    /// Has a task, or a part of one, share this permit until it ends or is dropped.
    pub(super) fn during<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        OF_REQUEST.scope(self, work)
    }

    /// Makes the permit one for at least this number of bytes.
    pub(super) fn hold(&self, bytes: usize) -> Result<(), NoRoom> {
        let held = self.held.load(Ordering::Relaxed);
        if bytes <= held {
            return Ok(());
        }
        self.budget.take(Growth::between(held, bytes))?;
        self.held.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a body that announces this number of bytes would fit now. Takes nothing.
    pub(super) fn expect_room(&self, bytes: usize) -> Result<(), NoRoom> {
        if self.budget.has_room(bytes) { Ok(()) } else { Err(NoRoom) }
    }

    /// Whether the body is one of those that a lack of room is blamed on: large, while large ones are many.
    pub(super) fn is_in_the_way(&self) -> bool {
        self.is_large() && self.budget.is_crowded()
    }

    pub(super) fn is_large(&self) -> bool {
        self.held.load(Ordering::Relaxed) > SMALL_BODY_BYTES_MAX
    }

    /// Notes that its request is refused for want of room.
    pub(super) fn note_refusal(&self) {
        self.budget.refused.add(1);
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        self.budget.give(Growth::between(0, *self.held.get_mut()));
    }
}

/// Has a task that outlives the request's handler keep the permit of the request's body.
pub(super) async fn with_permit<T>(work: impl Future<Output = T>, permit: Option<Arc<BodyPermit>>) -> T {
    match permit {
        Some(permit) => permit.during(work).await,
        None => work.await,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn large_bodies_leave_a_share_to_small_ones() {
        let budget = BodyBudget::new(16 * MIB, MIB);
        let [large, more] = [(), ()].map(|()| BodyPermit::new(&budget));
        large.hold(14 * MIB).unwrap();
        assert_eq!(more.hold(SMALL_BODY_BYTES_MAX + 1), Err(NoRoom));
        let small: Vec<_> = (0..32).map(|_| BodyPermit::new(&budget)).collect();
        assert!(small.iter().all(|small| small.hold(SMALL_BODY_BYTES_MAX).is_ok()));
        assert_eq!((budget.bytes(), more.hold(1)), (16 * MIB, Err(NoRoom)));
        drop(small);
        assert_eq!(more.hold(1), Ok(()));
        drop((large, more));
        assert_eq!((budget.bytes(), budget.large.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn the_largest_body_fits_whatever_the_budget_is() {
        for (total, body) in [(MIB, MIB), (MIB, MIB - 1), (8 * MIB, MIB), (9 * MIB, 8 * MIB)] {
            assert_eq!(BodyPermit::new(&BodyBudget::new(total, body)).hold(body), Ok(()), "{total} {body}");
        }
    }

    #[test]
    fn a_body_that_does_not_fit_takes_nothing() {
        let budget = BodyBudget::new(4 * MIB, MIB);
        let (one, other) = (BodyPermit::new(&budget), BodyPermit::new(&budget));
        one.hold(3 * MIB).unwrap();
        assert_eq!((other.hold(MIB), other.expect_room(MIB), budget.bytes()), (Err(NoRoom), Err(NoRoom), 3 * MIB));
        assert!(one.is_in_the_way() && !other.is_in_the_way());
    }

    proptest! {
        #![proptest_config(crate::seeds::config("body_budget"))]

        /// Whatever bodies grow and end, the sums are those of the bodies, and within their bounds.
        #[test]
        fn the_sums_are_those_of_the_permits(steps in prop::collection::vec((0..6_usize, 0..200_000_usize, any::<bool>()), 0..80)) {
            let budget = BodyBudget::new(512 * 1024, 200_000);
            let mut permits: Vec<_> = (0..6).map(|_| BodyPermit::new(&budget)).collect();
            let mut held = [0; 6];
            for (at, bytes, ends) in steps {
                if ends {
                    (permits[at], held[at]) = (BodyPermit::new(&budget), 0);
                } else if permits[at].hold(bytes).is_ok() {
                    held[at] = held[at].max(bytes);
                }
                let large: usize = held.iter().filter(|held| **held > SMALL_BODY_BYTES_MAX).sum();
                prop_assert_eq!((budget.bytes(), budget.large.load(Ordering::Relaxed)), (held.iter().sum(), large));
                prop_assert!(budget.bytes() <= budget.total_max && large <= budget.large_max);
            }
        }
    }
}
