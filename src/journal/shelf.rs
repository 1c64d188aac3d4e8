//! The journals that hold a file open: only so many, and a newcomer takes the place of the one not used for longest.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::writer::RunJournal;

/// The places for open journals of one store. Looked at when a journal opens its file, not when it appends.
#[derive(Debug)]
pub struct Shelf {
    places_max: usize,
    places: Mutex<Vec<Weak<RunJournal>>>,
}

impl Shelf {
    /// Room for so many.
    pub fn new(places_max: usize) -> Self {
        Shelf { places_max: places_max.max(1), places: Mutex::default() }
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
