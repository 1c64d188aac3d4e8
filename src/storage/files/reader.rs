//! Journal files as readers see them: with the lines that the overlay adds, and never ahead of a durable writer.
//!
//! A writer whose note says `durable` shows nothing that a power cut could take back. A reader in another process cannot
//! know what that writer has synced, so it calls fdatasync itself on the journal before it shows what it read. That costs
//! the writer nothing. Until a restart of the machine it makes no difference whether the writer is still alive.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::overlay::Patches;
use crate::storage::contract::{Durability, JournalBytes};
use crate::storage::disk::{DiskFile, SharedDisk, read_full};
use crate::storage::error::{Attempt, StorageError};
use crate::storage::layout::Layout;
use crate::storage::lock;

/// A journal's own file.
#[derive(Debug)]
pub(super) struct JournalFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    /// Only for a reader: what it must sync before it shows anything.
    guard: Option<SyncGuard>,
}

/// Syncs a journal that a durable writer of another process may not have synced yet.
#[derive(Debug)]
pub(super) struct SyncGuard {
    disk: SharedDisk,
    layout: Layout,
    boot_id: String,
    /// Up to here it was synced by this reader, in whole lines: a writer may take back part of one.
    synced_to: AtomicU64,
}

impl SyncGuard {
    pub(super) fn new(disk: &SharedDisk, layout: &Layout, boot_id: &str) -> Self {
        let (disk, layout, boot_id) = (disk.clone(), layout.clone(), boot_id.to_owned());
        SyncGuard { disk, layout, boot_id, synced_to: AtomicU64::new(0) }
    }

    /// Makes what was read durable, if a durable writer may not have. The file may be longer by now, and is synced whole.
    fn cover(&self, file: &JournalFile, read: &[u8], offset: u64) -> Result<(), StorageError> {
        let end = offset + read.len() as u64;
        if end <= self.synced_to.load(Ordering::Acquire) || !self.is_needed()? {
            return Ok(());
        }
        let len = file.file.stat().attempt("look at", &file.path)?.len;
        let mut last = [0];
        let is_whole = len > end && file.file.read_at(&mut last, len - 1).attempt("read", &file.path)? == 1;
        file.file.sync().synced(&file.path)?;
        let in_lines = memchr::memrchr(b'\n', read).map_or(0, |at| offset + at as u64 + 1);
        let synced_to = if is_whole && last == *b"\n" { len } else { in_lines };
        self.synced_to.fetch_max(synced_to, Ordering::AcqRel);
        Ok(())
    }

    /// Whether the last writer was a durable one of this boot: after a restart of the machine every page is what the medium
    /// holds. One that has stopped because an fsync failed leaves pages that a later fsync proves nothing of.
    fn is_needed(&self) -> Result<bool, StorageError> {
        let last = match lock::read_note(&*self.disk, &self.layout) {
            // It is being written, or says nothing.
            Err(StorageError::Damaged { .. }) => return Ok(true),
            read => read?,
        };
        let Some(last) = last else { return Ok(false) };
        let is_needed = last.durability == Durability::Durable && last.boot_id == self.boot_id;
        match is_needed && last.is_stopped {
            true => Err(StorageError::WriterStopped { path: self.layout.root().to_owned() }),
            false => Ok(is_needed),
        }
    }
}

impl JournalFile {
    pub(super) fn new(file: Box<dyn DiskFile>, path: PathBuf, guard: Option<SyncGuard>) -> Self {
        JournalFile { file, path, guard }
    }

    /// Nothing is shown of what was read if it could not be made as durable as it must be.
    fn show(&self, read: &[u8], offset: u64) -> Result<usize, StorageError> {
        match &self.guard {
            Some(guard) if !read.is_empty() => guard.cover(self, read, offset)?,
            _ => {}
        }
        Ok(read.len())
    }
}

impl JournalBytes for JournalFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StorageError> {
        let len = self.file.read_at(buffer, offset).attempt("read", &self.path)?;
        self.show(&buffer[..len], offset)
    }
}

/// A journal's bytes as a replay of the log would leave them.
#[derive(Debug)]
pub(super) struct PatchedBytes {
    pub(super) file: Option<JournalFile>,
    pub(super) patches: Arc<Patches>,
}

impl JournalBytes for PatchedBytes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StorageError> {
        let from_file = match &self.file {
            Some(file) => match read_full(&*file.file, buffer, offset).attempt("read", &file.path) {
                // What is laid over it can be shown without it.
                Err(error) if error.is_of_one_object() && self.patches.starts() => 0,
                len => file.show(&buffer[..len?], offset)?,
            },
            None => 0,
        };
        Ok(self.patches.lay_over(buffer, from_file, offset))
    }
}
