//! A reader at the end of a journal that is being written, and lines that have lost their checksum.

use std::path::Path;

use super::*;
use crate::clock::{ManualClock, Timestamp};
use crate::format::{DamageKind, LineEncoder};
use crate::model::Event;
use crate::storage::sim::SimDisk;
use crate::storage::{Access, Birth, Disk, Durability, FileStorage, FilesOptions, Mode};

const JOURNAL: &str = "/data/_run_journal/s/r.jsonl";

fn sid() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn rid() -> RunId {
    RunId::parse("r").unwrap()
}

/// A data directory with a journal of ours that holds one event.
fn journal() -> (SimDisk, Arc<dyn Storage>) {
    let disk = SimDisk::new();
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(100.0)));
    let options = FilesOptions { clock, ..FilesOptions::in_mode(Mode::Write) };
    let storage: Arc<dyn Storage> =
        Arc::new(FileStorage::open(Arc::new(disk.clone()), Path::new("/data"), options).unwrap());
    storage.create_journal(&sid(), &rid(), &Birth::default()).unwrap();
    let mut opened = storage.open_journal(&sid(), &rid()).unwrap();
    opened.writer.append(line(1).as_bytes(), Durability::Buffered).unwrap().wait().unwrap();
    (disk, storage)
}

fn line(seq: u64) -> String {
    let mut lines = Vec::new();
    LineEncoder::new(&sid(), &rid()).encode(seq, Timestamp::from_seconds(100.0), &Event::token("x"), &mut lines);
    String::from_utf8(lines).unwrap()
}

/// The same without its checksum, as other programs write it.
fn unchecked_line(seq: u64) -> String {
    let line = line(seq);
    let (before, _) = line.rsplit_once(",\"crc\":").unwrap();
    format!("{before}}}\n")
}

/// Adds bytes to the journal's file.
fn add(disk: &SimDisk, text: &str) {
    let file = disk.open(Path::new(JOURNAL), Access::Write).unwrap();
    file.write_at(text.as_bytes(), disk.files()[Path::new(JOURNAL)].len() as u64).unwrap();
}

/// The number of an event, or what is wrong with a line.
type Read = Result<u64, DamageKind>;

fn read_of(record: &Record<'_>) -> Read {
    match record {
        Record::Event(event) => Ok(event.seq.unwrap()),
        Record::Damage(damage) => Err(damage.kind),
    }
}

/// All that a reader gives one by one.
fn rest_of(reader: &mut JournalReader) -> Vec<Read> {
    let mut all = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        all.push(read_of(&record));
    }
    all
}

fn open(storage: &Arc<dyn Storage>) -> JournalReader {
    JournalReader::open(storage, &sid(), &rid()).unwrap().unwrap()
}

#[test]
fn a_reader_that_has_judged_an_unfinished_line_does_not_read_its_second_half() {
    let (disk, storage) = journal();
    let second = line(2);
    let (begun, rest) = second.split_at(second.len() / 2);
    add(&disk, begun);
    let mut reader = open(&storage);
    assert_eq!(rest_of(&mut reader), [Ok(1), Err(DamageKind::TornTail)]);
    add(&disk, &(rest.to_owned() + &line(3)));
    assert_eq!(rest_of(&mut reader), [], "the second half of a line is not a line");
    assert_eq!(rest_of(&mut open(&storage)), [Ok(1), Ok(2), Ok(3)], "the next reader finds it whole");
}

#[test]
fn a_line_of_ours_that_lost_its_checksum_is_damage_for_every_way_to_read() {
    let (disk, storage) = journal();
    add(&disk, &(unchecked_line(2) + &line(3)));
    let expected = [Ok(1), Err(DamageKind::ChecksumMismatch), Ok(3)];
    assert_eq!(rest_of(&mut open(&storage)), expected);
    let mut shown = Vec::new();
    open(&storage).show_all(|record| shown.push(read_of(&record))).unwrap();
    assert_eq!(shown, expected, "recovery");
    let (mut reader, mut followed) = (open(&storage), Vec::new());
    while let Some(record) = reader.next_whole(u64::MAX).unwrap() {
        followed.push(read_of(&record));
    }
    assert_eq!(followed, expected, "a follower");
    let mut reader = open(&storage);
    assert!(reader.read_on(u64::MAX).unwrap());
    let mut read = Vec::new();
    while let Some(record) = reader.next_read() {
        read.push(read_of(&record));
    }
    assert_eq!(read, expected);
}
