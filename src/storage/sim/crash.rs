//! The choices that a power cut has, and how they are made.

use super::bytes::{FileFate, FileImage};
use super::image::Image;
use crate::entropy::SeededEntropy;

/// What a power cut does with one place. A change of a directory happened or it did not: for it everything but
/// [`Fate::Lost`] means that it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// Everything unsynced is there.
    Kept,
    /// Nothing unsynced is there.
    Lost,
    /// The last unsynced write of a file is there up to its middle.
    Torn,
    /// The file has its new length and nothing else: it reads as it was synced, and as zeroes after the synced end.
    Zeroed,
    /// The file has its new length, but the first page with unsynced changes did not reach the medium: it reads as it
    /// was synced, and as zeroes after that. The later pages did.
    Pages,
}

/// How many places have something unsynced. They are counted from 0: first the files in the order of their creation,
/// then the changes of directories in the order they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places {
    /// Files with unsynced bytes.
    pub files: usize,
    /// Unsynced changes of directories.
    pub names: usize,
}

impl Places {
    /// All of them.
    pub fn count(self) -> usize {
        self.files + self.names
    }
}

/// What a power cut does with each of the [`Places`] that have something unsynced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Nothing unsynced is there.
    LoseAll,
    /// Everything is there.
    KeepAll,
    /// Everything is there but one place.
    LoseOnly(usize),
    /// Nothing is there but one place.
    KeepOnly(usize),
    /// Everything is there, but one file's last unsynced write is torn in the middle.
    TearOnly(usize),
    /// Everything is there, but one file has only its new length.
    ZeroOnly(usize),
    /// Everything is there, but one file lacks its first page with unsynced changes.
    PagesOnly(usize),
    /// One place has a fate of its own.
    One {
        /// The place.
        place: usize,
        /// Its fate.
        fate: Fate,
        /// The fate of all others.
        others: Fate,
    },
    /// Two places have fates of their own.
    Two {
        /// A place and its fate.
        first: (usize, Fate),
        /// Another place and its fate.
        second: (usize, Fate),
        /// The fate of all others.
        others: Fate,
    },
    /// Each place by the throw of a die with this seed, down to where a write is torn and which pages are there.
    Seeded(u64),
}

impl Crash {
    /// What happens to a place, unless a die decides.
    fn fate(self, place: usize) -> Option<Fate> {
        let only = |at, fate, others| Some(if place == at { fate } else { others });
        match self {
            Crash::LoseAll => Some(Fate::Lost),
            Crash::KeepAll => Some(Fate::Kept),
            Crash::LoseOnly(at) => only(at, Fate::Lost, Fate::Kept),
            Crash::KeepOnly(at) => only(at, Fate::Kept, Fate::Lost),
            Crash::TearOnly(at) => only(at, Fate::Torn, Fate::Kept),
            Crash::ZeroOnly(at) => only(at, Fate::Zeroed, Fate::Kept),
            Crash::PagesOnly(at) => only(at, Fate::Pages, Fate::Kept),
            Crash::One { place: at, fate, others } => only(at, fate, others),
            Crash::Two { first, second, others } if place != first.0 => only(second.0, second.1, others),
            Crash::Two { first, .. } => Some(first.1),
            Crash::Seeded(_) => None,
        }
    }
}

impl Image {
    pub(super) fn places(&self) -> Places {
        Places { files: self.unsynced_files().len(), names: self.unsynced_name_changes() }
    }

    pub(super) fn crash(&mut self, crash: Crash) {
        let mut die = Die::new(crash, self.page_bytes);
        let files = self.unsynced_files();
        let fates: Vec<_> =
            files.iter().enumerate().map(|(place, (inode, file))| (*inode, die.file(place, file))).collect();
        let first_name = files.len();
        let names: Vec<_> = (0..self.unsynced_name_changes()).map(|at| die.name(first_name + at)).collect();
        self.settle(&fates, &names);
    }
}

/// Gives each place its fate, by the choice that was made or by throwing.
struct Die {
    crash: Crash,
    page_bytes: usize,
    random: SeededEntropy,
}

impl Die {
    fn new(crash: Crash, page_bytes: usize) -> Self {
        let seed = if let Crash::Seeded(seed) = crash { seed } else { 0 };
        Die { crash, page_bytes, random: SeededEntropy::new(seed) }
    }

    fn throw(&mut self, sides: usize) -> usize {
        (self.random.next_u64() % sides.max(1) as u64) as usize
    }

    fn name(&mut self, place: usize) -> bool {
        match self.crash.fate(place) {
            Some(fate) => fate != Fate::Lost,
            None => self.throw(2) == 0,
        }
    }

    fn file(&mut self, place: usize, file: &FileImage) -> FileFate {
        match self.crash.fate(place) {
            Some(Fate::Kept) => FileFate::Kept,
            Some(Fate::Lost) => FileFate::Lost,
            Some(Fate::Torn) => tear_last(file),
            Some(Fate::Zeroed) => FileFate::Zeroed,
            Some(Fate::Pages) => self.lose_first_page(file),
            None => self.any(file),
        }
    }

    fn any(&mut self, file: &FileImage) -> FileFate {
        match self.throw(5) {
            0 => FileFate::Kept,
            1 => FileFate::Lost,
            2 => FileFate::Zeroed,
            3 => self.any_pages(file),
            _ => {
                let changes = self.throw(file.unsynced().len());
                FileFate::Torn { changes, bytes: self.throw(file.unsynced()[changes].len() + 1) }
            }
        }
    }

    fn lose_first_page(&self, file: &FileImage) -> FileFate {
        FileFate::Pages(file.changed_pages(self.page_bytes).first().map(|page| (*page, 0)).into_iter().collect())
    }

    /// Each page by itself.
    fn any_pages(&mut self, file: &FileImage) -> FileFate {
        let pages = file.changed_pages(self.page_bytes);
        FileFate::Pages(pages.into_iter().map(|page| (page, self.any_moment(file))).collect())
    }

    /// When a page was written out: never, at the end, or somewhere in between.
    fn any_moment(&mut self, file: &FileImage) -> usize {
        let changes = file.unsynced().len();
        match self.throw(3) {
            0 => 0,
            1 => changes,
            _ => self.throw(changes + 1),
        }
    }
}

fn tear_last(file: &FileImage) -> FileFate {
    let changes = file.unsynced().len() - 1;
    FileFate::Torn { changes, bytes: file.unsynced()[changes].len() / 2 }
}
