//! The overlay: acknowledged lines that a journal's own file lacks, laid over it in memory for readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::log_scan::LogScan;
use super::replay::{Patch, Rebuilt};
use super::withheld::Withheld;
use super::write::open_plain;
use crate::model::{RunId, SessionId};
use crate::storage::disk::Disk;
use crate::storage::error::StorageError;
use crate::storage::layout::Layout;

/// The run id that comes before all others.
const LOWEST_RUN: &str = "-";

/// Lines that belong into journals, each with its place.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    runs: BTreeMap<(SessionId, RunId), Arc<Patches>>,
}

#[derive(Debug, Default)]
pub(super) struct Patches {
    lines: Vec<(u64, Vec<u8>)>,
    /// The file of whose end nothing counts beside them, by its inode.
    instead_of: Option<u64>,
}

impl Overlay {
    pub(super) fn of(disk: &dyn Disk, layout: &Layout, store: &str) -> Result<Self, StorageError> {
        let scan = LogScan::of(disk, layout, store)?;
        let contents = scan.contents();
        let mut overlay = Overlay::default();
        for (key, records) in &contents.runs {
            let path = layout.journal(&key.0, &key.1);
            let len = disk.stat(&path).map_or(0, |stat| stat.len);
            let lines = contents.lines_of(records, len);
            overlay.lay(disk, layout, &Patch { session: &key.0, run: &key.1, lines });
        }
        Ok(overlay)
    }

    /// Adds lines that are withheld from their journals.
    pub(super) fn add_withheld(&mut self, disk: &dyn Disk, layout: &Layout, withheld: &Withheld) {
        // Where they cannot be read, the log may have them.
        for (key, run) in withheld.iter().filter(|(_, run)| !run.lines.is_empty()) {
            self.lay(disk, layout, &run.patch(key));
        }
    }

    /// A journal that cannot be read is reported to the reader of that run, and keeps no one else from reading.
    fn lay(&mut self, disk: &dyn Disk, layout: &Layout, patch: &Patch<'_>) {
        let path = layout.journal(patch.session, patch.run);
        let rebuilt = open_plain(disk, &path).ok().flatten().and_then(|(file, stat)| {
            let rebuilt = patch.rebuilt(&*file, stat.len).ok().flatten()?;
            Some((stat.inode, rebuilt))
        });
        let key = (patch.session.clone(), patch.run.clone());
        self.runs.insert(key, Arc::new(Patches::of(patch, rebuilt)));
    }

    pub(super) fn patches(&self, session: &SessionId, run: &RunId) -> Option<&Arc<Patches>> {
        self.runs.get(&(session.clone(), run.clone())).filter(|patches| !patches.lines.is_empty())
    }

    /// The runs of a session that have lines here.
    pub(super) fn runs_of(&self, session: &SessionId) -> impl Iterator<Item = &RunId> {
        let first = RunId::parse(LOWEST_RUN).expect("this is an id");
        self.runs
            .range((session.clone(), first)..)
            .take_while(move |((owner, _), _)| owner == session)
            .filter(|(_, patches)| patches.starts())
            .map(|((_, run), _)| run)
    }
}

impl Patches {
    fn of(patch: &Patch<'_>, rebuilt: Option<(u64, Rebuilt)>) -> Self {
        match rebuilt {
            Some((inode, rebuilt)) => Patches { lines: vec![(rebuilt.from, rebuilt.tail)], instead_of: Some(inode) },
            None => {
                let lines = patch.lines.iter().map(|(offset, bytes)| (*offset, bytes.to_vec())).collect();
                Patches { lines, instead_of: None }
            }
        }
    }

    /// Whether they count beside the file with this inode: not if a writer has put another in its place since.
    pub(super) fn fit(&self, inode: Option<u64>) -> bool {
        self.instead_of.is_none_or(|known| Some(known) == inode)
    }

    /// Whether a journal could be made of these alone.
    pub(super) fn starts(&self) -> bool {
        self.lines.first().is_some_and(|(offset, _)| *offset == 0)
    }

    /// The length of a journal of this length with these in it.
    pub(super) fn len_of(&self, len: u64) -> u64 {
        if self.instead_of.is_some() { self.end() } else { self.end().max(len) }
    }

    /// Lays them over what was read of a file at an offset, and returns how many bytes that are then.
    pub(super) fn lay_over(&self, buffer: &mut [u8], from_file: usize, offset: u64) -> usize {
        let patched_to = self.len_of(offset + from_file as u64).saturating_sub(offset);
        let len = patched_to.min(buffer.len() as u64) as usize;
        buffer[from_file.min(len)..len].fill(0);
        for (start, bytes) in &self.lines {
            let from = (*start).max(offset);
            let to = (start + bytes.len() as u64).min(offset + len as u64);
            if from < to {
                let source = &bytes[(from - start) as usize..(to - start) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        len
    }

    fn end(&self) -> u64 {
        self.lines.iter().map(|(offset, bytes)| offset + bytes.len() as u64).max().unwrap_or(0)
    }
}
