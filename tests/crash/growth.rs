//! What grows: documents up to a bound, journals behind markers, and reads that do not grow with the history.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::doctor::{self, DoctorOptions};
use lastword::storage::Access;
use lastword::storage::Disk;
use lastword::storage::sim::SimDisk;
use lastword::{Event, List, NewSession, Options, Outcome, ReadOptions, RunId, Store, UserTurn};

use crate::ledger::run_id;
use crate::logged::{layout, options_of};
use crate::machine::{DATA, NOW, id, open, open_at};

/// Of an answer that does not fit into its session the beginning is kept, once and for all.
#[test]
fn a_document_never_grows_beyond_what_can_be_loaded() {
    const MAX: u64 = 64 * 1024;
    let options = |disk: &SimDisk| Options { document_bytes_max: MAX, ..options_of(disk) };
    let sidecar = |disk: &SimDisk| disk.files()[&layout().sidecar(&id())].clone();
    for ends in [true, false] {
        let disk = SimDisk::new();
        let store = Store::open_on(Arc::new(disk.clone()), DATA, options(&disk)).unwrap();
        store.create(NewSession::titled("x").with_id(id())).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
        for number in 0..500 {
            run.append(Event::token(&format!("{number:0>400} "))).unwrap();
        }
        if ends {
            run.finish(Outcome::Completed).unwrap();
        }
        drop((run, store));
        disk.reboot();
        let clock = ManualClock::at(Timestamp::from_seconds(1_800_009_000.0));
        let later = Options { clock: Arc::new(clock), ..options(&disk) };
        let open = || Store::open_on(Arc::new(disk.clone()), DATA, later.clone()).unwrap();
        let session = open().get_session(&id()).unwrap();
        let saved = sidecar(&disk);
        assert!(saved.len() as u64 <= MAX, "{} bytes", saved.len());
        assert!(saved.len() as u64 > MAX / 2, "the beginning that fits is kept: {} bytes", saved.len());
        let row = session.message(1).unwrap();
        let cut: serde_json::Value = serde_json::from_str(row.fields().get("_truncated").unwrap()).unwrap();
        assert_eq!(cut["run_id"], "r");
        let from = cut["from_seq"].as_u64().unwrap();
        let last = format!("{:0>400}", from - 2);
        assert!(row.content().trim_end().ends_with(&last), "everything before event {from} is there");
        drop(open().get_session(&id()).unwrap());
        assert_eq!(sidecar(&disk), saved, "reading again changes nothing");
        let events = open().read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap().events.len();
        assert!(events >= 500, "the journal has the rest");
        let refused = open().begin_run(&id(), UserTurn::text("y")).unwrap_err();
        assert_eq!(refused.code(), "too_large", "{refused:?}");
    }
}

#[test]
fn a_turn_is_refused_when_document_and_prompt_leave_too_little_room() {
    let disk = SimDisk::new();
    let options = Options { document_bytes_max: 16 * 1024, ..options_of(&disk) };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap();
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    let before = disk.files();
    let refused = store.begin_run(&id(), UserTurn::text(&"x".repeat(15 * 1024))).unwrap_err();
    assert_eq!(refused.code(), "too_large", "{refused:?}");
    let is_journal = |path: &PathBuf| path.starts_with("/data/_run_journal");
    assert!(!disk.files().keys().any(is_journal), "nothing is left");
    assert_eq!(disk.files()[&layout().sidecar(&id())], before[&layout().sidecar(&id())]);
    store.begin_run(&id(), UserTurn::text(&"x".repeat(12 * 1024))).unwrap();
}

/// A torn end that was counted, cut off, and replaced by an event of the same length hides nothing.
#[test]
fn an_event_in_the_place_of_a_torn_end_of_the_same_length_is_folded() {
    let disk = SimDisk::new();
    let store = open(&disk).unwrap();
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
    run.append(Event::token("one ")).unwrap();
    run.append(Event::token("two ")).unwrap();
    drop((run, store));
    disk.kill();
    // Of the second line, all but the last byte of its object and the line feed, and as much as another line has.
    let journal = layout().journal(&id(), &run_id("r"));
    let whole = disk.files()[&journal].clone();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let file = disk.open(&journal, Access::Write).unwrap();
    file.write_at(&vec![b'x'; whole.len() - first], first as u64).unwrap();
    drop(file);
    disk.kill();
    let contents = |store: &Store| -> Vec<String> {
        store.get_session(&id()).unwrap().messages().map(|row| row.content().into_owned()).collect()
    };
    let later = |disk: &SimDisk| open_at(disk, NOW + 3_600).unwrap();
    assert_eq!(contents(&later(&disk))[1], "one");
    let store = later(&disk);
    let run = store.resume_run(&id(), &run_id("r")).unwrap();
    assert_eq!(run.append(Event::token("two ")).unwrap().last_seq, 2);
    assert_eq!(disk.files()[&journal].len(), whole.len(), "as long as before");
    assert_eq!(contents(&store)[1], "one two", "by a warm read");
    drop((run, store));
    assert_eq!(contents(&later(&disk))[1], "one two", "and by a cold one");
}

/// A journal that could not be looked at once is looked at again.
#[test]
fn growth_that_could_not_be_read_at_first_is_seen_later() {
    let disk = SimDisk::new();
    let interrupted = |number: i64| {
        let store = open_at(&disk, NOW + number * 100).unwrap();
        if number == 0 {
            store.create(NewSession::titled("x").with_id(id())).unwrap();
        }
        store.get_session(&id()).unwrap();
        let run = run_id(&format!("r{number}"));
        let run = store.begin_run(&id(), UserTurn::text(&format!("question {number}")).with_run(run)).unwrap();
        run.append(Event::token("half")).unwrap();
        drop((run, store));
        disk.kill();
    };
    (0..3).for_each(interrupted);
    open_at(&disk, NOW + 1_000).unwrap().get_session(&id()).unwrap();
    // The first run grows while no store has the session in memory.
    let journal = layout().journal(&id(), &run_id("r0"));
    let later = open_at(&disk, NOW + 1_000).unwrap();
    later.resume_run(&id(), &run_id("r0")).unwrap().append(Event::token(" and more")).unwrap();
    drop(later);
    disk.kill();
    disk.break_reads(&journal).unwrap();
    let store = open_at(&disk, NOW + 2_000).unwrap();
    let answer = || store.get_session(&id()).unwrap().message(1).unwrap().content().into_owned();
    assert_eq!((answer(), answer()), ("half".to_owned(), "half".to_owned()));
    disk.mend_reads(&journal).unwrap();
    assert_eq!(answer(), "half and more");
}

/// An answer that was cut where the document was full does not grow when its journal does, nor by a repair.
#[test]
fn a_truncated_answer_stays_as_it_is_for_reads_and_repairs() {
    const MAX: u64 = 64 * 1024;
    let disk = SimDisk::new();
    let open = |seconds: i64, max: u64| {
        let clock = ManualClock::at(Timestamp::from_seconds((NOW + seconds) as f64));
        let options = Options { document_bytes_max: max, clock: Arc::new(clock), ..options_of(&disk) };
        Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap()
    };
    let append = |run: &lastword::Run, count: usize| {
        (0..count).for_each(|number| drop(run.append(Event::token(&format!("{number:0>400} "))).unwrap()));
    };
    let store = open(0, MAX);
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
    append(&run, 300);
    drop((run, store));
    disk.kill();
    let answer = |store: &Store| {
        let row = store.get_session(&id()).unwrap().message(1).unwrap();
        (row.content().into_owned(), row.fields().get("_truncated").unwrap().to_owned())
    };
    let first = answer(&open(3_600, MAX));
    let store = open(3_600, MAX);
    append(&store.resume_run(&id(), &run_id("r")).unwrap(), 100);
    assert_eq!(answer(&store), first, "its journal grew");
    drop(store);
    // With more room, what was left out is still left out: it would stand in the wrong place.
    assert_eq!(answer(&open(3_600, 16 * MAX)), first, "the document may be larger");
    let repaired = doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).unwrap();
    assert_eq!(answer(&open(3_600, MAX)), first, "after a repair: {:#?}", repaired.actions);
    let again = doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).unwrap();
    assert!(again.actions.is_empty(), "{:#?}", again.actions);
}

/// A warm read costs the same however many interruptions a session has behind it.
#[test]
fn settled_interruptions_cost_a_warm_read_nothing() {
    let looks_of = |interruptions: usize| {
        let disk = SimDisk::new();
        for number in 0..interruptions {
            let store = open_at(&disk, NOW + number as i64 * 100).unwrap();
            if number == 0 {
                store.create(NewSession::titled("x").with_id(id())).unwrap();
            }
            store.get_session(&id()).unwrap();
            let run = RunId::parse(&format!("r{number}")).unwrap();
            let run = store.begin_run(&id(), UserTurn::text(&format!("question {number}")).with_run(run)).unwrap();
            run.append(Event::token("half")).unwrap();
            drop((run, store));
            disk.kill();
        }
        let store = open_at(&disk, NOW + 1_000_000).unwrap();
        let session = store.get_session(&id()).unwrap();
        assert_eq!(session.len(List::Messages), interruptions * 3);
        store.get_session(&id()).unwrap();
        let before = disk.looks();
        store.get_session(&id()).unwrap();
        (disk.looks() - before, store, disk)
    };
    let (few, ..) = looks_of(3);
    let (many, store, _) = looks_of(60);
    assert_eq!(few, many);
    assert!(many <= 3, "{many} looks");
    // What this process appends to an old run is seen all the same.
    let old = store.resume_run(&id(), &RunId::parse("r5").unwrap()).unwrap();
    old.append(Event::token(" and more")).unwrap();
    let contents = || -> Vec<String> {
        store.get_session(&id()).unwrap().messages().map(|row| row.content().into_owned()).collect()
    };
    assert!(contents().contains(&"half and more".to_owned()));
    old.append(Event::token(", and yet more")).unwrap();
    drop(old);
    assert!(contents().contains(&"half and more, and yet more".to_owned()));
}
