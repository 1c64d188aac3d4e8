//! Repair operations on files. Each keeps what it replaces or moves, under a name derived from its bytes, so that a repair
//! that is interrupted and repeated has the same result as one that is not.

use std::path::{Path, PathBuf};

use super::reader::JournalFile;
use super::record::RunRecord;
use super::write::open_plain;
use super::{FileStorage, Purpose};
use crate::limits::READ_CHUNK_BYTES;
use crate::model::{RunId, SessionId};
use crate::storage::contract::{Birth, JournalBytes};
use crate::storage::disk::{Access, DiskFile, read_full, write_full};
use crate::storage::error::{Attempt, StorageError, optional};
use crate::storage::layout::Layout;

/// A journal that is being written anew, beside the old one.
///
/// A crash leaves the old journal and a temp file, until the new one is put in place; then the new one, and the old one
/// among the kept files.
#[derive(Debug)]
pub struct NewJournal<'s> {
    storage: &'s FileStorage,
    session: SessionId,
    run: RunId,
    temp: PathBuf,
    file: Box<dyn DiskFile>,
    buffer: Vec<u8>,
    len: u64,
    is_in_place: bool,
}

impl NewJournal<'_> {
    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= READ_CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        write_full(&*self.file, &self.buffer, self.len)
            .map_err(|(_, cause)| StorageError::io("write", &self.temp, cause))?;
        self.len += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// What was written so far, to be looked at before it counts.
    pub fn written(&mut self) -> Result<Box<dyn JournalBytes>, StorageError> {
        self.flush()?;
        let file = self.storage.disk.open(&self.temp, Access::Read).attempt("open", &self.temp)?;
        Ok(Box::new(JournalFile::new(file, self.temp.clone(), None)))
    }

    /// Keeps the old journal and puts this one in its place. Gives the place of the kept one.
    pub fn put_in_place(mut self) -> Result<PathBuf, StorageError> {
        self.flush()?;
        self.file.sync().synced(&self.temp)?;
        let path = self.storage.layout.journal(&self.session, &self.run);
        self.storage.sync_folders_of(&self.session)?;
        let folder = self.storage.layout.journals_of(&self.session);
        let dir = self.storage.directories.open(&folder)?;
        let kept = self.storage.keep_file(&self.storage.layout.kept_of(&self.session), &path)?;
        self.storage.disk.rename(&self.temp, &path).attempt("replace", &path)?;
        self.is_in_place = true;
        dir.sync().synced(&folder)?;
        Ok(self.storage.layout.relative(&kept))
    }
}

impl Drop for NewJournal<'_> {
    fn drop(&mut self) {
        if !self.is_in_place {
            // One that stays behind is removed by the next repair.
            let _ = self.storage.disk.remove_file(&self.temp);
        }
    }
}

impl FileStorage {
    /// Begins to write a journal anew.
    pub fn rewrite_journal(&self, session: &SessionId, run: &RunId) -> Result<NewJournal<'_>, StorageError> {
        self.must_repair()?;
        self.refuse_link(&self.layout.journal(session, run))?;
        self.refuse_unreplayed(session, run)?;
        let temp = self.temp_beside(&self.layout.journal(session, run));
        let file = self.disk.open(&temp, Access::CreateNew).attempt("create", &temp)?;
        let (session, run) = (session.clone(), run.clone());
        Ok(NewJournal { storage: self, session, run, temp, file, buffer: Vec::new(), len: 0, is_in_place: false })
    }

    /// Lines that are still to be put into a journal belong to places of the journal as it is.
    fn refuse_unreplayed(&self, session: &SessionId, run: &RunId) -> Result<(), StorageError> {
        let key = (session.clone(), run.clone());
        if self.withheld.lock().get(&key).is_some() || self.still_logged.contains(&key) {
            let cause = std::io::Error::other("acknowledged events are still to be put there");
            return Err(StorageError::io("write anew", &self.layout.journal(session, run), cause));
        }
        Ok(())
    }

    fn must_repair(&self) -> Result<(), StorageError> {
        self.must_write()?;
        if self.purpose == Purpose::Repair { Ok(()) } else { Err(StorageError::ReadOnly) }
    }

    /// A link is somebody's decision, and what it leads to is not ours to replace.
    fn refuse_link(&self, path: &Path) -> Result<(), StorageError> {
        match optional(self.disk.is_link(path)).attempt("look at", path)? {
            Some(true) => {
                let cause = std::io::Error::other("it is a link: repair what it leads to, or put the file here");
                Err(StorageError::io("replace", path, cause))
            }
            _ => Ok(()),
        }
    }

    /// Keeps a session's document before it is replaced. Gives the place, if there is a document.
    pub fn keep_document(&self, session: &SessionId) -> Result<Option<PathBuf>, StorageError> {
        self.must_repair()?;
        let path = self.layout.sidecar(session);
        self.refuse_link(&path)?;
        if optional(self.disk.stat(&path)).attempt("look at", &path)?.is_none() {
            return Ok(None);
        }
        let kept = self.keep_file_as(&self.layout.kept_of(session), &path, "session.json")?;
        Ok(Some(self.layout.relative(&kept)))
    }

    /// Keeps the store's identity, which cannot be read.
    pub(super) fn keep_identity(&self) -> Result<(), StorageError> {
        let (path, folder) = (self.layout.identity(), self.layout.kept());
        self.ensure_dirs(&folder)?;
        self.move_part(&path, &self.free_name(&folder, "_lastword.json")?)
    }

    /// Keeps bytes of a session under a name that they decide.
    pub(super) fn keep_bytes(&self, session: &SessionId, label: &str, bytes: &[u8]) -> Result<(), StorageError> {
        let folder = self.layout.kept_of(session);
        self.ensure_dirs(&folder)?;
        let name = format!("{label}-{}-{:08x}", bytes.len(), crc32c::crc32c(bytes));
        self.replace(&folder.join(name), bytes).map(drop)
    }

    fn keep_file(&self, folder: &Path, path: &Path) -> Result<PathBuf, StorageError> {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        self.keep_file_as(folder, path, &name)
    }

    /// Copies a file to the kept ones and removes it: they lie on another file system. A crash leaves the file, and perhaps
    /// the copy.
    pub(super) fn copy_away(&self, folder: &Path, path: &Path) -> Result<(), StorageError> {
        let parent = path.parent().expect("a file lies in a directory");
        let dir = self.directories.open(parent)?;
        self.keep_file(folder, path)?;
        self.disk.remove_file(path).attempt("remove", path)?;
        dir.sync().synced(parent)
    }

    /// Copies a file to the kept ones, durably. Its name tells its length and checksum, so that it is there once.
    fn keep_file_as(&self, folder: &Path, path: &Path, name: &str) -> Result<PathBuf, StorageError> {
        self.ensure_dirs(folder)?;
        let Some((file, _)) = open_plain(&*self.disk, path)? else {
            return Err(StorageError::io("keep", path, std::io::ErrorKind::NotFound.into()));
        };
        let (len, crc) = sum(&*file).attempt("read", path)?;
        let kept = folder.join(format!("{name}-{len}-{crc:08x}"));
        if let Some((there, _)) = open_plain(&*self.disk, &kept)?
            && sum(&*there).attempt("read", &kept)? == (len, crc)
        {
            // Whoever put it there may have died before its name was durable.
            there.sync().synced(&kept)?;
            self.directories.sync(folder)?;
            return Ok(kept);
        }
        let temp = self.temp_beside(&kept);
        let copy = self.disk.open(&temp, Access::CreateNew).attempt("create", &temp)?;
        copy_all(&*file, &*copy).attempt("copy", path)?;
        copy.sync().synced(&temp)?;
        self.disk.rename(&temp, &kept).attempt("keep", &kept)?;
        self.directories.sync(folder)?;
        Ok(kept)
    }

    /// A name in a folder that nothing has.
    pub(super) fn free_name(&self, folder: &Path, name: &str) -> Result<PathBuf, StorageError> {
        let mut path = folder.join(name);
        for number in 2_u64.. {
            if optional(self.disk.stat(&path)).attempt("look at", &path)?.is_none() {
                break;
            }
            path = folder.join(format!("{name}-{number}"));
        }
        Ok(path)
    }

    /// Moves a file that somebody did not finish writing to the kept ones; one of an earlier repair is removed, because
    /// all that it held is elsewhere. Gives the place, if there is one.
    pub fn set_temp_aside(&self, relative: &Path) -> Result<Option<PathBuf>, StorageError> {
        self.must_repair()?;
        let path = self.layout.root().join(relative);
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        if Layout::is_repair_temp(&name) {
            optional(self.disk.remove_file(&path)).attempt("remove", &path)?;
            return Ok(None);
        }
        let folder = self.layout.kept_temps();
        self.ensure_dirs(&folder)?;
        let to = self.free_name(&folder, &relative.to_string_lossy().replace(['/', '\\'], "~"))?;
        self.move_part(&path, &to)?;
        Ok(Some(self.layout.relative(&to)))
    }

    /// Takes the permissions of group and others from a file or directory, and returns its mode before that. A link, or
    /// what lies beyond one, is left alone.
    pub fn make_private(&self, relative: &Path) -> Result<u32, StorageError> {
        self.must_repair()?;
        let path = self.layout.root().join(relative);
        let relative = if relative == Path::new(".") { Path::new("") } else { relative };
        self.disk.make_private(self.layout.root(), relative).attempt("make private", &path)
    }

    /// Notes that numbers up to this one may have been given to events, although the journal no longer shows them. A run
    /// of ours whose record is lost takes no more events, and a new record would let it: it gets none.
    pub fn raise_seq_floor(
        &self,
        session: &SessionId,
        run: &RunId,
        floor: u64,
        is_ours: bool,
    ) -> Result<(), StorageError> {
        self.must_repair()?;
        let birth = Birth { begun_at: self.clock.now().seconds(), ..Birth::default() };
        let path = self.layout.run_record(session, run);
        let record = match self.read_record(session, run) {
            Ok(Some(record)) => record,
            Ok(None) if is_ours => return Ok(()),
            Ok(None) => RunRecord { is_foreign: true, ..self.new_record(&birth) },
            // It is not known any more in which boot it began, so that it takes no more events.
            Err(StorageError::Damaged { .. }) => {
                self.keep_file(&self.layout.kept_of(session), &path)?;
                RunRecord { is_closed: true, ..self.new_record(&birth) }
            }
            Err(error) => return Err(error),
        };
        // Also if it is noted: its writer may have died before that was durable.
        let last_seq_floor = record.last_seq_floor.max(floor);
        // What another program wrote ends where it did before the floor was raised.
        let foreign_until = record.foreign_until.or(Some(record.last_seq_floor));
        self.sync_folders_of(session)?;
        self.write_record(session, run, &RunRecord { last_seq_floor, foreign_until, ..record })
    }

    /// Moves the reference program's list to the kept files, and empties ours if it is wrong, to be made anew; it is kept
    /// too. One that is empty is found to be behind, so that a crash here is made up for.
    pub fn retire_indexes(&self, is_ours_wrong: bool) -> Result<(), StorageError> {
        self.must_repair()?;
        self.retire_foreign_index()?;
        let path = self.layout.index();
        if is_ours_wrong && optional(self.disk.stat(&path)).attempt("look at", &path)?.is_some() {
            self.keep_file(&self.layout.kept(), &path)?;
            self.replace(&path, b"")?;
        }
        Ok(())
    }

    /// The earlier versions of a session's document: the backup of the reference program, then what was kept, in order.
    pub fn versions_of(&self, session: &SessionId) -> Result<Vec<PathBuf>, StorageError> {
        let backup = self.layout.backup(session);
        let mut found = Vec::new();
        if optional(self.disk.stat(&backup)).attempt("look at", &backup)?.is_some() {
            found.push(self.layout.relative(&backup));
        }
        found.extend(self.kept_of(session, Layout::is_kept_version)?);
        Ok(found)
    }

    /// The journals of a run as they were before repairs, in order.
    pub fn kept_journals(&self, session: &SessionId, run: &RunId) -> Result<Vec<PathBuf>, StorageError> {
        self.kept_of(session, |name| Layout::is_kept_journal(name, run))
    }

    fn kept_of(&self, session: &SessionId, wants: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, StorageError> {
        let folder = self.layout.kept_of(session);
        let names = optional(self.disk.read_dir(&folder)).attempt("list", &folder)?.unwrap_or_default();
        let wanted = names.iter().filter(|entry| !entry.is_dir && wants(&entry.name));
        let mut found: Vec<PathBuf> = wanted.map(|entry| self.layout.relative(&folder.join(&entry.name))).collect();
        found.sort();
        Ok(found)
    }

    /// The bytes of an earlier version, or of whatever document has this name.
    pub fn read_version(&self, relative: &Path) -> Result<Option<Vec<u8>>, StorageError> {
        self.read_core(&self.layout.root().join(relative))
    }

    /// The bytes of a file, to be read as a journal.
    pub fn kept_bytes(&self, relative: &Path) -> Result<Option<Box<dyn JournalBytes>>, StorageError> {
        let path = self.layout.root().join(relative);
        let found = open_plain(&*self.disk, &path)?;
        Ok(found.map(|(file, _)| Box::new(JournalFile::new(file, path, None)) as Box<dyn JournalBytes>))
    }
}

/// Length and checksum of a file.
fn sum(file: &dyn DiskFile) -> std::io::Result<(u64, u32)> {
    let (mut len, mut crc) = (0, 0);
    walk(file, |bytes| {
        len += bytes.len() as u64;
        crc = crc32c::crc32c_append(crc, bytes);
        Ok(())
    })?;
    Ok((len, crc))
}

fn copy_all(from: &dyn DiskFile, to: &dyn DiskFile) -> std::io::Result<()> {
    let mut at = 0;
    walk(from, |bytes| {
        write_full(to, bytes, at).map_err(|(_, cause)| cause)?;
        at += bytes.len() as u64;
        Ok(())
    })
}

fn walk(file: &dyn DiskFile, mut show: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let (mut chunk, mut at) = (vec![0; READ_CHUNK_BYTES], 0);
    loop {
        let len = read_full(file, &mut chunk, at)?;
        if len == 0 {
            return Ok(());
        }
        show(&chunk[..len])?;
        at += len as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::storage::Disk;
    use crate::storage::files::{FilesOptions, Mode};
    use crate::storage::sim::{Crash, SimDisk};

    const FILE: &str = "/data/long";

    fn repairer(disk: &SimDisk) -> FileStorage {
        let options = FilesOptions { purpose: Purpose::Repair, ..FilesOptions::in_mode(Mode::Write) };
        FileStorage::open(Arc::new(disk.clone()), Path::new("/data"), options).unwrap()
    }

    /// A file of several chunks, and another that differs from it in its last byte.
    fn long_file(disk: &SimDisk, last: u8) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..2 * READ_CHUNK_BYTES + 77).map(|at| (at % 251) as u8).collect();
        bytes.push(last);
        let path = Path::new(FILE);
        let file = disk.open(path, Access::Write).or_else(|_| disk.open(path, Access::CreateNew)).unwrap();
        write_full(&*file, &bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn a_kept_copy_is_whole_and_durable_and_made_once() {
        let disk = SimDisk::new();
        let storage = repairer(&disk);
        let folder = storage.layout.kept();
        let bytes = long_file(&disk, 1);
        let kept = storage.keep_file(&folder, Path::new(FILE)).unwrap();
        let lost = disk.copy();
        lost.power_cut(Crash::LoseAll);
        assert!(lost.files().get(&kept) == Some(&bytes), "the copy is cut, or a power cut takes it");
        assert_eq!(storage.keep_file(&folder, Path::new(FILE)).unwrap(), kept, "the same bytes are kept once");
        // Other bytes have another name, wherever they differ.
        let other = long_file(&disk, 2);
        let kept_too = storage.keep_file(&folder, Path::new(FILE)).unwrap();
        assert!(disk.files()[&kept_too] == other && disk.files()[&kept] == bytes);
    }

    /// A copy that does not hold what its name says is made again.
    #[test]
    fn a_kept_copy_that_has_rotted_is_made_again() {
        let disk = SimDisk::new();
        let storage = repairer(&disk);
        let bytes = long_file(&disk, 1);
        let kept = storage.keep_file(&storage.layout.kept(), Path::new(FILE)).unwrap();
        disk.rot(&kept, bytes.len() as u64 - 1, 3).unwrap();
        assert_eq!(storage.keep_file(&storage.layout.kept(), Path::new(FILE)).unwrap(), kept);
        assert!(disk.files()[&kept] == bytes);
    }
}
