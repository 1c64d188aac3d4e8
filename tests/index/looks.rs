//! A simulated disk that counts looks too: the simulation itself counts only what a crash could interrupt.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lastword::storage::sim::SimDisk;
use lastword::storage::{Access, DirEntry, Disk, DiskFile, DiskLock, FileStat};

#[derive(Debug, Clone, Default)]
pub(crate) struct LookedAt {
    pub(crate) disk: SimDisk,
    looks: Arc<AtomicU64>,
}

impl LookedAt {
    /// How many files and folders were changed, opened, listed or looked at by name.
    pub(crate) fn operations(&self) -> u64 {
        self.disk.operations() + self.looks.load(Ordering::SeqCst)
    }

    fn look(&self) -> &SimDisk {
        self.looks.fetch_add(1, Ordering::SeqCst);
        &self.disk
    }
}

impl Disk for LookedAt {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        self.look().open(path, access)
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        self.look().stat(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.look().read_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.look().is_locked(path)
    }

    fn make_private(&self, path: &Path) -> io::Result<()> {
        self.disk.make_private(path)
    }

    fn network_file_system(&self, path: &Path) -> io::Result<Option<&'static str>> {
        self.disk.network_file_system(path)
    }

    fn is_by_hand(&self) -> bool {
        self.disk.is_by_hand()
    }

    fn boot_id(&self) -> String {
        self.disk.boot_id()
    }
}
