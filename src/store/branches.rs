//! Branches: turns that were replaced, and attempts to replace one that failed. Listed, and put back into the transcript.
//!
//! Restoring swaps rows: those that stand in the transcript become a branch, the document is saved with the others, and their
//! branch is removed. What a crash leaves:
//!
//! - after the first: a branch whose rows stand in the transcript, which is not listed; a repeat stores it again under the same id,
//!   and what else takes these rows out of the transcript removes it;
//! - after the second: the restored branch, which is not listed either, because its rows stand in the transcript; a repeat, or the
//!   next restore of it, removes it;
//! - after the third: nothing.

use std::sync::Arc;

use super::session_locks::SessionLock;
use super::{Shared, Store, StoreError};
use crate::format::{encode_branch, read_branch};
use crate::model::{
    Branch, BranchReason, BranchSummary, Cut, NotAList, Revision, RunId, Session, SessionId, TurnPlaces,
};
use crate::recovery::is_shown;
use crate::sidecar::{SaveIntent, SaveOptions, SidecarError};
use crate::storage::{ObjectKind, PutObject, StorageError};
use crate::store::regenerate::is_shorter;

impl Store {
    /// The branches of a session, the oldest first. One that cannot be read is passed over.
    pub fn branches(&self, session: &SessionId) -> Result<Vec<BranchSummary>, StoreError> {
        let shared = &self.shared;
        let read = self.get_session(session)?;
        let places = TurnPlaces::of(&read);
        let mut branches: Vec<BranchSummary> = Vec::new();
        for key in shared.storage.objects(session, ObjectKind::Branch)? {
            let branch = shared.listed_branch(session, &key)?;
            let shown = branch.filter(|branch| is_shown(&read, &places, branch));
            branches.extend(shown.map(|branch| branch.summary()));
        }
        branches.sort_by(|a, b| {
            let order = a.replaced_at.total_cmp(&b.replaced_at);
            order.then_with(|| a.branch_id.cmp(&b.branch_id))
        });
        Ok(branches)
    }

    /// Puts a branch back into the transcript; the rows that stand in its place become a branch. Nothing if the session is not of
    /// a revision that will do.
    pub fn restore_branch(
        &self,
        session: &SessionId,
        branch: &str,
        will_do: impl FnOnce(Option<&Revision>) -> bool,
    ) -> Result<Option<Arc<Session>>, StoreError> {
        let lock = self.shared.locks.of(session);
        let _alone = lock.document.lock();
        self.shared.restore_alone(&lock, session, branch, will_do)
    }
}

impl Shared {
    /// A stored branch; nothing if there is none, or none that can be read.
    pub(super) fn branch(&self, session: &SessionId, key: &str) -> Result<Option<Branch>, StoreError> {
        let bytes = self.storage.object(session, ObjectKind::Branch, key)?;
        let branch = bytes.and_then(|bytes| read_branch(session, &bytes).ok());
        Ok(branch.filter(|branch| branch.branch_id == key))
    }

    /// The same where one branch must not take the others with it: a file that cannot be read is none. Only an error that
    /// concerns all files, as a lack of descriptors, is returned.
    pub(super) fn listed_branch(&self, session: &SessionId, key: &str) -> Result<Option<Branch>, StoreError> {
        match self.branch(session, key) {
            Err(error) if error.storage().is_some_and(StorageError::is_of_one_object) => Ok(None),
            branch => branch,
        }
    }

    /// The branch whose first turn a run answered: the one of its failed attempt, or one that its turn was cut off into.
    pub(super) fn branch_of_run(&self, session: &SessionId, run: &RunId) -> Result<Option<Branch>, StoreError> {
        let own = self.branch(session, run.as_str())?;
        if let Some(own) = own.filter(|branch| branch.reason == BranchReason::Failed) {
            return Ok(Some(own));
        }
        for key in self.storage.objects(session, ObjectKind::Branch)? {
            let branch = self.listed_branch(session, &key)?;
            if let Some(branch) = branch.filter(|branch| branch.run_id.as_deref() == Some(run.as_str())) {
                return Ok(Some(branch));
            }
        }
        Ok(None)
    }

    /// Stores a branch, durably, in the place of one with the same id.
    pub(super) fn put_branch(&self, session: &SessionId, branch: &Branch) -> Result<(), StoreError> {
        let not_json =
            |list: crate::model::List| SidecarError::NotJson { session: session.clone(), key: list.key().to_owned() };
        let bytes = encode_branch(session, branch).map_err(not_json)?;
        match self.storage.put_object(session, ObjectKind::Branch, &branch.branch_id, &bytes)? {
            PutObject::Stored => Ok(()),
            PutObject::Deleted => Err(SidecarError::Deleted { session: session.clone() }.into()),
        }
    }

    /// Stores the branch of a turn that is replaced, before the document without its rows is saved. With it go branches that a
    /// crash or a full disk left while their rows stood in the transcript: they would be listed beside this one, which has
    /// these rows too.
    pub(super) fn put_replaced(&self, before: &Session, branch: &Branch, after: &Session) -> Result<(), StoreError> {
        let id = before.id();
        self.put_branch(id, branch)?;
        if branch.reason == BranchReason::Failed {
            return Ok(());
        }
        let places = [before, after].map(TurnPlaces::of);
        for key in self.storage.objects(id, ObjectKind::Branch)?.iter().filter(|key| **key != branch.branch_id) {
            let Some(other) = self.listed_branch(id, key)? else { continue };
            if !is_shown(before, &places[0], &other) && is_shown(after, &places[1], &other) {
                self.storage.remove_object(id, ObjectKind::Branch, key)?;
            }
        }
        Ok(())
    }

    fn restore_alone(
        &self,
        lock: &Arc<SessionLock>,
        id: &SessionId,
        key: &str,
        will_do: impl FnOnce(Option<&Revision>) -> bool,
    ) -> Result<Option<Arc<Session>>, StoreError> {
        let session = self.ready_for_turn(lock, id)?;
        if !will_do(session.revision()) {
            return Ok(None);
        }
        let unknown = || StoreError::UnknownBranch { session: id.clone(), branch: key.to_owned() };
        let branch = self.branch(id, key)?.ok_or_else(unknown)?;
        let conflict = || StoreError::BranchConflict { session: id.clone(), branch: key.to_owned() };
        let place = branch.cut.place_in(&session).ok_or_else(conflict)?;
        if branch.cut.stands_at(&session, place) {
            self.storage.remove_object(id, ObjectKind::Branch, key)?;
            return Ok(Some(self.read(id)?.session.clone()));
        }
        let swapped = swap(&session, &branch.cut, place);
        let (restored, cut) = swapped.map_err(|source| StoreError::WrongShape { session: id.clone(), source })?;
        if !cut.rows.is_empty() {
            let reason = match branch.reason {
                BranchReason::Failed => BranchReason::Regenerate,
                reason => reason,
            };
            let replaced = Branch::named_by_rows(cut, reason, self.clock.now().seconds());
            self.put_replaced(&session, &replaced, &restored)?;
        }
        let intent = if is_shorter(&restored, &session) { SaveIntent::Shrink } else { SaveIntent::Keep };
        let saved = match self.save(&restored, SaveOptions { intent, ..SaveOptions::default() }) {
            // Another program was faster.
            Err(StoreError::Sidecar(SidecarError::Conflict { .. })) => return Ok(None),
            saved => saved?,
        };
        self.storage.remove_object(id, ObjectKind::Branch, key)?;
        Ok(Some(saved.session.clone()))
    }
}

/// The session with these rows from a place on, and the rows that stood there.
fn swap(session: &Session, rows: &Cut, place: usize) -> Result<(Session, Cut), NotAList> {
    let mut restored = session.clone();
    let cut = Cut::take(&mut restored, place)?;
    rows.attach(&mut restored)?;
    Ok((restored, cut))
}
