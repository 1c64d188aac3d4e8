//! The files of the commit log: segments of one length, filled with zeroes once and used again and again.
//!
//! What a crash leaves: a file that is too short or whose header cannot be read was never acknowledged in, and is filled
//! again before it is used; a batch that was not synced is there in part or not at all, and was not acknowledged; a
//! header that says "nothing before me counts" is there or not, and everything before it is on the medium elsewhere.
//!
//! Only a failed fsync is a failure. A segment that could not be opened, filled or written, and an fsync that found no
//! space, leave the log unavailable: the journals are synced themselves, and the segment takes no more records.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use super::options::CommitOptions;
use super::stream::Stream;
use crate::format::commit::{HEADER_BYTES, LogRecord, Logged, SegmentHeader, first_seq, record_bytes};
use crate::storage::directories::Directories;
use crate::storage::disk::{Access, DiskFile, SharedDisk, write_full};
use crate::storage::error::{Attempt, StorageError};
use crate::storage::layout::Layout;

/// Why a record was not taken.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The log cannot take it now: every segment is needed, the disk is full, or no file can be opened or written.
    Unavailable,
    /// An fsync failed.
    Failed(StorageError),
}

impl From<StorageError> for Refusal {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::SyncFailed { .. } if !error.is_no_space() => Refusal::Failed(error),
            _ => Refusal::Unavailable,
        }
    }
}

/// Whether a log was retired.
#[derive(Debug)]
pub(in crate::storage) enum Retired {
    /// A replay finds nothing in it.
    Durably,
    /// There was no room to say so: a replay finds what it held before.
    NotYet(StorageError),
}

/// A file that a segment can be put in.
#[derive(Debug, Clone)]
pub(in crate::storage) struct Slot {
    /// Its number in the file's name.
    pub(in crate::storage) index: u32,
    pub(in crate::storage) file: Arc<dyn DiskFile>,
    /// Whether it has its length and holds nothing that could be mistaken for a record.
    pub(in crate::storage) is_filled: bool,
    /// Whether it has held a segment before.
    pub(in crate::storage) is_used: bool,
}

/// A segment whose records may still be needed.
#[derive(Debug)]
struct Segment {
    header: SegmentHeader,
    seed: u32,
    slot: Slot,
    /// Where the next record goes.
    end: u64,
    is_unsynced: bool,
    /// Whether a write or an fsync of it went wrong: it takes no more records, and what it holds beyond those that were
    /// synced before is not relied on.
    is_spoilt: bool,
    /// The journals that it has records of, until they are durable in their own files.
    named: Vec<Named>,
}

/// A journal that a segment has records of.
#[derive(Debug)]
struct Named {
    stream: Arc<Stream>,
    /// The end of the last of them, once the segment takes no more.
    to: Option<u64>,
}

impl Named {
    /// Whether its own file holds, durably, all that the segment does.
    fn is_secure(&self) -> bool {
        self.stream.synced() >= self.to.unwrap_or_else(|| self.stream.logged())
    }
}

/// The commit log of a store.
#[derive(Debug)]
pub(in crate::storage) struct Log {
    disk: SharedDisk,
    directories: Arc<Directories>,
    layout: Layout,
    store: String,
    options: CommitOptions,
    segments_max: usize,
    /// The oldest first; the last one is written to.
    live: VecDeque<Segment>,
    free: VecDeque<Slot>,
    /// The newest segment that the medium may know, to be told in its own place that nothing counts.
    newest: Option<(u64, Slot)>,
    next_index: u32,
    next_number: u64,
    /// Files that are being made.
    spares: usize,
    /// Whether the names of its files are known to survive a power cut: their creator may have died before.
    are_names_durable: bool,
    /// Whether the medium may hold records that a replay would find.
    has_records: bool,
    /// Why it takes no records and cannot be retired: what it holds is still needed.
    frozen: Option<StorageError>,
    /// What is to be written at the end of the last segment.
    room: Vec<u8>,
}

/// What was found of a log when its store was opened.
#[derive(Debug, Default)]
pub(in crate::storage) struct FoundLog {
    /// Files to be used again, in this order.
    pub(in crate::storage) slots: Vec<Slot>,
    /// The newest segment and the file that holds it, if it can be written.
    pub(in crate::storage) newest: Option<(u64, Slot)>,
    /// Whether a replay found records.
    pub(in crate::storage) has_records: bool,
    /// The first number that may be given to a segment.
    pub(in crate::storage) next_number: u64,
    /// The first file name that was never used.
    pub(in crate::storage) next_index: u32,
}

impl Log {
    pub(in crate::storage) fn new(
        disk: SharedDisk,
        directories: Arc<Directories>,
        layout: Layout,
        store: &str,
        options: CommitOptions,
        found: FoundLog,
    ) -> Self {
        Log {
            segments_max: options.segments_max(disk.open_files_max()),
            disk,
            directories,
            layout,
            store: store.to_owned(),
            options,
            live: VecDeque::new(),
            free: found.slots.into(),
            newest: found.newest,
            next_index: found.next_index,
            next_number: found.next_number,
            spares: 0,
            are_names_durable: false,
            has_records: found.has_records,
            frozen: None,
            room: Vec::new(),
        }
    }

    /// Leaves what the log holds as it is, because of this: it takes no records, and is not retired.
    pub(in crate::storage) fn freeze(&mut self, why: StorageError) {
        self.frozen = Some(why);
    }

    /// Bytes of lines that one record of this journal can hold.
    pub(super) fn lines_max(&self, stream: &Stream) -> u64 {
        let room = self.options.segment_bytes() as usize - HEADER_BYTES;
        room.saturating_sub(record_bytes(&stream.session, &stream.run, 0) + 8) as u64
    }

    /// Takes a record. It is durable after the next [`Log::sync`].
    pub(super) fn take(
        &mut self,
        stream: &Arc<Stream>,
        batch: u64,
        offset: u64,
        logged: Logged<'_>,
    ) -> Result<(), Refusal> {
        let (seq, bytes) = match logged {
            Logged::Lines(lines) => (first_seq(lines), lines.len()),
            Logged::Reference(_) => (0, 8),
        };
        self.make_room(record_bytes(&stream.session, &stream.run, bytes) as u64)?;
        let (session, run) = (stream.session.clone(), stream.run.clone());
        let segment = self.live.back_mut().expect("room was made in one");
        let record = LogRecord { batch, session, run, seq, offset, logged };
        record.encode(segment.seed, segment.end + self.room.len() as u64, &mut self.room);
        self.has_records = true;
        if stream.note_named(segment.header.number) {
            segment.named.push(Named { stream: stream.clone(), to: None });
        }
        Ok(())
    }

    fn make_room(&mut self, bytes: u64) -> Result<(), Refusal> {
        let usable = self.live.back().filter(|segment| !segment.is_spoilt);
        let end = usable.map(|segment| segment.end + self.room.len() as u64);
        if end.is_some_and(|end| end + bytes <= self.options.segment_bytes()) {
            return Ok(());
        }
        self.write()?;
        self.begin()
    }

    /// Begins another segment. Its header is written with its first records, but for a file that was used before: there
    /// it is made durable first, so that no page of ours ever stands after the header of an earlier use.
    fn begin(&mut self) -> Result<(), Refusal> {
        if self.frozen.is_some() {
            return Err(Refusal::Unavailable);
        }
        let slot = match self.free.pop_front() {
            Some(slot) => self.filled(slot)?,
            None => self.new_slot()?,
        };
        if let Err(refusal) = self.make_names_durable() {
            self.free.push_front(slot);
            return Err(refusal);
        }
        if let Some(last) = self.live.back_mut() {
            last.named.iter_mut().for_each(|named| named.to = Some(named.stream.logged()));
        }
        let number = self.next_number;
        self.next_number += 1;
        let live_from = self.live.front().map_or(number, |oldest| oldest.header.number);
        let header = SegmentHeader { store: self.store.clone(), number, live_from };
        self.room.extend_from_slice(&header.encode());
        let (seed, is_used) = (header.seed(), slot.is_used);
        let slot = Slot { is_used: true, ..slot };
        self.newest = Some((number, slot.clone()));
        let segment = Segment { header, seed, slot, end: 0, is_unsynced: false, is_spoilt: false, named: Vec::new() };
        self.live.push_back(segment);
        if is_used {
            self.sync()?;
        }
        Ok(())
    }

    /// Fills a file whose past is unknown with zeroes. A crash leaves it as it was, in part, or filled.
    fn filled(&mut self, mut slot: Slot) -> Result<Slot, Refusal> {
        if slot.is_filled {
            return Ok(slot);
        }
        let filled = self.fill_again(&slot);
        if let Err(refusal) = filled {
            self.free.push_front(slot);
            return Err(refusal);
        }
        (slot.is_filled, slot.is_used) = (true, false);
        Ok(slot)
    }

    /// A file system that never overwrites in place needs room for all of it.
    fn fill_again(&self, slot: &Slot) -> Result<(), Refusal> {
        let (path, bytes) = (self.layout.segment(slot.index), self.options.segment_bytes());
        let len = slot.file.stat().attempt("look at", &path)?.len;
        if !self.has_room_for(bytes) {
            return Err(Refusal::Unavailable);
        }
        fill(&*slot.file, bytes, &path).map_err(|error| {
            // What was taken in vain is given back. If that fails, the next attempt finds it.
            let _ = slot.file.set_len(len);
            Refusal::from(error)
        })
    }

    /// Creates another file.
    fn new_slot(&mut self) -> Result<Slot, Refusal> {
        if !self.may_grow() {
            return Err(Refusal::Unavailable);
        }
        self.next_index += 1;
        self.are_names_durable = false;
        Ok(self.blank(self.next_index - 1).make()?)
    }

    fn may_grow(&self) -> bool {
        let is_allowed = self.live.len() + self.free.len() + self.spares < self.segments_max;
        is_allowed && self.has_room_for(self.options.segment_bytes())
    }

    fn blank(&self, index: u32) -> Blank {
        Blank {
            disk: self.disk.clone(),
            directories: self.directories.clone(),
            layout: self.layout.clone(),
            index,
            bytes: self.options.segment_bytes(),
        }
    }

    /// Whether another file will be needed soon, and none is there.
    pub(super) fn lacks_spare(&self) -> bool {
        let is_soon = self.live.back().is_some_and(|last| last.end * 2 > self.options.segment_bytes());
        is_soon && self.free.is_empty() && self.spares == 0 && !self.is_half_full() && self.may_grow()
    }

    /// A file to be made while others go on committing, and to be brought to [`Log::take_spare`].
    pub(super) fn order_spare(&mut self) -> Option<Blank> {
        self.lacks_spare().then(|| {
            self.next_index += 1;
            self.spares += 1;
            self.blank(self.next_index - 1)
        })
    }

    /// Takes a file that was ordered. One that could not be made is not missed before it is needed.
    pub(super) fn take_spare(&mut self, made: Result<Slot, StorageError>) {
        self.spares -= 1;
        self.free.extend(made.ok());
    }

    /// Whether the log can take so much and leave as much to the journals. They can do without it, it cannot do without
    /// them; and an attempt that fills the disk, even for a moment, would fail everyone else's writes.
    fn has_room_for(&self, bytes: u64) -> bool {
        let free = self.disk.free_bytes(self.layout.root()).ok().flatten();
        free.is_none_or(|free| free / 2 >= bytes)
    }

    fn make_names_durable(&mut self) -> Result<(), Refusal> {
        if !self.are_names_durable {
            let folder = self.layout.commit_log();
            self.directories.ensure(&folder)?;
            self.directories.sync(&folder)?;
            self.are_names_durable = true;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), Refusal> {
        let Some(segment) = self.live.back_mut().filter(|_| !self.room.is_empty()) else { return Ok(()) };
        let path = self.layout.segment(segment.slot.index);
        if let Err((_, cause)) = write_full(&*segment.slot.file, &self.room, segment.end) {
            segment.spoil();
            self.room.clear();
            return Err(StorageError::io("write", &path, cause).into());
        }
        segment.end += self.room.len() as u64;
        segment.is_unsynced = true;
        self.room.clear();
        Ok(())
    }

    /// Makes every record that was taken survive a power cut.
    pub(super) fn sync(&mut self) -> Result<(), Refusal> {
        self.write()?;
        for segment in self.live.iter_mut().filter(|segment| segment.is_unsynced) {
            let path = self.layout.segment(segment.slot.index);
            if let Err(error) = segment.slot.file.sync().synced(&path) {
                self.live.iter_mut().filter(|segment| segment.is_unsynced).for_each(Segment::spoil);
                return Err(error.into());
            }
            segment.is_unsynced = false;
        }
        Ok(())
    }

    /// Whether so many segments are in use that it is time to make some free.
    pub(super) fn is_half_full(&self) -> bool {
        self.live.len() * 2 > self.segments_max
    }

    /// The journals that the log is still needed for.
    pub(super) fn named(&self) -> Vec<Arc<Stream>> {
        let named = self.live.iter().flat_map(|segment| &segment.named);
        let mut seen = HashSet::new();
        named.filter(|named| seen.insert(Arc::as_ptr(&named.stream))).map(|named| named.stream.clone()).collect()
    }

    /// Forgets the journals that are durable in their own files, and makes the oldest segments free that none is left
    /// in. Their directories were synced when they were created.
    pub(super) fn release(&mut self) {
        for segment in &mut self.live {
            let number = segment.header.number;
            for gone in segment.named.extract_if(.., |named| named.is_secure()) {
                gone.stream.forget_named(number);
            }
        }
        while self.live.front().is_some_and(|oldest| oldest.is_free() && (self.live.len() > 1 || oldest.is_spoilt)) {
            self.free.extend(self.live.pop_front().map(|segment| segment.slot));
        }
    }

    /// Says, durably, that nothing before now counts. Everything that the log holds is durable elsewhere.
    ///
    /// A new segment says so; without room for one, the newest says so in its own place. A crash leaves the log as it was,
    /// or retired.
    pub(in crate::storage) fn retire(&mut self) -> Result<Retired, StorageError> {
        if let Some(why) = &self.frozen {
            return Ok(Retired::NotYet(why.clone()));
        }
        self.room.clear();
        let slots = self.live.drain(..).map(|segment| segment.slot);
        self.free.extend(slots);
        // One that has to be filled first may find no room.
        self.free.make_contiguous().sort_by_key(|slot| !slot.is_filled);
        let retired = match self.begin().and_then(|()| self.sync()) {
            Ok(()) => Retired::Durably,
            Err(Refusal::Failed(error)) => return Err(error),
            Err(Refusal::Unavailable) => self.retire_in_place()?,
        };
        self.has_records = !matches!(retired, Retired::Durably);
        Ok(retired)
    }

    /// A header whose `live_from` is higher than its own number leaves nothing that counts.
    fn retire_in_place(&mut self) -> Result<Retired, StorageError> {
        self.room.clear();
        let Some((number, slot)) = self.newest.clone() else {
            let cause = std::io::Error::other("its newest segment cannot be written");
            return Ok(Retired::NotYet(StorageError::io("retire", &self.layout.commit_log(), cause)));
        };
        self.live.drain(..).for_each(|segment| self.free.push_back(segment.slot));
        let path = self.layout.segment(slot.index);
        let header = SegmentHeader { store: self.store.clone(), number, live_from: number + 1 };
        if let Err((_, cause)) = write_full(&*slot.file, &header.encode(), 0) {
            return Ok(Retired::NotYet(StorageError::io("write", &path, cause)));
        }
        match slot.file.sync().synced(&path) {
            Err(error) if error.is_no_space() => Ok(Retired::NotYet(error)),
            synced => synced.map(|()| Retired::Durably),
        }
    }

    /// Whether the medium may hold records that a replay would find.
    pub(super) fn has_records(&self) -> bool {
        self.has_records
    }
}

impl Segment {
    /// Takes no more records. What was not synced is not relied on, and the file is filled before it is used again.
    fn spoil(&mut self) {
        (self.is_spoilt, self.is_unsynced, self.slot.is_filled) = (true, false, false);
    }

    fn is_free(&self) -> bool {
        self.named.is_empty() && !self.is_unsynced
    }
}

/// A file of the log that is still to be made.
pub(super) struct Blank {
    disk: SharedDisk,
    directories: Arc<Directories>,
    layout: Layout,
    index: u32,
    bytes: u64,
}

impl Blank {
    /// Makes it. A crash leaves it missing, too short, or full of zeroes. Its name is still to be made durable.
    fn make(&self) -> Result<Slot, StorageError> {
        let path = self.layout.segment(self.index);
        self.directories.ensure(&self.layout.commit_log())?;
        let file = self.disk.open(&path, Access::CreateNew).attempt("create", &path)?;
        fill(&*file, self.bytes, &path).inspect_err(|_| {
            let _ = self.disk.remove_file(&path);
        })?;
        Ok(Slot { index: self.index, file: Arc::from(file), is_filled: true, is_used: false })
    }

    /// Makes it, and its name durable.
    pub(super) fn make_durable(&self) -> Result<Slot, StorageError> {
        let folder = self.layout.commit_log();
        self.directories.ensure(&folder)?;
        let dir = self.directories.open(&folder)?;
        let slot = self.make()?;
        dir.sync().synced(&folder)?;
        Ok(slot)
    }
}

fn fill(file: &dyn DiskFile, bytes: u64, path: &Path) -> Result<(), StorageError> {
    write_full(file, &vec![0; bytes as usize], 0).map_err(|(_, cause)| StorageError::io("fill", path, cause))?;
    file.sync().synced(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RunId, SessionId};
    use crate::storage::sim::SimDisk;

    /// Lines may be logged between the sync of a journal and the release: the segment that holds them stays.
    #[test]
    fn a_segment_is_free_only_when_all_that_it_holds_is_synced() {
        let disk: SharedDisk = Arc::new(SimDisk::new());
        let options = CommitOptions { segment_bytes: 1024, log_bytes: 4096, ..CommitOptions::default() };
        let layout = Layout::new(Path::new("/data"));
        let path = Path::new("/journal");
        let stream = Stream::new(&SessionId::parse("s").unwrap(), &RunId::parse("r").unwrap(), path, 0);
        let (stream, file) = (Arc::new(stream), Arc::from(disk.open(path, Access::CreateNew).unwrap()));
        stream.hold(&file);
        let directories = Arc::new(Directories::new(disk.clone(), Path::new("/data")));
        let mut log =
            Log::new(disk, directories, layout, "store", options, FoundLog { next_number: 1, ..FoundLog::default() });
        let take = |log: &mut Log, offset: u64| {
            stream.note_written(offset + 600);
            log.take(&stream, 1, offset, Logged::Lines(&[b'x'; 600])).unwrap();
            stream.note_logged(offset + 600);
            log.sync().unwrap();
        };
        take(&mut log, 0);
        stream.secure().unwrap();
        take(&mut log, 600);
        log.release();
        assert_eq!(log.live.len(), 1, "the first is durable elsewhere");
        take(&mut log, 1_200);
        log.release();
        assert_eq!(log.live.len(), 2, "the second is not");
        stream.secure().unwrap();
        log.release();
        assert_eq!((log.live.len(), log.free.len()), (1, 1));
    }
}
