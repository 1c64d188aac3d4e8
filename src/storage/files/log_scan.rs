//! Reading the commit log: which segments are live, and the records of each run. Changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::write::{OpenedFile, open_plain};
use crate::format::commit::{FoundInLog, HEADER_BYTES, LogRecord, Logged, NoHeader, SegmentHeader, read_segment};
use crate::limits::SEGMENT_BYTES_READ_MAX;
use crate::model::{RunId, SessionId};
use crate::storage::disk::{Access, Disk, DiskFile, read_full};
use crate::storage::error::{Attempt, StorageError, optional};
use crate::storage::layout::Layout;

/// The newest log that this program knows.
const LOG_VERSION: u32 = 1;

/// A file of the log.
#[derive(Debug)]
pub(super) struct SegmentFile {
    pub(super) index: u32,
    /// None if it was never used, or is damaged.
    pub(super) header: Option<SegmentHeader>,
    /// Whether something stands in the header's place that is none.
    pub(super) is_damaged: bool,
    pub(super) len: u64,
}

/// The files of a log.
#[derive(Debug, Default)]
pub(super) struct LogScan {
    /// Those of this store, and those that say nothing; the oldest first.
    pub(super) own: Vec<SegmentFile>,
    /// Those of another store.
    pub(super) foreign: Vec<SegmentFile>,
    /// Those whose header cannot be read: rotted, or torn when it was written.
    pub(super) damaged: Vec<SegmentFile>,
    /// The number of the newest segment.
    pub(super) newest: u64,
    /// The first file name that was never used.
    pub(super) next_index: u32,
    /// The segments that count, in order, with their bytes.
    live: Vec<(u32, SegmentHeader, Vec<u8>)>,
}

/// What the log says of one run, in the order in which it was logged.
pub(super) type RunRecords<'a> = Vec<LogRecord<'a>>;

/// What a log says.
#[derive(Debug, Default)]
pub(super) struct LogContents<'a> {
    pub(super) runs: BTreeMap<(SessionId, RunId), RunRecords<'a>>,
    /// The last batch, which may not have been acknowledged.
    pub(super) last_batch: u64,
    /// Where acknowledged records are damaged: others stand behind them that were logged before the last batch. File
    /// and offset. What is damaged in the last batch itself may never have been written.
    pub(super) damage: Vec<(u32, u64)>,
}

impl LogScan {
    /// Looks at the log of this store.
    pub(super) fn of(disk: &dyn Disk, layout: &Layout, store: &str) -> Result<Self, StorageError> {
        let folder = layout.commit_log();
        let names = optional(disk.read_dir(&folder)).attempt("list", &folder)?.unwrap_or_default();
        let mut scan = LogScan::default();
        for name in &names {
            let Some(index) = Layout::segment_index_of(&name.name) else { continue };
            scan.next_index = scan.next_index.max(index.saturating_add(1));
            if let Some(file) = look_at(disk, layout, index)? {
                let is_foreign = file.header.as_ref().is_some_and(|header| header.store != store);
                let place = match (is_foreign, file.is_damaged) {
                    (true, _) => &mut scan.foreign,
                    (false, true) => &mut scan.damaged,
                    (false, false) => &mut scan.own,
                };
                place.push(file);
            }
        }
        scan.own.sort_by_key(|file| (file.header.as_ref().map_or(0, |header| header.number), file.index));
        scan.read_live(disk, layout)?;
        Ok(scan)
    }

    fn read_live(&mut self, disk: &dyn Disk, layout: &Layout) -> Result<(), StorageError> {
        let Some(newest) = self.own.last().and_then(|file| file.header.as_ref()) else { return Ok(()) };
        self.newest = newest.number;
        let live_from = newest.live_from;
        for file in &self.own {
            if let Some(header) = file.header.as_ref().filter(|header| header.number >= live_from) {
                let path = layout.segment(file.index);
                let Some((open, stat)) = open_plain(disk, &path)? else { continue };
                let bytes = open.into_bytes(stat.len.min(SEGMENT_BYTES_READ_MAX) as usize).attempt("read", &path)?;
                self.live.push((file.index, header.clone(), bytes));
            }
        }
        Ok(())
    }

    /// What the segments that count hold.
    pub(super) fn contents(&self) -> LogContents<'_> {
        let mut contents = LogContents::default();
        let (mut unexplained, mut damage) = (Vec::new(), Vec::new());
        for (index, header, bytes) in &self.live {
            for found in read_segment(header, bytes) {
                match found {
                    FoundInLog::Damage { place } => unexplained.push((*index, place)),
                    FoundInLog::Record(record) => {
                        damage.extend(unexplained.drain(..).map(|place| (place, record.batch)));
                        contents.last_batch = contents.last_batch.max(record.batch);
                        let key = (record.session.clone(), record.run.clone());
                        contents.runs.entry(key).or_default().push(record);
                    }
                }
            }
        }
        let last_batch = contents.last_batch;
        contents.damage =
            damage.into_iter().filter(|(_, behind)| *behind < last_batch).map(|(place, _)| place).collect();
        contents
    }
}

impl LogContents<'_> {
    /// The lines to be put into a journal of this length, each with its place.
    ///
    /// A record of the last batch that would leave a hole before it was not acknowledged: what filled the hole was
    /// logged in the same batch, and is not there. Any other hole is damage, and lines behind it are somebody's words;
    /// where acknowledged records have rotted, the hole is theirs.
    pub(super) fn lines_of<'a>(&self, records: &RunRecords<'a>, len: u64) -> Vec<(u64, &'a [u8])> {
        let mut reached = len;
        let mut lines = Vec::new();
        for record in records {
            let (bytes, end) = match record.logged {
                Logged::Lines(bytes) => (bytes, record.offset + bytes.len() as u64),
                Logged::Reference(_) => continue,
            };
            if record.offset <= reached || record.batch < self.last_batch || !self.damage.is_empty() {
                lines.push((record.offset, bytes));
                reached = reached.max(end);
            }
        }
        lines
    }
}

/// The store that the log in a directory belongs to, if all of its files that say so agree.
pub(super) fn store_of_log(disk: &dyn Disk, layout: &Layout) -> Result<Option<String>, StorageError> {
    let scan = LogScan::of(disk, layout, "")?;
    let mut stores = scan.foreign.into_iter().filter_map(|file| file.header).map(|header| header.store);
    let first = stores.next();
    Ok(first.filter(|first| stores.all(|other| other == *first)))
}

fn look_at(disk: &dyn Disk, layout: &Layout, index: u32) -> Result<Option<SegmentFile>, StorageError> {
    let path = layout.segment(index);
    let Some((file, stat)) = open_plain(disk, &path).or_else(pass_over_strangers)? else { return Ok(None) };
    let mut head = [0; HEADER_BYTES];
    let len = read_full(&*file, &mut head, 0).attempt("read", &path)?;
    let header = match SegmentHeader::decode(&head[..len]) {
        Ok(header) => Some(header),
        Err(NoHeader::Unreadable) => None,
        Err(NoHeader::Newer(version)) => return Err(StorageError::NewerFormat { path, version, known: LOG_VERSION }),
    };
    let is_damaged = header.is_none() && head.iter().any(|byte| *byte != 0);
    Ok(Some(SegmentFile { index, header, is_damaged, len: stat.len }))
}

/// What is no file has nothing to say.
fn pass_over_strangers(error: StorageError) -> Result<Option<OpenedFile>, StorageError> {
    match error {
        StorageError::Io { ref source, .. } if is_no_file(source) => Ok(None),
        error => Err(error),
    }
}

fn is_no_file(cause: &std::io::Error) -> bool {
    matches!(cause.kind(), std::io::ErrorKind::IsADirectory | std::io::ErrorKind::Other)
}

/// Opens a file of the log to be written again.
pub(super) fn open_segment(disk: &dyn Disk, layout: &Layout, index: u32) -> Result<Arc<dyn DiskFile>, StorageError> {
    let path = layout.segment(index);
    disk.open(&path, Access::Write).attempt("open", &path).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;
    use crate::entropy::SeededEntropy;
    use crate::storage::contract::{Birth, Durability, Storage};
    use crate::storage::files::{FileStorage, FilesOptions, Mode};
    use crate::storage::sim::SimDisk;

    const STORE: &str = "store";

    /// A record of ten bytes for the run `r` of a session.
    fn record(session: &str, batch: u64, offset: u64) -> LogRecord<'static> {
        let (session, run) = (SessionId::parse(session).unwrap(), RunId::parse("r").unwrap());
        LogRecord { batch, session, run, seq: 1, offset, logged: Logged::Lines(b"{\"seq\":1}\n") }
    }

    /// Writes a segment, and returns the place of each record in its file.
    fn put_segment(disk: &SimDisk, number: u64, live_from: u64, records: &[LogRecord<'_>]) -> Vec<u64> {
        let header = SegmentHeader { store: STORE.to_owned(), number, live_from };
        let mut bytes = header.encode().to_vec();
        let mut places = Vec::new();
        for record in records {
            places.push(bytes.len() as u64);
            let (place, mut encoded) = (bytes.len() as u64, Vec::new());
            record.encode(header.seed(), place, &mut encoded);
            bytes.extend(encoded);
        }
        let layout = Layout::new(Path::new("/"));
        let _ = disk.create_dir(&layout.commit_log());
        disk.open(&layout.segment(number as u32), Access::CreateNew).unwrap().write_at(&bytes, 0).unwrap();
        places
    }

    fn scan(disk: &SimDisk) -> LogScan {
        LogScan::of(disk, &Layout::new(Path::new("/")), STORE).unwrap()
    }

    /// The offsets that are put back into the journal of a session, which has this length.
    #[track_caller]
    fn check_replayed(disk: &SimDisk, session: &str, len: u64, offsets: &[u64]) {
        let scan = scan(disk);
        let contents = scan.contents();
        let key = (SessionId::parse(session).unwrap(), RunId::parse("r").unwrap());
        let lines = contents.lines_of(&contents.runs[&key], len);
        assert_eq!(lines.into_iter().map(|(offset, _)| offset).collect::<Vec<_>>(), offsets);
    }

    /// Changes a byte of a record's body.
    fn rot(disk: &SimDisk, number: u32, place: u64) {
        let file = disk.open(&Layout::new(Path::new("/")).segment(number), Access::Write).unwrap();
        file.write_at(b"?", place + 45).unwrap();
    }

    #[test]
    fn every_segment_from_the_oldest_live_one_on_is_read() {
        // The default log has up to 64 segments, and more are read: a log of an earlier setting may be longer.
        for (segments, live_from) in [(6, 2), (100, 1), (100, 3)] {
            let disk = SimDisk::new();
            // Written in another order than their numbers: a file that is used again gets the next number.
            for number in (1..=segments).map(|number| number * 37 % (segments + 1)) {
                put_segment(&disk, number, live_from, &[record("a", number, (number - 1) * 10)]);
            }
            let offsets: Vec<u64> = (live_from..=segments).map(|number| (number - 1) * 10).collect();
            check_replayed(&disk, "a", offsets[0], &offsets);
        }
    }

    /// A crash may take the header of a segment and leave its records. If its number were given again, they would count.
    #[test]
    fn no_two_processes_give_their_segments_the_same_number() {
        let newest = |seed: u64| {
            let disk = SimDisk::new();
            let entropy = Arc::new(SeededEntropy::new(seed));
            let options = FilesOptions { entropy, ..FilesOptions::in_mode(Mode::Write) };
            let storage = FileStorage::open(Arc::new(disk.clone()), Path::new("/"), options).unwrap();
            let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
            let mut journal = storage.create_journal(&session, &run, &Birth::default()).unwrap();
            journal.writer.append(b"{\"seq\":1}\n", Durability::Durable).unwrap().wait().unwrap();
            LogScan::of(&disk, &Layout::new(Path::new("/")), storage.store.as_deref().unwrap()).unwrap().newest
        };
        let numbers: HashSet<u64> = (0..20).map(newest).collect();
        assert_eq!(numbers.len(), 20, "{numbers:?}");
    }

    #[test]
    fn a_record_of_the_last_batch_after_a_hole_was_not_acknowledged() {
        let disk = SimDisk::new();
        put_segment(&disk, 1, 1, &[record("a", 1, 0), record("a", 2, 20)]);
        check_replayed(&disk, "a", 0, &[0]);
        check_replayed(&disk, "a", 20, &[0, 20]);
    }

    #[test]
    fn an_acknowledged_record_after_a_hole_is_replayed() {
        let disk = SimDisk::new();
        put_segment(&disk, 1, 1, &[record("a", 1, 20), record("b", 2, 0)]);
        check_replayed(&disk, "a", 0, &[20]);
    }

    /// The hole is that of the rotten record, which another acknowledged one follows. So the last one may be acknowledged.
    #[test]
    fn records_after_a_rotten_one_are_replayed_also_those_of_the_last_batch() {
        let disk = SimDisk::new();
        let places = put_segment(&disk, 1, 1, &[record("a", 1, 0), record("b", 2, 0), record("a", 3, 10)]);
        rot(&disk, 1, places[0]);
        check_replayed(&disk, "a", 0, &[10]);
        assert_eq!(scan(&disk).contents().damage, [(1, places[0])]);
    }

    /// A batch that was cut off by a crash looks the same as one that has rotted.
    #[test]
    fn what_is_damaged_before_a_record_of_the_last_batch_may_never_have_been_written() {
        let disk = SimDisk::new();
        let places = put_segment(&disk, 1, 1, &[record("b", 1, 0), record("a", 2, 0), record("a", 2, 10)]);
        rot(&disk, 1, places[1]);
        check_replayed(&disk, "a", 0, &[]);
        assert_eq!(scan(&disk).contents().damage, []);
    }
}
