//! A real disk that can be made to wait before it reads a journal or deletes a session, or to refuse what it is asked
//! for, and that counts the files that are put in place.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use lastword::storage::{Access, DirEntry, Disk, DiskDir, DiskFile, DiskLock, FileStat, OsDisk};
use parking_lot::Mutex;

/// The disk that the store is given.
#[derive(Debug, Default)]
pub(crate) struct SlowDisk {
    held: Mutex<Option<Door>>,
    refuses_journals: AtomicBool,
    refuses_sidecars: AtomicBool,
    refuses_tombstones: AtomicBool,
    journal_reads: AtomicUsize,
    replaced: AtomicUsize,
}

/// Where somebody can be made to wait.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Doorway {
    JournalRead,
    Deletion,
}

#[derive(Debug)]
struct Door {
    way: Doorway,
    entered: Sender<()>,
    release: Receiver<()>,
}

/// Somebody who waits at a door.
pub(crate) struct Held {
    entered: Receiver<()>,
    release: Sender<()>,
}

const LONG: Duration = Duration::from_secs(30);

impl Held {
    /// Waits until somebody stands at the door.
    pub(crate) fn until_entered(&self) {
        self.entered.recv_timeout(LONG).expect("nobody comes to the door");
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
        self.hold(Doorway::JournalRead)
    }

    /// The next one who deletes a session waits before anything has changed.
    pub(crate) fn hold_next_deletion(&self) -> Held {
        self.hold(Doorway::Deletion)
    }

    fn hold(&self, way: Doorway) -> Held {
        let ((entered, has_entered), (release, is_released)) = (channel(), channel());
        *self.held.lock() = Some(Door { way, entered, release: is_released });
        Held { entered: has_entered, release }
    }

    /// From now on journals can be neither looked at nor read, or they can again.
    pub(crate) fn refuse_journals(&self, refuses: bool) {
        self.refuses_journals.store(refuses, Ordering::SeqCst);
    }

    /// From now on no sidecar can be put in place, or it can again.
    pub(crate) fn refuse_sidecars(&self, refuses: bool) {
        self.refuses_sidecars.store(refuses, Ordering::SeqCst);
    }

    /// From now on no tombstone can be put in place, or it can again.
    pub(crate) fn refuse_tombstones(&self, refuses: bool) {
        self.refuses_tombstones.store(refuses, Ordering::SeqCst);
    }

    /// How often a journal was opened to be read.
    pub(crate) fn journal_reads(&self) -> usize {
        self.journal_reads.load(Ordering::SeqCst)
    }

    /// How many sidecars were put in place.
    pub(crate) fn sidecars_written(&self) -> usize {
        self.replaced.load(Ordering::SeqCst)
    }

    fn wait_at(&self, way: Doorway) {
        let door = self.held.lock().take_if(|door| door.way == way);
        if let Some(door) = door {
            door.entered.send(()).expect("the test listens");
            door.release.recv_timeout(LONG).expect("the test releases");
        }
    }
}

fn ends_with(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn refuse_if(refuses: &AtomicBool) -> io::Result<()> {
    match refuses.load(Ordering::SeqCst) {
        true => Err(io::Error::other("the disk refuses")),
        false => Ok(()),
    }
}

impl Disk for SlowDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        if access == Access::Read && ends_with(path, "jsonl") {
            self.journal_reads.fetch_add(1, Ordering::SeqCst);
            self.wait_at(Doorway::JournalRead);
            refuse_if(&self.refuses_journals)?;
        }
        OsDisk.open(path, access)
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        if ends_with(path, "jsonl") {
            refuse_if(&self.refuses_journals)?;
        }
        OsDisk.stat(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if to.parent().is_some_and(|folder| folder.ends_with("_tombstones")) {
            refuse_if(&self.refuses_tombstones)?;
            self.wait_at(Doorway::Deletion);
        } else if ends_with(to, "json") {
            refuse_if(&self.refuses_sidecars)?;
            self.replaced.fetch_add(1, Ordering::SeqCst);
        }
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

    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn DiskDir>> {
        OsDisk.open_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        OsDisk.lock(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        OsDisk.is_locked(path)
    }

    fn make_private(&self, root: &Path, relative: &Path) -> io::Result<u32> {
        OsDisk.make_private(root, relative)
    }

    fn network_file_system(&self, path: &Path) -> io::Result<Option<&'static str>> {
        OsDisk.network_file_system(path)
    }

    fn boot_id(&self) -> String {
        OsDisk.boot_id()
    }
}
