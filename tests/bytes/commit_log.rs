//! The commit log: by its reader alone, and through a store whose journals lost what only the log still has.

use std::path::Path;
use std::sync::Arc;

use lastword::format::commit::{FoundInLog, LogRecord, SegmentHeader, read_segment};
use lastword::storage::sim::{Crash, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{CommitOptions, Event, JournalEvent, NewSession, Options, ReadOptions, Store, UserTurn};

use crate::commit_rules;
use crate::data::{ROOT, rid, sid};
use crate::mutations::{Mutation, all, sample};

const SEGMENT: &str = "/data/_commit_log/segment-0000";
const EVENTS: usize = 8;

fn open(disk: &SimDisk) -> Store {
    let commit = CommitOptions { segment_bytes: 4096, log_bytes: 16_384, ..CommitOptions::default() };
    Store::open_on(Arc::new(disk.clone()), ROOT, Options { commit, ..Options::default() }).unwrap()
}

/// Two runs whose events only the log has: the power was cut before their own files were synced.
fn only_in_the_log() -> SimDisk {
    let disk = SimDisk::new();
    let store = open(&disk);
    for id in ["a", "b"] {
        store.create(NewSession::titled(id).with_id(sid(id))).unwrap();
    }
    let runs = ["a", "b"].map(|id| store.begin_run(&sid(id), UserTurn::text("x").with_run(rid("r"))).unwrap());
    for number in 0..EVENTS {
        let run = &runs[number % 2];
        run.append_durable(Event::token(&format!("w\u{f6}rd {number}"))).unwrap().wait().unwrap();
    }
    disk.power_cut(Crash::LoseAll);
    disk
}

fn segment(disk: &SimDisk) -> Vec<u8> {
    disk.files()[Path::new(SEGMENT)].clone()
}

/// The used part of a segment, and a little of what is behind it.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 64
}

fn records<'a>(header: &SegmentHeader, bytes: &'a [u8]) -> Vec<LogRecord<'a>> {
    let found = read_segment(header, bytes).into_iter();
    found.filter_map(|found| if let FoundInLog::Record(record) = found { Some(record) } else { None }).collect()
}

#[test]
fn a_segment_cut_or_changed_anywhere_loses_the_record_that_was_hit_and_no_other() {
    let bytes = segment(&only_in_the_log());
    let bytes = &bytes[..used(&bytes)];
    let header = SegmentHeader::decode(bytes).unwrap();
    let whole = records(&header, bytes);
    assert_eq!(whole.len(), EVENTS);
    for mutation in all(bytes.len()) {
        let damaged = mutation.of(bytes);
        let Ok(header) = SegmentHeader::decode(&damaged) else { continue };
        let found = records(&header, &damaged);
        assert!(found.iter().all(|record| whole.contains(record)), "{mutation:?}: {found:?}");
        let lost = whole.len() - found.len();
        let is_fine = if matches!(mutation, Mutation::Cut(_)) { whole.starts_with(&found) } else { lost <= 1 };
        assert!(is_fine, "{mutation:?}: {lost} records are gone");
    }
}

#[test]
fn the_rules_for_any_bytes_hold_after_any_accident() {
    let bytes = segment(&only_in_the_log());
    let bytes = &bytes[..used(&bytes)];
    sample(bytes.len(), 300).for_each(|mutation| commit_rules::check(&mutation.of(bytes)));
}

fn payloads(store: &Store) -> Vec<Vec<String>> {
    let read = |id| store.read_events(&sid(id), &rid("r"), ReadOptions::default()).unwrap().events;
    let text = |event: &JournalEvent| event.payload().to_owned();
    ["a", "b"].map(|id| read(id).iter().map(text).collect()).to_vec()
}

/// What is brought back was written so, and a reader sees what a writer brings back.
#[test]
fn a_damaged_log_brings_back_nothing_wrong_and_tells_what_it_lost() {
    let intact = only_in_the_log();
    let bytes = segment(&intact);
    let whole = payloads(&open(&intact.copy()));
    assert_eq!(whole.iter().map(Vec::len).sum::<usize>(), EVENTS);
    for mutation in sample(used(&bytes), 400) {
        let disk = intact.copy();
        let Mutation::Flip(at, bit) = mutation else { continue };
        disk.rot(SEGMENT, at as u64, bit).unwrap();
        let store = open(&disk);
        let found = payloads(&store);
        for (found, whole) in found.iter().zip(&whole) {
            assert!(found.iter().all(|payload| whole.contains(payload)), "{mutation:?}: {found:?}");
        }
        let lost = EVENTS - found.iter().map(Vec::len).sum::<usize>();
        let (is_header, is_at_the_end) = (at < 128, at + 700 > used(&bytes));
        assert!(is_header || lost <= 1, "{mutation:?}: {lost} events are gone");
        let is_told = store.findings().iter().any(|finding| finding.code == "checksum_mismatch");
        assert!(lost == 0 || is_header || is_at_the_end || is_told, "{mutation:?}: nobody was told");
    }
}

#[test]
fn what_is_no_log_at_all_stops_nobody() {
    for bytes in [&b""[..], b"x", &[0; 5000], &[0xff; 5000], b"LWCOMMIT"] {
        let disk = only_in_the_log();
        let file = disk.open(Path::new(SEGMENT), Access::Write).unwrap();
        file.set_len(0).unwrap();
        file.write_at(bytes, 0).unwrap();
        drop(file);
        let store = open(&disk);
        let run = store.adopt_run(&sid("a"), &rid("new")).unwrap();
        run.append_durable(Event::token("goes on")).unwrap().wait().unwrap();
        disk.power_cut(Crash::LoseAll);
        let found = open(&disk).read_events(&sid("a"), &rid("new"), ReadOptions::default()).unwrap();
        assert_eq!(found.events.len(), 1);
    }
}
