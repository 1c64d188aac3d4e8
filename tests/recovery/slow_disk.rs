//! A real disk that can be made to wait at the door of a journal, and counts the files that are put in place.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use lastword::storage::{Access, DirEntry, Disk, DiskFile, DiskLock, FileStat, OsDisk};
use parking_lot::Mutex;

/// The disk that the store is given.
#[derive(Debug, Default)]
pub(crate) struct SlowDisk {
    held: Mutex<Option<Door>>,
    journal_reads: AtomicUsize,
    replaced: AtomicUsize,
}

#[derive(Debug)]
struct Door {
    entered: Sender<()>,
    release: Receiver<()>,
}

/// Somebody who is about to read a journal, and waits.
pub(crate) struct Held {
    entered: Receiver<()>,
    release: Sender<()>,
}

const LONG: Duration = Duration::from_secs(30);

impl Held {
    /// Waits until somebody stands at the door.
    pub(crate) fn until_entered(&self) {
        self.entered.recv_timeout(LONG).expect("nobody reads the journal");
    }

    /// Lets it go on.
    pub(crate) fn release(self) {
        self.release.send(()).expect("whoever waits is there");
    }
}

impl SlowDisk {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The next one who opens a journal to read it waits at the door. Only that one.
    pub(crate) fn hold_next_journal_read(&self) -> Held {
        let ((entered, has_entered), (release, is_released)) = (channel(), channel());
        *self.held.lock() = Some(Door { entered, release: is_released });
        Held { entered: has_entered, release }
    }

    /// How often a journal was opened to be read.
    pub(crate) fn journal_reads(&self) -> usize {
        self.journal_reads.load(Ordering::SeqCst)
    }

    /// How many sidecars were put in place.
    pub(crate) fn sidecars_written(&self) -> usize {
        self.replaced.load(Ordering::SeqCst)
    }

    fn wait_at_door(&self) {
        self.journal_reads.fetch_add(1, Ordering::SeqCst);
        let door = self.held.lock().take();
        if let Some(door) = door {
            door.entered.send(()).expect("the test listens");
            door.release.recv_timeout(LONG).expect("the test releases");
        }
    }
}

fn ends_with(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

impl Disk for SlowDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        if access == Access::Read && ends_with(path, "jsonl") {
            self.wait_at_door();
        }
        OsDisk.open(path, access)
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        OsDisk.stat(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.replaced.fetch_add(usize::from(ends_with(to, "json")), Ordering::SeqCst);
        OsDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        OsDisk.create_dir(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        OsDisk.read_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        OsDisk.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        OsDisk.lock(path)
    }

    fn network_file_system(&self, path: &Path) -> io::Result<Option<&'static str>> {
        OsDisk.network_file_system(path)
    }

    fn boot_id(&self) -> String {
        OsDisk.boot_id()
    }
}
