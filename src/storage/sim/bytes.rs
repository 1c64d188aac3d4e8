//! The bytes of one file: what programs see, what the medium surely holds, and the unsynced changes between the two.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A change of a file's bytes.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::SetLen(len) => bytes.resize(*len as usize, 0),
            Change::Write { offset, bytes: written } => {
                let (start, end) = (*offset as usize, *offset as usize + written.len());
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(written);
            }
        }
    }

    /// The same change, cut off after so many bytes.
    fn torn(&self, keep: usize) -> Change {
        match self {
            Change::Write { offset, bytes } => {
                Change::Write { offset: *offset, bytes: bytes[..keep.min(bytes.len())].to_vec() }
            }
            whole => whole.clone(),
        }
    }

    /// How many bytes it writes.
    pub(super) fn len(&self) -> usize {
        match self {
            Change::Write { bytes, .. } => bytes.len(),
            Change::SetLen(_) => 0,
        }
    }

    /// The bytes that it changes in a file of this length.
    fn extent(&self, len: usize) -> Range<usize> {
        match *self {
            Change::Write { offset, ref bytes } => offset as usize..offset as usize + bytes.len(),
            Change::SetLen(new) => len.min(new as usize)..len.max(new as usize),
        }
    }

    fn len_after(&self, len: usize) -> usize {
        match self {
            Change::Write { .. } => len.max(self.extent(len).end),
            Change::SetLen(new) => *new as usize,
        }
    }

    fn flip(&mut self, at: usize, mask: u8) {
        if let Change::Write { offset, bytes } = self
            && let Some(byte) = at.checked_sub(*offset as usize).and_then(|at| bytes.get_mut(at))
        {
            *byte ^= mask;
        }
    }
}

/// What a crash does to a file's unsynced changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileFate {
    Kept,
    Lost,
    /// So many changes whole, and of the next one so many bytes.
    Torn {
        changes: usize,
        bytes: usize,
    },
    /// The new length, and zeroes where nothing was synced.
    Zeroed,
    /// The new length, and each changed page as it was after so many changes.
    Pages(BTreeMap<usize, usize>),
}

/// The bytes of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileImage {
    live: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    modified: i128,
    /// The modification time that the medium surely holds.
    durable_modified: i128,
}

impl FileImage {
    pub(super) fn live(&self) -> &[u8] {
        &self.live
    }

    pub(super) fn modified(&self) -> i128 {
        self.modified
    }

    pub(super) fn set_modified(&mut self, nanos: i128) {
        self.modified = nanos;
    }

    pub(super) fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    pub(super) fn unsynced(&self) -> &[Change] {
        &self.unsynced
    }

    pub(super) fn change(&mut self, change: Change, now: i128) {
        change.apply(&mut self.live);
        self.modified = now;
        self.unsynced.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            change.apply(&mut self.durable);
        }
        self.durable_modified = self.modified;
    }

    pub(super) fn forget_unsynced(&mut self) {
        self.unsynced.clear();
    }

    /// Some of the changed pages reach the medium, with all unsynced changes; the others are forgotten.
    pub(super) fn sync_pages(&mut self, page_bytes: usize, mut is_written: impl FnMut() -> bool) {
        let all = self.unsynced.len();
        let pages = self.changed_pages(page_bytes).into_iter();
        let moments = pages.map(|page| (page, if is_written() { all } else { 0 })).collect();
        self.durable = self.in_pages(&moments, page_bytes);
        self.unsynced.clear();
    }

    /// Flips bits of one byte in every copy of it that there is, so that only writing it anew brings it back.
    pub(super) fn rot(&mut self, at: usize, mask: u8) {
        let copies = [self.live.get_mut(at), self.durable.get_mut(at)];
        copies.into_iter().flatten().for_each(|byte| *byte ^= mask);
        self.unsynced.iter_mut().for_each(|change| change.flip(at, mask));
    }

    /// The pages that unsynced changes touch and that lie within the new length.
    pub(super) fn changed_pages(&self, page_bytes: usize) -> BTreeSet<usize> {
        let mut len = self.durable.len();
        let mut pages = BTreeSet::new();
        for change in &self.unsynced {
            let extent = change.extent(len);
            pages.extend(extent.start / page_bytes..extent.end.div_ceil(page_bytes));
            len = change.len_after(len);
        }
        pages.retain(|page| page * page_bytes < len);
        pages
    }

    pub(super) fn crash(&mut self, fate: &FileFate, page_bytes: usize) {
        let bytes = match fate {
            FileFate::Lost => self.durable.clone(),
            FileFate::Kept => self.after(self.unsynced.len()),
            FileFate::Torn { changes, bytes } => self.torn(*changes, *bytes),
            FileFate::Zeroed => self.zeroed(),
            FileFate::Pages(moments) => self.in_pages(moments, page_bytes),
        };
        self.live.clone_from(&bytes);
        self.durable = bytes;
        self.unsynced.clear();
        if *fate != FileFate::Kept {
            self.modified = self.durable_modified;
        }
        self.durable_modified = self.modified;
    }

    /// What the medium holds once so many of the changes have reached it.
    fn after(&self, changes: usize) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        self.unsynced.iter().take(changes).for_each(|change| change.apply(&mut bytes));
        bytes
    }

    fn torn(&self, changes: usize, keep: usize) -> Vec<u8> {
        let mut bytes = self.after(changes);
        if let Some(torn) = self.unsynced.get(changes) {
            torn.torn(keep).apply(&mut bytes);
        }
        bytes
    }

    fn zeroed(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        bytes.resize(self.live.len(), 0);
        bytes
    }

    /// Goes through the changes once, and takes each page at its moment.
    fn in_pages(&self, moments: &BTreeMap<usize, usize>, page_bytes: usize) -> Vec<u8> {
        let mut due: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        moments.iter().for_each(|(page, moment)| due.entry(*moment).or_default().push(*page));
        let mut bytes = self.durable.clone();
        let mut taken = Vec::new();
        for moment in 0..=self.unsynced.len() {
            let pages = due.remove(&moment).unwrap_or_default();
            taken.extend(
                pages.into_iter().map(|page| (page * page_bytes, page_at(&bytes, page * page_bytes, page_bytes))),
            );
            if let Some(change) = self.unsynced.get(moment) {
                change.apply(&mut bytes);
            }
        }
        for (start, page) in taken {
            let end = bytes.len().min(start + page_bytes);
            bytes[start..end].copy_from_slice(&page[..end - start]);
        }
        bytes
    }
}

/// One page, with zeroes after the end of the file.
fn page_at(bytes: &[u8], start: usize, page_bytes: usize) -> Vec<u8> {
    let rest = bytes.get(start..).unwrap_or_default();
    let mut page = rest[..rest.len().min(page_bytes)].to_vec();
    page.resize(page_bytes, 0);
    page
}
