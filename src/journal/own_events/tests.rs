//! Events that are found by bisection are those that a read of the whole journal finds.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::clock::{ManualClock, Timestamp};
use crate::format::LineEncoder;
use crate::journal::{OpenFileBudget, RunJournal};
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

/// Pieces with numbers in any order: what a program writes that knows nothing of this store.
fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        16 => ordered_piece(),
        1 => (1_u64..20).prop_map(Piece::Numbered),
        1 => (1_u64..20).prop_map(Piece::Unchecked),
        1 => (1_u64..20).prop_map(Piece::Foreign),
        1 => (1_u64..20).prop_map(Piece::Bare),
    ]
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

/// Pieces that leave the numbers of a journal in order: what this store, a crash or a bad disk writes.
fn ordered_piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        12 => (0_usize..400).prop_map(Piece::Next),
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
        Scenario { disk, storage: Arc::new(storage) }
    }

    fn open(&self) -> Arc<RunJournal> {
        let opened = self.storage.open_journal(&sid(), &rid()).unwrap();
        let (files, meter) = (Arc::new(OpenFileBudget::new(4)), Arc::new(Meter::default()));
        RunJournal::new(&sid(), &rid(), opened, Arc::new(ManualClock::at(now())), files, &meter)
    }

    fn found(&self, seqs: RangeInclusive<u64>) -> Vec<JournalEvent> {
        own_events(&self.storage, &sid(), &rid(), seqs).unwrap()
    }

    fn found_by_reading_all(&self, seqs: RangeInclusive<u64>) -> Vec<JournalEvent> {
        read_all(JournalReader::open(&self.storage, &sid(), &rid()).unwrap(), &seqs).unwrap()
    }

    /// Bytes that the disk reads to find events.
    fn bytes_read_for(&self, seqs: RangeInclusive<u64>) -> u64 {
        let before = self.disk.bytes_read();
        let numbers: Vec<_> = self.found(seqs.clone()).iter().filter_map(|event| event.seq).collect();
        assert_eq!(numbers, seqs.collect::<Vec<_>>());
        self.disk.bytes_read() - before
    }
}

fn append(journal: &RunJournal, text: &str) {
    journal.append(&[Event::token(text)], Durability::Buffered).unwrap();
}

proptest! {
    #![proptest_config(crate::seeds::config("own_events"))]

    #[test]
    fn what_is_found_by_bisection_is_what_a_read_of_the_whole_journal_finds(
        pieces in prop::collection::vec(ordered_piece(), 0..40),
        wanted in prop::collection::vec((1_u64..45, 0_u64..45), 1..12),
    ) {
        let scenario = Scenario::new(&bytes_of(&pieces));
        let journal = scenario.open();
        for (first, more) in wanted {
            append(&journal, &format!("{first}"));
            let seqs = first..=first + more;
            prop_assert_eq!(scenario.found(seqs.clone()), scenario.found_by_reading_all(seqs));
        }
    }

    #[test]
    fn what_is_found_in_a_journal_out_of_order_is_each_number_once_or_what_a_read_of_all_finds(
        pieces in prop::collection::vec(piece(), 0..40),
        wanted in prop::collection::vec((1_u64..45, 0_u64..45), 1..12),
    ) {
        let scenario = Scenario::new(&bytes_of(&pieces));
        for (first, more) in wanted {
            let seqs = first..=first + more;
            let found = scenario.found(seqs.clone());
            let is_each_once = found.iter().map(|event| event.seq).eq(seqs.clone().map(Some));
            prop_assert!(is_each_once || found == scenario.found_by_reading_all(seqs));
        }
    }
}

#[test]
fn a_repeat_reads_a_bounded_part_of_a_journal_also_after_a_restart_and_beside_lines_without_a_number() {
    for line in ["", "{\"event\":\"note\",\"payload\":{}}\n"] {
        let scenario = Scenario::new(line.as_bytes());
        let journal = scenario.open();
        (0..8_000).for_each(|nth| append(&journal, &format!("{nth} {}", "x".repeat(900))));
        drop(journal);
        let len = scenario.storage.journal_len(&sid(), &rid()).unwrap().unwrap();
        assert!(len > 8_000 * 900);
        for seq in [1, 2, 100, 4_000, 7_999, 8_000] {
            let read = scenario.bytes_read_for(seq..=seq);
            assert!(0 < read && read <= 128 * 1024, "event {seq}: {read} bytes of {len}");
        }
    }
}

#[test]
fn an_event_without_a_number_is_not_among_those_with_one() {
    let pieces = [Piece::Next(1), Piece::Unnumbered, Piece::Next(1)];
    let scenario = Scenario::new(&bytes_of(&pieces));
    let numbers: Vec<_> = scenario.found(1..=2).iter().map(|event| event.seq).collect();
    assert_eq!(numbers, [Some(1), Some(2)]);
    assert_eq!(scenario.found_by_reading_all(1..=2).len(), 2);
}
