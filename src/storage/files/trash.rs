//! Deletion: a durable tombstone first, then everything of the session into the trash. Nothing is ever unlinked.

use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{FileStorage, Storage, write};
use crate::entropy::uuid4;
use crate::model::{RunId, SessionId};
use crate::storage::contract::Birth;
use crate::storage::disk::DirEntry;
use crate::storage::error::{Attempt, StorageError, optional};
use crate::storage::layout::Layout;

/// The contents of a tombstone.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tombstone {
    session_id: String,
    deleted_at: f64,
    /// Names the folder in the trash.
    generation: String,
}

impl FileStorage {
    /// Deletes a session.
    ///
    /// A crash before the tombstone is durable leaves the session, or deletes it. A crash behind it leaves the session
    /// deleted with some of its files not yet in the trash; readers do not see them, and the next writer moves them.
    pub(super) fn move_session_to_trash(&self, session: &SessionId) -> Result<bool, StorageError> {
        let _one_at_a_time = self.put_gate(session);
        if self.is_deleted(session)? || !self.has_parts(session)? {
            return Ok(false);
        }
        let tombstone = Tombstone {
            session_id: session.to_string(),
            deleted_at: self.clock.now().seconds(),
            generation: uuid4(&*self.entropy),
        };
        self.retire_foreign_index()?;
        self.secure_journals_of(session)?;
        self.ensure_dirs(&self.layout.tombstones())?;
        self.deleted_filter.note(session);
        self.replace(&self.layout.tombstone(session), &write::to_json_line(&tombstone))?;
        self.move_parts(session, &tombstone.generation)?;
        Ok(true)
    }

    fn has_parts(&self, session: &SessionId) -> Result<bool, StorageError> {
        for path in [self.layout.sidecar(session), self.layout.journals_of(session)] {
            if optional(self.disk.stat(&path)).attempt("look at", &path)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn move_parts(&self, session: &SessionId, generation: &str) -> Result<(), StorageError> {
        let folder = self.layout.trash_of(session, generation);
        self.ensure_dirs(&folder)?;
        let parts = [
            (self.layout.journals_of(session), "run_journal"),
            (self.layout.backup(session), "session.json.bak"),
            (self.layout.sidecar(session), "session.json"),
        ];
        for (part, name) in parts {
            if optional(self.disk.stat(&part)).attempt("look at", &part)?.is_some() {
                // Another program may have written the session again after it was deleted: both are in the trash then.
                self.move_part(&part, &self.free_name(&folder, name)?)?;
            }
        }
        Ok(())
    }

    pub(super) fn move_part(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        if optional(self.disk.rename(from, to)).attempt("move to the trash", from)?.is_none() {
            return Ok(());
        }
        for folder in [to, from].map(|path| path.parent().expect("a file lies in a folder")) {
            self.disk.sync_dir(folder).attempt("sync the folder", folder)?;
        }
        Ok(())
    }

    /// Moves to the trash what a crash left of deleted sessions.
    pub(super) fn finish_deletions(
        &self,
        deleted: &HashSet<SessionId>,
        root_names: &[DirEntry],
    ) -> Result<(), StorageError> {
        if deleted.is_empty() {
            return Ok(());
        }
        let journals = self.layout.journals();
        let with_journals = optional(self.disk.read_dir(&journals)).attempt("list", &journals)?.unwrap_or_default();
        let of_name = |name: &str| Layout::session_of(name).or_else(|| Layout::session_of_backup(name));
        let left = root_names.iter().filter_map(|entry| of_name(&entry.name));
        let left = left.chain(with_journals.iter().filter_map(|entry| SessionId::parse(&entry.name).ok()));
        for session in left.filter(|session| deleted.contains(session)).collect::<HashSet<_>>() {
            let path = self.layout.tombstone(&session);
            let generation = match write::read_small::<Tombstone>(&*self.disk, &path) {
                Ok(Some(tombstone)) if is_plain(&tombstone.generation) => tombstone.generation,
                Ok(None) => continue,
                // It is there, so the session is deleted; only the folder in the trash gets another name.
                Ok(Some(_)) | Err(StorageError::Damaged { .. } | StorageError::TooLarge { .. }) => {
                    uuid4(&*self.entropy)
                }
                Err(StorageError::Io { source, .. }) if source.kind() == std::io::ErrorKind::IsADirectory => {
                    uuid4(&*self.entropy)
                }
                Err(error) => return Err(error),
            };
            self.move_parts(&session, &generation)?;
        }
        Ok(())
    }

    /// The sessions that have a tombstone.
    pub(super) fn deleted_sessions(&self) -> Result<HashSet<SessionId>, StorageError> {
        let folder = self.layout.tombstones();
        let names = optional(self.disk.read_dir(&folder)).attempt("list", &folder)?.unwrap_or_default();
        Ok(names.iter().filter_map(|entry| Layout::session_of(&entry.name)).collect())
    }

    /// Removes one journal. Its record stays, so that its id is not taken again; the record is durable before the
    /// journal moves, so that a crash leaves the journal or its removal.
    pub(super) fn move_run_to_trash(&self, session: &SessionId, run: &RunId) -> Result<bool, StorageError> {
        let path = self.layout.journal(session, run);
        if optional(self.disk.stat(&path)).attempt("look at", &path)?.is_none() {
            return Ok(false);
        }
        let now = self.clock.now().seconds();
        let known = self.read_record(session, run)?;
        let mut record = known.unwrap_or_else(|| self.new_record(&Birth { begun_at: now, lease_seconds: None }));
        record.removed_at = Some(now);
        self.secure_journals_of(session)?;
        self.write_record(session, run, &record)?;
        let journals = self.layout.journals_of(session);
        self.disk.sync_dir(&journals).attempt("sync the folder", &journals)?;
        let folder = self.layout.trash_of(session, &uuid4(&*self.entropy));
        self.ensure_dirs(&folder)?;
        self.move_part(&path, &folder.join(format!("{run}.jsonl")))?;
        Ok(true)
    }
}

/// Whether a text from a tombstone can be part of a folder's name.
fn is_plain(generation: &str) -> bool {
    !generation.is_empty() && generation.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
