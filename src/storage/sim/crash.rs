//! The choices that a power cut has, and how they are made.

use super::image::{Change, FileFate, FileImage, Image};
use crate::entropy::SeededEntropy;

/// What a power cut does with each place that has something unsynced. Places are counted from 0: first the files in
/// the order of their creation, then the changes of directories in the order they were made.
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
    /// Each place by the throw of a die with this seed.
    Seeded(u64),
}

impl Image {
    pub(super) fn unsynced(&self) -> usize {
        self.unsynced_files().len() + self.unsynced_name_changes()
    }

    pub(super) fn crash(&mut self, crash: Crash) {
        let mut die = Die::new(crash);
        let files = self.unsynced_files();
        let fates: Vec<_> =
            files.iter().enumerate().map(|(place, (inode, file))| (*inode, die.file(place, file))).collect();
        let first_name = files.len();
        let names: Vec<_> = (0..self.unsynced_name_changes()).map(|at| die.name(first_name + at)).collect();
        self.settle(&fates, &names);
    }
}

struct Die {
    crash: Crash,
    random: SeededEntropy,
}

impl Die {
    fn new(crash: Crash) -> Self {
        let seed = if let Crash::Seeded(seed) = crash { seed } else { 0 };
        Die { crash, random: SeededEntropy::new(seed) }
    }

    fn throw(&mut self, sides: usize) -> usize {
        (self.random.next_u64() % sides.max(1) as u64) as usize
    }

    fn name(&mut self, place: usize) -> bool {
        match self.crash {
            Crash::LoseAll => false,
            Crash::KeepAll | Crash::TearOnly(_) | Crash::ZeroOnly(_) => true,
            Crash::LoseOnly(lost) => place != lost,
            Crash::KeepOnly(kept) => place == kept,
            Crash::Seeded(_) => self.throw(2) == 0,
        }
    }

    fn file(&mut self, place: usize, file: &FileImage) -> FileFate {
        match self.crash {
            Crash::TearOnly(torn) if place == torn => tear_last(file),
            Crash::ZeroOnly(zeroed) if place == zeroed => FileFate::Zeroed,
            Crash::Seeded(_) => self.any(file),
            _ => match self.name(place) {
                true => FileFate::Kept,
                false => FileFate::Lost,
            },
        }
    }

    fn any(&mut self, file: &FileImage) -> FileFate {
        match self.throw(4) {
            0 => FileFate::Kept,
            1 => FileFate::Lost,
            2 => FileFate::Zeroed,
            _ => {
                let changes = self.throw(file.unsynced.len());
                FileFate::Torn { changes, bytes: self.throw(len(&file.unsynced[changes]) + 1) }
            }
        }
    }
}

fn tear_last(file: &FileImage) -> FileFate {
    let changes = file.unsynced.len() - 1;
    FileFate::Torn { changes, bytes: len(&file.unsynced[changes]) / 2 }
}

fn len(change: &Change) -> usize {
    match change {
        Change::Write { bytes, .. } => bytes.len(),
        Change::SetLen(_) => 0,
    }
}
