//! What a reader sees of journals that a commit log knows better than their own files do: both, in memory.

use std::collections::BTreeMap;

use super::survey::{LogContents, Survey};
use crate::model::{RunId, SessionId};
use crate::storage::contract::JournalBytes;
use crate::storage::disk::{Disk, DiskFile, read_full};
use crate::storage::error::{Attempt, StorageError, optional};
use crate::storage::layout::Layout;

/// Lines that belong into journals, each with its place.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    runs: BTreeMap<(SessionId, RunId), Patches>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Patches {
    lines: Vec<(u64, Vec<u8>)>,
}

impl Overlay {
    pub(super) fn of(disk: &dyn Disk, layout: &Layout, store: &str) -> Result<Self, StorageError> {
        let survey = Survey::of(disk, layout, store)?;
        let contents = survey.contents();
        let mut overlay = Overlay::default();
        for (key, records) in &contents.runs {
            let path = layout.journal(&key.0, &key.1);
            let len = optional(disk.stat(&path)).attempt("look at", &path)?.map_or(0, |stat| stat.len);
            overlay.runs.insert(key.clone(), Patches::of(&contents, records, len));
        }
        Ok(overlay)
    }

    pub(super) fn patches(&self, session: &SessionId, run: &RunId) -> Option<&Patches> {
        self.runs.get(&(session.clone(), run.clone())).filter(|patches| !patches.lines.is_empty())
    }

    /// The runs of a session that have lines here.
    pub(super) fn runs_of(&self, session: &SessionId) -> impl Iterator<Item = &RunId> {
        self.runs
            .iter()
            .filter(move |((owner, _), patches)| owner == session && patches.starts())
            .map(|((_, run), _)| run)
    }
}

impl Patches {
    fn of(contents: &LogContents<'_>, records: &super::survey::RunRecords<'_>, len: u64) -> Self {
        let lines = contents.lines_of(records, len);
        Patches { lines: lines.into_iter().map(|(offset, bytes)| (offset, bytes.to_vec())).collect() }
    }

    /// Whether a journal could be made of these alone.
    pub(super) fn starts(&self) -> bool {
        self.lines.first().is_some_and(|(offset, _)| *offset == 0)
    }

    /// The journal's length with these in it.
    pub(super) fn end(&self) -> u64 {
        self.lines.iter().map(|(offset, bytes)| offset + bytes.len() as u64).max().unwrap_or(0)
    }
}

/// A journal's bytes as a replay of the log would leave them.
#[derive(Debug)]
pub(super) struct PatchedBytes {
    pub(super) file: Option<Box<dyn DiskFile>>,
    pub(super) path: std::path::PathBuf,
    pub(super) patches: Patches,
}

impl JournalBytes for PatchedBytes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StorageError> {
        let from_file = match &self.file {
            Some(file) => read_full(&**file, buffer, offset).attempt("read", &self.path)?,
            None => 0,
        };
        let patched_to = self.patches.end().saturating_sub(offset).min(buffer.len() as u64) as usize;
        let len = from_file.max(patched_to);
        buffer[from_file..len].fill(0);
        for (start, bytes) in &self.patches.lines {
            let from = (*start).max(offset);
            let to = (start + bytes.len() as u64).min(offset + len as u64);
            if from < to {
                let source = &bytes[(from - start) as usize..(to - start) as usize];
                buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(len)
    }
}
