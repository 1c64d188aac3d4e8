//! Who wants to know what changes in a store, and telling them.

use std::fmt;

use parking_lot::RwLock;

use super::Store;
use crate::model::{RunId, SessionId, SessionState, Summary};

/// Something that changed.
#[derive(Debug, Clone)]
pub enum Change {
    /// A session is listed like this now: it was created or saved, or the run that answers its turn is over.
    Listed(Summary, SessionState),
    /// A session was deleted.
    Deleted(SessionId),
    /// A turn began, and this run is to answer it.
    Begun {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
        /// Its place in the session's stream.
        order: u64,
    },
    /// A run was opened to be appended to again.
    Resumed(SessionId, RunId),
    /// A run goes on although another one began since: its events after this number come after that one's.
    Continued {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
        /// Its last event before that.
        after_seq: u64,
        /// The place of its further events in the session's stream.
        order: u64,
    },
}

impl Change {
    /// The session that changed.
    pub fn session(&self) -> &SessionId {
        match self {
            Change::Listed(summary, _) => summary.id(),
            Change::Deleted(session)
            | Change::Begun { session, .. }
            | Change::Resumed(session, _)
            | Change::Continued { session, .. } => session,
        }
    }
}

type Listener = Box<dyn Fn(&Change) + Send + Sync>;

/// Those who are told.
#[derive(Default)]
pub(super) struct News {
    listeners: RwLock<Vec<Listener>>,
}

impl fmt::Debug for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("News")
    }
}

impl News {
    pub(super) fn tell(&self, change: &Change) {
        self.listeners.read().iter().for_each(|listener| listener(change));
    }
}

impl Store {
    /// Calls back, for as long as the store is open, whenever this process has changed a session: when the change is
    /// stored, and before whoever made it is told. The call must neither wait nor use the store.
    pub fn on_change(&self, tell: impl Fn(&Change) + Send + Sync + 'static) {
        self.shared.news.listeners.write().push(Box::new(tell));
    }
}
