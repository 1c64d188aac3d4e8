//! The protocols by which a file comes into being without a crash ever showing half of it.

use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::RECORD_BYTES_MAX;
use crate::storage::directories::Directories;
use crate::storage::disk::{Access, Disk, DiskFile, FileKind, FileStat, read_full, write_full};
use crate::storage::error::{Attempt, StorageError, optional};

/// The modification time of a new file: now, but later than that of the file it replaces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) now_nanos: i128,
    /// That of the file that is replaced, if there is one.
    pub(super) after: Option<i128>,
}

/// How much later than its predecessor a file is stamped, one after the other until the file system shows a difference:
/// file systems keep nanoseconds, 100 of them, microseconds, or one or two seconds.
const STAMP_STEPS_NANOS: [i128; 6] = [1, 100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000];

/// Puts a file in place, replacing what has its name, and returns what is known of it.
///
/// What a crash leaves: after the creation, a write or the fsync, a temp file that no reader looks at, and that the next
/// writer removes if it lies in the data directory itself; after the rename, the old file or the new one, whole; after
/// the directory fsync, the new one. The directory is opened first and nothing but its fsync can fail after the rename,
/// so that any other failure leaves the old file.
pub(super) fn replace(
    disk: &dyn Disk,
    directories: &Directories,
    temp: &Path,
    path: &Path,
    bytes: &[u8],
    stamp: Option<Stamp>,
) -> Result<FileStat, StorageError> {
    let parent = path.parent().expect("a file lies in a directory");
    let dir = directories.open(parent)?;
    let stat = place(disk, temp, path, bytes, stamp)?;
    dir.sync().synced(parent)?;
    Ok(stat)
}

/// The same without the directory fsync: until that, a crash leaves the old file or the new one.
pub(super) fn place(
    disk: &dyn Disk,
    temp: &Path,
    path: &Path,
    bytes: &[u8],
    stamp: Option<Stamp>,
) -> Result<FileStat, StorageError> {
    let stat = create(disk, temp, bytes, stamp)?;
    name(disk, temp, path)?;
    Ok(stat)
}

/// The first half of [`place`]: a temp file that is whole and durable, but for its name.
pub(super) fn create(
    disk: &dyn Disk,
    temp: &Path,
    bytes: &[u8],
    stamp: Option<Stamp>,
) -> Result<FileStat, StorageError> {
    let file = disk.open(temp, Access::CreateNew).attempt("create", temp)?;
    fill(&*file, temp, bytes, stamp).inspect_err(|_| discard(disk, temp))
}

/// The second half of [`place`].
pub(super) fn name(disk: &dyn Disk, temp: &Path, path: &Path) -> Result<(), StorageError> {
    disk.rename(temp, path).attempt("replace", path).inspect_err(|_| discard(disk, temp))
}

/// Removes a temp file after a failure. That failure is what the caller must hear of; a temp file that stays does no harm.
pub(super) fn discard(disk: &dyn Disk, temp: &Path) {
    let _ = disk.remove_file(temp);
}

/// The same for what nobody relies on: after a power cut it is the old file, the new one, or a torn one.
pub(super) fn replace_unsynced(disk: &dyn Disk, temp: &Path, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let file = disk.open(temp, Access::CreateNew).attempt("create", temp)?;
    let written = write_full(&*file, bytes, 0).map_err(|(_, cause)| StorageError::io("write", temp, cause));
    let replaced = written.and_then(|()| disk.rename(temp, path).attempt("replace", path));
    replaced.inspect_err(|_| discard(disk, temp))
}

fn fill(file: &dyn DiskFile, path: &Path, bytes: &[u8], stamp: Option<Stamp>) -> Result<FileStat, StorageError> {
    write_full(file, bytes, 0).map_err(|(_, cause)| StorageError::io("write", path, cause))?;
    let stamped = stamp.map(|stamp| stamp.apply(file, path)).transpose()?;
    file.sync().synced(path)?;
    match stamped {
        Some(stat) => Ok(stat),
        None => file.stat().attempt("look at", path),
    }
}

impl Stamp {
    /// Sets the time, once as a rule, as much later than the predecessor's as it takes for the file system to tell both apart.
    fn apply(self, file: &dyn DiskFile, path: &Path) -> Result<FileStat, StorageError> {
        let set = |nanos| file.set_modified(nanos).and_then(|()| file.stat()).attempt("set the time of", path);
        let Some(after) = self.after else { return set(self.now_nanos) };
        let mut later = STAMP_STEPS_NANOS.iter().map(|step| set(self.now_nanos.max(after + step)));
        let stat = match later.find(|set| set.as_ref().map_or(true, |stat| stat.modified_nanos > after)) {
            Some(stat) => stat?,
            // The predecessor, which another program wrote, has the last time that the file system knows.
            None => set(self.now_nanos)?,
        };
        match stat.modified_nanos != after {
            true => Ok(stat),
            false => Err(StorageError::io("set the time of", path, io::Error::other("the file system keeps no time"))),
        }
    }
}

/// A file that is open, and what was known of it then.
pub(super) type OpenedFile = (Box<dyn DiskFile>, FileStat);

/// Opens a file that is there and is a file.
pub(super) fn open_plain(disk: &dyn Disk, path: &Path) -> Result<Option<OpenedFile>, StorageError> {
    let Some(file) = optional(disk.open(path, Access::Read)).attempt("open", path)? else { return Ok(None) };
    let stat = file.stat().attempt("look at", path)?;
    match stat.kind {
        FileKind::File => Ok(Some((file, stat))),
        FileKind::Directory => Err(StorageError::io("read", path, io::ErrorKind::IsADirectory.into())),
        FileKind::Other => Err(StorageError::io("read", path, io::Error::other("it is not a plain file"))),
    }
}

/// Reads one of our own small JSON files.
pub(super) fn read_small<T: DeserializeOwned>(disk: &dyn Disk, path: &Path) -> Result<Option<T>, StorageError> {
    let Some((file, stat)) = open_plain(disk, path)? else { return Ok(None) };
    let bytes = stat.len;
    if bytes > RECORD_BYTES_MAX {
        return Err(StorageError::TooLarge { path: path.to_owned(), bytes, max: RECORD_BYTES_MAX });
    }
    let mut buffer = vec![0; bytes as usize];
    let len = read_full(&*file, &mut buffer, 0).attempt("read", path)?;
    serde_json::from_slice(&buffer[..len])
        .map(Some)
        .map_err(|cause| StorageError::Damaged { path: path.to_owned(), reason: cause.to_string() })
}

/// The bytes of one of our own small JSON files.
pub(super) fn to_json_line(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).expect("numbers and text become JSON");
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::sim::{Fault, SimDisk};

    const OLD: &[u8] = b"old";

    fn disk() -> (SimDisk, Directories) {
        let disk = SimDisk::new();
        disk.open(Path::new("/file"), Access::CreateNew).unwrap().write_at(OLD, 0).unwrap();
        let directories = Directories::new(std::sync::Arc::new(disk.clone()), Path::new("/"));
        (disk, directories)
    }

    /// On a full disk each failed save would take more room.
    #[test]
    fn a_file_that_could_not_be_put_in_place_leaves_the_old_one_and_no_temp_file() {
        type Put = fn(&SimDisk, &Directories) -> Result<(), StorageError>;
        let (temp, path) = (Path::new("/temp"), Path::new("/file"));
        let stamped: Put = |disk, directories| {
            let stamp = Some(Stamp { now_nanos: 7, after: Some(7) });
            replace(disk, directories, Path::new("/temp"), Path::new("/file"), b"new", stamp).map(drop)
        };
        let unsynced: Put = |disk, _| replace_unsynced(disk, Path::new("/temp"), Path::new("/file"), b"new");
        for (put, operations) in [(stamped, 5), (unsynced, 3)] {
            for operation in 1..=operations {
                for fault in [Fault::Enospc, Fault::Eio] {
                    let (disk, directories) = disk();
                    disk.fail(disk.operations() + operation, fault);
                    put(&disk, &directories).unwrap_err();
                    let files = disk.files();
                    assert!(!files.contains_key(temp), "operation {operation}, {fault:?}: the temp file stays");
                    assert_eq!(files[path], OLD, "operation {operation}, {fault:?}");
                    put(&disk, &directories).unwrap();
                    assert_eq!(disk.files()[path], b"new");
                }
            }
        }
    }
}
