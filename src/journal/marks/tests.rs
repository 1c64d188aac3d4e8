//! Events found through marks are those that a read of the whole journal finds, whatever stands in the journal.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::clock::{ManualClock, Timestamp};
use crate::format::LineEncoder;
use crate::journal::{OpenFileBudget, ReadOptions, RunJournal, read_events};
use crate::meter::Meter;
use crate::model::Event;
use crate::storage::sim::SimDisk;
use crate::storage::{Access, Birth, Disk, Durability, FileStorage, FilesOptions, Mode, Storage};

const JOURNAL: &str = "/data/_run_journal/s/r.jsonl";

fn sid() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn rid() -> RunId {
    RunId::parse("r").unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_seconds(100.0)
}

/// What stands in a journal.
#[derive(Debug, Clone)]
enum Piece {
    /// A line of ours with the next number.
    Next(usize),
    /// A line of ours with any number.
    Numbered(u64),
    /// A line of ours with any number, without its checksum.
    Unchecked(u64),
    /// A line of another run.
    Foreign(u64),
    /// A line of another program, without ids.
    Bare(u64),
    Unnumbered,
    /// The last piece loses its line feed.
    Glued,
    /// The last piece loses some of its bytes.
    Cut(usize),
    Garbage,
    Zeroes(usize),
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        12 => (0_usize..400).prop_map(Piece::Next),
        1 => (1_u64..20).prop_map(Piece::Numbered),
        1 => (1_u64..20).prop_map(Piece::Unchecked),
        1 => (1_u64..20).prop_map(Piece::Foreign),
        1 => (1_u64..20).prop_map(Piece::Bare),
        1 => Just(Piece::Unnumbered),
        1 => Just(Piece::Glued),
        1 => (1_usize..200).prop_map(Piece::Cut),
        1 => Just(Piece::Garbage),
        1 => (1_usize..50).prop_map(Piece::Zeroes),
    ]
}

fn line(run: &RunId, seq: u64, text: &str) -> Vec<u8> {
    let mut lines = Vec::new();
    LineEncoder::new(&sid(), run).encode(seq, now(), &Event::token(text), &mut lines);
    lines
}

fn unchecked(seq: u64) -> Vec<u8> {
    let line = String::from_utf8(line(&rid(), seq, "no checksum")).unwrap();
    format!("{}}}\n", line.rsplit_once(",\"crc\":").unwrap().0).into_bytes()
}

/// The bytes of a journal of these pieces. Every line has words of its own, so that no two are the same event.
fn bytes_of(pieces: &[Piece]) -> Vec<u8> {
    let (mut bytes, mut seq) = (Vec::new(), 0);
    for (at, piece) in pieces.iter().enumerate() {
        let bare =
            |key: &str| format!("{{\"event\":\"token\",{key}\"payload\":{{\"text\":\"bare {at}\"}}}}\n").into_bytes();
        match piece {
            Piece::Next(words) => {
                seq += 1;
                bytes.extend(line(&rid(), seq, &format!("{at} {}", "x".repeat(*words))));
            }
            Piece::Numbered(seq) => bytes.extend(line(&rid(), *seq, &format!("numbered {at}"))),
            Piece::Unchecked(seq) => bytes.extend(unchecked(*seq)),
            Piece::Foreign(seq) => bytes.extend(line(&RunId::parse("other").unwrap(), *seq, &format!("foreign {at}"))),
            Piece::Bare(seq) => bytes.extend(bare(&format!("\"seq\":{seq},"))),
            Piece::Unnumbered => bytes.extend(bare("")),
            Piece::Glued => drop(bytes.pop_if(|last| *last == b'\n')),
            Piece::Cut(count) => bytes.truncate(bytes.len().saturating_sub(*count)),
            Piece::Garbage => bytes.extend(b"what is this\n"),
            Piece::Zeroes(count) => bytes.extend(std::iter::repeat_n(0, *count)),
        }
    }
    bytes
}

/// A journal that is open for appending, and all that it needs.
struct Scenario {
    disk: SimDisk,
    storage: Arc<dyn Storage>,
    kept: Arc<KeptMarks>,
}

impl Scenario {
    fn new(bytes: &[u8]) -> Self {
        let disk = SimDisk::new();
        let clock = Arc::new(ManualClock::at(now()));
        let options = FilesOptions { clock, ..FilesOptions::in_mode(Mode::Write) };
        let storage = FileStorage::open(Arc::new(disk.clone()), Path::new("/data"), options).unwrap();
        storage.create_journal(&sid(), &rid(), &Birth::default()).unwrap();
        let file = disk.open(Path::new(JOURNAL), Access::Write).unwrap();
        file.write_at(bytes, 0).unwrap();
        Scenario { disk, storage: Arc::new(storage), kept: Arc::default() }
    }

    fn open(&self) -> Arc<RunJournal> {
        let opened = self.storage.open_journal(&sid(), &rid()).unwrap();
        let (files, meter) = (Arc::new(OpenFileBudget::new(4)), Arc::new(Meter::default()));
        let clock = Arc::new(ManualClock::at(now()));
        RunJournal::new(&sid(), &rid(), opened, clock, files, self.kept.clone(), &meter)
    }

    fn expect_same(&self, journal: &RunJournal, after_seq: u64, max_seq: u64) {
        let options = ReadOptions { after_seq, max_seq };
        let all = read_events(&self.storage, &sid(), &rid(), options, None).unwrap().events;
        assert_eq!(journal.own_events(&self.storage, options).unwrap(), all, "after {after_seq} up to {max_seq}");
    }
}

fn append(journal: &RunJournal, text: &str) {
    journal.append(&[Event::token(text)], Durability::Buffered).unwrap();
}

proptest! {
    #![proptest_config(crate::seeds::config("marks"))]

    #[test]
    fn what_is_found_through_marks_is_what_a_read_of_the_whole_journal_finds(
        pieces in prop::collection::vec(piece(), 0..40),
        wanted in prop::collection::vec((0_u64..45, 0_u64..45, any::<bool>()), 1..12),
    ) {
        let scenario = Scenario::new(&bytes_of(&pieces));
        let mut journal = scenario.open();
        for (after_seq, count, is_reopened) in wanted {
            scenario.expect_same(&journal, after_seq, after_seq + count);
            append(&journal, &format!("{after_seq}"));
            scenario.expect_same(&journal, after_seq, after_seq + count);
            if is_reopened {
                drop(journal);
                journal = scenario.open();
            }
        }
    }
}

/// A journal of ours of this many events, appended one by one, and the scenario that it is in.
fn long_journal(events: usize) -> (Scenario, Arc<RunJournal>) {
    let scenario = Scenario::new(b"");
    let journal = scenario.open();
    (0..events).for_each(|nth| append(&journal, &format!("{nth} {}", "x".repeat(900))));
    (scenario, journal)
}

/// Bytes that the disk reads for something.
fn bytes_read(scenario: &Scenario, action: impl FnOnce()) -> u64 {
    let before = scenario.disk.bytes_read();
    action();
    scenario.disk.bytes_read() - before
}

#[test]
fn a_repeat_reads_a_bounded_part_of_a_journal_that_was_written_here_and_after_it_was_closed() {
    let (scenario, journal) = long_journal(8_000);
    let len = scenario.storage.journal_len(&sid(), &rid()).unwrap().unwrap();
    let bound = 4 * JOURNAL_MARK_STRIDE_BYTES;
    assert!(len > 10 * bound, "{len}");
    let find = |journal: &RunJournal, after_seq| {
        let options = ReadOptions { after_seq, max_seq: after_seq + 1 };
        let found = journal.own_events(&scenario.storage, options).unwrap();
        assert_eq!(found.iter().map(|event| event.seq.unwrap()).collect::<Vec<_>>(), [after_seq + 1]);
    };
    for after_seq in [0, 1, 100, 4_000, 7_998, 7_999] {
        let read = bytes_read(&scenario, || find(&journal, after_seq));
        assert!(0 < read && read <= bound, "event {}: {read} bytes of {len}", after_seq + 1);
    }
    let last = bytes_read(&scenario, || find(&journal, 7_999));
    assert!(last < 2_000, "the last event: {last} bytes");
    drop(journal);
    let journal = scenario.open();
    let read = bytes_read(&scenario, || find(&journal, 4_000));
    assert!(0 < read && read <= bound, "closed and opened: {read} bytes of {len}");
}

#[test]
fn after_a_restart_the_first_repeat_reads_the_journal_once() {
    let (mut scenario, journal) = long_journal(2_000);
    drop(journal);
    scenario.kept = Arc::default();
    let journal = scenario.open();
    let options = ReadOptions { after_seq: 1_500, max_seq: 1_501 };
    let read = || bytes_read(&scenario, || drop(journal.own_events(&scenario.storage, options).unwrap()));
    let len = scenario.storage.journal_len(&sid(), &rid()).unwrap().unwrap();
    assert!(read() >= len);
    assert!(read() <= 4 * JOURNAL_MARK_STRIDE_BYTES);
}

#[test]
fn marks_are_bounded_and_cover_the_journal_evenly() {
    let mut marks = Marks::of(&Tail::default());
    for seq in 1..200_000_u64 {
        marks.note_write(seq, seq * 10_000);
    }
    assert!(marks.marks.len() <= JOURNAL_MARKS_MAX);
    for after_seq in [1, 70_000, 199_990] {
        let place = marks.place_before(after_seq).unwrap();
        let wanted = (after_seq + 1) * 10_000;
        assert!(place <= wanted && wanted - place <= 2 * marks.stride_bytes, "{after_seq}: {place}");
    }
}

#[test]
fn marks_of_a_closed_journal_are_forgotten_when_it_has_changed_since() {
    let kept = KeptMarks::default();
    let tail = Tail { last_seq: 3, extent: 300, ..Tail::default() };
    for (found, expected) in
        [(tail, true), (Tail { last_seq: 4, ..tail }, false), (Tail { extent: 200, ..tail }, false)]
    {
        kept.keep(&sid(), &rid(), 300, 3, Marks::of(&Tail::default()));
        assert_eq!(kept.take(&sid(), &rid(), &found).is_some(), expected, "{found:?}");
        assert!(kept.take(&sid(), &rid(), &found).is_none(), "they are taken once");
    }
}
