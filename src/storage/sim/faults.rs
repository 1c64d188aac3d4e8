//! What goes wrong while the machine runs: with one operation, or from one operation on until somebody sees to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// What goes wrong with one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device fails.
    Eio,
    /// The disk is full.
    Enospc,
    /// A write takes only so many bytes. Other operations are not affected.
    ShortWrite(usize),
    /// A sync of a file fails with EIO after some of the changed pages reached the medium: which of them, this seed
    /// decides. Other operations fail with EIO.
    PartialSync(u64),
}

/// What an operation asks of the device, as far as lasting faults care.
#[derive(Debug, Clone, Copy)]
pub(super) enum Demand {
    Nothing,
    Sync,
    /// New space; so many bytes of the operation find room without it.
    Space {
        after: usize,
    },
}

/// Everything that is set to go wrong.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    single: Vec<(u64, Fault)>,
    full_from: Option<u64>,
    /// Whether a full disk has no room for bytes in the place of others.
    is_copy_on_write: bool,
    /// From when on a sync finds that there is no space for what was written.
    no_space_at_sync_from: Option<u64>,
    syncs_fail_from: Option<u64>,
    /// Files and directories by number, because damage stays with the file when it is renamed.
    unreadable: BTreeSet<u64>,
    /// Paths that are not seen yet, and how many looks it takes.
    hidden: BTreeMap<PathBuf, u64>,
}

impl Faults {
    pub(super) fn set(&mut self, operation: u64, fault: Fault) {
        self.single.push((operation, fault));
    }

    /// Faults of single operations end with the life of the programs; what lasts, lasts.
    pub(super) fn begin_life(&mut self) {
        self.single.clear();
    }

    pub(super) fn set_full(&mut self, from: Option<u64>) {
        self.full_from = from;
    }

    pub(super) fn set_copy_on_write(&mut self, is_copy_on_write: bool) {
        self.is_copy_on_write = is_copy_on_write;
    }

    pub(super) fn is_copy_on_write(&self) -> bool {
        self.is_copy_on_write
    }

    pub(super) fn set_no_space_at_sync(&mut self, from: Option<u64>) {
        self.no_space_at_sync_from = from;
    }

    pub(super) fn set_syncs_fail(&mut self, from: Option<u64>) {
        self.syncs_fail_from = from;
    }

    pub(super) fn set_unreadable(&mut self, inode: u64, is_unreadable: bool) {
        match is_unreadable {
            true => self.unreadable.insert(inode),
            false => self.unreadable.remove(&inode),
        };
    }

    pub(super) fn is_unreadable(&self, inode: u64) -> bool {
        self.unreadable.contains(&inode)
    }

    /// What happens to the operation of this number.
    pub(super) fn strike(&self, number: u64, demand: Demand) -> Option<Fault> {
        let single = self.single.iter().find(|(at, _)| *at == number).map(|(_, fault)| *fault);
        single.or_else(|| self.strike_lasting(number, demand))
    }

    fn strike_lasting(&self, number: u64, demand: Demand) -> Option<Fault> {
        let has_begun = |from: Option<u64>| from.is_some_and(|from| from <= number);
        match demand {
            Demand::Sync if has_begun(self.syncs_fail_from) => Some(Fault::Eio),
            Demand::Sync if has_begun(self.no_space_at_sync_from) => Some(Fault::Enospc),
            Demand::Space { after: 0 } if has_begun(self.full_from) => Some(Fault::Enospc),
            Demand::Space { after } if has_begun(self.full_from) => Some(Fault::ShortWrite(after)),
            _ => None,
        }
    }

    pub(super) fn hide(&mut self, path: &Path, looks: u64) {
        self.hidden.insert(plain(path), looks);
    }

    /// Looks at a path, and says whether it hides. Each such look brings it nearer to being seen.
    pub(super) fn look_in_vain(&mut self, path: &Path) -> bool {
        let path = plain(path);
        match self.hidden.iter_mut().find(|(hidden, looks)| path.starts_with(hidden) && **looks > 0) {
            Some((_, looks)) => {
                *looks -= 1;
                true
            }
            None => false,
        }
    }
}

/// The path without anything that does not matter for what it names.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}
