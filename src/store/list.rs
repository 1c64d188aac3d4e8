//! Listing sessions: all of them, or a page.

use super::liveness::{Liveness, Seen};
use super::{Shared, Store, StoreError};
use crate::index::{Entry, ListFilter, Position};
use crate::limits::LIST_SCAN_MAX;
use crate::model::{RunId, SessionId, SessionState, Summary};

/// One session of a list: what is shown of it, or why it could not be read.
#[derive(Debug)]
pub struct Listed {
    /// The session.
    pub id: SessionId,
    /// What is known of it.
    pub summary: Result<Summary, StoreError>,
    /// What it is doing.
    pub state: SessionState,
}

/// A part of the list.
#[derive(Debug)]
pub struct Page {
    /// The sessions.
    pub sessions: Vec<Listed>,
    /// Where the next page begins; none if this was the last.
    pub next: Option<Position>,
}

impl Shared {
    fn listed(&self, entry: Entry) -> Listed {
        let state = entry.summary.as_ref().map_or(SessionState::Idle, |summary| self.state_of(summary));
        let summary = entry.summary.map_err(|unlisted| unlisted.error.into());
        Listed { id: entry.id, summary, state }
    }

    /// What a session is doing. No journal is read to find its end: a run that is over counts as interrupted, also one that was
    /// sealed and not folded before a crash.
    pub(super) fn state_of(&self, summary: &Summary) -> SessionState {
        let Some(run) = summary.active_run() else { return SessionState::Idle };
        let Ok(run) = RunId::parse(&run) else { return SessionState::Interrupted };
        let lock = self.locks.of(summary.id());
        match self.liveness_seen(&lock, summary.id(), &run, Seen::NoEnd) {
            Ok(Liveness::Live { .. }) => SessionState::Answering,
            Ok(Liveness::Sealed) => SessionState::Idle,
            Ok(Liveness::Orphaned | Liveness::Foreign | Liveness::Gone) | Err(_) => SessionState::Interrupted,
        }
    }
}

impl Store {
    /// All sessions, the one changed last first. One that cannot be read is listed with its error, at the end.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        Ok(self.shared.index.all()?.into_iter().map(|entry| self.shared.listed(entry)).collect())
    }

    /// The first sessions of that list, or those behind the page before. Costs what the page costs, not the list.
    pub fn list_page(&self, after: Option<&Position>, limit: usize) -> Result<Page, StoreError> {
        let mut entries = self.shared.index.page(after, limit.saturating_add(1))?;
        let is_last = entries.len() <= limit;
        entries.truncate(limit);
        let next = entries.last().filter(|_| !is_last).map(Entry::position);
        Ok(Page { sessions: entries.into_iter().map(|entry| self.shared.listed(entry)).collect(), next })
    }

    /// The same with those sessions alone that a filter wants. Looks through at most [`LIST_SCAN_MAX`] of the list, in
    /// memory, so that a page may have fewer sessions than asked for, or none, and still say where to go on.
    pub fn find_page(&self, after: Option<&Position>, limit: usize, filter: &ListFilter) -> Result<Page, StoreError> {
        if filter.wants_all() {
            return self.list_page(after, limit);
        }
        let part = self.shared.index.find(after, limit, filter, LIST_SCAN_MAX)?;
        let sessions = part.entries.into_iter().map(|entry| self.shared.listed(entry)).collect();
        Ok(Page { sessions, next: part.next })
    }
}
