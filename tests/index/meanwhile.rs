//! What is dropped in while the directory is listed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use lastword::Store;
use lastword::clock::{Clock, SystemClock, Timestamp};
use lastword::storage::{Access, DirEntry, Disk, DiskDir, DiskFile, DiskLock, FileStat, OsDisk};
use parking_lot::Mutex;

use crate::shelf::{Shelf, ids};

/// A real disk on which another program copies a file, once, right after a directory was listed.
#[derive(Debug, Default)]
struct BusyDisk {
    copy: Mutex<Option<(PathBuf, PathBuf)>>,
}

impl Disk for BusyDisk {
    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let entries = OsDisk.read_dir(path)?;
        let copy = self.copy.lock().take_if(|(_, to)| to.parent() == Some(path));
        if let Some((from, to)) = copy {
            fs::copy(from, to)?;
        }
        Ok(entries)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        OsDisk.open(path, access)
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        OsDisk.stat(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        OsDisk.remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        OsDisk.create_dir(path)
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

/// The time of the directory must be taken before it is listed: then it tells of what came afterwards.
#[test]
fn a_session_that_is_dropped_in_while_the_directory_is_listed_is_on_the_next_page() {
    let shelf = Shelf::with(2);
    // Every change of the directory is long ago, so that its time alone decides.
    shelf.clock.set(Timestamp::from_seconds(SystemClock.now().seconds() + 86_400.0));
    File::open(&shelf.root).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    let disk = Arc::new(BusyDisk::default());
    let store = Store::open_read_only_on(disk.clone(), &shelf.root, shelf.options()).unwrap();
    let listed = || {
        let page = store.list_page(None, 9).unwrap().sessions;
        ids(&page).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    *disk.copy.lock() = Some((shelf.path("s1.json"), shelf.path("dropped-in.json")));
    assert_eq!(listed(), ["s0", "s1"]);
    assert!(disk.copy.lock().is_none(), "the directory was listed");
    assert_eq!(listed().len(), 3);
}
