//! Comparing the listing with the documents.

use crate::sync::atomic::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::listing::{Compared, Listing};
use super::{Entry, Index, State, Unlisted};
use crate::format::{IndexLine, read_index_lines};
use crate::limits::LISTING_RECHECK;
use crate::model::{Revision, SessionId, Summary};
use crate::sidecar;
use crate::storage::{DocumentEntry, Storage, StorageError};

/// For how many times as long as a comparison took it is believed, while this process itself changes sessions.
const RECHECK_FACTOR: i64 = 20;

/// What a comparison found.
struct Found {
    entries: Vec<Entry>,
    /// Those that had to be read.
    read: Vec<Entry>,
}

impl Index {
    /// Whether no document can have come or gone that the listing does not know of. What this process itself changed
    /// looks like that too: then a comparison of a moment ago is good enough, so that a list that is asked for again
    /// and again costs little however many sessions there are.
    pub(super) fn is_surely_complete(&self, state: &State) -> Result<bool, StorageError> {
        let Some(listing) = &state.listing else { return Ok(false) };
        let compared = listing.compared;
        let token = self.storage.documents_token()?;
        if token.is_some() && token == compared.token {
            return Ok(true);
        }
        let age = self.clock.now().micros() - compared.at.micros();
        let lasts = (LISTING_RECHECK.as_micros() as i64).max(compared.took_micros * RECHECK_FACTOR);
        Ok(self.has_changed_folder.load(Ordering::SeqCst) && (0..lasts).contains(&age))
    }

    /// Brings the listing to what the documents are now.
    pub(super) fn compare(&self, state: &mut State) -> Result<(), StorageError> {
        let began = self.clock.now();
        let token = self.storage.documents_token()?;
        self.has_changed_folder.store(false, Ordering::SeqCst);
        let documents = self.storage.documents()?;
        let found = match state.listing.take() {
            Some(listing) => self.sort_out(documents, |document| listing.known(document)),
            None => {
                let notes = self.storage.index_notes().ok().flatten().unwrap_or_default();
                state.notes.found(notes.len() as u64);
                let mut lines = HashMap::with_capacity(documents.len());
                lines.extend(read_index_lines(&notes).map(by_session));
                self.sort_out(documents, |document| noted(&lines, document))
            }
        };
        let took_micros = (self.clock.now().micros() - began.micros()).max(0);
        self.settle(state, found, Compared { token, at: began, took_micros });
        Ok(())
    }

    /// What is known of each document, or else what it says.
    fn sort_out(&self, documents: Vec<DocumentEntry>, known: impl Fn(&DocumentEntry) -> Option<Entry>) -> Found {
        let mut found = Found { entries: Vec::with_capacity(documents.len()), read: Vec::new() };
        for document in documents {
            match known(&document) {
                Some(entry) => found.entries.push(entry),
                None => found.read.extend(read_entry(&self.storage, &document.session, document.revision)),
            }
        }
        found
    }

    /// Takes a new listing over, and what had to be read for it into the notes.
    fn settle(&self, state: &mut State, found: Found, compared: Compared) {
        let Found { mut entries, read } = found;
        let says_little = read.len() > entries.len() / 4;
        let summaries: Vec<Summary> = read.iter().filter_map(|entry| entry.summary.clone().ok()).collect();
        entries.extend(read);
        let listing = Listing::new(entries, compared);
        state.notes.measure(&listing, says_little && !summaries.is_empty());
        state.listing = Some(listing);
        if !state.notes.are_wasteful() {
            state.notes.append(&*self.storage, summaries.iter());
        }
        // What changed since the comparison began, which it may have missed.
        self.take_changes(state);
        self.compact(state);
        if !summaries.is_empty() && self.storage.can_write() {
            self.has_changed_folder.store(true, Ordering::SeqCst);
        }
    }

    /// Reads those of a page anew that are not as they are listed. Says whether any was another.
    pub(super) fn refresh(&self, listing: &mut Listing, page: &[Entry]) -> bool {
        let mut is_another = false;
        for entry in page.iter().filter(|entry| !self.is_current(entry)) {
            let revision = self.storage.document_revision(&entry.id).ok().flatten();
            let now = read_entry(&self.storage, &entry.id, revision);
            is_another |= now.as_ref().map(Entry::position) != Some(entry.position())
                || now.as_ref().and_then(Entry::revision) != entry.revision();
            match now {
                Some(now) => listing.put(now),
                None => listing.remove(&entry.id),
            }
        }
        is_another
    }

    fn is_current(&self, entry: &Entry) -> bool {
        let is_same = |revision| self.storage.is_current(&entry.id, revision).unwrap_or(false);
        entry.is_settled() && entry.revision().is_some_and(is_same)
    }
}

fn by_session(line: IndexLine<'_>) -> (&str, IndexLine<'_>) {
    (line.session, line)
}

fn noted(lines: &HashMap<&str, IndexLine<'_>>, document: &DocumentEntry) -> Option<Entry> {
    let line = lines.get(document.session.as_str())?;
    line.summary_of(&document.session, document.revision.as_ref()?).map(Entry::of)
}

/// A session as its document says; nothing if it is gone by now.
fn read_entry(storage: &Arc<dyn Storage>, id: &SessionId, revision: Option<Revision>) -> Option<Entry> {
    match sidecar::load_metadata(storage, id) {
        Ok(metadata) => metadata.as_ref().and_then(Summary::of_metadata).map(Entry::of),
        Err(error) => Some(Entry { id: id.clone(), summary: Err(Unlisted { revision, error }) }),
    }
}
