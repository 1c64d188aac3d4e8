//! Sessions: created, changed, deleted.

use crate::sync::atomic::Ordering;
use std::sync::Arc;

use super::read::Cached;
use super::session_locks::SessionLock;
use super::{Change, Shared, Store, StoreError};
use crate::clock::Stopwatch;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::model::{Revision, Session, SessionId, Summary};
use crate::sidecar::{self, SaveOptions, SidecarError};

/// A session to be created.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// Its id; a fresh one if none is given.
    pub id: Option<SessionId>,
    /// Its title.
    pub title: String,
}

impl NewSession {
    /// A session with this title and a fresh id.
    pub fn titled(title: &str) -> Self {
        NewSession { id: None, title: title.to_owned() }
    }

    /// The same session with an id of the caller's choice.
    pub fn with_id(self, id: SessionId) -> Self {
        NewSession { id: Some(id), ..self }
    }
}

pub(super) fn check_length(what: &'static str, text: &str) -> Result<(), StoreError> {
    match text.len() {
        bytes if bytes > MESSAGE_BYTES_MAX => Err(StoreError::TooLong { what, bytes, max: MESSAGE_BYTES_MAX }),
        _ => Ok(()),
    }
}

pub(super) fn not_found(id: &SessionId) -> StoreError {
    StoreError::NotFound { session: id.to_string() }
}

impl Shared {
    /// Tells how a session is listed now.
    pub(super) fn tell_listed(&self, summary: Summary) {
        let state = self.state_of(&summary);
        self.news.tell(&Change::Listed(summary, state));
    }

    /// The same of a session as it is stored. One that cannot be read tells nothing.
    pub(super) fn tell_listed_now(&self, session: &SessionId) {
        let summary = self.metadata(session).ok().as_ref().and_then(Summary::of_metadata);
        summary.into_iter().for_each(|summary| self.tell_listed(summary));
    }

    /// Saves a session, and lets memory know once it is stored.
    pub(super) fn save(&self, session: &Session, options: SaveOptions) -> Result<Arc<Cached>, StoreError> {
        let watch = Stopwatch::start();
        let bytes_max = self.options.document_bytes_max;
        match sidecar::save_within(bytes_max, &self.storage, session, options, self.clock.now(), &*self.entropy) {
            Ok(saved) => {
                let summary = Summary::of_session(&saved).filter(|_| saved.revision() != session.revision());
                if let Some(summary) = &summary {
                    self.meter().save_nanos.observe_time(watch.elapsed());
                    self.index.note(summary.clone());
                }
                let before = self.cache.peek(session.id());
                let is_new = session.revision().is_none();
                let was_looked_through =
                    before.map_or(is_new, |before| before.was_looked_through.load(Ordering::Relaxed));
                let cached = self.cache.put(session.id(), self.cached(saved, was_looked_through));
                summary.into_iter().for_each(|summary| self.tell_listed(summary));
                Ok(cached)
            }
            Err(error) => {
                // Whatever is there now, memory does not know it, unless nothing was tried.
                if !matches!(error, SidecarError::TooLarge { .. }) {
                    self.cache.remove(session.id());
                }
                self.meter().save_failures.add(u64::from(matches!(error, SidecarError::Storage(_))));
                Err(error.into())
            }
        }
    }
}

impl Store {
    /// Creates a session. It is durable when this returns.
    pub fn create(&self, new: NewSession) -> Result<SessionId, StoreError> {
        check_length("title", &new.title)?;
        let shared = &self.shared;
        let id = new.id.unwrap_or_else(|| SessionId::fresh(&*shared.entropy));
        let session = Session::new(id.clone(), &new.title, shared.clock.now());
        // Without it, a change by another thread that found the new session could be overtaken on its way into the cache.
        let lock = shared.locks.of(&id);
        let _alone = lock.document.lock();
        match shared.save(&session, SaveOptions::default()) {
            Err(StoreError::Sidecar(SidecarError::Conflict { session })) => Err(StoreError::Exists { session }),
            saved => saved.map(|_| id),
        }
    }

    /// Changes a session: reads it, lets `change` work on it, and saves it, all without another change in between. If
    /// nothing changed, nothing is written.
    pub fn update(
        &self,
        id: &SessionId,
        options: SaveOptions,
        change: impl FnOnce(&mut Session),
    ) -> Result<Arc<Session>, StoreError> {
        let lock = self.shared.locks.of(id);
        let _alone = lock.document.lock();
        let mut session = (*self.shared.read(id)?.session).clone();
        change(&mut session);
        self.shared.save(&session, options).map(|saved| saved.session.clone())
    }

    /// The same, if the session is still of a revision that will do; nothing if it is not.
    pub fn update_if(
        &self,
        id: &SessionId,
        options: SaveOptions,
        will_do: impl FnOnce(Option<&Revision>) -> bool,
        change: impl FnOnce(&mut Session),
    ) -> Result<Option<Arc<Session>>, StoreError> {
        let lock = self.shared.locks.of(id);
        let _alone = lock.document.lock();
        let mut session = (*self.shared.read(id)?.session).clone();
        if !will_do(session.revision()) {
            return Ok(None);
        }
        change(&mut session);
        match self.shared.save(&session, options) {
            // Somebody outside was faster.
            Err(StoreError::Sidecar(SidecarError::Conflict { .. })) => Ok(None),
            saved => saved.map(|saved| Some(saved.session.clone())),
        }
    }

    /// Saves a session that was read before. A conflict if somebody changed it since.
    pub fn save(&self, session: &Session, options: SaveOptions) -> Result<Arc<Session>, StoreError> {
        let lock = self.shared.locks.of(session.id());
        let _alone = lock.document.lock();
        self.shared.save(session, options).map(|saved| saved.session.clone())
    }

    /// Deletes a session and its journals, into the trash. Runs that are open end here; nothing revives it by accident.
    pub fn delete(&self, id: &SessionId) -> Result<(), StoreError> {
        let lock = self.shared.locks.of(id);
        let _alone = lock.document.lock();
        self.delete_alone(&lock, id)
    }

    /// The same, if the session is still of a revision that will do. `false` if it is not.
    pub fn delete_if(
        &self,
        id: &SessionId,
        will_do: impl FnOnce(Option<&Revision>) -> bool,
    ) -> Result<bool, StoreError> {
        let lock = self.shared.locks.of(id);
        let _alone = lock.document.lock();
        match will_do(self.metadata(id)?.revision()) {
            true => self.delete_alone(&lock, id).map(|()| true),
            false => Ok(false),
        }
    }

    fn delete_alone(&self, lock: &SessionLock, id: &SessionId) -> Result<(), StoreError> {
        // Appenders wait until it is decided: what is acknowledged is durable before the journals move, or refused.
        let runs = lock.open_runs();
        let held: Vec<_> = runs.iter().map(|run| run.hold()).collect();
        let deleted = self.shared.storage.delete_session(id);
        // Only now: a reader may have put it there again meanwhile.
        self.shared.cache.remove(id);
        // Even a deletion that failed on its way to the trash is one.
        let is_gone = match &deleted {
            Ok(is_gone) => *is_gone,
            Err(_) => self.shared.storage.is_deleted(id).unwrap_or(false),
        };
        if is_gone {
            self.shared.index.forget(id);
            held.into_iter().for_each(|run| run.fence(DELETED));
            self.shared.liveness.wake_session(id);
            self.shared.news.tell(&Change::Deleted(id.clone()));
        }
        if deleted? { Ok(()) } else { Err(not_found(id)) }
    }
}

const DELETED: &str = "its session was deleted";
