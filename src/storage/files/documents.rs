//! Sidecars as documents: read whole or in part, replaced atomically, never without the expected revision.

use std::io;
use std::path::{Path, PathBuf};

use super::FileStorage;
use super::write::open_plain;
use crate::limits::SIDECAR_BYTES_MAX;
use crate::model::{Revision, SessionId};
use crate::storage::contract::{Document, DocumentEntry, DocumentHead, Expected, Put, PutOutcome, Storage};
use crate::storage::disk::{DirEntry, DiskFile, FileStat, read_full};
use crate::storage::error::{Attempt, StorageError, optional};
use crate::storage::layout::Layout;

/// A sidecar that is open to be read.
struct OpenDocument {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    stat: FileStat,
}

impl FileStorage {
    fn open_document(&self, session: &SessionId) -> Result<Option<OpenDocument>, StorageError> {
        let path = self.layout.sidecar(session);
        let Some((file, stat)) = open_plain(&*self.disk, &path)? else { return Ok(None) };
        Ok(if self.is_deleted(session)? { None } else { Some(OpenDocument { path, file, stat }) })
    }

    pub(super) fn read_document(&self, session: &SessionId) -> Result<Option<Document>, StorageError> {
        let Some(OpenDocument { path, file, stat }) = self.open_document(session)? else { return Ok(None) };
        if stat.len > SIDECAR_BYTES_MAX {
            return Err(StorageError::TooLarge { path, bytes: stat.len, max: SIDECAR_BYTES_MAX });
        }
        let bytes = file.into_bytes(stat.len as usize).attempt("read", &path)?;
        Ok(Some(Document { bytes, revision: revision_of(&stat) }))
    }

    pub(super) fn read_document_head(
        &self,
        session: &SessionId,
        bytes: usize,
    ) -> Result<Option<DocumentHead>, StorageError> {
        let Some(OpenDocument { path, file, stat }) = self.open_document(session)? else { return Ok(None) };
        let wanted = stat.len.min(bytes as u64) as usize;
        let mut buffer = vec![0; wanted];
        let len = read_full(&*file, &mut buffer, 0).attempt("read", &path)?;
        buffer.truncate(len);
        Ok(Some(DocumentHead { bytes: buffer, is_all: wanted as u64 == stat.len, revision: revision_of(&stat) }))
    }

    pub(super) fn stat_document(&self, session: &SessionId) -> Result<Option<Revision>, StorageError> {
        let path = self.layout.sidecar(session);
        let stat = optional(self.disk.stat(&path)).attempt("look at", &path)?;
        Ok(if self.is_deleted(session)? { None } else { stat.as_ref().map(revision_of) })
    }

    /// A crash before the kept copy is durable leaves the old document and perhaps that copy; a crash after it, what
    /// a crash in `write::replace` leaves.
    pub(super) fn write_document(
        &self,
        session: &SessionId,
        bytes: &[u8],
        put: &Put,
    ) -> Result<PutOutcome, StorageError> {
        let _one_at_a_time = self.put_gate(session);
        if self.is_deleted(session)? {
            return Ok(PutOutcome::Deleted);
        }
        let path = self.layout.sidecar(session);
        let stat = optional(self.disk.stat(&path)).attempt("look at", &path)?;
        let found = stat.as_ref().map(revision_of);
        let expected = match &put.expected {
            Expected::Absent => None,
            Expected::Revision(revision) => Some(revision.clone()),
        };
        if found != expected {
            return Ok(PutOutcome::Conflict { found });
        }
        if put.keep_replaced
            && let Some(replaced) = self.read_document(session)?
        {
            self.keep(session, "session.json", &replaced.bytes)?;
        }
        self.retire_foreign_index()?;
        self.replace_document(&path, bytes, stat.as_ref()).map(PutOutcome::Stored)
    }

    /// A transcript that another program keeps, if it is there.
    pub(super) fn read_core(&self, path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
        let Some((file, stat)) = open_plain(&*self.disk, path)? else { return Ok(None) };
        if stat.len > SIDECAR_BYTES_MAX {
            return Err(StorageError::TooLarge { path: path.to_owned(), bytes: stat.len, max: SIDECAR_BYTES_MAX });
        }
        file.into_bytes(stat.len as usize).attempt("read", path).map(Some)
    }

    /// One that cannot be looked at is listed all the same.
    pub(super) fn list_documents(&self) -> Result<Vec<DocumentEntry>, StorageError> {
        let root = self.layout.root();
        let names = self.disk.read_dir_stats(root).attempt("list", root)?;
        let deleted = self.deleted_sessions()?;
        let document = |(entry, stat): (DirEntry, io::Result<FileStat>)| {
            let session =
                Layout::session_of(&entry.name).filter(|session| !entry.is_dir && !deleted.contains(session))?;
            Some(DocumentEntry { session, revision: stat.ok().as_ref().map(revision_of) })
        };
        Ok(names.into_iter().filter_map(document).collect())
    }
}

/// Whether a file has this revision. Makes no text of it: the parts of the revision are read instead.
pub(super) fn is_revision_of(stat: &FileStat, revision: &Revision) -> bool {
    let mut parts = revision.as_str().split('-');
    let mut is_next = |expected: u128| {
        parts.next().is_some_and(|part| u128::from_str_radix(part, 16).is_ok_and(|found| found == expected))
    };
    is_next(stat.inode.into()) && is_next(stat.len.into()) && is_next(stat.modified_nanos as u128)
}

/// The revision of a file. Each save gives it a later modification time than the file it replaces has, so that no revision
/// is repeated, also where inodes are reused and the kernel's timestamps are coarse. A change by another program changes
/// the inode, the length or the time.
pub(super) fn revision_of(stat: &FileStat) -> Revision {
    Revision::new(&format!("{:x}-{:x}-{:x}", stat.inode, stat.len, stat.modified_nanos))
}
