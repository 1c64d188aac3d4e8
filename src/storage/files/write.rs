//! The protocols by which a file or a folder comes into being without a crash ever showing half of it.

use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::revision_of;
use crate::limits::RECORD_BYTES_MAX;
use crate::model::Revision;
use crate::storage::disk::{Access, Disk, DiskFile, FileKind, FileStat, read_full, write_full};
use crate::storage::error::{Attempt, StorageError, optional};

/// Puts a file in place, replacing what has its name.
///
/// What a crash leaves: after the creation, a write or the sync, a temp file that no reader looks at, and that the next
/// writer removes if it lies in the data directory itself; after the rename, the old file or the new one, whole; after the directory's sync, the new
/// one.
pub(super) fn replace(disk: &dyn Disk, temp: &Path, path: &Path, bytes: &[u8]) -> Result<Revision, StorageError> {
    let folder = path.parent().expect("a file lies in a folder");
    let file = disk.open(temp, Access::CreateNew).attempt("create", temp)?;
    let written = fill(&*file, temp, bytes).and_then(|()| disk.rename(temp, path).attempt("replace", path));
    if let Err(error) = written {
        // The failure is what the caller must hear of; a temp file that stays behind harms nobody.
        let _ = disk.remove_file(temp);
        return Err(error);
    }
    disk.sync_dir(folder).attempt("sync the folder", folder)?;
    let stat = file.stat().attempt("look at", path)?;
    Ok(revision_of(&stat))
}

/// The same for what nobody relies on: after a power cut it is the old file, the new one, or a torn one.
pub(super) fn replace_unsynced(disk: &dyn Disk, temp: &Path, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let file = disk.open(temp, Access::CreateNew).attempt("create", temp)?;
    let written = write_full(&*file, bytes, 0).map_err(|(_, cause)| StorageError::io("write", temp, cause));
    let replaced = written.and_then(|()| disk.rename(temp, path).attempt("replace", path));
    if replaced.is_err() {
        let _ = disk.remove_file(temp);
    }
    replaced
}

fn fill(file: &dyn DiskFile, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    write_full(file, bytes, 0).map_err(|(_, cause)| StorageError::io("write", path, cause))?;
    file.sync().attempt("sync", path)
}

/// Creates a file with these bytes, durable once its folder is synced too. After a crash before that it is missing,
/// empty, or torn.
pub(super) fn create(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let file = disk.open(path, Access::CreateNew).attempt("create", path)?;
    fill(&*file, path, bytes)
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
