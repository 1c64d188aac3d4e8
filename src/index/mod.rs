//! The list of all sessions: derived, sorted in memory, written down lazily, never believed without the documents.
//!
//! A save or a deletion only notes the change, which costs the same however many sessions there are. The first listing
//! reads what was written down and compares each session's revision with its document's; what does not fit is read
//! anew. Losing the file, or any part of it, costs time at the next opening and nothing else: no failure here reaches
//! whoever saves.
//!
//! Locks are taken in this order: the listing, then the changes.

mod check;
mod filter;
mod listing;
mod notes;
mod position;

use crate::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use crate::sync::{Mutex, MutexGuard};

pub use self::filter::ListFilter;
use self::filter::Sieve;
pub use self::listing::{Entry, Unlisted};
use self::listing::{Listing, Search};
use self::notes::Notes;
pub use self::position::{InvalidPosition, Position};
use crate::clock::Clock;
use crate::limits::INDEX_CHANGES_MAX;
use crate::model::{SessionId, Summary};
use crate::storage::{Storage, StorageError};

/// Sessions that changed since the listing last heard of them: how they are now, or nothing if they are gone.
type Changes = HashMap<SessionId, Option<Summary>>;

/// How often the sessions of a page may turn out to have changed before it is given as it is.
const PAGE_ROUNDS_MAX: usize = 3;

/// How many entries are looked through before somebody else may have the listing.
const STRETCH: usize = 1024;

/// What a search found in a part of the list.
#[derive(Debug, Default)]
pub struct Part {
    /// The sessions that are wanted.
    pub entries: Vec<Entry>,
    /// Up to where the list was looked through; none if that was its end.
    pub next: Option<Position>,
}

/// The list of all sessions of a store.
#[derive(Debug)]
pub struct Index {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    changes: Mutex<Changes>,
    /// Whether this process itself changed the folder since it was last compared with the listing.
    has_changed_folder: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// None until somebody asks for a list.
    listing: Option<Listing>,
    notes: Notes,
}

impl Index {
    /// The list of the documents of this storage.
    pub fn new(storage: Arc<dyn Storage>, clock: Arc<dyn Clock>) -> Self {
        let (changes, state) = (Mutex::default(), Mutex::default());
        Index { storage, clock, changes, has_changed_folder: AtomicBool::new(false), state }
    }

    /// Notes that a session was stored.
    pub fn note(&self, summary: Summary) {
        self.change(summary.id().clone(), Some(summary));
    }

    /// Notes that a session was deleted.
    pub fn forget(&self, session: &SessionId) {
        self.change(session.clone(), None);
    }

    fn change(&self, session: SessionId, summary: Option<Summary>) {
        self.has_changed_folder.store(true, Ordering::SeqCst);
        let mut changes = self.changes.lock();
        changes.insert(session, summary);
        let are_many = changes.len() >= INDEX_CHANGES_MAX;
        drop(changes);
        // Whoever holds the state now takes the changes in when it is done.
        if are_many && let Some(mut state) = self.state.try_lock() {
            self.take_changes(&mut state);
        }
    }

    /// Writes down what is not written down yet.
    pub fn flush(&self) {
        self.take_changes(&mut self.state.lock());
    }

    fn take_changes(&self, state: &mut State) {
        let changes = mem::take(&mut *self.changes.lock());
        if changes.is_empty() {
            return;
        }
        state.notes.append(&*self.storage, changes.values().flatten());
        let Some(listing) = &mut state.listing else { return };
        for (session, summary) in changes {
            match summary {
                Some(summary) => listing.put(Entry::of(summary)),
                None => listing.remove(&session),
            }
        }
        self.compact(state);
    }

    /// Writes the notes anew when most of them are out of date.
    fn compact(&self, state: &mut State) {
        if let Some(listing) = state.listing.as_ref().filter(|_| state.notes.are_wasteful()) {
            state.notes.replace(&*self.storage, listing);
            self.has_changed_folder.store(true, Ordering::SeqCst);
        }
    }

    /// All sessions, the one changed last first; at the end those that cannot be read, each with its error. Each
    /// document is looked at.
    pub fn all(&self) -> Result<Vec<Entry>, StorageError> {
        let mut state = self.state.lock();
        // What was noted before now is no newer than what the documents say.
        self.take_changes(&mut state);
        self.compare(&mut state)?;
        Ok(state.listing.iter().flat_map(Listing::entries).cloned().collect())
    }

    /// The sessions behind a position, so many of them. Each of them is looked at; of the others it is known that none
    /// came or went, or that this was so a moment ago.
    pub fn page(&self, after: Option<&Position>, limit: usize) -> Result<Vec<Entry>, StorageError> {
        let mut state = self.up_to_date()?;
        let Some(listing) = &mut state.listing else { return Ok(Vec::new()) };
        let mut page = listing.page(after, limit);
        for _ in 0..PAGE_ROUNDS_MAX {
            if !self.refresh(listing, &page) {
                break;
            }
            page = listing.page(after, limit);
        }
        Ok(page)
    }

    /// The sessions behind a position that a filter wants, so many of them, looking through so many entries at the most.
    /// Only those that are given are looked at themselves, as in a page; one that is not wanted any more is left out, and
    /// the search is made again. Others may use the list meanwhile.
    pub fn find(
        &self,
        after: Option<&Position>,
        limit: usize,
        filter: &ListFilter,
        entries_max: usize,
    ) -> Result<Part, StorageError> {
        if limit == 0 {
            return Ok(Part::default());
        }
        let mut sieve = Sieve::new(filter);
        let mut state = self.up_to_date()?;
        let mut search = |state: &mut MutexGuard<'_, State>| {
            let (at, found) = (after.cloned(), Vec::new());
            search(state, Search { sieve: &mut sieve, limit, left: entries_max.max(1), at, found })
        };
        let mut part = search(&mut state);
        for _ in 0..PAGE_ROUNDS_MAX {
            let Some(listing) = &mut state.listing else { break };
            if !self.refresh(listing, &part.entries) {
                break;
            }
            part = search(&mut state);
        }
        Ok(part)
    }

    fn up_to_date(&self) -> Result<MutexGuard<'_, State>, StorageError> {
        let mut state = self.state.lock();
        self.take_changes(&mut state);
        if !self.is_surely_complete(&state)? {
            self.compare(&mut state)?;
        }
        Ok(state)
    }
}

/// Goes through the listing in stretches, and lets those in between who wait for it.
fn search(state: &mut MutexGuard<'_, State>, mut search: Search<'_>) -> Part {
    while let Some(listing) = &state.listing {
        if listing.search(&mut search, STRETCH) {
            return search.finish(listing);
        }
        MutexGuard::bump(state);
    }
    Part::default()
}
