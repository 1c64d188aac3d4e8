//! Suspect journals: those whose last write failed in this process, or all of them after a failed fsync in this boot.
//!
//! A kernel marks pages clean although it could not write them, and the next sync says that all is well. What is still
//! to be read of such a journal is therefore written once more before anything is added to it.

use crate::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::sync::Mutex;

use crate::limits::READ_CHUNK_BYTES;
use crate::storage::disk::{DiskFile, read_full, write_full};

/// The journals whose page cache may differ from the medium.
#[derive(Debug, Default)]
pub(super) struct SuspectFiles {
    all: AtomicBool,
    /// Those that were made sure in spite of that.
    sure: Mutex<HashSet<PathBuf>>,
    paths: Mutex<HashSet<PathBuf>>,
}

impl SuspectFiles {
    /// Nobody can be sure of any journal that was not made sure since.
    pub(super) fn note_all(&self) {
        self.all.store(true, Ordering::Release);
    }

    pub(super) fn note(&self, path: &Path) {
        self.paths.lock().insert(path.to_owned());
    }

    fn is_sure(&self, path: &Path) -> bool {
        let is_like_all = self.all.load(Ordering::Acquire) && !self.sure.lock().contains(path);
        !is_like_all && !self.paths.lock().contains(path)
    }

    /// Writes the bytes of such a journal in their own places again and syncs them. A crash in between leaves the same
    /// bytes, or those that the medium had before.
    pub(super) fn make_sure(&self, path: &Path, file: &dyn DiskFile) -> io::Result<()> {
        if self.is_sure(path) {
            return Ok(());
        }
        rewrite(file)?;
        file.sync()?;
        self.paths.lock().remove(path);
        if self.all.load(Ordering::Acquire) {
            self.sure.lock().insert(path.to_owned());
        }
        Ok(())
    }
}

fn rewrite(file: &dyn DiskFile) -> io::Result<()> {
    let mut buffer = vec![0; READ_CHUNK_BYTES];
    let mut offset = 0;
    loop {
        let len = read_full(file, &mut buffer, offset)?;
        if len == 0 {
            return Ok(());
        }
        write_full(file, &buffer[..len], offset).map_err(|(_, cause)| cause)?;
        offset += len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::disk::{Access, Disk};
    use crate::storage::sim::{Crash, Fault, SimDisk};

    const JOURNAL: &str = "/journal";

    /// A journal longer than two chunks, whose fsync has failed: its pages are clean, and not on the medium.
    fn after_a_failed_sync() -> (SimDisk, Box<dyn DiskFile>, Vec<u8>) {
        let disk = SimDisk::new();
        let bytes: Vec<u8> = (0..2 * READ_CHUNK_BYTES + 77).map(|at| (at % 251) as u8).collect();
        let file = disk.open(Path::new(JOURNAL), Access::CreateNew).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        write_full(&*file, &bytes, 0).unwrap();
        disk.fail(disk.operations() + 1, Fault::Eio);
        file.sync().unwrap_err();
        (disk, file, bytes)
    }

    fn is_durable(disk: &SimDisk, bytes: &[u8]) -> bool {
        let lost = disk.copy();
        lost.power_cut(Crash::LoseAll);
        lost.files()[Path::new(JOURNAL)] == bytes
    }

    /// Every journal is suspect, or this one is.
    fn suspects() -> [SuspectFiles; 2] {
        let suspects: [SuspectFiles; 2] = Default::default();
        suspects[0].note_all();
        suspects[1].note(Path::new(JOURNAL));
        suspects
    }

    #[test]
    fn all_of_a_suspect_journal_is_written_again_once() {
        for suspects in suspects() {
            let (disk, file, bytes) = after_a_failed_sync();
            file.sync().unwrap();
            assert!(!is_durable(&disk, &bytes), "another fsync says that all is well");
            suspects.make_sure(Path::new(JOURNAL), &*file).unwrap();
            assert!(is_durable(&disk, &bytes));
            let before = disk.operations();
            suspects.make_sure(Path::new(JOURNAL), &*file).unwrap();
            assert_eq!(disk.operations(), before, "it is sure now");
        }
    }

    #[test]
    fn a_journal_stays_suspect_until_it_was_written_again_and_synced() {
        for operation in 1..=4 {
            for suspects in suspects() {
                let (disk, file, bytes) = after_a_failed_sync();
                disk.fail(disk.operations() + operation, Fault::Enospc);
                suspects.make_sure(Path::new(JOURNAL), &*file).unwrap_err();
                suspects.make_sure(Path::new(JOURNAL), &*file).unwrap();
                assert!(is_durable(&disk, &bytes), "operation {operation} failed");
            }
        }
    }

    #[test]
    fn a_journal_is_suspect_again_after_another_failure() {
        for suspects in suspects() {
            let (disk, file, bytes) = after_a_failed_sync();
            suspects.make_sure(Path::new(JOURNAL), &*file).unwrap();
            suspects.note(Path::new(JOURNAL));
            let before = disk.operations();
            suspects.make_sure(Path::new(JOURNAL), &*file).unwrap();
            assert!(disk.operations() > before && is_durable(&disk, &bytes));
        }
    }
}
