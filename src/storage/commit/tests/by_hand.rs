//! A committer without threads on a simulated disk, its journals, and what a power cut would leave of them.

use super::*;
use crate::format::commit::{FoundInLog, Logged, SegmentHeader, read_segment};
use crate::storage::disk::Disk;
use crate::storage::sim::{Crash, SimDisk};

/// Segments of 1024 bytes, without a background interval.
pub(super) const SMALL: CommitOptions = CommitOptions { background: None, segment_bytes: 1024, log_bytes: 8 * 1024 };

const ROOT: &str = "/data";

pub(super) struct ByHand {
    pub(super) disk: SimDisk,
    pub(super) committer: Arc<Committer>,
}

impl ByHand {
    pub(super) fn new(options: CommitOptions) -> Self {
        Self::with_threads(options, Threads::new(true))
    }

    pub(super) fn with_threads(options: CommitOptions, threads: Threads) -> Self {
        Self::on(SimDisk::new(), options, threads)
    }

    pub(super) fn on(disk: SimDisk, options: CommitOptions, threads: Threads) -> Self {
        disk.create_dir(Path::new(ROOT)).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let scene = Scene::with_options(Arc::new(disk.clone()), Path::new(ROOT), threads, options);
        ByHand { disk, committer: scene.committer }
    }

    /// The lock of this directory, which the committer watches from now on.
    pub(super) fn lock(&self) -> Arc<WriterLock> {
        let disk: SharedDisk = Arc::new(self.disk.clone());
        let now = Timestamp::from_seconds(1.0);
        let lock = Arc::new(WriterLock::take(&disk, &layout(), now, Default::default()).unwrap());
        self.committer.latch().guard(&lock);
        lock
    }

    /// An empty journal whose name is durable.
    pub(super) fn journal(&self, name: &str) -> Journal {
        let path = Path::new(ROOT).join(name);
        let file: Arc<dyn DiskFile> = Arc::from(self.disk.open(&path, Access::CreateNew).unwrap());
        self.disk.sync_dir(Path::new(ROOT)).unwrap();
        let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse(name).unwrap());
        let stream = Arc::new(Stream::new(&session, &run, &path, 0));
        stream.hold(&file);
        self.committer.register(&stream);
        Journal { stream, file }
    }

    pub(super) fn submit(&self, journal: &Journal, written: &Written) -> Ticket {
        self.committer.submit(&journal.stream, written.offset, &written.lines)
    }

    /// Whether a power cut now leaves these lines, in their journal or in what a replay reads of the log.
    pub(super) fn survives(&self, written: &Written) -> bool {
        let files = self.after_power_cut();
        let (from, to) = (written.offset as usize, written.offset as usize + written.lines.len());
        let in_journal = files.get(&written.path).and_then(|bytes| bytes.get(from..to));
        in_journal == Some(&written.lines[..]) || log_holds(&files, written)
    }

    /// How many records a replay would read after a power cut now.
    pub(super) fn replayed_records(&self) -> usize {
        let mut records = 0;
        each_live_record(&self.after_power_cut(), |_, _, _| records += 1);
        records
    }

    pub(super) fn segment_lengths(&self) -> Vec<u64> {
        let files = self.disk.files();
        let segments = files.iter().filter(|(path, _)| path.starts_with(layout().commit_log()));
        segments.map(|(_, bytes)| bytes.len() as u64).collect()
    }

    fn after_power_cut(&self) -> Files {
        let disk = self.disk.copy();
        disk.power_cut(Crash::LoseAll);
        disk.files()
    }
}

pub(super) fn layout() -> Layout {
    Layout::new(Path::new(ROOT))
}

pub(super) struct Journal {
    pub(super) stream: Arc<Stream>,
    file: Arc<dyn DiskFile>,
}

/// Lines that are in the file of their journal.
pub(super) struct Written {
    run: RunId,
    path: PathBuf,
    offset: u64,
    lines: Vec<u8>,
}

impl Journal {
    /// Writes a line of this many bytes, which begins with this word.
    pub(super) fn write(&self, word: &str, bytes: usize) -> Written {
        let lines = format!("{word:.<0$}\n", bytes - 1).into_bytes();
        let offset = self.stream.written();
        self.file.write_at(&lines, offset).unwrap();
        self.stream.note_written(offset + lines.len() as u64);
        Written { run: self.stream.run.clone(), path: self.stream.path().to_owned(), offset, lines }
    }
}

pub(super) type Files = std::collections::BTreeMap<PathBuf, Vec<u8>>;

fn log_holds(files: &Files, written: &Written) -> bool {
    let mut is_held = false;
    each_live_record(files, |run, offset, lines| {
        let from = written.offset.checked_sub(offset).map(|from| from as usize);
        let held = from.and_then(|from| lines.get(from..from + written.lines.len()));
        is_held |= *run == written.run && held == Some(&written.lines[..]);
    });
    is_held
}

/// The segments that count, as the newest header says.
fn live_segments(files: &Files) -> Vec<(SegmentHeader, &[u8])> {
    let segments = files.iter().filter(|(path, _)| path.starts_with(layout().commit_log()));
    let mut segments: Vec<_> =
        segments.filter_map(|(_, bytes)| Some((SegmentHeader::decode(bytes).ok()?, &bytes[..]))).collect();
    let live_from = segments.iter().max_by_key(|(header, _)| header.number).map(|(newest, _)| newest.live_from);
    segments.retain(|(header, _)| Some(header.number) >= live_from);
    segments
}

/// The records of lines in the segments that count.
fn each_live_record(files: &Files, mut take: impl FnMut(&RunId, u64, &[u8])) {
    for (header, bytes) in live_segments(files) {
        for found in read_segment(&header, bytes) {
            if let FoundInLog::Record(record) = found
                && let Logged::Lines(lines) = record.logged
            {
                take(&record.run, record.offset, lines);
            }
        }
    }
}

/// Whether a segment that counts has a hole before a record of an earlier batch than the last one: acknowledged lines would
/// be reported as damaged.
pub(super) fn has_damage(files: &Files) -> bool {
    let segments = live_segments(files);
    let found: Vec<_> = segments.iter().map(|(header, bytes)| read_segment(header, bytes)).collect();
    let batch_of = |found: &FoundInLog<'_>| match found {
        FoundInLog::Record(record) => Some(record.batch),
        FoundInLog::Damage { .. } => None,
    };
    let last = found.iter().flatten().filter_map(batch_of).max();
    let is_hole = |pair: &[FoundInLog<'_>]| batch_of(&pair[0]).is_none() && batch_of(&pair[1]) < last;
    found.iter().any(|found| found.windows(2).any(is_hole))
}
