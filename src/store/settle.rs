//! The end of a turn: a sealed run's events become rows of the transcript, once, and the turn is no longer pending.

use std::sync::Arc;

use super::read::Cached;
use super::regenerate::is_shorter;
use super::session_locks::SessionLock;
use super::{Shared, StoreError};
use crate::journal::end_of;
use crate::model::{Branch, BranchReason, Metadata, NotAList, RunId, Session, SessionId, TurnNote};
use crate::recovery::{
    self, Evidence, Late, fold_ended, fold_late, fold_limit, has_late_marker, replace_late, store_large, waits_for_end,
    without_replaced,
};
use crate::sidecar::{SaveIntent, SaveOptions, SidecarError};
use crate::storage::ObjectKind;

/// What the end of a run makes of its session.
struct Settled {
    /// The session with the run's answer in it; nothing if it stays as it is.
    session: Option<Session>,
    /// A branch that is to be stored before.
    branch: Option<Branch>,
    /// Whether the branch of this run is over then: its rows stand in the transcript.
    ends_branch: bool,
}

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
        let note = self.note_to_settle(session, run)?;
        let failed = self.failed_branch(&read.session, run, &note)?;
        if !waits_for(&read.session, run) && failed.is_none() {
            // A repeat of the end costs no reading of the journal.
            return Ok(false);
        }
        let before = without_replaced(&read.session, &note);
        let limit = fold_limit(before.as_ref().unwrap_or(&read.session), run.as_str(), self.options.document_bytes_max);
        let evidence = recovery::read(&self.storage, session, run, limit)?;
        self.meter().damaged_lines.add(evidence.damaged);
        let settled = self
            .settled(&read.session, run, &evidence, &note, failed.as_ref())
            .map_err(|source| StoreError::WrongShape { session: session.clone(), source })?;
        if settled.session.is_some() || settled.branch.is_some() {
            store_large(&self.storage, session, &evidence.folded.large)?;
        }
        let after = settled.session.as_ref().unwrap_or(&read.session);
        settled.branch.iter().try_for_each(|branch| self.put_replaced(&read.session, branch, after))?;
        let Some(folded) = settled.session else { return Ok(settled.branch.is_some()) };
        let intent = if is_shorter(&folded, &read.session) { SaveIntent::Shrink } else { SaveIntent::Keep };
        self.save(&folded, SaveOptions { intent, ..SaveOptions::default() })?;
        if settled.ends_branch {
            self.storage.remove_object(session, ObjectKind::Branch, run.as_str())?;
        }
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

    /// Settles the runs that ended after their attempts became branches, and whose ends a crash or a full disk kept out of
    /// branch and transcript. Looks once after the session was loaded, and again after an end that could not be saved. A session
    /// is never withheld because of its branches. The caller holds the session's lock.
    pub(super) fn settle_branches(
        &self,
        lock: &Arc<SessionLock>,
        read: Arc<Cached>,
    ) -> Result<Arc<Cached>, StoreError> {
        if lock.has_settled_branches() || !self.storage.can_write() {
            return Ok(read);
        }
        let id = read.session.id();
        // What cannot be listed now is looked at by a later read.
        let Ok(keys) = self.storage.objects(id, ObjectKind::Branch) else { return Ok(read) };
        let runs = keys.iter().filter_map(|key| RunId::parse(key).ok());
        let runs: Vec<RunId> = runs.filter(|run| self.has_unsettled_branch(lock, &read.session, run)).collect();
        let settled: Vec<_> = runs.iter().map(|run| self.save_end(lock, id, run)).collect();
        lock.note_branches(!settled.iter().any(|settled| settled.as_ref().is_err_and(may_be_saved_later)));
        if runs.is_empty() { Ok(read) } else { self.read(id) }
    }

    fn has_unsettled_branch(&self, lock: &Arc<SessionLock>, session: &Session, run: &RunId) -> bool {
        let note = self.turn_note(session.id(), run).ok().flatten().unwrap_or_default();
        let branch = self.failed_branch(session, run, &note).ok().flatten();
        let has_hidden_end = || lock.open_run(run).is_some_and(|journal| journal.hidden_end().is_some());
        branch.is_some_and(|branch| waits_for_end(&branch))
            && (has_hidden_end() || self.has_ended(lock, session.id(), run))
    }

    /// The branch of a run that was to replace a turn and was given up for dead. Nothing if its rows are in the transcript.
    fn failed_branch(&self, session: &Session, run: &RunId, note: &TurnNote) -> Result<Option<Branch>, StoreError> {
        let is_active = session.active_run().as_deref() == Some(run.as_str());
        if note.replaces.is_none() || is_active || session.mentions(run) {
            return Ok(None);
        }
        let branch = self.branch(session.id(), run.as_str())?;
        Ok(branch.filter(|branch| branch.reason == BranchReason::Failed))
    }

    /// What becomes of the session. Nothing changes if the answer is there already.
    fn settled(
        &self,
        session: &Session,
        run: &RunId,
        evidence: &Evidence,
        note: &TurnNote,
        failed: Option<&Branch>,
    ) -> Result<Settled, NotAList> {
        let (now, run) = (self.clock.now(), run.as_str());
        if session.active_run().as_deref() == Some(run) {
            let mut session = session.clone();
            let branch = fold_ended(&mut session, run, evidence, note, now)?;
            return Ok(Settled { session: Some(session), branch, ends_branch: false });
        }
        let Some(failed) = failed else {
            let session = fold_late(session, run, evidence, now)?;
            return Ok(Settled { session, branch: None, ends_branch: false });
        };
        let late = replace_late(session, run, evidence, failed, note, now)?;
        let (session, branch) = late.map_or((None, None), |Late { session, branch }| (session, Some(branch)));
        Ok(Settled { ends_branch: session.is_some(), session, branch })
    }
}

/// Whether a session has a place for what a run's journal says: it waits for the run, or holds its marker.
fn waits_for(session: &Session, run: &RunId) -> bool {
    session.active_run().as_deref() == Some(run.as_str()) || has_late_marker(session, run.as_str())
}

/// Whether an end that was not saved may be saved by a later read.
fn may_be_saved_later(error: &StoreError) -> bool {
    error.storage().is_some() || matches!(error, StoreError::Sidecar(SidecarError::Conflict { .. }))
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
