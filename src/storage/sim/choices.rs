//! The choices of a power cut, listed: every one of one place, every one of two, and throws of the die after that.

use std::iter;

use super::crash::{Crash, Fate, Places};

impl Crash {
    /// Every choice for one place, while all others are kept, and again while all others are lost.
    pub fn singles(places: Places) -> impl Iterator<Item = Crash> {
        bases(places, 1).flat_map(move |others| {
            fates_apart(places, 0, others).map(move |(place, fate)| Crash::One { place, fate, others })
        })
    }

    /// Every choice for two places, while all others are kept, and again while all others are lost.
    pub fn pairs(places: Places) -> impl Iterator<Item = Crash> {
        bases(places, 2).flat_map(move |others| {
            fates_apart(places, 0, others).flat_map(move |first| {
                fates_apart(places, first.0 + 1, others).map(move |second| Crash::Two { first, second, others })
            })
        })
    }

    /// At most `cap` choices: nothing kept, everything kept, all [`Crash::singles`], all [`Crash::pairs`], and then the
    /// seeds from 0 on. The same places always give the same list. Where nothing is unsynced there is one choice.
    pub fn enumerate(places: Places, cap: usize) -> impl Iterator<Item = Crash> {
        let cap = if places.count() == 0 { cap.min(1) } else { cap };
        let extremes = [Crash::LoseAll, Crash::KeepAll].into_iter();
        let chosen = extremes.chain(Crash::singles(places)).chain(Crash::pairs(places));
        chosen.chain((0..).map(Crash::Seeded)).take(cap)
    }
}

/// The fates that the other places can have. Where there are no others it makes no difference.
fn bases(places: Places, chosen: usize) -> impl Iterator<Item = Fate> {
    iter::once(Fate::Kept).chain((places.count() > chosen).then_some(Fate::Lost))
}

/// Every place from this one on, with every fate that sets it apart from the others.
fn fates_apart(places: Places, from: usize, others: Fate) -> impl Iterator<Item = (usize, Fate)> {
    const OF_A_FILE: &[Fate] = &[Fate::Kept, Fate::Lost, Fate::Torn, Fate::Zeroed, Fate::Pages];
    const OF_A_NAME: &[Fate] = &[Fate::Kept, Fate::Lost];
    (from..places.count()).flat_map(move |place| {
        let fates = if place < places.files { OF_A_FILE } else { OF_A_NAME };
        fates.iter().filter(move |fate| **fate != others).map(move |fate| (place, *fate))
    })
}
