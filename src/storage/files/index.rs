//! The index's file: written without a sync, because whoever reads it believes only what the documents confirm.

use crate::sync::atomic::Ordering;
use std::io;

use super::write::{self, open_plain};
use super::{FileStorage, StorageError};
use crate::limits::{FOLDER_TIME_SETTLES, INDEX_BYTES_MAX};
use crate::storage::disk::{Access, DiskFile, write_full};
use crate::storage::error::{Attempt, optional};

impl FileStorage {
    /// The time of the folder's last change. One that is too young may stand for two changes.
    pub(super) fn folder_token(&self) -> Result<Option<u128>, StorageError> {
        let root = self.layout.root();
        let modified = self.disk.stat(root).attempt("look at", root)?.modified_nanos;
        let age_nanos = i128::from(self.clock.now().micros()) * 1_000 - modified;
        let has_settled = age_nanos > FOLDER_TIME_SETTLES.as_nanos() as i128;
        Ok(has_settled.then_some(modified as u128))
    }

    pub(super) fn read_index(&self) -> Result<Option<Vec<u8>>, StorageError> {
        let path = self.layout.index();
        match open_plain(&*self.disk, &path)? {
            Some((file, stat)) if stat.len <= INDEX_BYTES_MAX => {
                file.into_bytes(stat.len as usize).attempt("read", &path).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A crash leaves some of the bytes, or others in their place; the lines say themselves whether they are whole.
    pub(super) fn append_index(&self, lines: &[u8]) -> Result<u64, StorageError> {
        let path = self.layout.index();
        let file = self.open_index()?;
        let end = file.stat().attempt("look at", &path)?.len;
        write_full(&*file, lines, end).map_err(|(_, cause)| StorageError::io("write", &path, cause))?;
        Ok(end + lines.len() as u64)
    }

    fn open_index(&self) -> Result<Box<dyn DiskFile>, StorageError> {
        let path = self.layout.index();
        match optional(self.disk.open(&path, Access::Write)).attempt("open", &path)? {
            Some(file) => Ok(file),
            None => self.disk.open(&path, Access::CreateNew).attempt("create", &path),
        }
    }

    pub(super) fn replace_index(&self, lines: &[u8]) -> Result<(), StorageError> {
        let path = self.layout.index();
        write::replace_unsynced(&*self.disk, &self.temp_beside(&path), &path, lines)
    }

    /// Moves away the list that the reference program keeps, before the first change that it would not know of. That
    /// program makes another. Durable before the change is begun, so that no crash leaves a list that is wrong.
    pub(super) fn retire_foreign_index(&self) -> Result<(), StorageError> {
        if self.is_listed_by_us.load(Ordering::Acquire) {
            return Ok(());
        }
        let path = self.layout.foreign_index();
        if optional(self.disk.stat(&path)).attempt("look at", &path)?.is_some() {
            let kept = self.layout.kept();
            self.ensure_dirs(&kept)?;
            let moved = self.move_part(&path, &kept.join(format!("{}-index.json", self.clock.now().micros())));
            match moved {
                Err(StorageError::Io { source, .. }) if source.kind() == io::ErrorKind::CrossesDevices => {
                    self.copy_away(&kept, &path)?;
                }
                moved => moved?,
            }
        }
        self.is_listed_by_us.store(true, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::clock::{ManualClock, Timestamp};
    use crate::storage::disk::Disk;
    use crate::storage::files::{FilesOptions, Mode};
    use crate::storage::sim::SimDisk;

    /// Before that, a second change may leave the same modification time. A clock that is behind tells no age.
    #[test]
    fn a_directory_time_is_believed_once_it_has_settled() {
        let settles = FOLDER_TIME_SETTLES.as_micros() as i64;
        // Every change within its first second has the time 0.
        let disk = SimDisk::new().with_coarse_clock(1_000_000_000);
        disk.create_dir(Path::new("/data")).unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(0)));
        let options = FilesOptions { clock: clock.clone(), ..FilesOptions::in_mode(Mode::ReadOnly) };
        let storage = FileStorage::open(Arc::new(disk), Path::new("/data"), options).unwrap();
        let times = [(-1_000_000, None), (0, None), (settles, None), (settles + 1, Some(0)), (10_000_000, Some(0))];
        for (now, token) in times {
            clock.set(Timestamp::from_micros(now));
            assert_eq!(storage.folder_token().unwrap(), token, "{now} microseconds after the change");
        }
    }
}
