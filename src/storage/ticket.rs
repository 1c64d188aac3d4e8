//! The promise of durability that an append gives, to be waited for or to be told of.

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
/// Today each journal syncs its own file before the ticket is handed out, so that it is always settled. Callers must
/// not count on that: one sync for all journals will settle tickets later and from another thread.
#[derive(Debug, Clone)]
#[must_use = "a ticket says when an append is durable"]
pub struct Ticket {
    settled: Result<Durable, Unsynced>,
}

#[derive(Debug, Clone)]
enum Unsynced {
    NotAskedFor,
    Failed(Box<StorageError>),
}

impl Ticket {
    pub(super) fn durable(proof: Durable) -> Self {
        Ticket { settled: Ok(proof) }
    }

    pub(crate) fn buffered() -> Self {
        Ticket { settled: Err(Unsynced::NotAskedFor) }
    }

    pub(crate) fn failed(error: Box<StorageError>) -> Self {
        Ticket { settled: Err(Unsynced::Failed(error)) }
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.settled, Err(Unsynced::Failed(_)))
    }

    /// Waits until what was appended, and everything before it, survives a power cut. `None` if that was not asked for.
    pub fn wait(self) -> Result<Option<Durable>, StorageError> {
        match self.settled {
            Ok(proof) => Ok(Some(proof)),
            Err(Unsynced::NotAskedFor) => Ok(None),
            Err(Unsynced::Failed(error)) => Err(*error),
        }
    }

    /// Calls back, once, when it is settled.
    pub fn on_durable(self, callback: impl FnOnce(Result<Option<Durable>, StorageError>) + Send + 'static) {
        callback(self.wait());
    }
}
