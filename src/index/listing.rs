//! The listing in memory: entries in their order, found by position or by session.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::filter::Sieve;
use super::{Part, Position};
use crate::clock::Timestamp;
use crate::model::{Revision, SessionId, Summary};
use crate::sidecar::SidecarError;
use crate::storage::DocumentEntry;

/// A session in a list: what is known of it, or why it could not be read.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The session.
    pub id: SessionId,
    /// What is known of it.
    pub summary: Result<Summary, Unlisted>,
}

/// Why a session could not be read, and which revision of it.
#[derive(Debug, Clone)]
pub struct Unlisted {
    /// The revision; none if not even that could be had.
    pub revision: Option<Revision>,
    /// Why.
    pub error: SidecarError,
}

impl Entry {
    pub(super) fn of(summary: Summary) -> Self {
        Entry { id: summary.id().clone(), summary: Ok(summary) }
    }

    /// Where it stands in the list.
    pub fn position(&self) -> Position {
        Position::of(&self.id, self.summary.as_ref().ok().map(Summary::updated_at))
    }

    pub(super) fn revision(&self) -> Option<&Revision> {
        match &self.summary {
            Ok(summary) => Some(summary.revision()),
            Err(unlisted) => unlisted.revision.as_ref(),
        }
    }

    /// Whether the document itself says so, and not its disk, which may say otherwise next time.
    pub(super) fn is_settled(&self) -> bool {
        !matches!(&self.summary, Err(Unlisted { error: SidecarError::Storage(_), .. }))
    }

    /// Whether reading this revision again would say the same.
    pub(super) fn is_of(&self, revision: Option<&Revision>) -> bool {
        revision.is_some() && self.revision() == revision && self.is_settled()
    }
}

/// When a listing was last compared with the documents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compared {
    /// What told the documents from others then, if anything did.
    pub(super) token: Option<u128>,
    pub(super) at: Timestamp,
    pub(super) took_micros: i64,
}

/// A search through the list, as far as it came.
#[derive(Debug)]
pub(super) struct Search<'f> {
    pub(super) sieve: &'f mut Sieve,
    pub(super) limit: usize,
    /// How many entries may still be looked at.
    pub(super) left: usize,
    /// The last one that was. One that is wanted and found no room any more is left to the next page.
    pub(super) at: Option<Position>,
    pub(super) found: Vec<Entry>,
}

impl Search<'_> {
    /// What was found, and where to go on if there is more of the list.
    pub(super) fn finish(self, listing: &Listing) -> Part {
        let next = if listing.is_end(self.at.as_ref()) { None } else { self.at };
        Part { entries: self.found, next }
    }
}

/// All sessions, sorted.
#[derive(Debug)]
pub(super) struct Listing {
    order: BTreeMap<Position, Entry>,
    places: HashMap<SessionId, Position>,
    pub(super) compared: Compared,
}

impl Listing {
    pub(super) fn new(entries: Vec<Entry>, compared: Compared) -> Self {
        let mut placed: Vec<(Position, Entry)> = entries.into_iter().map(|entry| (entry.position(), entry)).collect();
        placed.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let places = placed.iter().map(|(position, entry)| (entry.id.clone(), position.clone())).collect();
        Listing { order: placed.into_iter().collect(), places, compared }
    }

    /// What is known of this revision of a session.
    pub(super) fn known(&self, document: &DocumentEntry) -> Option<Entry> {
        let entry = self.order.get(self.places.get(&document.session)?)?;
        entry.is_of(document.revision.as_ref()).then(|| entry.clone())
    }

    pub(super) fn put(&mut self, entry: Entry) {
        let position = entry.position();
        if let Some(old) = self.places.insert(entry.id.clone(), position.clone()) {
            self.order.remove(&old);
        }
        self.order.insert(position, entry);
    }

    pub(super) fn remove(&mut self, session: &SessionId) {
        if let Some(position) = self.places.remove(session) {
            self.order.remove(&position);
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.order.values()
    }

    pub(super) fn summaries(&self) -> impl Iterator<Item = &Summary> {
        self.entries().filter_map(|entry| entry.summary.as_ref().ok())
    }

    /// Goes on with a search, through so many entries at the most, and says whether it is over.
    pub(super) fn search(&self, search: &mut Search<'_>, entries_max: usize) -> bool {
        let from = search.at.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut last, mut is_full) = (None, false);
        for (position, entry) in self.order.range((from, Bound::Unbounded)).take(entries_max.min(search.left)) {
            let is_wanted = search.sieve.lets_through(entry);
            is_full = is_wanted && search.found.len() == search.limit;
            if is_full {
                break;
            }
            search.found.extend(is_wanted.then(|| entry.clone()));
            search.left -= 1;
            last = Some(position);
        }
        search.at = last.cloned().or(search.at.take());
        is_full || search.left == 0 || self.is_end(search.at.as_ref())
    }

    /// Whether nothing stands behind this position.
    pub(super) fn is_end(&self, position: Option<&Position>) -> bool {
        let last = self.order.last_key_value().map(|(last, _)| last);
        last.is_none_or(|last| position.is_some_and(|position| position >= last))
    }

    pub(super) fn page(&self, after: Option<&Position>, limit: usize) -> Vec<Entry> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range((from, Bound::Unbounded)).take(limit).map(|(_, entry)| entry.clone()).collect()
    }
}
