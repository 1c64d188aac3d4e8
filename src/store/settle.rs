//! The end of a turn: a sealed run's events become rows of the transcript, once, and the turn is no longer pending.

use std::sync::Arc;

use super::session_locks::SessionLock;
use super::{Shared, StoreError};
use crate::journal::end_of;
use crate::model::{List, Metadata, NotAList, RunId, Session, SessionId};
use crate::recovery::{self, Evidence, fold_ended, fold_late, fold_limit};
use crate::sidecar::{SaveIntent, SaveOptions};

impl Shared {
    /// Folds a run that has ended into its session, if the session waits for it or holds its marker, and says whether
    /// it did. The caller holds the session's lock.
    ///
    /// The journal is durable and sealed before. A crash before the save leaves the turn pending and the journal
    /// complete, so that it can be folded again; a crash behind it leaves the transcript.
    pub(super) fn settle(&self, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        let read = match self.read(session) {
            Err(StoreError::NotFound { .. }) => return Ok(false),
            read => read?,
        };
        let limit = fold_limit(&read.session, run.as_str(), self.options.document_bytes_max);
        let evidence = recovery::read(&self.storage, session, run, limit)?;
        self.meter().damaged_lines.add(evidence.damaged);
        let folded = self
            .folded(&read.session, run, &evidence)
            .map_err(|source| StoreError::WrongShape { session: session.clone(), source })?;
        let Some(folded) = folded else { return Ok(false) };
        let shrinks = folded.len(List::Messages) < read.session.len(List::Messages);
        let intent = if shrinks { SaveIntent::Shrink } else { SaveIntent::Keep };
        self.save(&folded, SaveOptions { intent, ..SaveOptions::default() })?;
        if read.session.active_run().as_deref() != Some(run.as_str()) {
            self.meter().recoveries.ended_late.add(1);
        }
        Ok(true)
    }

    /// The same for a run whose end was written and could not be saved: makes it durable first, and shows it afterwards.
    pub(super) fn save_end(
        &self,
        lock: &Arc<SessionLock>,
        session: &SessionId,
        run: &RunId,
    ) -> Result<bool, StoreError> {
        self.make_end_durable(lock, session, run)?;
        let is_folded = self.settle(session, run)?;
        self.show_saved_end(lock, run);
        Ok(is_folded)
    }

    /// To be called before a run is followed that this process has not opened: if its journal holds an end whose answer is not saved,
    /// it is saved now, or hidden because it cannot be.
    pub(super) fn save_or_hide_end(
        &self,
        lock: &Arc<SessionLock>,
        session: &SessionId,
        run: &RunId,
    ) -> Result<(), StoreError> {
        if !self.storage.can_write() || lock.open_run(run).is_some() || !self.is_awaited(session, run) {
            return Ok(());
        }
        // What cannot be told is no reason to show nothing.
        if !matches!(self.storage.birth(session, run), Ok(Some(_))) || !self.has_ended(lock, session, run) {
            return Ok(());
        }
        let _alone = lock.document.lock();
        match self.resolve_alone(lock, session) {
            Err(error) if error.storage().is_some() => self.hide_unsaved_end(lock, session, run),
            // What else is wrong is reported to those who read the session.
            _ => Ok(()),
        }
    }

    /// Whether a session waits for this run, as far as can be told.
    pub(super) fn is_awaited(&self, session: &SessionId, run: &RunId) -> bool {
        let is_active = |metadata: Metadata| metadata.active_run().as_deref() == Some(run.as_str());
        self.metadata(session).is_ok_and(is_active)
    }

    fn hide_unsaved_end(&self, lock: &Arc<SessionLock>, session: &SessionId, run: &RunId) -> Result<(), StoreError> {
        let Some(place) = end_of(&self.storage, session, run)? else { return Ok(()) };
        // One that cannot be opened is shown as it is.
        let Ok(journal) = self.open_journal(lock, session, run) else { return Ok(()) };
        if journal.seal().is_sealed() && journal.hidden_end().is_none() {
            journal.hide_end_from(place);
            self.keep_hidden(lock, &journal);
        }
        Ok(())
    }

    /// Makes the end of a run durable. A journal that has failed is opened again, which mends and syncs it.
    pub(super) fn make_end_durable(
        &self,
        lock: &Arc<SessionLock>,
        session: &SessionId,
        run: &RunId,
    ) -> Result<(), StoreError> {
        if lock.open_run(run).is_some_and(|open| open.has_failed()) {
            self.open_journal(lock, session, run)?;
        }
        Ok(self.storage.commit()?)
    }

    /// The session with the run's answer in it; nothing if it is there already.
    fn folded(&self, session: &Session, run: &RunId, evidence: &Evidence) -> Result<Option<Session>, NotAList> {
        let now = self.clock.now();
        if session.active_run().as_deref() != Some(run.as_str()) {
            return fold_late(session, run.as_str(), evidence, now);
        }
        let mut session = session.clone();
        fold_ended(&mut session, run.as_str(), evidence, now)?;
        Ok(Some(session))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::model::Event;
    use crate::storage::sim::{Fault, SimDisk};
    use crate::store::{NewSession, Options, Outcome, Store, UserTurn};

    #[test]
    fn a_journal_whose_end_is_shown_is_not_held_open() {
        let store = Store::open_on(Arc::new(SimDisk::new()), "/data", Options::default()).unwrap();
        let id = store.create(NewSession::titled("x")).unwrap();
        let run = store.begin_run(&id, UserTurn::text("x")).unwrap();
        run.finish(Outcome::Completed).unwrap();
        run.append(Event::done()).unwrap_err();
        let name = run.id().clone();
        drop(run);
        assert!(store.shared.hidden.lock().is_empty());
        assert!(store.shared.locks.of(&id).open_run(&name).is_none());
    }
    /// The disk is full at one operation of the end after the other. Where that hides the end, the next read shows it.
    #[test]
    fn a_journal_whose_end_is_saved_after_all_is_not_held_open() {
        let mut hidden = 0;
        for operation in 1..40 {
            let disk = SimDisk::new();
            let store = Store::open_on(Arc::new(disk.clone()), "/data", Options::default()).unwrap();
            let id = store.create(NewSession::titled("x")).unwrap();
            let run = store.begin_run(&id, UserTurn::text("x")).unwrap();
            disk.fail(disk.operations() + operation, Fault::Enospc);
            let finished = run.finish(Outcome::Completed);
            let name = run.id().clone();
            drop(run);
            if finished.is_ok() || store.shared.hidden.lock().is_empty() || !store.is_writable() {
                continue;
            }
            hidden += 1;
            assert!(store.get_session(&id).unwrap().pending_turn().is_none(), "{operation}");
            assert!(store.shared.hidden.lock().is_empty(), "{operation}");
            assert!(store.shared.locks.of(&id).open_run(&name).is_none(), "{operation}");
        }
        assert!(hidden > 0, "no operation was one of those that save the answer");
    }
}
