//! Notes of the process groups that a writer has started, so that the next one can end those that outlived it.
//!
//! One small file a group. It has to survive the death of the process and nothing more: no process survives a power
//! cut. What a crash leaves: no note, half a note, or a note; whoever starts a process lets it go to work only when its
//! note is whole, so half a note is as good as none.

use std::io;

use super::{FileStorage, write};
use crate::storage::contract::ProcessGroup;
use crate::storage::disk::{Access, write_full};
use crate::storage::error::{Attempt, StorageError, optional};

/// A note is called by its group's token: a uuid.
const TOKEN_CHARS: usize = 32;

impl FileStorage {
    pub(super) fn write_group(&self, group: &ProcessGroup) -> Result<(), StorageError> {
        let folder = self.layout.groups();
        self.must_write()?;
        match self.disk.create_dir(&folder) {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            created => created.attempt("create", &folder)?,
        }
        let path = self.layout.group(&group.token);
        let file = self.disk.open(&path, Access::CreateNew).attempt("create", &path)?;
        let written = write_full(&*file, &write::to_json_line(group), 0);
        written.map_err(|(_, cause)| {
            let _ = self.disk.remove_file(&path);
            StorageError::io("write", &path, cause)
        })
    }

    /// Works after a failed sync too: it writes nothing.
    pub(super) fn remove_group(&self, token: &str) -> Result<(), StorageError> {
        self.must_hold_lock()?;
        let path = self.layout.group(token);
        optional(self.raw.remove_file(&path)).attempt("remove", &path).map(drop)
    }

    /// The notes that are whole. What is half written goes: its process never went to work. What cannot be read stays, and
    /// nobody can tell whom it means. For the writer alone: others might come upon a note that is just being written.
    pub(super) fn read_groups(&self) -> Result<Vec<ProcessGroup>, StorageError> {
        self.must_hold_lock()?;
        let folder = self.layout.groups();
        let Some(entries) = optional(self.disk.read_dir(&folder)).attempt("list", &folder)? else {
            return Ok(Vec::new());
        };
        let mut groups = Vec::new();
        for entry in entries.into_iter().filter(|entry| !entry.is_dir && is_token(&entry.name)) {
            let path = folder.join(&entry.name);
            match write::read_small::<ProcessGroup>(&*self.disk, &path) {
                Ok(group) => groups.extend(group),
                Err(StorageError::Damaged { .. }) => {
                    // If it cannot be removed, it is passed over again the next time.
                    let _ = self.raw.remove_file(&path);
                }
                Err(_) => {}
            }
        }
        Ok(groups)
    }
}

/// Whether a file has the name of a note of ours.
fn is_token(name: &str) -> bool {
    name.len() == TOKEN_CHARS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}
