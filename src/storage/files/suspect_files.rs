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
