//! Opening after a crash: what the commit log acknowledged is put back into the journals, and the log is retired.
//!
//! A crash at any step leaves the log as it is, and the next opening does the same again: writing lines in their own
//! places twice changes nothing. Only when every journal and its directory are synced, or its lines are withheld in
//! `_kept`, is the log retired.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::log_scan::{LogContents, LogScan, RunRecords, open_segment};
use super::withheld::{Lines, Records, RunKey, Withheld, WithheldRun};
use super::{FileStorage, Overlay, Purpose, Storage};
use crate::entropy::uuid4;
use crate::format::commit::first_seq;
use crate::format::{LineShape, Record, Scanner};
use crate::limits::READ_CHUNK_BYTES;
use crate::model::{RunId, SessionId};
use crate::storage::commit::{CommitOptions, FoundLog, Log, Retired, Slot};
use crate::storage::directories::Directories;
use crate::storage::disk::{Access, DiskFile, SharedDisk, read_full, write_full};
use crate::storage::error::{Attempt, StorageError, optional, with_cause};
use crate::storage::finding::Finding;

/// A log that is ready for new records, and where its batches go on.
pub(super) struct Reopened {
    pub(super) log: Log,
    pub(super) last_batch: u64,
    /// The runs that the log names, if it could not be retired because it is still needed.
    pub(super) still_logged: BTreeSet<RunKey>,
    pub(super) findings: Vec<Finding>,
}

/// What became of lines that belong into a journal.
enum Replayed {
    /// They are there, durably, or kept because nothing stands before them.
    PutBack,
    /// The run was removed, or its session deleted.
    Removed,
}

/// Lines of one journal that the log holds.
pub(super) struct Patch<'a> {
    pub(super) session: &'a SessionId,
    pub(super) run: &'a RunId,
    pub(super) lines: Vec<(u64, &'a [u8])>,
}

/// A journal's end as it must be where other bytes stand in place of acknowledged lines.
pub(super) struct Rebuilt {
    /// Where it begins: no line of the log before this place is missing.
    pub(super) from: u64,
    /// The first record in whose place something else stands.
    conflict: u64,
    old: Vec<u8>,
    pub(super) tail: Vec<u8>,
}

impl Rebuilt {
    /// The place of the first record in whose place something else stands.
    pub(super) fn conflict(&self) -> u64 {
        self.conflict
    }
}

impl Patch<'_> {
    /// Acknowledged lines win over what stands in their places. Lines behind it whose numbers nobody else has stay.
    /// Nothing if nothing stands there, or only the zeroes of a page that was never written.
    pub(super) fn rebuilt(&self, file: &dyn DiskFile, len: u64) -> std::io::Result<Option<Rebuilt>> {
        let Some((from, conflict)) = first_conflict(self, file, len)? else { return Ok(None) };
        let mut old = vec![0; (len - from) as usize];
        read_full(file, &mut old, from)?;
        let mut tail = old[..old.len().min((self.end() - from) as usize)].to_vec();
        tail.resize((self.end() - from) as usize, 0);
        let mut last_seq = 0;
        for (offset, lines) in self.lines.iter().filter(|(offset, _)| *offset >= from) {
            let start = (offset - from) as usize;
            tail[start..start + lines.len()].copy_from_slice(lines);
            last_seq = last_seq.max(last_seq_of(lines));
        }
        push_later_lines(self, &old, last_seq, &mut tail);
        Ok(Some(Rebuilt { from, conflict, old, tail }))
    }

    fn end(&self) -> u64 {
        self.lines.iter().map(|(offset, lines)| offset + lines.len() as u64).max().unwrap_or(0)
    }
}

/// Kept lines and those that the log adds to them, and where all of them are.
fn with_logged(mut lines: Lines, mut logged: Lines) -> (Lines, Records) {
    let kept: BTreeSet<(u64, &[u8])> = lines.iter().map(|(offset, bytes)| (*offset, bytes.as_slice())).collect();
    logged.retain(|(offset, bytes)| !kept.contains(&(*offset, bytes.as_slice())));
    let records = if logged.is_empty() { Records::Kept } else { Records::Logged };
    lines.extend(logged);
    (lines, records)
}

impl FileStorage {
    /// Replays the commit log. `raw` is the disk that the log is written to from now on.
    pub(super) fn reopen_log(
        &self,
        raw: &SharedDisk,
        store: &str,
        options: CommitOptions,
    ) -> Result<Reopened, StorageError> {
        let scan = LogScan::of(&*self.disk, &self.layout, store)?;
        let mut findings = Vec::new();
        for file in &scan.foreign {
            let message = "this commit log belongs to another store; it was not replayed";
            findings.push(self.set_aside(file.index, "foreign_log", message)?);
        }
        for file in &scan.damaged {
            let message = "this part of the commit log begins with no header; it was not replayed";
            findings.push(self.set_aside(file.index, "checksum_mismatch", message)?);
        }
        let contents = scan.contents();
        let is_needed = self.replay(&contents, &mut findings)?;
        let has_records = !contents.runs.is_empty();
        let found = self.found_log(&scan, has_records, options, &mut findings)?;
        // What its directory fsync finds is the log's to judge: without names that last, it is not used.
        let directories = Arc::new(Directories::new(raw.clone(), self.layout.root()));
        let mut log = Log::new(raw.clone(), directories, self.layout.clone(), store, options, found);
        let mut still_logged = BTreeSet::new();
        match is_needed {
            Some(why) if has_records => {
                log.freeze(why);
                still_logged.extend(contents.runs.keys().cloned());
            }
            _ if has_records => self.retire(&mut log)?,
            _ => {}
        }
        Ok(Reopened { log, last_batch: contents.last_batch, still_logged, findings })
    }

    /// Retires a log that was replayed. On a full disk it may have to stay: replaying it once more changes nothing as long
    /// as journals only grow. A repair rewrites them, and must not begin before.
    fn retire(&self, log: &mut Log) -> Result<(), StorageError> {
        match log.retire()? {
            Retired::NotYet(error) if self.purpose == Purpose::Repair => Err(error),
            Retired::Durably | Retired::NotYet(_) => Ok(()),
        }
    }

    /// The files of the log, to be used again. One whose header says nothing may hold anything, and is filled first; one
    /// that cannot be written is left where it is.
    fn found_log(
        &self,
        scan: &LogScan,
        has_records: bool,
        options: CommitOptions,
        findings: &mut Vec<Finding>,
    ) -> Result<FoundLog, StorageError> {
        let mut slots = Vec::new();
        // Those that the process cannot hold open lie there unused: the newest are kept.
        let unused = scan.own.len().saturating_sub(options.segments_max(self.raw.open_files_max()));
        for file in &scan.own[unused..] {
            match open_segment(&*self.raw, &self.layout, file.index) {
                Ok(open) => slots.push(Slot {
                    index: file.index,
                    file: open,
                    is_filled: file.header.is_some() && file.len >= options.segment_bytes(),
                    is_used: file.header.is_some(),
                }),
                Err(error) if error.is_of_one_object() => {
                    findings.push(self.trouble(&self.layout.segment(file.index), &error));
                }
                Err(error) => return Err(error),
            }
        }
        let newest_index = scan.own.iter().rfind(|file| file.header.is_some()).map(|file| file.index);
        let newest = slots.iter().find(|slot| Some(slot.index) == newest_index);
        Ok(FoundLog {
            newest: newest.map(|slot| (scan.newest, slot.clone())),
            has_records,
            slots,
            next_number: scan.newest + self.jump() + 1,
            next_index: scan.next_index,
        })
    }

    /// How many numbers of segments are left out. A crash may have taken the header of a segment and left its records,
    /// or shown again the header that stood there before; if its number were given again, they would count.
    fn jump(&self) -> u64 {
        u64::from(self.entropy.next() as u32)
    }

    /// Puts the lines of the log into the journals, and those that earlier openings had to withhold. What cannot be written
    /// is withheld, durably, and its run takes no events until it can. Returns why the log is still needed, if it is.
    fn replay(
        &self,
        contents: &LogContents<'_>,
        findings: &mut Vec<Finding>,
    ) -> Result<Option<StorageError>, StorageError> {
        findings.extend(contents.damage.iter().map(|(index, place)| self.damage_of_log(*index, *place)));
        let (listed, mut withheld) = self.listed_records()?;
        let list = self.layout.relative(&self.layout.withheld_list());
        findings.extend(withheld.list_error().map(|error| Finding::new("log_not_replayed", list, with_cause(error))));
        let keys: BTreeSet<&RunKey> = contents.runs.keys().chain(listed.keys()).collect();
        let (mut put_back, mut is_needed) = (Vec::new(), None);
        for key in keys {
            let logged = contents.runs.get(key).map(|records| self.logged_lines(key, records, contents));
            let (lines, records) = match self.lines_of(key, listed.get(key), logged) {
                Ok(found) => found,
                Err(error) => {
                    self.withhold_unreadable(&mut withheld, key, &error)?;
                    let is_logged = withheld.get(key).is_some() && contents.runs.contains_key(key);
                    is_needed = is_needed.or(is_logged.then_some(error));
                    continue;
                }
            };
            match self.replay_run(key, &lines, findings) {
                Ok(Replayed::PutBack) => put_back.extend(listed.contains_key(key).then_some(key)),
                // Its journal is in the trash, and the records stay in `_kept`.
                Ok(Replayed::Removed) => {}
                Err(cause) if cause.is_of_one_object() => {
                    withheld.insert(key.clone(), WithheldRun { lines, cause, records });
                }
                Err(error) => return Err(error),
            }
        }
        match self.keep_withheld(&mut withheld)? {
            // A list that names records of rewritten journals would have them put there once more.
            Some(error) if self.purpose == Purpose::Repair && !put_back.is_empty() => return Err(error),
            Some(error) => is_needed = Some(error),
            None => put_back.into_iter().for_each(|key| self.forget_records(key)),
        }
        findings.extend(withheld.iter().map(|(key, run)| self.withheld_finding(key, run)));
        self.note_withheld(&mut self.withheld.lock(), withheld);
        Ok(is_needed)
    }

    fn damage_of_log(&self, index: u32, place: u64) -> Finding {
        let message = "bytes of the commit log are damaged; what was logged there may be missing from a journal";
        let file = self.layout.relative(&self.layout.segment(index));
        Finding::new("checksum_mismatch", file, message).at(place)
    }

    /// All lines that belong into a journal, and where they are; why its records cannot be read, if they are needed.
    fn lines_of(
        &self,
        key: &RunKey,
        listed: Option<&Result<Option<Lines>, StorageError>>,
        logged: Option<Lines>,
    ) -> Result<(Lines, Records), StorageError> {
        match (listed, logged) {
            (None | Some(Ok(None)), Some(logged)) => Ok((logged, Records::Logged)),
            (None | Some(Ok(None)), None) => Err(self.missing_records(key)),
            (Some(Ok(Some(kept))), logged) => Ok(with_logged(kept.clone(), logged.unwrap_or_default())),
            (Some(Err(error)), _) => Err(error.clone()),
        }
    }

    /// Records that cannot be read may be the only copy of their lines. They stay, and so does their place in the list.
    fn withhold_unreadable(
        &self,
        withheld: &mut Withheld,
        key: &RunKey,
        cause: &StorageError,
    ) -> Result<(), StorageError> {
        if !cause.is_of_one_object() {
            return Err(cause.clone());
        }
        if !self.is_removed(&key.0, &key.1).unwrap_or(false) {
            let (lines, cause, records) = (Lines::new(), cause.clone(), Records::Unreadable);
            withheld.insert(key.clone(), WithheldRun { lines, cause, records });
        }
        Ok(())
    }

    /// The lines of the log that belong into a journal. Where its length cannot be told, it reaches to the first of them.
    fn logged_lines(&self, (session, run): &RunKey, records: &RunRecords<'_>, contents: &LogContents<'_>) -> Lines {
        let len = match optional(self.disk.stat(&self.layout.journal(session, run))) {
            Ok(stat) => stat.map_or(0, |stat| stat.len),
            Err(_) => records.first().map_or(0, |record| record.offset),
        };
        contents.lines_of(records, len).into_iter().map(|(offset, bytes)| (offset, bytes.to_vec())).collect()
    }

    /// Lets readers see these lines, and refuses to append to their runs.
    fn note_withheld(&self, known: &mut Withheld, withheld: Withheld) {
        let mut overlay = Overlay::default();
        overlay.add_withheld(&*self.disk, &self.layout, &withheld);
        *self.overlay.lock() = Some((None, Arc::new(overlay)));
        *known = withheld;
    }

    /// Puts withheld lines into a journal that is about to be opened, if it can be written by now. Crashes leave what they
    /// leave while the log is replayed.
    pub(super) fn put_withheld_back(&self, session: &SessionId, run: &RunId) -> Result<(), StorageError> {
        let key = (session.clone(), run.clone());
        let mut withheld = self.withheld.lock();
        if withheld.get(&key).is_some() && withheld.list_error().is_some() {
            *withheld = self.with_list_read_again(&withheld);
        }
        let Some(mut own) = withheld.get(&key).cloned() else { return Ok(()) };
        if own.records == Records::Unreadable {
            match self.read_records(&key) {
                Ok(Some(lines)) if withheld.list_error().is_none() => {
                    own = Arc::new(WithheldRun { lines, records: Records::Kept, ..(*own).clone() });
                }
                _ => return Err(self.withheld_refusal(&key, &own)),
            }
        }
        match self.replay_run(&key, &own.lines, &mut Vec::new()) {
            Err(error) if error.is_of_one_object() => return Err(self.withheld_refusal(&key, &own)),
            replayed => {
                replayed?;
            }
        }
        let mut rest = withheld.without(&key);
        self.write_withheld_list(&mut rest)?;
        if own.records == Records::Kept {
            self.forget_records(&key);
        }
        self.note_withheld(&mut withheld, rest);
        Ok(())
    }

    /// Whether a removal was recorded, which replaying must not undo. Without a readable record, a journal that is there was
    /// not removed.
    pub(super) fn is_removed(&self, session: &SessionId, run: &RunId) -> Result<bool, StorageError> {
        if self.is_deleted(session)? {
            return Ok(true);
        }
        match self.read_record(session, run) {
            Ok(record) => Ok(record.is_some_and(|record| record.removed_at.is_some())),
            Err(error @ (StorageError::Damaged { .. } | StorageError::TooLarge { .. })) => {
                let path = self.layout.journal(session, run);
                let is_there = optional(self.disk.stat(&path)).attempt("look at", &path)?.is_some();
                if is_there { Ok(false) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    fn replay_run(
        &self,
        (session, run): &RunKey,
        lines: &Lines,
        findings: &mut Vec<Finding>,
    ) -> Result<Replayed, StorageError> {
        let lines: Vec<(u64, &[u8])> = lines.iter().map(|(offset, bytes)| (*offset, bytes.as_slice())).collect();
        let Some(first) = lines.first().map(|(offset, _)| *offset) else { return Ok(Replayed::PutBack) };
        if self.is_removed(session, run)? {
            return Ok(Replayed::Removed);
        }
        let path = self.layout.journal(session, run);
        let patch = Patch { session, run, lines };
        match optional(self.disk.open(&path, Access::Write)).attempt("open", &path)? {
            Some(file) => {
                let len = file.stat().attempt("look at", &path)?.len;
                self.put_back(&patch, &*file, len, findings)?;
            }
            None if first == 0 => self.create_again(&patch, findings)?,
            None => self.keep_homeless(&patch, findings)?,
        }
        Ok(Replayed::PutBack)
    }

    /// Writes lines in their places, also those that are there: a page may look written and be none.
    fn put_back(
        &self,
        patch: &Patch<'_>,
        file: &dyn DiskFile,
        len: u64,
        findings: &mut Vec<Finding>,
    ) -> Result<(), StorageError> {
        let path = self.layout.journal(patch.session, patch.run);
        if let Some(rebuilt) = patch.rebuilt(file, len).attempt("read", &path)? {
            findings.push(self.rebuild(patch, file, &rebuilt)?);
            return Ok(());
        }
        for (offset, lines) in &patch.lines {
            write_full(file, lines, *offset).map_err(|(_, cause)| StorageError::io("write", &path, cause))?;
        }
        file.sync().synced(&path)?;
        self.sync_folders_of(patch.session)
    }

    /// A journal that is gone without a trace of its removal. A crash leaves it empty, or as it was found.
    fn create_again(&self, patch: &Patch<'_>, findings: &mut Vec<Finding>) -> Result<(), StorageError> {
        self.ensure_dirs(&self.layout.journals_of(patch.session))?;
        let path = self.layout.journal(patch.session, patch.run);
        let file = self.disk.open(&path, Access::CreateNew).attempt("create", &path)?;
        self.put_back(patch, &*file, 0, findings)
    }

    /// Lines whose journal is gone together with what stood before them.
    fn keep_homeless(&self, patch: &Patch<'_>, findings: &mut Vec<Finding>) -> Result<(), StorageError> {
        let first = patch.lines[0].0;
        self.keep_bytes(patch.session, &format!("{}-logged-at-{first}", patch.run), &joined(&patch.lines))?;
        let path = self.layout.journal(patch.session, patch.run);
        let message = "the commit log holds events of a journal that is gone; they are kept in _kept";
        findings.push(self.run_finding("missing_seq", patch, &path, first, message));
        Ok(())
    }

    /// Other bytes stand where acknowledged lines belong: those win, and what stood there is kept.
    ///
    /// A crash leaves the old journal, and perhaps a kept copy of its end, or the new one.
    fn rebuild(&self, patch: &Patch<'_>, file: &dyn DiskFile, rebuilt: &Rebuilt) -> Result<Finding, StorageError> {
        let path = self.layout.journal(patch.session, patch.run);
        let from = rebuilt.from;
        self.keep_bytes(patch.session, &format!("{}-replaced-at-{from}", patch.run), &rebuilt.old)?;
        self.replace_end(&path, file, from, &rebuilt.tail)?;
        self.sync_folders_of(patch.session)?;
        let message =
            "other bytes stood where acknowledged events belong; the events were put back, the bytes kept in _kept";
        Ok(self.run_finding("duplicate_seq", patch, &path, rebuilt.conflict, message))
    }

    /// Replaces all of a file from this place on, whole or not at all.
    fn replace_end(&self, path: &Path, file: &dyn DiskFile, at: u64, tail: &[u8]) -> Result<(), StorageError> {
        let parent = path.parent().expect("a file lies in a directory");
        let dir = self.directories.open(parent)?;
        let temp = self.temp_beside(path);
        let copy = self.disk.open(&temp, Access::CreateNew).attempt("create", &temp)?;
        copy_start(file, &*copy, at).attempt("copy", path)?;
        write_full(&*copy, tail, at).map_err(|(_, cause)| StorageError::io("write", &temp, cause))?;
        copy.sync().synced(&temp)?;
        self.disk.rename(&temp, path).attempt("replace", path)?;
        dir.sync().synced(parent)
    }

    /// Makes the names of a session's journals durable, whoever created them.
    pub(super) fn sync_folders_of(&self, session: &SessionId) -> Result<(), StorageError> {
        let folder = self.layout.journals_of(session);
        self.ensure_dirs(&folder)?;
        self.directories.sync(&folder)
    }

    /// Moves a file out of the way that this log cannot use. One that cannot be moved stays: its name is not used again.
    fn set_aside(&self, index: u32, code: &'static str, message: &str) -> Result<Finding, StorageError> {
        let (from, folder) = (self.layout.segment(index), self.layout.kept_log());
        let name = from.file_name().expect("a segment has a name").to_string_lossy().into_owned();
        let to = folder.join(format!("{}-{name}", uuid4(&*self.entropy)));
        let message = match self.ensure_dirs(&folder).and_then(|()| self.move_part(&from, &to)) {
            Ok(()) => format!("{message} and is kept in _kept/_commit_log"),
            Err(error) if error.is_of_one_object() => format!("{message} and stays here: {}", with_cause(&error)),
            Err(error) => return Err(error),
        };
        Ok(Finding::new(code, self.layout.relative(&from), message))
    }

    fn run_finding(&self, code: &'static str, patch: &Patch<'_>, path: &Path, at: u64, message: &str) -> Finding {
        Finding::new(code, self.layout.relative(path), message).of_run(patch.session, patch.run).at(at)
    }
}

/// The first record in whose place something else stands: not nothing, and not the zeroes of a page that was never
/// written. Before it the first record that is not there, from which on the journal must be written anew.
fn first_conflict(patch: &Patch<'_>, file: &dyn DiskFile, len: u64) -> std::io::Result<Option<(u64, u64)>> {
    let (mut there, mut missing) = (Vec::new(), None);
    for (offset, lines) in &patch.lines {
        there.resize(lines.len().min(len.saturating_sub(*offset) as usize), 0);
        read_full(file, &mut there, *offset)?;
        if there.iter().zip(*lines).any(|(old, new)| old != new && *old != 0) {
            return Ok(Some((missing.unwrap_or(*offset), *offset)));
        }
        if there != *lines {
            missing.get_or_insert(*offset);
        }
    }
    Ok(None)
}

fn joined(lines: &[(u64, &[u8])]) -> Vec<u8> {
    let mut all = Vec::new();
    for (_, lines) in lines {
        all.extend_from_slice(lines);
    }
    all
}

fn last_seq_of(lines: &[u8]) -> u64 {
    lines.split_inclusive(|byte| *byte == b'\n').map(first_seq).max().unwrap_or(0)
}

/// Adds the events of a journal's old end that have later numbers.
fn push_later_lines(patch: &Patch<'_>, old: &[u8], last_seq: u64, out: &mut Vec<u8>) {
    let mut scanner = Scanner::new(LineShape::new(patch.session, patch.run), 0);
    let fed = scanner.feed(old.len(), |room| {
        room.copy_from_slice(old);
        std::io::Result::Ok(old.len())
    });
    if fed.is_err() {
        return;
    }
    while let Some(record) = scanner.next_record() {
        if let Record::Event(event) = record
            && event.seq.is_some_and(|seq| seq > last_seq)
        {
            out.extend_from_slice(event.line);
            out.push(b'\n');
        }
    }
}

fn copy_start(from: &dyn DiskFile, to: &dyn DiskFile, len: u64) -> std::io::Result<()> {
    let mut chunk = vec![0; READ_CHUNK_BYTES];
    let mut at = 0;
    while at < len {
        let wanted = chunk.len().min((len - at) as usize);
        let read = read_full(from, &mut chunk[..wanted], at)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        write_full(to, &chunk[..read], at).map_err(|(_, cause)| cause)?;
        at += read as u64;
    }
    Ok(())
}
