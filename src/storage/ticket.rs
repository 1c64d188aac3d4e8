//! The promise of durability that an append gives, to be waited for or to be told of.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::sync::{Condvar, Mutex};

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
    /// Whether another thread than the caller's settles batches and calls back.
    fn calls_back(&self) -> bool;
    /// Has the batch that is gathered settled soon, and its callbacks called.
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

    /// Calls back, once, when it is settled: here and now if it is, else in a thread that holds no lock of ours and
    /// belongs to all tickets. What takes long there delays all other callbacks. If that thread could not be started, this
    /// call waits and calls back itself. On a simulated disk [`Store::commit`](crate::Store::commit) calls back.
    pub fn on_durable(self, callback: impl FnOnce(Result<Option<Durable>, StorageError>) + Send + 'static) {
        let settled = match self.claim {
            Claim::Pending(batch, commits) => {
                if !commits.calls_back() {
                    commits.settle(&batch);
                }
                let callback: Callback = Box::new(move |outcome| callback(told(Some(outcome.clone()))));
                match batch.call_back(callback) {
                    None => commits.hurry(),
                    Some((callback, outcome)) => callback(&outcome),
                }
                return;
            }
            Claim::NotAskedFor => None,
            Claim::Settled(outcome) => Some(outcome),
        };
        callback(told(settled));
    }

    /// The same for ourselves, who are in no hurry, do little, and may be called with any lock held.
    pub(crate) fn when_settled(&self, callback: impl FnOnce(bool) + Send + 'static) {
        match &self.claim {
            Claim::NotAskedFor => callback(true),
            Claim::Settled(outcome) => callback(outcome.is_ok()),
            Claim::Pending(batch, _) => batch.when_settled(Box::new(move |outcome| callback(outcome.is_ok()))),
        }
    }
}

fn told(outcome: Option<Outcome>) -> Result<Option<Durable>, StorageError> {
    outcome.transpose().map_err(|error| *error)
}

/// Somebody who wants to be told.
pub(super) type Callback = Box<dyn FnOnce(&Outcome) + Send>;

/// Tells somebody. One caller's panic is not to keep the next from being told.
pub(super) fn tell(callback: Callback, outcome: &Outcome) {
    let _ = catch_unwind(AssertUnwindSafe(|| callback(outcome)));
}

/// Appends that one sync makes durable.
#[derive(Default)]
pub(super) struct Batch {
    state: Mutex<BatchState>,
    settled: Condvar,
}

#[derive(Default)]
struct BatchState {
    outcome: Option<Outcome>,
    /// Our own.
    notes: Vec<Callback>,
    /// Other people's.
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

    /// Settles it for good, and gives those who are still to be told: other people's callbacks, which may do anything.
    pub(super) fn settle(&self, outcome: &Outcome) -> Vec<Callback> {
        let (notes, callbacks) = {
            let mut state = self.state.lock();
            state.outcome.get_or_insert_with(|| outcome.clone());
            (std::mem::take(&mut state.notes), std::mem::take(&mut state.callbacks))
        };
        self.settled.notify_all();
        notes.into_iter().for_each(|note| tell(note, outcome));
        callbacks
    }

    fn when_settled(&self, note: Callback) {
        let mut state = self.state.lock();
        match state.outcome.clone() {
            None => state.notes.push(note),
            Some(outcome) => {
                drop(state);
                note(&outcome);
            }
        }
    }

    /// Keeps a callback for later, or gives it back with the outcome if there is one.
    fn call_back(&self, callback: Callback) -> Option<(Callback, Outcome)> {
        let mut state = self.state.lock();
        match state.outcome.clone() {
            Some(outcome) => Some((callback, outcome)),
            None => {
                state.callbacks.push(callback);
                None
            }
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("outcome", &self.outcome()).finish_non_exhaustive()
    }
}
