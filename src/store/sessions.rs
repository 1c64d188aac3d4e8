//! Sessions: created, read, listed, changed, deleted.

use std::sync::Arc;

use super::read::Cached;
use super::{Shared, Store, StoreError};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::model::{Metadata, Session, SessionId};
use crate::sidecar::{self, SaveOptions, SidecarError};
use crate::storage::StorageError;

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

/// One entry of a listing: a session's metadata, or why it could not be read.
#[derive(Debug)]
pub struct Listed {
    /// The session.
    pub id: SessionId,
    /// What is known of it.
    pub metadata: Result<Metadata, StoreError>,
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
    /// Saves a session, and lets memory know once it is stored.
    pub(super) fn save(&self, session: &Session, options: SaveOptions) -> Result<Arc<Cached>, StoreError> {
        match sidecar::save(&self.storage, session, options, self.clock.now(), &*self.entropy) {
            Ok(saved) => Ok(self.cache.put(session.id(), self.cached(saved))),
            Err(error) => {
                // Whatever is there now, memory does not know it.
                self.cache.remove(session.id());
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
        match shared.save(&session, SaveOptions::default()) {
            Err(StoreError::Sidecar(SidecarError::Conflict { session })) => Err(StoreError::Exists { session }),
            saved => saved.map(|_| id),
        }
    }

    /// All sessions, the one changed last first. One that cannot be read is listed with its error, at the end.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        let mut listed = Vec::new();
        for id in self.shared.storage.documents(None, usize::MAX)? {
            match self.metadata(&id) {
                Err(StoreError::NotFound { .. }) => {}
                metadata => listed.push(Listed { id, metadata }),
            }
        }
        let changed_at = |entry: &Listed| entry.metadata.as_ref().ok().map(|known| known.updated_at().unwrap_or(0.0));
        listed.sort_by(|a, b| {
            let (a, b) = (changed_at(a), changed_at(b));
            b.is_some().cmp(&a.is_some()).then_with(|| b.unwrap_or(0.0).total_cmp(&a.unwrap_or(0.0)))
        });
        Ok(listed)
    }

    /// Changes a session: reads it, lets `change` work on it, and saves it, all without another change in between. If
    /// nothing changed, nothing is written.
    pub fn update(
        &self,
        id: &SessionId,
        options: SaveOptions,
        change: impl FnOnce(&mut Session),
    ) -> Result<Arc<Session>, StoreError> {
        let gate = self.shared.gates.of(id);
        let _alone = gate.document.lock();
        let mut session = (*self.shared.read(id)?.session).clone();
        change(&mut session);
        self.shared.save(&session, options).map(|saved| saved.session.clone())
    }

    /// Saves a session that was read before. A conflict if somebody changed it since.
    pub fn save(&self, session: &Session, options: SaveOptions) -> Result<Arc<Session>, StoreError> {
        let gate = self.shared.gates.of(session.id());
        let _alone = gate.document.lock();
        self.shared.save(session, options).map(|saved| saved.session.clone())
    }

    /// Deletes a session and its journals, into the trash. Runs that are open end here; nothing revives it by accident.
    pub fn delete(&self, id: &SessionId) -> Result<(), StoreError> {
        let gate = self.shared.gates.of(id);
        let _alone = gate.document.lock();
        let runs = gate.open_runs();
        let deleted = self.shared.storage.delete_session(id);
        // Only now: whoever read it meanwhile has put it there again.
        self.shared.cache.remove(id);
        if !deleted.map_err(|error| self.fence_if_deleted(id, &runs, error))? {
            return Err(not_found(id));
        }
        runs.iter().for_each(|run| run.fence(DELETED));
        Ok(())
    }

    /// Even a deletion that failed on its way to the trash is one.
    fn fence_if_deleted(
        &self,
        id: &SessionId,
        runs: &[Arc<crate::journal::RunJournal>],
        error: StorageError,
    ) -> StoreError {
        if self.shared.storage.is_deleted(id).unwrap_or(false) {
            runs.iter().for_each(|run| run.fence(DELETED));
        }
        error.into()
    }
}

const DELETED: &str = "its session was deleted";
