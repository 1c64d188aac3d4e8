//! Run journals as files: created once, appended to by one writer, cut back to whole lines before anything is added.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::overlay::Patches;
use super::reader::{JournalFile, PatchedBytes, SyncGuard};
use super::record::RunRecord;
use super::suspect_files::SuspectFiles;
use super::tail::{FoundTail, find_tail};
use super::write::{self, open_plain};
use super::{FileStorage, Purpose, Storage};
use crate::format::LineShape;
use crate::limits::LINE_BYTES_MAX;
use crate::model::{RunId, SessionId};
use crate::storage::commit::{Committer, Stream};
use crate::storage::contract::{AppendFailure, Birth, Durability, JournalBytes, JournalWriter, OpenedJournal, Tail};
use crate::storage::disk::{Access, DiskFile, FileKind, FileStat, SharedDisk, read_full, write_full};
use crate::storage::error::{Attempt, StorageError, optional};
use crate::storage::layout::Layout;
use crate::storage::ticket::Ticket;

impl FileStorage {
    /// Creates a run's record and its empty journal. If one of them cannot be created, none is left.
    ///
    /// What a crash leaves: the record, the journal, both or none, and no event. The run was not acknowledged, and the same
    /// id can be begun again in this boot, because no reader can have seen an event of it.
    pub(super) fn create_run_file(
        &self,
        session: &SessionId,
        run: &RunId,
        birth: &Birth,
    ) -> Result<OpenedJournal, StorageError> {
        self.refuse_taken(session, run)?;
        let created = self.create_empty_run(session, run, birth);
        if let Err(error) = created {
            // The failure is what the caller must hear of. After a failed fsync nothing is removed either.
            let _ = self.discard_run_file(session, run);
            return Err(error);
        }
        self.opened(session, run, Tail::default())
    }

    fn create_empty_run(&self, session: &SessionId, run: &RunId, birth: &Birth) -> Result<(), StorageError> {
        let (folder, path) = (self.layout.journals_of(session), self.layout.journal(session, run));
        self.ensure_dirs(&folder)?;
        let dir = self.directories.open(&folder)?;
        let record = self.layout.run_record(session, run);
        let temp = self.temp_beside(&record);
        write::place(&*self.disk, &temp, &record, &self.new_record(birth).to_bytes(), None)?;
        match self.disk.open(&path, Access::CreateNew) {
            // Left by a beginning that died; it is empty.
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            created => created.attempt("create", &path)?.sync().synced(&path)?,
        }
        dir.sync().synced(&folder)
    }

    /// Removes a run's record and its journal, which holds nothing. The lease note goes first: a crash leaves none alone.
    pub(super) fn discard_run_file(&self, session: &SessionId, run: &RunId) -> Result<(), StorageError> {
        let path = self.layout.journal(session, run);
        if optional(self.disk.stat(&path)).attempt("look at", &path)?.is_some_and(|stat| stat.len > 0) {
            return Err(StorageError::RunTaken { session: session.clone(), run: run.clone() });
        }
        for path in [self.layout.lease_note(session, run), path, self.layout.run_record(session, run)] {
            optional(self.disk.remove_file(&path)).attempt("remove", &path)?;
        }
        // If it holds other runs, it stays.
        let folder = self.layout.journals_of(session);
        match self.disk.remove_dir(&folder) {
            Ok(()) => self.directories.sync(&self.layout.journals()),
            Err(_) => self.directories.sync(&folder),
        }
    }

    fn refuse_taken(&self, session: &SessionId, run: &RunId) -> Result<(), StorageError> {
        let taken = || StorageError::RunTaken { session: session.clone(), run: run.clone() };
        if self.is_deleted(session)? {
            return Err(taken());
        }
        let path = self.layout.journal(session, run);
        let is_used = optional(self.disk.stat(&path)).attempt("look at", &path)?.is_some_and(|stat| stat.len > 0);
        let is_taken = match self.read_record(session, run) {
            Ok(record) => record.is_some_and(|known| self.is_taken_by(&known)),
            // The run may have been removed.
            Err(StorageError::Damaged { .. } | StorageError::TooLarge { .. }) => true,
            Err(error) => return Err(error),
        };
        if is_used || is_taken { Err(taken()) } else { Ok(()) }
    }

    /// Whether events of this run may have been seen, although its journal is empty.
    pub(super) fn is_taken_by(&self, record: &RunRecord) -> bool {
        match record.is_foreign {
            true => record.last_seq_floor > 0,
            false => record.removed_at.is_some() || record.is_closed || record.boot_id != self.boot_id,
        }
    }

    /// Opens a run that was begun before. A crash while the torn tail is cut leaves it cut or not.
    pub(super) fn open_run_file(&self, session: &SessionId, run: &RunId) -> Result<OpenedJournal, StorageError> {
        let path = self.layout.journal(session, run);
        let not_found = || StorageError::RunNotFound { session: session.clone(), run: run.clone() };
        if self.is_deleted(session)? {
            return Err(not_found());
        }
        self.put_withheld_back(session, run)?;
        let file = optional(self.disk.open(&path, Access::Write)).attempt("open", &path)?.ok_or_else(not_found)?;
        self.suspects.make_sure(&path, &*file).attempt("write again", &path)?;
        let len = file.stat().attempt("look at", &path)?.len;
        let checked_after = self.readable_record(session, run)?.and_then(|record| record.checked_after());
        let shape = LineShape::new(session, run);
        let mut found = find_tail(&*file, len, &shape, checked_after).attempt("read", &path)?;
        self.admit(session, run, &mut found)?;
        self.mend_tail(session, run, &*file, &mut found).inspect_err(|error| self.note_suspect(&path, error))?;
        self.sync_folders_of(session)?;
        self.opened(session, run, found.tail)
    }

    /// Notes that a journal is to be written again. If its fsync found no space, the next writer of this boot is told, too.
    fn note_suspect(&self, path: &Path, error: &StorageError) {
        self.suspects.note(path);
        if error.is_no_space() {
            self.latch.leave_doubt();
        }
    }

    /// Whether this run may be appended to at all. A journal of another program is taken over with its first append;
    /// that program may have shown the event whose line is torn, so its number is left out.
    fn admit(&self, session: &SessionId, run: &RunId, found: &mut FoundTail) -> Result<(), StorageError> {
        let fenced = |why| Err(StorageError::Fenced { run: run.clone(), why });
        let record = match self.read_record(session, run) {
            Err(StorageError::Damaged { .. } | StorageError::TooLarge { .. }) => {
                return fenced("its record is damaged, so that numbers might repeat");
            }
            record => record?,
        };
        match record {
            Some(record) if record.removed_at.is_some() => fenced("it was removed"),
            Some(record) if record.is_closed => fenced("its record was damaged, so that numbers might repeat"),
            Some(record) if record.is_foreign => {
                let torn = u64::from(found.rest.torn_bytes > 0);
                found.tail.last_seq = record.last_seq_floor.max(found.tail.last_seq + torn);
                self.take_over(session, run, found.tail.last_seq)
            }
            Some(record) if record.boot_id == self.boot_id => {
                found.tail.last_seq = found.tail.last_seq.max(record.last_seq_floor);
                Ok(())
            }
            Some(_) => fenced("the machine was restarted since, and events that readers had seen may be lost"),
            None if found.has_our_lines => fenced("the note of when it began is lost, so that numbers might repeat"),
            None => {
                found.tail.last_seq += u64::from(found.rest.torn_bytes > 0);
                self.take_over(session, run, found.tail.last_seq)
            }
        }
    }

    fn take_over(&self, session: &SessionId, run: &RunId, last_seq_floor: u64) -> Result<(), StorageError> {
        let birth = Birth { begun_at: self.clock.now().seconds(), ..Birth::default() };
        let foreign_until = Some(last_seq_floor);
        self.write_record(session, run, &RunRecord { last_seq_floor, foreign_until, ..self.new_record(&birth) })
    }

    /// Cuts off a torn line, completes one that lacks its line feed, and makes durable what is there: whoever wrote it
    /// may have died before.
    fn mend_tail(
        &self,
        session: &SessionId,
        run: &RunId,
        file: &dyn DiskFile,
        found: &mut FoundTail,
    ) -> Result<(), StorageError> {
        let path = self.layout.journal(session, run);
        if found.rest.torn_bytes > 0 {
            self.keep_torn_tail(session, run, file, found)?;
            file.set_len(found.tail.extent).attempt("cut the torn end of", &path)?;
        }
        if found.rest.lacks_line_feed {
            write_full(file, b"\n", found.tail.extent).map_err(|(_, cause)| StorageError::io("write", &path, cause))?;
            found.tail.extent += 1;
        }
        match found.tail.extent {
            0 => Ok(()),
            _ => file.sync().synced(&path),
        }
    }

    /// A torn line is no event, but its bytes are somebody's words. A tail longer than any line is kept in pieces, without
    /// those that are nothing but zeroes.
    fn keep_torn_tail(
        &self,
        session: &SessionId,
        run: &RunId,
        file: &dyn DiskFile,
        found: &FoundTail,
    ) -> Result<(), StorageError> {
        let path = self.layout.journal(session, run);
        let (mut offset, end) = (found.tail.extent, found.tail.extent + found.rest.torn_bytes);
        let mut torn = vec![0; found.rest.torn_bytes.min(LINE_BYTES_MAX as u64) as usize];
        while offset < end {
            let wanted = torn.len().min((end - offset) as usize);
            let len = read_full(file, &mut torn[..wanted], offset).attempt("read", &path)?;
            if len == 0 {
                break;
            }
            if torn[..len].iter().any(|byte| *byte != 0) {
                self.keep(session, &format!("{run}-torn-at-{offset}"), &torn[..len])?;
            }
            offset += len as u64;
        }
        Ok(())
    }

    fn opened(&self, session: &SessionId, run: &RunId, tail: Tail) -> Result<OpenedJournal, StorageError> {
        let path = self.layout.journal(session, run);
        let committer = self.committer.clone().ok_or(StorageError::ReadOnly)?;
        let stream = Arc::new(Stream::new(session, run, &path, tail.extent));
        committer.register(&stream);
        let writer = FileJournal {
            file: None,
            extent: tail.extent,
            closed: None,
            disk: self.raw.clone(),
            suspects: self.suspects.clone(),
            stream,
            committer,
            run: run.clone(),
            _own: self.own_runs.note((session.clone(), run.clone())),
        };
        Ok(OpenedJournal { writer: Box::new(writer), tail })
    }

    pub(super) fn read_run_file(
        &self,
        session: &SessionId,
        run: &RunId,
    ) -> Result<Option<Box<dyn JournalBytes>>, StorageError> {
        let path = self.layout.journal(session, run);
        let patches = self.patches(session, run)?;
        let file = match open_plain(&*self.disk, &path) {
            // What is laid over it can be shown without it.
            Err(error) if error.is_of_one_object() && patches.as_ref().is_some_and(|patches| patches.starts()) => None,
            file => file?.map(|(file, _)| JournalFile::new(file, path, self.sync_guard(session, run))),
        };
        if self.is_deleted(session)? {
            return Ok(None);
        }
        Ok(match (file, patches) {
            (Some(file), None) => Some(Box::new(file)),
            (None, None) => None,
            (None, Some(patches)) if !patches.starts() => None,
            (file, Some(patches)) => Some(Box::new(PatchedBytes { file, patches })),
        })
    }

    /// What keeps a reader from showing what a durable writer of another process has not synced.
    fn sync_guard(&self, session: &SessionId, run: &RunId) -> Option<SyncGuard> {
        match &self.lock {
            // The doctor shows no events.
            _ if self.purpose != Purpose::Serve => None,
            None => Some(SyncGuard::beside(&self.disk, &self.layout, &self.boot_id)),
            Some(lock) if lock.is_durable() => {
                let run = (session.clone(), run.clone());
                Some(SyncGuard::of_writer(&self.own_runs, run, &self.latch, &self.suspects))
            }
            Some(_) => None,
        }
    }

    /// What a reader has to see of a run beside its file, unless the run was removed.
    fn patches(&self, session: &SessionId, run: &RunId) -> Result<Option<Arc<Patches>>, StorageError> {
        let Some(patches) = self.overlay()?.patches(session, run).cloned() else { return Ok(None) };
        let stat = self.stat_plain(&self.layout.journal(session, run), Some(&patches))?;
        let is_removed = match self.is_removed(session, run) {
            // The record may lie where the journal does, in a directory that cannot be read.
            Err(error) if error.is_of_one_object() && stat.is_none() => self.is_deleted(session)?,
            is_removed => is_removed?,
        };
        let do_count = patches.fit(stat.map(|stat| stat.inode)) && !is_removed;
        Ok(do_count.then_some(patches))
    }

    /// What is known of a journal's file, if there is one. Where enough is laid over it, one that cannot be looked at, or
    /// something else in its place, is as good as none.
    fn stat_plain(&self, path: &Path, patches: Option<&Arc<Patches>>) -> Result<Option<FileStat>, StorageError> {
        let is_enough = patches.is_some_and(|patches| patches.starts());
        match optional(self.disk.stat(path)).attempt("look at", path) {
            Err(error) if error.is_of_one_object() && is_enough => Ok(None),
            Ok(Some(stat)) if stat.kind != FileKind::File && is_enough => Ok(None),
            stat => stat,
        }
    }

    pub(super) fn run_file_len(&self, session: &SessionId, run: &RunId) -> Result<Option<u64>, StorageError> {
        let path = self.layout.journal(session, run);
        let patches = self.patches(session, run)?;
        let len = self.stat_plain(&path, patches.as_ref())?.map(|stat| stat.len);
        if self.is_deleted(session)? {
            return Ok(None);
        }
        Ok(match (len, patches) {
            (len, None) => len,
            (None, Some(patches)) if !patches.starts() => None,
            (len, Some(patches)) => Some(patches.len_of(len.unwrap_or(0))),
        })
    }

    pub(super) fn list_run_files(&self, session: &SessionId) -> Result<Vec<RunId>, StorageError> {
        let folder = self.layout.journals_of(session);
        if self.is_deleted(session)? {
            return Ok(Vec::new());
        }
        let names = optional(self.disk.read_dir(&folder)).attempt("list", &folder)?.unwrap_or_default();
        let mut runs: Vec<RunId> =
            names.iter().filter(|entry| !entry.is_dir).filter_map(|entry| Layout::run_of(&entry.name)).collect();
        let overlay = self.overlay()?;
        for run in overlay.runs_of(session) {
            runs.extend((!self.is_removed(session, run)?).then(|| run.clone()));
        }
        runs.sort_unstable();
        runs.dedup();
        Ok(runs)
    }
}

/// The writer of one journal file.
#[derive(Debug)]
struct FileJournal {
    /// None before the first append and while it rests.
    file: Option<Arc<dyn DiskFile>>,
    /// Bytes of whole lines; the next line goes there.
    extent: u64,
    /// Why it does no more. Boxed, because each append looks here and finds nothing.
    closed: Option<Box<StorageError>>,
    disk: SharedDisk,
    suspects: Arc<SuspectFiles>,
    stream: Arc<Stream>,
    committer: Arc<Committer>,
    run: RunId,
    /// Tells that this process has opened the run.
    _own: Arc<()>,
}

impl JournalWriter for FileJournal {
    /// A crash leaves any part of the lines; the next writer cuts back to the last whole one. They enter the commit log
    /// only when all of them are in the file.
    fn append(&mut self, lines: &[u8], durability: Durability) -> Result<Ticket, AppendFailure> {
        if self.closed.is_some() || !self.committer.latch().may_append() {
            return Err(AppendFailure { kept_bytes: 0, is_over: true, error: self.refusal() });
        }
        let file = match &self.file {
            Some(file) => file,
            None => match self.open_again() {
                Ok(file) => self.file.insert(file),
                Err(cause) => return Err(self.fail_to_open(cause)),
            },
        };
        if let Err((taken, cause)) = write_full(&**file, lines, self.extent) {
            return Err(self.roll_back(lines, taken, cause));
        }
        let offset = self.extent;
        self.extent += lines.len() as u64;
        self.stream.note_written(self.extent);
        Ok(match durability {
            Durability::Buffered => {
                self.committer.note(&self.stream);
                Ticket::buffered()
            }
            Durability::Durable => self.committer.submit(&self.stream, offset, lines),
        })
    }

    /// A write error that the kernel would report to this open file alone must not be lost with it.
    fn rest(&mut self) -> Result<(), StorageError> {
        self.committer.secure(&self.stream)?;
        self.stream.let_go();
        self.file = None;
        Ok(())
    }

    fn fence(&mut self, why: &'static str) {
        self.closed = Some(Box::new(StorageError::Fenced { run: self.run.clone(), why }));
    }
}

impl Drop for FileJournal {
    fn drop(&mut self) {
        if self.file.is_some() {
            self.committer.leave();
        }
    }
}

impl FileJournal {
    #[cold]
    fn refusal(&self) -> Box<StorageError> {
        match &self.closed {
            Some(error) => error.clone(),
            None => Box::new(self.committer.latch().refusal()),
        }
    }

    /// Opens the file that it knows. At another length somebody else has changed it, and a line would not fit.
    fn open_again(&self) -> io::Result<Arc<dyn DiskFile>> {
        let file: Arc<dyn DiskFile> = Arc::from(self.disk.open(self.stream.path(), Access::Write)?);
        match file.stat()?.len {
            len if len == self.extent => {
                self.stream.hold(&file);
                Ok(file)
            }
            _ => Err(io::Error::other("another program has changed it: open the run again")),
        }
    }

    /// Takes back part of a line. A full disk leaves nothing in doubt then, and the next append may find room; after
    /// any other failure, or if a part may have stayed, this writer does no more.
    #[cold]
    fn roll_back(&mut self, lines: &[u8], taken: usize, cause: io::Error) -> AppendFailure {
        let kept_bytes = whole_lines(lines, taken);
        let file = self.file.as_ref().expect("what was written to is open");
        // If this fails, the part of a line stays and the next writer cuts it.
        let is_clean = file.set_len(self.extent + kept_bytes as u64).is_ok();
        let lacks_line_feed = kept_bytes > 0 && lines[kept_bytes - 1] != b'\n';
        let error = StorageError::io("write", self.stream.path(), cause);
        if is_clean && !lacks_line_feed && error.is_no_space() {
            self.note_kept(kept_bytes);
            return AppendFailure { kept_bytes, is_over: false, error: Box::new(error) };
        }
        if is_clean && !lacks_line_feed {
            self.note_kept(kept_bytes);
        }
        self.latch(kept_bytes, error)
    }

    /// Whole lines that got through are to become durable like any others.
    fn note_kept(&mut self, bytes: usize) {
        self.extent += bytes as u64;
        self.stream.note_written(self.extent);
        self.committer.note(&self.stream);
    }

    /// Where no more files can be opened, the next append may find that one can.
    #[cold]
    fn fail_to_open(&mut self, cause: io::Error) -> AppendFailure {
        let error = StorageError::io("open", self.stream.path(), cause);
        match error.is_no_descriptor() {
            true => AppendFailure { kept_bytes: 0, is_over: false, error: Box::new(error) },
            false => self.latch(0, error),
        }
    }

    /// After a failed write nobody knows what the file holds.
    fn latch(&mut self, kept_bytes: usize, error: StorageError) -> AppendFailure {
        self.suspects.note(self.stream.path());
        self.file = None;
        let source = Box::new(error.clone());
        self.closed.get_or_insert_with(|| Box::new(StorageError::Latched { run: self.run.clone(), source }));
        AppendFailure { kept_bytes, is_over: true, error: Box::new(error) }
    }
}

/// How many of the bytes taken are whole lines. One that lacks only its line feed is whole: a reader may have seen it.
fn whole_lines(lines: &[u8], taken: usize) -> usize {
    if lines.get(taken) == Some(&b'\n') {
        return taken;
    }
    memchr::memrchr(b'\n', &lines[..taken]).map_or(0, |at| at + 1)
}
