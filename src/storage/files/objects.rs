//! Objects beside sessions, attachments and branches: one file each, replaced atomically.
//!
//! A temp file lies in the data directory itself, where the next writer removes it: it may be as large as an attachment.
//! Its rename is durable after the fsync of both directories.

use std::path::{Path, PathBuf};

use super::FileStorage;
use super::write::{self, open_plain};
use crate::limits::SIDECAR_BYTES_MAX;
use crate::model::{AttachmentId, SessionId};
use crate::storage::contract::{ObjectKind, PutObject, Storage};
use crate::storage::disk::FileKind;
use crate::storage::error::{Attempt, StorageError, optional};
use crate::storage::layout::Layout;

impl FileStorage {
    /// A crash before the rename leaves a temp file and perhaps an empty directory; after it, the old object or the new
    /// one; after both directory fsyncs, the new one. The bytes are written before the session is locked: that takes time.
    pub(super) fn write_object(
        &self,
        session: &SessionId,
        kind: ObjectKind,
        key: &str,
        bytes: &[u8],
    ) -> Result<PutObject, StorageError> {
        let path = self.object_path(session, kind, key)?;
        if self.is_deleted(session)? {
            return Ok(PutObject::Deleted);
        }
        if kind == ObjectKind::Attachment && self.has_bytes(&path, bytes) {
            return self.secure_object(session, kind);
        }
        let temp = self.temp_beside(&self.layout.root().join(key));
        write::create(&*self.disk, &temp, bytes, None)?;
        let named = self.name_object(session, kind, &temp, &path);
        if !matches!(named, Ok(PutObject::Stored)) {
            write::discard(&*self.disk, &temp);
        }
        named
    }

    fn name_object(
        &self,
        session: &SessionId,
        kind: ObjectKind,
        temp: &Path,
        path: &Path,
    ) -> Result<PutObject, StorageError> {
        let _one_at_a_time = self.put_gate(session);
        if self.is_deleted(session)? {
            return Ok(PutObject::Deleted);
        }
        let folder = self.layout.objects_of(session, kind);
        self.ensure_dirs(&folder)?;
        let root = self.layout.root();
        let [dir, root_dir] = [self.directories.open(&folder)?, self.directories.open(root)?];
        write::name(&*self.disk, temp, path)?;
        dir.sync().synced(&folder)?;
        root_dir.sync().synced(root)?;
        Ok(PutObject::Stored)
    }

    /// Whether a file holds exactly these bytes. One that cannot be read is written anew.
    fn has_bytes(&self, path: &Path, bytes: &[u8]) -> bool {
        let found = open_plain(&*self.disk, path).ok().flatten().filter(|(_, stat)| stat.len == bytes.len() as u64);
        found.is_some_and(|(file, _)| file.into_bytes(bytes.len()).is_ok_and(|found| found == bytes))
    }

    /// Makes the names of a session's objects durable: the process that gave them may have died before it did so.
    fn secure_object(&self, session: &SessionId, kind: ObjectKind) -> Result<PutObject, StorageError> {
        let _one_at_a_time = self.put_gate(session);
        if self.is_deleted(session)? {
            return Ok(PutObject::Deleted);
        }
        let folder = self.layout.objects_of(session, kind);
        self.ensure_dirs(&folder)?;
        self.directories.sync(&folder)?;
        self.directories.sync(self.layout.root())?;
        Ok(PutObject::Stored)
    }

    pub(super) fn read_object(
        &self,
        session: &SessionId,
        kind: ObjectKind,
        key: &str,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let Some(path) = self.layout.object(session, kind, key) else { return Ok(None) };
        let Some((file, stat)) = open_plain(&*self.disk, &path)? else { return Ok(None) };
        if self.is_deleted(session)? {
            return Ok(None);
        }
        if stat.len > SIDECAR_BYTES_MAX {
            return Err(StorageError::TooLarge { path, bytes: stat.len, max: SIDECAR_BYTES_MAX });
        }
        let bytes = file.into_bytes(stat.len as usize).attempt("read", &path)?;
        let is_whole = kind != ObjectKind::Attachment || AttachmentId::of_bytes(&bytes).as_str() == key;
        match is_whole {
            true => Ok(Some(bytes)),
            false => {
                Err(StorageError::Damaged { path, reason: "its bytes do not have the hash in its name".to_owned() })
            }
        }
    }

    pub(super) fn stat_object(
        &self,
        session: &SessionId,
        kind: ObjectKind,
        key: &str,
    ) -> Result<Option<u64>, StorageError> {
        let Some(path) = self.layout.object(session, kind, key) else { return Ok(None) };
        let stat = optional(self.disk.stat(&path)).attempt("look at", &path)?;
        let stat = stat.filter(|stat| stat.kind == FileKind::File);
        Ok(if self.is_deleted(session)? { None } else { stat.map(|stat| stat.len) })
    }

    pub(super) fn list_objects(&self, session: &SessionId, kind: ObjectKind) -> Result<Vec<String>, StorageError> {
        let folder = self.layout.objects_of(session, kind);
        let names = optional(self.disk.read_dir(&folder)).attempt("list", &folder)?.unwrap_or_default();
        if self.is_deleted(session)? {
            return Ok(Vec::new());
        }
        let files = names.iter().filter(|entry| !entry.is_dir);
        let mut keys: Vec<_> =
            files.filter_map(|entry| Layout::key_of_object(kind, &entry.name)).map(str::to_owned).collect();
        keys.sort();
        Ok(keys)
    }

    /// A crash before the directory fsync leaves the object, or removes it.
    pub(super) fn unlink_object(&self, session: &SessionId, kind: ObjectKind, key: &str) -> Result<bool, StorageError> {
        let Some(path) = self.layout.object(session, kind, key) else { return Ok(false) };
        let _one_at_a_time = self.put_gate(session);
        if self.stat_object(session, kind, key)?.is_none() {
            return Ok(false);
        }
        let folder = self.layout.objects_of(session, kind);
        let dir = self.directories.open(&folder)?;
        optional(self.disk.remove_file(&path)).attempt("remove", &path)?;
        dir.sync().synced(&folder)?;
        Ok(true)
    }

    fn object_path(&self, session: &SessionId, kind: ObjectKind, key: &str) -> Result<PathBuf, StorageError> {
        self.layout.object(session, kind, key).ok_or_else(|| StorageError::BadKey {
            session: session.clone(),
            kind,
            key: key.chars().take(40).collect(),
        })
    }
}
