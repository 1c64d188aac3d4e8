//! One load that many wait for.

use std::sync::Arc;

use crate::sync::{Condvar, Mutex};

/// A load under way. A loader that panics lands without a result; then those who waited load for themselves.
#[derive(Debug)]
pub(super) struct Flight<V, E> {
    landed: Mutex<Landed<V, E>>,
    told: Condvar,
}

#[derive(Debug)]
enum Landed<V, E> {
    NotYet,
    With(Result<Arc<V>, E>),
    Never,
}

impl<V, E> Default for Flight<V, E> {
    fn default() -> Self {
        Flight { landed: Mutex::new(Landed::NotYet), told: Condvar::new() }
    }
}

impl<V, E: Clone> Flight<V, E> {
    /// What the load gave; nothing if its loader is gone.
    pub(super) fn wait(&self) -> Option<Result<Arc<V>, E>> {
        let mut landed = self.landed.lock();
        while matches!(*landed, Landed::NotYet) {
            self.told.wait(&mut landed);
        }
        match &*landed {
            Landed::With(result) => Some(result.clone()),
            Landed::NotYet | Landed::Never => None,
        }
    }

    /// Whether its loader is gone and left nothing.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(*self.landed.lock(), Landed::Never)
    }

    /// The duty to tell those who wait, whatever happens.
    pub(super) fn landing(self: &Arc<Self>) -> Landing<V, E> {
        Landing { flight: self.clone() }
    }

    fn tell(&self, landed: Landed<V, E>) {
        let mut known = self.landed.lock();
        if matches!(*known, Landed::NotYet) {
            *known = landed;
        }
        self.told.notify_all();
    }
}

/// Tells those who wait when it is dropped, if nobody did before.
pub(super) struct Landing<V, E: Clone> {
    flight: Arc<Flight<V, E>>,
}

impl<V, E: Clone> Landing<V, E> {
    /// Tells those who wait, and gives the same to the caller.
    pub(super) fn tell(self, result: Result<Arc<V>, E>) -> Result<Arc<V>, E> {
        self.flight.tell(Landed::With(result.clone()));
        result
    }
}

impl<V, E: Clone> Drop for Landing<V, E> {
    fn drop(&mut self) {
        self.flight.tell(Landed::Never);
    }
}
