//! Durable creation of directories.

use std::io;
use std::path::Path;

use super::disk::Disk;
use super::error::{Attempt, StorageError, optional};

/// Creates a folder and those above it that are missing, each durable in the one above before the next is begun. One
/// that is there is made durable too: whoever created it may have died before that. Whether this user may look into the
/// folder above it is another matter.
pub(super) fn ensure_dirs(disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
    let Some(above) = path.parent() else { return Ok(()) };
    let parent = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    if optional(disk.stat(path)).attempt("open", path)?.is_some() {
        return match disk.sync_dir(parent) {
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced.attempt("sync the folder", parent),
        };
    }
    if optional(disk.stat(parent)).attempt("open", parent)?.is_none() {
        ensure_dirs(disk, above)?;
    }
    match disk.create_dir(path) {
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
        created => created.attempt("create the folder", path)?,
    }
    disk.sync_dir(parent).attempt("sync the folder", parent)
}
