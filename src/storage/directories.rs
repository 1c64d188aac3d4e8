//! Directories: handles that stay open for directory fsync, and durable creation.
//!
//! The data directory and those directly in it keep their handle for as long as the store is open, so that a save needs
//! no descriptor for its directory fsync. Others are opened for one operation, before it changes anything: running out
//! of descriptors then leaves everything as it was.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sync::Mutex;

use super::disk::{Disk, DiskDir, FileStat, SharedDisk};
use super::error::{Attempt, StorageError, optional};

/// The handles of a data directory.
#[derive(Debug)]
pub(super) struct Directories {
    disk: SharedDisk,
    root: PathBuf,
    held: Mutex<HashMap<PathBuf, Held>>,
}

#[derive(Debug)]
struct Held {
    dir: Arc<dyn DiskDir>,
    stat: FileStat,
}

impl Directories {
    pub(super) fn new(disk: SharedDisk, root: &Path) -> Self {
        Directories { disk, root: root.to_owned(), held: Mutex::default() }
    }

    /// An open handle of a directory: the held one if the path still names it, else a new one.
    pub(super) fn open(&self, path: &Path) -> Result<Arc<dyn DiskDir>, StorageError> {
        if !self.is_kept_open(path) {
            return Ok(Arc::from(self.disk.open_dir(path).attempt(OPEN, path)?));
        }
        let mut held = self.held.lock();
        let named = self.disk.stat(path).attempt(OPEN, path)?;
        if let Some(known) = held.get(path).filter(|known| known.stat.is_same_file(&named)) {
            return Ok(known.dir.clone());
        }
        let dir: Arc<dyn DiskDir> = Arc::from(self.disk.open_dir(path).attempt(OPEN, path)?);
        let stat = dir.stat().attempt(OPEN, path)?;
        held.insert(path.to_owned(), Held { dir: dir.clone(), stat });
        Ok(dir)
    }

    /// Directory fsync.
    pub(super) fn sync(&self, path: &Path) -> Result<(), StorageError> {
        self.open(path)?.sync().synced(path)
    }

    /// Creates a directory and those above it that are missing, as [`ensure_dirs`] does.
    pub(super) fn ensure(&self, path: &Path) -> Result<(), StorageError> {
        ensure_dirs(&*self.disk, path, &|parent| self.sync(parent))
    }

    fn is_kept_open(&self, path: &Path) -> bool {
        path == self.root || path.parent() == Some(&self.root)
    }
}

const OPEN: &str = "open the directory";

/// Creates the data directory and those above it that are missing.
pub(super) fn create_root(disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
    ensure_dirs(disk, path, &|parent| disk.open_dir(parent).attempt(OPEN, parent)?.sync().synced(parent))
}

/// Creates a directory and those above it that are missing, each durable in the one above before the next is begun. One
/// that is there is made durable too: its creator may have died before that. This user may lack access to the directory
/// above it, which then is not ours to make durable.
fn ensure_dirs(
    disk: &dyn Disk,
    path: &Path,
    sync: &dyn Fn(&Path) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let Some(above) = path.parent() else { return Ok(()) };
    let parent = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    if optional(disk.stat(path)).attempt("open", path)?.is_some() {
        return match sync(parent) {
            Err(StorageError::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        };
    }
    if optional(disk.stat(parent)).attempt("open", parent)?.is_none() {
        ensure_dirs(disk, above, sync)?;
    }
    match disk.create_dir(path) {
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
        created => created.attempt("create the directory", path)?,
    }
    sync(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim::{Crash, Fault, SimDisk};

    fn directories(disk: &SimDisk) -> Directories {
        disk.create_dir(Path::new("/data")).unwrap();
        disk.create_dir(Path::new("/data/_kept")).unwrap();
        Directories::new(Arc::new(disk.clone()), Path::new("/data"))
    }

    #[test]
    fn the_data_directory_keeps_its_handle_and_a_directory_that_was_replaced_does_not() {
        let disk = SimDisk::new();
        let directories = directories(&disk);
        let kept = Path::new("/data/_kept");
        let first = directories.open(kept).unwrap();
        assert!(Arc::ptr_eq(&first, &directories.open(kept).unwrap()));
        disk.rename(kept, Path::new("/data/_old")).unwrap();
        disk.create_dir(kept).unwrap();
        let second = directories.open(kept).unwrap();
        assert!(!Arc::ptr_eq(&first, &second), "it would sync the old one");
        assert_eq!(second.stat().unwrap(), disk.stat(kept).unwrap());
    }

    #[test]
    fn a_directory_that_is_gone_is_an_error_although_its_handle_is_held() {
        let disk = SimDisk::new();
        let directories = directories(&disk);
        directories.sync(Path::new("/data/_kept")).unwrap();
        disk.remove_dir(Path::new("/data/_kept")).unwrap();
        assert!(directories.sync(Path::new("/data/_kept")).is_err());
    }

    fn is_there_after_power_cut(disk: &SimDisk, path: &Path) -> bool {
        let disk = disk.copy();
        disk.power_cut(Crash::LoseAll);
        disk.stat(path).is_ok()
    }

    /// Its creator may have died before the directory fsync, and events in it are acknowledged next.
    #[test]
    fn a_directory_that_is_there_is_made_durable_or_that_fails() {
        type Ensure = fn(&SimDisk, &Path) -> Result<(), StorageError>;
        let ways: [Ensure; 2] = [
            |disk, path| create_root(disk, path),
            |disk, path| Directories::new(Arc::new(disk.clone()), Path::new("/data")).ensure(path),
        ];
        for ensure in ways {
            let disk = SimDisk::new();
            let path = Path::new("/data/_kept");
            disk.create_dir(Path::new("/data")).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            disk.create_dir(path).unwrap();
            disk.fail(disk.operations() + 1, Fault::Eio);
            let failed = ensure(&disk, path).unwrap_err();
            assert!(matches!(failed, StorageError::SyncFailed { .. }), "{failed:?}");
            disk.limit_open_files(Some(disk.open_files()));
            assert!(ensure(&disk, path).is_err(), "it cannot be synced without a descriptor");
            disk.limit_open_files(None);
            ensure(&disk, path).unwrap();
            assert!(is_there_after_power_cut(&disk, path));
        }
    }

    /// The directory above may belong to another user. That is no reason to call a name durable that was just made in it.
    #[test]
    fn only_the_directory_above_one_that_is_there_may_be_closed_to_us() {
        let disk = SimDisk::new();
        let (parent, path) = (Path::new("/home"), Path::new("/home/data"));
        disk.create_dir(parent).unwrap();
        // To be written and searched, not read.
        disk.set_mode(parent, 0o300).unwrap();
        let denied = create_root(&disk, path).unwrap_err();
        assert!(matches!(denied, StorageError::Io { .. }), "{denied:?}");
        assert!(disk.stat(path).is_ok());
        create_root(&disk, path).unwrap();
    }

    #[test]
    fn each_missing_directory_is_durable_in_the_one_above_or_that_fails() {
        let path = Path::new("/a/b/c");
        let whole = SimDisk::new();
        create_root(&whole, path).unwrap();
        for operation in 1..=whole.operations() + 1 {
            let disk = SimDisk::new();
            disk.fail(disk.operations() + operation, Fault::Eio);
            let outcome = create_root(&disk, path);
            assert_eq!(outcome.is_err(), operation <= whole.operations(), "operation {operation}");
            assert!(outcome.is_err() || is_there_after_power_cut(&disk, path), "operation {operation}");
        }
    }
}
