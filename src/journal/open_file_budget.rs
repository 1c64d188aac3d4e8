//! The open-file budget of run journals: an LRU that closes the file of the least recently used journal.

use std::sync::{Arc, Weak};

use crate::sync::Mutex;

use super::writer::RunJournal;

/// At most `places_max` journals of one store hold a file open. Consulted when a journal opens its file, not on each
/// append.
#[derive(Debug)]
pub struct OpenFileBudget {
    places_max: usize,
    places: Mutex<Vec<Weak<RunJournal>>>,
}

impl OpenFileBudget {
    /// A budget of `places_max` files.
    pub fn new(places_max: usize) -> Self {
        OpenFileBudget { places_max: places_max.max(1), places: Mutex::default() }
    }

    /// Makes room for a journal that is about to open its file, and notes it. One that is being appended to keeps its
    /// place, so that for a moment there may be more than allowed, by one a thread at most.
    pub(super) fn take_place(&self, newcomer: &Weak<RunJournal>) {
        let mut places = self.places.lock();
        places.retain(|place| place.strong_count() > 0);
        let too_many = (places.len() + 1).saturating_sub(self.places_max);
        if too_many > 0 {
            let rested = rest_least_used(&places, too_many);
            places.retain(|place| !rested.iter().any(|journal| place.as_ptr() == Arc::as_ptr(journal)));
        }
        places.push(newcomer.clone());
    }
}

fn rest_least_used(places: &[Weak<RunJournal>], count: usize) -> Vec<Arc<RunJournal>> {
    let mut open: Vec<Arc<RunJournal>> = places.iter().filter_map(Weak::upgrade).collect();
    // Others append meanwhile: a moment that moves while it is compared would be no order.
    open.sort_by_cached_key(|journal| journal.last_used_micros());
    open.into_iter().filter(|journal| journal.try_rest()).take(count).collect()
}
