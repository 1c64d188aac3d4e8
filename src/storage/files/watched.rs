//! The disk as the rest of file storage sees it: the first failed fsync of a file or a directory stops the store, and
//! nothing is changed on it from then on. A failed open, write or rename stops nothing. Journals and the commit log,
//! which are written to too often for a detour, use the disk below and see to it themselves.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::commit::Latch;
use crate::storage::disk::{Access, DirEntry, Disk, DiskDir, DiskFile, DiskLock, FileStat, SharedDisk};
use crate::storage::error::{Attempt, StorageError};

/// A disk whose fsyncs are watched.
#[derive(Debug)]
pub(super) struct WatchedDisk {
    disk: SharedDisk,
    latch: Arc<Latch>,
}

#[derive(Debug)]
struct WatchedFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    latch: Arc<Latch>,
}

#[derive(Debug)]
struct WatchedDir {
    dir: Box<dyn DiskDir>,
    path: PathBuf,
    latch: Arc<Latch>,
}

impl WatchedDisk {
    pub(super) fn new(disk: SharedDisk, latch: Arc<Latch>) -> Self {
        WatchedDisk { disk, latch }
    }
}

fn may_change(latch: &Latch) -> io::Result<()> {
    latch.check().map_err(io::Error::other)
}

/// What an fsync of something that was just written may find: a full disk is reported to the caller who met it, and leaves
/// nothing in doubt that was acknowledged. Names that were changed before a directory fsync are visible, whatever it finds.
#[derive(Clone, Copy, PartialEq)]
enum Synced {
    File,
    Directory,
}

fn judge(latch: &Latch, what: Synced, path: &Path, synced: io::Result<()>) -> io::Result<()> {
    let Err(cause) = synced else { return Ok(()) };
    let copy = cause.raw_os_error().map_or_else(|| cause.kind().into(), io::Error::from_raw_os_error);
    let failed: Result<(), StorageError> = Err(cause).synced(path);
    let Some(error) = failed.err().filter(|error| what == Synced::Directory || !error.is_no_space()) else {
        return Err(copy);
    };
    latch.stop(&error);
    // Not even a full disk is a reason to try again: the store has stopped.
    Err(if error.is_no_space() { io::Error::other(copy) } else { copy })
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        if access == Access::Read {
            return self.disk.open(path, access);
        }
        may_change(&self.latch)?;
        let file = self.disk.open(path, access)?;
        Ok(Box::new(WatchedFile { file, path: path.to_owned(), latch: self.latch.clone() }))
    }

    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn DiskDir>> {
        let dir = self.disk.open_dir(path)?;
        Ok(Box::new(WatchedDir { dir, path: path.to_owned(), latch: self.latch.clone() }))
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        self.disk.stat(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        may_change(&self.latch)?;
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        may_change(&self.latch)?;
        self.disk.remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        may_change(&self.latch)?;
        self.disk.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        may_change(&self.latch)?;
        self.disk.remove_dir(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.read_dir(path)
    }

    fn read_dir_stats(&self, path: &Path) -> io::Result<Vec<(DirEntry, io::Result<FileStat>)>> {
        self.disk.read_dir_stats(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.disk.is_locked(path)
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        self.disk.is_link(path)
    }

    fn make_private(&self, root: &Path, relative: &Path) -> io::Result<u32> {
        may_change(&self.latch)?;
        self.disk.make_private(root, relative)
    }

    fn network_file_system(&self, path: &Path) -> io::Result<Option<&'static str>> {
        self.disk.network_file_system(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<Option<u64>> {
        self.disk.free_bytes(path)
    }

    fn open_files_max(&self) -> usize {
        self.disk.open_files_max()
    }

    fn is_by_hand(&self) -> bool {
        self.disk.is_by_hand()
    }

    fn boot_id(&self) -> String {
        self.disk.boot_id()
    }
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        may_change(&self.latch)?;
        self.file.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        may_change(&self.latch)?;
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        may_change(&self.latch)?;
        judge(&self.latch, Synced::File, &self.path, self.file.sync())
    }

    fn set_modified(&self, nanos: i128) -> io::Result<()> {
        may_change(&self.latch)?;
        self.file.set_modified(nanos)
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.file.stat()
    }
}

impl DiskDir for WatchedDir {
    fn sync(&self) -> io::Result<()> {
        may_change(&self.latch)?;
        judge(&self.latch, Synced::Directory, &self.path, self.dir.sync())
    }

    fn stat(&self) -> io::Result<FileStat> {
        self.dir.stat()
    }
}
