//! Reading sessions: from memory if that is still what the file says, else from the file; never half a save.

use crate::sync::atomic::AtomicBool;
use std::sync::Arc;

use super::liveness::Registry;
use super::session_locks::SessionLock;
use super::sessions::not_found;
use super::{Freshness, Shared, Store, StoreError};
use crate::cache::{CacheSize, Weighed};
use crate::model::{Metadata, Revision, Session, SessionId};
use crate::recovery::Watch;
use crate::sidecar;

/// A session in memory, and what in it calls for another look.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) session: Arc<Session>,
    pub(super) watch: Watch,
    /// A turn waits in it that this process has to see to the end.
    waits: bool,
    /// Whether the journals behind all of its markers were looked at since it was loaded. From then on those of settled turns
    /// are looked at only if this process opens them.
    pub(super) was_looked_through: AtomicBool,
    liveness: Arc<Registry>,
    /// Held with it: the lock knows which runs this process has opened since.
    lock: Arc<SessionLock>,
}

impl Cached {
    /// Whether nothing in the session or its branches calls for another look.
    fn is_quiet(&self) -> bool {
        self.watch.is_quiet() && self.lock.has_settled_branches()
    }
}

impl Weighed for Cached {
    fn bytes(&self) -> usize {
        self.session.heap_bytes()
    }

    /// A session with a live run or a pending turn is about to be read and saved again.
    fn must_stay(&self) -> bool {
        self.waits || self.liveness.has_live_run(self.session.id())
    }
}

impl Shared {
    pub(super) fn metadata(&self, id: &SessionId) -> Result<Metadata, StoreError> {
        if let Some(held) = self.cache.get(id)
            && self.is_fresh(id, held.session.revision())?
        {
            return Ok(Metadata::of(&held.session));
        }
        sidecar::load_metadata(&self.storage, id)?.ok_or_else(|| not_found(id))
    }

    pub(super) fn cached(&self, session: Session, was_looked_through: bool) -> Cached {
        let watch = Watch::of(&session);
        let waits = watch.is_pending && self.storage.can_write();
        let (lock, was_looked_through) = (self.locks.of(session.id()), AtomicBool::new(was_looked_through));
        let (liveness, session) = (self.liveness.clone(), Arc::new(session));
        Cached { liveness, lock, waits, watch, was_looked_through, session }
    }

    /// The session as it is stored, through the cache.
    pub(super) fn read(&self, id: &SessionId) -> Result<Arc<Cached>, StoreError> {
        let held = self.cache.get(id);
        if let Some(held) = held.as_ref()
            && (self.trusts_lock() || self.is_fresh(id, held.session.revision())?)
        {
            self.meter().cache_hits.add(1);
            return Ok(held.clone());
        }
        self.meter().cache_misses.add(1);
        self.cache.load(id, held.as_ref(), || self.load(id).map(|session| self.cached(session, false)))
    }

    fn trusts_lock(&self) -> bool {
        self.options.freshness == Freshness::TrustLock && self.storage.can_write()
    }

    /// Whether the document still is the one of this revision.
    pub(super) fn is_fresh(&self, id: &SessionId, revision: Option<&Revision>) -> Result<bool, StoreError> {
        match revision {
            Some(revision) => Ok(self.storage.is_current(id, revision)?),
            None => Ok(false),
        }
    }

    fn load(&self, id: &SessionId) -> Result<Session, StoreError> {
        sidecar::load(&self.storage, id)?.ok_or_else(|| not_found(id))
    }
}

impl Store {
    /// The session as it is now: a snapshot that later changes do not touch.
    ///
    /// An answer that was interrupted is resolved first: what its journal holds comes into the transcript, with a word
    /// on what happened. Whoever asks meanwhile gets the session as it is, and so does everybody while somebody else
    /// changes it. If the resolved session cannot be saved, that is an error, and nothing has changed.
    pub fn get_session(&self, id: &SessionId) -> Result<Arc<Session>, StoreError> {
        let read = self.shared.read(id)?;
        match read.is_quiet() || !self.shared.storage.can_write() {
            true => Ok(read.session.clone()),
            false => self.shared.resolve(id, read),
        }
    }

    /// The session as it is stored, for those who look through many: nothing is resolved, no budget is spent, and the
    /// cache stays as it is.
    pub fn get_session_for_scan(&self, id: &SessionId) -> Result<Arc<Session>, StoreError> {
        let shared = &self.shared;
        if let Some(held) = shared.cache.peek(id)
            && shared.is_fresh(id, held.session.revision())?
        {
            return Ok(held.session.clone());
        }
        shared.load(id).map(Arc::new)
    }

    /// What stands before the session's transcript. It can be looked at, not saved. Nothing is resolved.
    pub fn metadata(&self, id: &SessionId) -> Result<Metadata, StoreError> {
        self.shared.metadata(id)
    }

    /// Bytes of the session's document, as far as that is known without reading it: from the cache, else from the file.
    pub fn document_bytes(&self, id: &SessionId) -> Result<Option<u64>, StoreError> {
        match self.shared.cache.peek(id) {
            Some(held) => Ok(Some(held.session.source().len() as u64)),
            None => Ok(self.shared.storage.document_bytes(id)?),
        }
    }

    /// Whether the session has a turn without its answer, or a marker whose answer may still be found, so that a full
    /// read may have something to resolve.
    pub fn is_unresolved(&self, id: &SessionId) -> Result<bool, StoreError> {
        Ok(!self.shared.read(id)?.watch.is_quiet())
    }

    /// How many sessions are in memory, and how many bytes they take.
    pub fn cache_size(&self) -> CacheSize {
        self.shared.cache.size()
    }

    /// The sessions in memory, the one used least recently first.
    pub fn cached_sessions(&self) -> Vec<SessionId> {
        self.shared.cache.ids()
    }
}
