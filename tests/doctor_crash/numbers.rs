//! After a repair no event gets a number that another one may have had.

use std::path::Path;

use lastword::storage::Disk;
use lastword::storage::sim::SimDisk;
use lastword::{Event, StoreError, UserTurn};

use crate::damage::{begin, populate, run, session};
use crate::scene::{DATA, EVERYTHING, files_of, open, put, repair};

/// The torn line of another program's run may have been shown with the next number.
#[test]
fn the_number_of_a_torn_line_that_was_cut_off_is_left_out() {
    let disk = EVERYTHING.start.copy();
    assert!(!repair(&disk).unwrap().has_failed());
    let taken_over = open(&disk).resume_run(&session("foreign"), &run("f1")).unwrap();
    assert_eq!(taken_over.append(Event::token("three")).unwrap().last_seq, 3);
}

const FOREIGN: &str = "_run_journal/foreign/f1.jsonl";

/// The other program goes on after the repair, and is cut off in the middle of a line once more.
#[test]
fn the_number_of_a_line_that_is_torn_after_a_repair_is_left_out_too() {
    let disk = EVERYTHING.start.copy();
    assert!(!repair(&disk).unwrap().has_failed());
    let mut journal = files_of(&disk).remove(FOREIGN).unwrap();
    journal.extend(b"{\"seq\":3,\"event\":\"token\",\"payload\":{\"text\":\"three\"}}\n{\"seq\":4,\"event\":\"tok");
    put(&disk, FOREIGN, &journal);
    let taken_over = open(&disk).resume_run(&session("foreign"), &run("f1")).unwrap();
    assert_eq!(taken_over.append(Event::token("five")).unwrap().last_seq, 5);
}

/// Readers have seen numbers of it, although no line is left.
#[test]
fn the_id_of_another_programs_run_whose_lines_were_all_cut_out_is_not_begun_again() {
    let disk = SimDisk::new();
    populate(&open(&disk));
    put(&disk, FOREIGN, b"{\"seq\":1,\"event\":\"tok");
    assert!(!repair(&disk).unwrap().has_failed());
    assert_eq!(files_of(&disk)[FOREIGN], b"", "the torn line was cut off");
    let store = open(&disk);
    let turn = UserTurn::text("again").with_run(run("f1"));
    let refused = store.begin_run(&session("foreign"), turn).map(drop).unwrap_err();
    assert_eq!(refused.code(), "exists", "{refused:?}");
    let taken_over = store.resume_run(&session("foreign"), &run("f1")).unwrap();
    assert_eq!(taken_over.append(Event::token("two")).unwrap().last_seq, 2);
}

/// A run of ours in a journal that is damaged at its end.
fn damaged_run() -> SimDisk {
    let disk = SimDisk::new();
    let store = open(&disk);
    populate(&store);
    drop(begin(&store, "healthy", "r9", 5));
    drop(store);
    let mut journal = files_of(&disk).remove(JOURNAL).unwrap();
    let end = journal.len();
    journal[end - 30..end - 20].fill(b'#');
    put(&disk, JOURNAL, &journal);
    disk
}

const JOURNAL: &str = "_run_journal/healthy/r9.jsonl";
const RECORD: &str = "_run_journal/healthy/_r9.run";

fn append_after_repair(disk: &SimDisk) -> Result<u64, StoreError> {
    assert!(!repair(disk).unwrap().has_failed());
    let resumed = open(disk).resume_run(&session("healthy"), &run("r9"))?;
    resumed.append(Event::token("next")).map(|appended| appended.last_seq)
}

#[test]
fn the_number_of_a_damaged_last_line_is_left_out() {
    assert_eq!(append_after_repair(&damaged_run()).unwrap(), 6);
}

/// Without that note nobody knows whether the machine was restarted since, and which numbers readers had seen.
#[test]
fn a_run_of_ours_whose_note_is_lost_takes_no_more_events_after_a_repair_either() {
    let (missing, torn) = (damaged_run(), damaged_run());
    missing.remove_file(&Path::new(DATA).join(RECORD)).unwrap();
    put(&torn, RECORD, b"{\"version\":1,\"boot");
    for disk in [missing, torn] {
        assert!(open(&disk).resume_run(&session("healthy"), &run("r9")).is_err(), "not before the repair");
        let appended = append_after_repair(&disk);
        assert!(appended.is_err(), "event {appended:?} was taken");
    }
}
