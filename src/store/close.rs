//! A run whose producer is gone is closed for those who wait for it, and only for them: reading never writes a journal.

use std::sync::Arc;

use super::gates::Gate;
use super::{Shared, StoreError};
use crate::model::{Event, RunId, SessionId};
use crate::sidecar::SidecarError;
use crate::storage::{Durability, Seal, StorageError};

const GONE: &str = "The producer of this answer went away before it ended.";

/// What became of a run that somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// It goes on, or may do so, or has ended by itself.
    Waiting,
    /// It was ended here.
    Sealed,
    /// It can never take another event, not even one that says so.
    Over,
}

impl Shared {
    /// Ends a run of ours if it is dead and holds anything. A journal that is missing, empty, or another program's is
    /// left alone: it may still arrive.
    ///
    /// A crash after the append leaves a sealed journal, which the next full read folds.
    pub(super) fn close_if_dead(&self, session: &SessionId, run: &RunId) -> Result<Closing, StoreError> {
        let gate = self.gates.of(session);
        if self.storage.can_write()
            && gate.open_run(run).is_some_and(|journal| journal.hidden_end().is_some() && journal.is_surely_sealed())
        {
            self.try_to_save_end(&gate, session, run)?;
            return Ok(Closing::Waiting);
        }
        if !self.storage.can_write() || !self.is_gone(&gate, session, run)? {
            return Ok(Closing::Waiting);
        }
        let Some(_alone) = gate.document.try_lock() else { return Ok(Closing::Waiting) };
        match self.is_gone(&gate, session, run)? {
            true => self.close(&gate, session, run),
            false => Ok(Closing::Waiting),
        }
    }

    /// Saves an answer whose end was written and could not be saved, if it can be by now. While the disk does not take it,
    /// the follower waits on; a document that cannot take it is reported.
    fn try_to_save_end(&self, gate: &Arc<Gate>, session: &SessionId, run: &RunId) -> Result<(), StoreError> {
        let Some(_alone) = gate.document.try_lock().filter(|_| gate.may_try_to_save()) else { return Ok(()) };
        match self.save_end(gate, session, run) {
            Err(
                StoreError::Storage(_) | StoreError::Sidecar(SidecarError::Storage(_) | SidecarError::Conflict { .. }),
            ) => Ok(()),
            saved => saved.map(drop),
        }
    }

    /// Whether nobody will append to the run any more, and there is something to end.
    fn is_gone(&self, gate: &Gate, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        if self.storage.journal_len(session, run)?.is_none_or(|bytes| bytes == 0) {
            return Ok(false);
        }
        self.is_left(gate, session, run)
    }

    /// Whether nobody will append to a run of ours any more, as far as anybody knows.
    fn is_left(&self, gate: &Gate, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        if gate.is_held(run) {
            return Ok(false);
        }
        let Some(birth) = self.storage.birth(session, run)? else { return Ok(false) };
        Ok(self.is_due(Some(birth.begun_at)) && !self.is_leased(gate, session, run))
    }

    /// Whether nobody will append to a run any more, whoever's it is. Another program's goes on while its session waits for
    /// it, unless that turn is dead.
    pub(super) fn is_abandoned(&self, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        let gate = self.gates.of(session);
        if gate.is_held(run) {
            return Ok(false);
        }
        if self.storage.birth(session, run)?.is_some() {
            return self.is_left(&gate, session, run);
        }
        let read = match self.read(session) {
            Err(StoreError::NotFound { .. }) => return Ok(true),
            read => read?,
        };
        let is_awaited = read.session.active_run().as_deref() == Some(run.as_str());
        Ok(!is_awaited || self.is_dead(&gate, &read.session))
    }

    fn close(&self, gate: &Arc<Gate>, session: &SessionId, run: &RunId) -> Result<Closing, StoreError> {
        let journal = match self.open_journal(gate, session, run) {
            Err(StoreError::Storage(StorageError::Fenced { .. })) => return Ok(Closing::Over),
            // Its journal cannot be written at the moment.
            Err(StoreError::Storage(StorageError::Withheld { .. })) => return Ok(Closing::Waiting),
            opened => opened?,
        };
        if journal.seal() != Seal::Open {
            return Ok(Closing::Waiting);
        }
        let ended = journal.append(&[Event::error("interrupted", GONE)], Durability::Durable)?;
        let saved = ended.ticket.wait().map_err(StoreError::from).and_then(|_| {
            self.meter().dead_runs_closed.add(1);
            gate.end_lease(run);
            self.resolve_alone(gate, session)
        });
        match saved {
            Ok(_) | Err(StoreError::NotFound { .. }) => {
                self.show_saved_end(gate, run);
                Ok(Closing::Sealed)
            }
            Err(error) => {
                self.keep_hidden(gate, &journal);
                Err(error)
            }
        }
    }
}
