//! The promise of durability that an append gives, to be waited for or to be told of.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::error::StorageError;

/// Proof that lines survive a power cut. Only a sync makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durable(());

impl Durable {
    /// To be called right behind a sync that succeeded, and nowhere else.
    pub(super) fn after_sync() -> Self {
        Durable(())
    }
}

/// A claim on the durability of what was appended. Dropping it takes nothing back.
///
/// One sync makes many appends durable; their tickets are settled together, by the thread that made it.
#[derive(Debug, Clone)]
#[must_use = "a ticket says when an append is durable"]
pub struct Ticket {
    claim: Claim,
}

#[derive(Debug, Clone)]
enum Claim {
    NotAskedFor,
    Settled(Outcome),
    Pending(Arc<Batch>, Arc<dyn Commits>),
}

/// How a sync ended.
pub(super) type Outcome = Result<Durable, Box<StorageError>>;

/// Whoever makes batches durable.
pub(super) trait Commits: Send + Sync + fmt::Debug {
    /// Returns when the batch is settled.
    fn settle(&self, batch: &Batch);
    /// Somebody waits to be told; the batch is to be settled soon, by another thread if there is one.
    fn hurry(&self);
}

impl Ticket {
    pub(super) fn pending(batch: Arc<Batch>, commits: Arc<dyn Commits>) -> Self {
        Ticket { claim: Claim::Pending(batch, commits) }
    }

    pub(crate) fn buffered() -> Self {
        Ticket { claim: Claim::NotAskedFor }
    }

    pub(crate) fn failed(error: Box<StorageError>) -> Self {
        Ticket { claim: Claim::Settled(Err(error)) }
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.outcome(), Some(Err(_)))
    }

    /// How it ended; nothing while it has not, or if durability was not asked for.
    fn outcome(&self) -> Option<Outcome> {
        match &self.claim {
            Claim::NotAskedFor => None,
            Claim::Settled(outcome) => Some(outcome.clone()),
            Claim::Pending(batch, _) => batch.outcome(),
        }
    }

    /// Whether what was appended, and everything before it, survives a power cut by now.
    pub fn is_durable(&self) -> bool {
        matches!(self.outcome(), Some(Ok(_)))
    }

    /// Waits until what was appended, and everything before it, survives a power cut. `None` if that was not asked for.
    pub fn wait(self) -> Result<Option<Durable>, StorageError> {
        if let Claim::Pending(batch, commits) = &self.claim {
            commits.settle(batch);
        }
        told(self.outcome())
    }

    /// Calls back, once, when it is settled: here and now if it is, else in the thread that settles it. What takes long
    /// there keeps everybody else's tickets waiting.
    pub fn on_durable(self, callback: impl FnOnce(Result<Option<Durable>, StorageError>) + Send + 'static) {
        let settled = match self.claim {
            Claim::Pending(batch, commits) => {
                if batch.when_settled(Box::new(move |outcome| callback(told(Some(outcome.clone()))))) {
                    commits.hurry();
                }
                return;
            }
            Claim::NotAskedFor => None,
            Claim::Settled(outcome) => Some(outcome),
        };
        callback(told(settled));
    }

    /// The same for somebody who is in no hurry: it is settled when it is settled.
    pub(crate) fn when_settled(&self, callback: impl FnOnce(bool) + Send + 'static) {
        match &self.claim {
            Claim::NotAskedFor => callback(true),
            Claim::Settled(outcome) => callback(outcome.is_ok()),
            Claim::Pending(batch, _) => drop(batch.when_settled(Box::new(move |outcome| callback(outcome.is_ok())))),
        }
    }
}

fn told(outcome: Option<Outcome>) -> Result<Option<Durable>, StorageError> {
    outcome.transpose().map_err(|error| *error)
}

type Callback = Box<dyn FnOnce(&Outcome) + Send>;

/// Appends that one sync makes durable.
#[derive(Default)]
pub(super) struct Batch {
    state: Mutex<BatchState>,
    settled: Condvar,
}

#[derive(Default)]
struct BatchState {
    outcome: Option<Outcome>,
    callbacks: Vec<Callback>,
}

impl Batch {
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.state.lock().outcome.clone()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.state.lock().outcome.is_some()
    }

    /// Waits for somebody else to settle it.
    pub(super) fn wait(&self) {
        let mut state = self.state.lock();
        while state.outcome.is_none() {
            self.settled.wait(&mut state);
        }
    }

    /// Settles it for good, and tells everybody who asked.
    pub(super) fn settle(&self, outcome: &Outcome) {
        let callbacks = {
            let mut state = self.state.lock();
            state.outcome.get_or_insert_with(|| outcome.clone());
            std::mem::take(&mut state.callbacks)
        };
        self.settled.notify_all();
        for callback in callbacks {
            // One caller's panic is not to keep the next from being told.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(outcome)));
        }
    }

    /// Calls back when it is settled, or at once if it is. Says whether that is still to come.
    fn when_settled(&self, callback: Callback) -> bool {
        let mut state = self.state.lock();
        match state.outcome.clone() {
            None => {
                state.callbacks.push(callback);
                true
            }
            Some(outcome) => {
                drop(state);
                callback(&outcome);
                false
            }
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("outcome", &self.outcome()).finish_non_exhaustive()
    }
}
