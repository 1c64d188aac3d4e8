//! Sealing an orphaned run for the readers that wait for it. Reading never writes a journal; only the timer does this.

use std::sync::Arc;
use std::time::Duration;

use super::judge::Liveness;
use crate::model::{Event, RunEnd, RunId, SessionId};
use crate::sidecar::SidecarError;
use crate::storage::{Durability, Seal, StorageError};
use crate::store::run_handle::GoesOn;
use crate::store::session_locks::SessionLock;
use crate::store::{Shared, StoreError};

/// How soon a run is examined again whose session another thread is changing.
const BUSY_RETRY: Duration = Duration::from_millis(50);

/// How soon a run is examined again that could not be sealed or saved: the disk is full, or its journal cannot be written.
const FAILED_RETRY: Duration = Duration::from_secs(1);

/// What an examination of a run found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Examined {
    /// Nothing for its readers. It is examined again after this much awake time; none while a producer in this process
    /// holds the run.
    Waits(Option<Duration>),
    /// Its readers have something to read, or its end to report.
    Over,
}

impl Shared {
    /// Looks whether a run that readers wait for is over, and seals it if it is orphaned.
    ///
    /// A crash after the append leaves a sealed journal, which the next full read folds.
    pub(in crate::store) fn examine(&self, session: &SessionId, run: &RunId) -> Result<Examined, StoreError> {
        let lock = self.locks.of(session);
        if !self.storage.can_write() {
            let end = self.end_for_reader(session, run)?;
            return Ok(if end.is_some() { Examined::Over } else { Examined::Waits(None) });
        }
        match self.liveness_of(&lock, session, run)? {
            Liveness::Live { for_at_most } => Ok(Examined::Waits(for_at_most)),
            Liveness::Sealed => self.save_hidden_end(&lock, session, run),
            Liveness::Orphaned if self.can_seal(session, run)? => self.seal_alone(&lock, session, run),
            Liveness::Orphaned | Liveness::Foreign | Liveness::Gone => Ok(Examined::Over),
        }
    }

    /// Whether an orphaned run can be sealed: this process may write, the journal holds events and takes another one.
    pub(in crate::store) fn can_seal(&self, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        let takes_appends = |birth: crate::storage::Birth| birth.takes_appends;
        Ok(self.storage.can_write()
            && self.storage.journal_len(session, run)?.is_some_and(|bytes| bytes > 0)
            && self.storage.birth(session, run)?.is_some_and(takes_appends))
    }

    fn seal_alone(&self, lock: &Arc<SessionLock>, session: &SessionId, run: &RunId) -> Result<Examined, StoreError> {
        let Some(_alone) = lock.document.try_lock() else { return Ok(Examined::Waits(Some(BUSY_RETRY))) };
        // Its producer may have come back meanwhile.
        match self.liveness_of(lock, session, run)? {
            Liveness::Orphaned => self.seal(lock, session, run),
            _ => Ok(Examined::Waits(Some(BUSY_RETRY))),
        }
    }

    fn seal(&self, lock: &Arc<SessionLock>, session: &SessionId, run: &RunId) -> Result<Examined, StoreError> {
        let was_open = lock.open_run(run).is_some();
        let journal = match self.open_journal(lock, session, run) {
            Err(StoreError::Storage(StorageError::Fenced { .. })) => return Ok(Examined::Over),
            // Its journal cannot be written at the moment.
            Err(StoreError::Storage(StorageError::Withheld { .. })) => return Ok(Examined::Waits(Some(FAILED_RETRY))),
            opened => opened?,
        };
        if journal.seal() != Seal::Open {
            return self.save_hidden_end(lock, session, run);
        }
        if !was_open {
            // Readers may have left it while it was closed.
            journal.set_left(true);
        }
        let goes_on = self.let_go_on(lock, &journal)?;
        let ended = journal.append(&[Event::end(RunEnd::InterruptedByCrash)], Durability::Durable)?;
        let saved = ended.ticket.wait().map_err(StoreError::from).and_then(|_| {
            self.meter().dead_runs_closed.add(1);
            self.liveness.end_lease(session, run);
            let _ = self.storage.forget_renewal(session, run);
            self.resolve_alone(lock, session)
        });
        match saved {
            Ok(_) | Err(StoreError::NotFound { .. }) => {
                self.show_saved_end(lock, run);
                if goes_on == GoesOn::TellAfter {
                    self.tell_resumed(session, run);
                }
                Ok(Examined::Over)
            }
            Err(error) => {
                self.keep_hidden(lock, &journal);
                Err(error)
            }
        }
    }

    /// Saves an answer whose end was written and could not be saved, if it can be by now. While the disk does not take it,
    /// the readers wait on; a document that cannot take it is an error.
    fn save_hidden_end(
        &self,
        lock: &Arc<SessionLock>,
        session: &SessionId,
        run: &RunId,
    ) -> Result<Examined, StoreError> {
        let is_hidden = lock.open_run(run).is_some_and(|journal| journal.hidden_end().is_some());
        if !is_hidden || !self.storage.can_write() {
            return Ok(Examined::Over);
        }
        let Some(_alone) = lock.document.try_lock().filter(|_| lock.may_try_to_save()) else {
            return Ok(Examined::Waits(Some(BUSY_RETRY)));
        };
        match self.save_end(lock, session, run) {
            Err(
                StoreError::Storage(_) | StoreError::Sidecar(SidecarError::Storage(_) | SidecarError::Conflict { .. }),
            ) => Ok(Examined::Waits(Some(FAILED_RETRY))),
            saved => saved.map(|_| Examined::Over),
        }
    }

    /// Forgets the lease of a run that has ended, in memory and on disk.
    pub(in crate::store) fn end_lease(&self, session: &SessionId, run: &RunId) {
        if self.liveness.end_lease(session, run) {
            // A note that stays is harmless: the run is sealed.
            let _ = self.storage.forget_renewal(session, run);
        }
    }
}

#[cfg(test)]
mod tests;
