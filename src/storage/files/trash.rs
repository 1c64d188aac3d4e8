//! Deletion: a durable tombstone first, then everything of the session into the trash. No session's file is unlinked.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{FileStorage, Purpose, Storage, write};
use crate::entropy::uuid4;
use crate::model::{RunId, SessionId};
use crate::storage::contract::{Birth, ObjectKind};
use crate::storage::disk::DirEntry;
use crate::storage::error::{Attempt, StorageError, optional, with_cause};
use crate::storage::finding::Finding;
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
    /// A crash before the tombstone is durable leaves the session, or deletes it. A crash after it leaves the session
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
        match self.move_parts(session, &tombstone.generation) {
            // It is deleted all the same, and the next opening tries again.
            Err(error @ StorageError::Io { .. }) => self.live_findings.tell(&self.leftover(session, &error)),
            moved => moved?,
        }
        Ok(true)
    }

    fn has_parts(&self, session: &SessionId) -> Result<bool, StorageError> {
        let objects = [ObjectKind::Attachment, ObjectKind::Branch].map(|kind| self.layout.objects_of(session, kind));
        for path in [self.layout.sidecar(session), self.layout.journals_of(session)].into_iter().chain(objects) {
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
            (self.layout.objects_of(session, ObjectKind::Attachment), "attachments"),
            (self.layout.objects_of(session, ObjectKind::Branch), "branches"),
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

    /// Moves a file or directory. Both directories are opened before that, so that nothing but their fsync can fail after it.
    pub(super) fn move_part(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        let parents = [to, from].map(|path| path.parent().expect("a file lies in a directory"));
        let [to_dir, from_dir] = [self.directories.open(parents[0])?, self.directories.open(parents[1])?];
        if optional(self.disk.rename(from, to)).attempt("move away", from)?.is_none() {
            return Ok(());
        }
        to_dir.sync().synced(parents[0])?;
        from_dir.sync().synced(parents[1])
    }

    /// Moves to the trash what a crash left of deleted sessions. What cannot be moved stays where it is: its session is
    /// deleted all the same, and no other one is concerned.
    pub(super) fn finish_deletions(
        &self,
        deleted: &HashSet<SessionId>,
        root_names: &[DirEntry],
    ) -> Result<Vec<Finding>, StorageError> {
        let mut findings = Vec::new();
        if deleted.is_empty() {
            return Ok(findings);
        }
        let mut with_parts = Vec::new();
        for folder in self.layout.directories_of_sessions() {
            match optional(self.disk.read_dir(&folder)).attempt("list", &folder) {
                Err(error) if error.is_of_one_object() => findings.push(self.trouble(&folder, &error)),
                names => with_parts.extend(names?.unwrap_or_default()),
            }
        }
        let of_name = |name: &str| Layout::session_of(name).or_else(|| Layout::session_of_backup(name));
        let left = root_names.iter().filter_map(|entry| of_name(&entry.name));
        let left = left.chain(with_parts.iter().filter_map(|entry| Layout::session_of_directory(&entry.name)));
        for session in left.filter(|session| deleted.contains(session)).collect::<BTreeSet<_>>() {
            match self.finish_deletion(&session) {
                Err(error) if error.is_of_one_object() => findings.push(self.leftover(&session, &error)),
                // A server goes on without room and descriptors too; a repair is better tried again.
                Err(error @ StorageError::Io { .. }) if self.purpose == Purpose::Serve => {
                    findings.push(self.leftover(&session, &error));
                }
                finished => finished?,
            }
        }
        Ok(findings)
    }

    fn finish_deletion(&self, session: &SessionId) -> Result<(), StorageError> {
        let path = self.layout.tombstone(session);
        let generation = match write::read_small::<Tombstone>(&*self.disk, &path) {
            Ok(Some(tombstone)) if is_plain(&tombstone.generation) => tombstone.generation,
            Ok(None) => return Ok(()),
            // It is there, so the session is deleted; only the directory in the trash gets another name.
            Ok(Some(_)) => uuid4(&*self.entropy),
            Err(error) if error.is_of_one_object() => uuid4(&*self.entropy),
            Err(error) => return Err(error),
        };
        self.move_parts(session, &generation)
    }

    /// A part of a deleted session that is not in the trash.
    fn leftover(&self, session: &SessionId, error: &StorageError) -> Finding {
        let path = match error {
            StorageError::Io { path, .. } => path.clone(),
            _ => self.layout.sidecar(session),
        };
        let message = format!(
            "this session was deleted, and part of it cannot be moved to the trash; it stays deleted: {}",
            with_cause(error)
        );
        Finding::new("deleted_leftover", self.layout.relative(&path), message).of(session)
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
        let _one_at_a_time = self.put_gate(session);
        let path = self.layout.journal(session, run);
        if optional(self.disk.stat(&path)).attempt("look at", &path)?.is_none() {
            return Ok(false);
        }
        let now = self.clock.now().seconds();
        let known = self.readable_record(session, run)?;
        let mut record = known.unwrap_or_else(|| self.new_record(&Birth { begun_at: now, ..Birth::default() }));
        record.removed_at = Some(now);
        self.secure_journals_of(session)?;
        self.write_record(session, run, &record)?;
        // One that stays does no harm: the run takes no more events.
        let _ = self.remove_lease_note(session, run);
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
