//! Two processes on one directory: a lock file that is gone, readers beside a durable writer, readers across a repair.

use std::path::Path;
use std::sync::Arc;

use lastword::doctor::{self, DoctorOptions};
use lastword::storage::sim::{Crash, Fault, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{
    After, CommitOptions, Durability, Event, NewSession, Options, ReadOptions, SaveOptions, StorageError, Store,
    StoreError, UserTurn,
};

use crate::ledger::{run_id, session_id};
use crate::logged::{ALL, layout, logged, options_of, texts};
use crate::machine::{DATA, USUAL, created, id, open, prepared};

#[test]
fn a_writer_whose_lock_file_was_removed_stops_before_it_writes_beside_another() {
    for removes in [true, false] {
        let (disk, _) = prepared(created);
        let first = open(&disk).unwrap();
        let run = first.begin_run(&id(), UserTurn::text("x").with_run(run_id("r1"))).unwrap();
        run.append_durable(Event::token("one")).unwrap().wait().unwrap();
        match removes {
            true => disk.remove_file(Path::new("/data/_lock")).unwrap(),
            false => disk.rename(Path::new("/data/_lock"), Path::new("/data/moved")).unwrap(),
        }
        let second = open(&disk).unwrap();
        second.update(&id(), SaveOptions::default(), |session| session.set_text("title", "second")).unwrap();
        let refused = run.append_durable(Event::token("two")).map(|appended| appended.wait());
        assert!(!matches!(refused, Ok(Ok(_))), "it was acknowledged beside another writer");
        let why = first.stopped_reason().expect("it stopped");
        assert!(why.to_string().contains("lock"), "{why}");
        let before = disk.operations();
        for refused in [
            first.update(&id(), SaveOptions::default(), |session| session.set_text("title", "first")).map(drop),
            first.create(NewSession::titled("x")).map(drop),
            first.delete(&id()),
            first.commit(),
        ] {
            assert_eq!(refused.unwrap_err().code(), "stopped");
        }
        drop((run, first));
        assert_eq!(disk.operations(), before, "it wrote, or retired the log of the other:\n{}", disk.log().join("\n"));
        assert_eq!(second.get_session(&id()).unwrap().title(), "second");
        second.resume_run(&id(), &run_id("r1")).unwrap().append(Event::token("three")).unwrap();
    }
}

/// The first change that a store makes since its lock file went is refused, whichever it is, and changes no file.
#[test]
fn every_change_looks_at_the_lock_file_itself() {
    type Change = fn(&Store) -> Result<(), StoreError>;
    let changes: [(&str, Change); 7] = [
        ("save", |store| {
            store.update(&id(), SaveOptions::default(), |session| session.set_text("title", "x")).map(drop)
        }),
        ("create", |store| store.create(NewSession::titled("x")).map(drop)),
        ("delete", |store| store.delete(&id())),
        ("begin", |store| store.begin_run(&id(), UserTurn::text("y")).map(drop)),
        ("adopt", |store| store.adopt_run(&id(), &run_id("r2")).map(drop)),
        ("remove", |store| store.remove_run(&id(), &run_id("r1")).map(drop)),
        ("commit", |store| store.commit()),
    ];
    for (name, change) in changes {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        store.adopt_run(&id(), &run_id("r1")).unwrap().append(Event::token("x")).unwrap();
        disk.remove_file(Path::new("/data/_lock")).unwrap();
        let before = disk.files();
        let refused = change(&store).unwrap_err();
        assert_eq!(refused.code(), "stopped", "{name}: {refused:?}");
        assert!(disk.files() == before, "{name} changed files beside another writer:\n{}", disk.log().join("\n"));
    }
}

/// A reader in another process beside a durable writer shows only what a power cut cannot take back.
#[test]
fn a_reader_beside_a_durable_writer_makes_durable_what_it_shows() {
    let disk = SimDisk::new();
    let commit = CommitOptions { background: None, ..USUAL.log };
    let options = Options { durability: Durability::Durable, commit, ..options_of(&disk) };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap();
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
    // Written, and synced by no process.
    let _ticket = run.append_all(&[Event::token("one "), Event::token("two ")], Durability::Durable).unwrap();
    let lost = disk.copy();
    lost.power_cut(Crash::LoseAll);
    assert!(lost.files()[&layout().journal(&id(), &run_id("r"))].is_empty(), "a power cut could take it back");
    let read = |disk: &SimDisk| {
        let reader = USUAL.open_to_read(disk).unwrap();
        reader.read_events(&id(), &run_id("r"), ReadOptions::default()).map(|found| found.events.len())
    };
    assert_eq!(read(&disk).unwrap(), 2);
    let kept = disk.copy();
    kept.power_cut(Crash::LoseAll);
    assert_eq!(read(&kept).unwrap(), 2, "it was shown, so it is there");
    run.append_all(&[Event::token("three")], Durability::Durable).unwrap();
    disk.break_syncs(disk.operations() + 1);
    let refused = read(&disk).unwrap_err();
    assert!(matches!(refused.storage(), Some(StorageError::SyncFailed { .. })), "{refused:?}");
}

/// A note that is being written, or that this reader may not read, does not tell how durable its writer is.
#[test]
fn a_reader_that_cannot_tell_who_writes_makes_durable_what_it_shows() {
    type Hide = fn(&SimDisk, &Path);
    let ways: [(&str, Hide); 4] = [
        ("empty", |disk, note| disk.open(note, Access::Write).unwrap().set_len(0).unwrap()),
        ("half written", |disk, note| disk.open(note, Access::Write).unwrap().set_len(20).unwrap()),
        ("garbled", |disk, note| assert_eq!(disk.open(note, Access::Write).unwrap().write_at(b"#", 0).unwrap(), 1)),
        ("of another user", |disk, note| {
            disk.set_owner(note, 2000).unwrap();
            disk.set_mode(note, 0o600).unwrap();
        }),
    ];
    for (name, hide) in ways {
        let (disk, store) = durable_after_an_unsynced_line();
        hide(&disk, Path::new("/data/_lock"));
        let reader = USUAL.open_to_read(&disk).unwrap();
        let shown = reader.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap().events.len();
        assert_eq!(shown, 1, "{name}");
        let lost = disk.copy();
        lost.power_cut(Crash::LoseAll);
        let durable = &lost.files()[&layout().journal(&id(), &run_id("r"))];
        assert!(!durable.is_empty(), "{name}: it was shown, and a power cut takes it back");
        drop(store);
    }
}

/// The writer died after an acknowledged line, which the log lays over the journal, and another one that no fsync covers.
#[test]
fn a_reader_makes_durable_what_stands_after_lines_of_the_log() {
    let disk = SimDisk::new();
    let commit = CommitOptions { background: None, ..USUAL.log };
    let options = Options { durability: Durability::Durable, commit, ..options_of(&disk) };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap();
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
    run.append_durable(Event::token("one ")).unwrap().wait().unwrap();
    let _ticket = run.append_all(&[Event::token("two ")], Durability::Durable).unwrap();
    disk.kill();
    let shown = |disk: &SimDisk| {
        let reader = USUAL.open_to_read(disk).unwrap();
        reader.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap().events.len()
    };
    assert_eq!(shown(&disk), 2);
    disk.power_cut(Crash::LoseAll);
    assert_eq!(shown(&disk), 2, "it was shown, so it is there");
}

/// A later fsync says nothing of what an earlier one could not write: a durable writer that stopped leaves readers nothing
/// to show until a writer has recovered.
#[test]
fn a_reader_shows_nothing_of_a_durable_writer_that_stopped() {
    let disk = SimDisk::new();
    let options = Options { durability: Durability::Durable, ..options_of(&disk) };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options.clone()).unwrap();
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
    run.append(Event::token("one ")).unwrap();
    disk.break_syncs(disk.operations() + 1);
    run.append(Event::token("two ")).unwrap_err();
    disk.mend_syncs();
    let read = || {
        let reader = USUAL.open_to_read(&disk).unwrap();
        reader.read_events(&id(), &run_id("r"), ReadOptions::default()).map(|found| found.events.len())
    };
    let is_refused = || matches!(read().unwrap_err().storage(), Some(StorageError::WriterStopped { .. }));
    assert!(is_refused(), "while the writer is there");
    drop((run, store));
    disk.kill();
    assert!(is_refused(), "and when it is gone");
    let restarted = disk.copy();
    restarted.reboot();
    let before = restarted.operations();
    let reader = USUAL.open_to_read(&restarted).unwrap();
    let shown = reader.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap().events.len();
    assert!(shown >= 1, "after a restart pages are what the medium holds");
    assert_eq!(restarted.operations(), before, "no fsync is needed for them");
    drop(Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap());
    assert!(read().unwrap() >= 1, "until another writer has recovered");
}

/// A durable store whose earlier process died before an fsync of the line that it had written.
fn durable_after_an_unsynced_line() -> (SimDisk, Store) {
    let disk = SimDisk::new();
    let commit = CommitOptions { background: None, ..USUAL.log };
    let options = |disk: &SimDisk| Options { durability: Durability::Durable, commit, ..options_of(disk) };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options(&disk)).unwrap();
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
    let _ticket = run.append_all(&[Event::token("one ")], Durability::Durable).unwrap();
    disk.kill();
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options(&disk)).unwrap();
    (disk, store)
}

/// What an earlier process wrote and did not sync is made durable by a durable writer before it shows it.
#[test]
fn a_durable_writer_makes_durable_what_an_earlier_one_left() {
    let (disk, store) = durable_after_an_unsynced_line();
    let mut follow = store.follow(&id(), &run_id("r"), After::Start).unwrap();
    assert_eq!(follow.poll().unwrap().unwrap().name, "token");
    let kept = disk.copy();
    kept.power_cut(Crash::LoseAll);
    assert!(!kept.files()[&layout().journal(&id(), &run_id("r"))].is_empty(), "it was shown, and is gone");
    // A run that it has opened itself costs its followers no fsync.
    let run = store.resume_run(&id(), &run_id("r")).unwrap();
    run.append(Event::token("two ")).unwrap();
    let before = disk.operations();
    assert_eq!(follow.poll().unwrap().unwrap().name, "token");
    assert_eq!(disk.operations(), before);
}

/// An fsync that fails stops a writer, also if it was for a reader.
#[test]
fn a_durable_writer_that_cannot_make_durable_what_an_earlier_one_left_stops() {
    let (disk, store) = durable_after_an_unsynced_line();
    disk.fail(disk.operations() + 1, Fault::Eio);
    store.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap_err();
    assert!(store.stopped_reason().is_some(), "a later fsync would prove nothing");
}

/// An fsync for a reader finds no space: pages look clean and are not on the medium. The run goes on when there is room, and
/// what is acknowledged then stands after lines that are there.
#[test]
fn a_durable_writer_that_had_no_space_for_a_reader_writes_the_journal_again_before_it_goes_on() {
    let (disk, store) = durable_after_an_unsynced_line();
    disk.fill_at_sync(disk.operations() + 1);
    let refused = store.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap_err();
    assert!(refused.storage().is_some_and(StorageError::is_no_space), "{refused:?}");
    assert!(store.stopped_reason().is_none());
    disk.make_room();
    let run = store.resume_run(&id(), &run_id("r")).unwrap();
    run.append_durable(Event::token("two ")).unwrap().wait().unwrap();
    disk.power_cut(Crash::LoseAll);
    let found = open(&disk).unwrap().read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap();
    assert_eq!((found.events.len(), found.damage.len()), (2, 0));
}

/// The writer that saw the fsync fail is killed. The pages look clean to the next one.
#[test]
fn the_next_writer_writes_a_journal_again_whose_fsync_found_no_space() {
    for is_read in [true, false] {
        let (disk, store) = durable_after_an_unsynced_line();
        disk.fill_at_sync(disk.operations() + 1);
        let refused = match is_read {
            true => store.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap_err(),
            false => store.resume_run(&id(), &run_id("r")).unwrap_err(),
        };
        assert!(refused.storage().is_some_and(StorageError::is_no_space), "{refused:?}");
        disk.make_room();
        disk.kill();
        let store = open(&disk).unwrap();
        let run = store.resume_run(&id(), &run_id("r")).unwrap();
        run.append_durable(Event::token("two ")).unwrap().wait().unwrap();
        disk.power_cut(Crash::LoseAll);
        let found = open(&disk).unwrap().read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap();
        assert_eq!((found.events.len(), found.damage.len()), (2, 0), "read: {is_read}");
    }
}

#[test]
fn a_reader_beside_a_buffered_writer_syncs_nothing() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
    run.append(Event::token("one")).unwrap();
    let before = disk.operations();
    let reader = USUAL.open_to_read(&disk).unwrap();
    assert_eq!(reader.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap().events.len(), 1);
    assert_eq!(disk.operations(), before);
}

/// A reader that was opened before a repair sees what the repair made, not what the log held.
#[test]
fn a_reader_forgets_its_overlay_when_a_repair_was_made() {
    let disk = logged();
    disk.reboot();
    let reader = USUAL.open_to_read(&disk).unwrap();
    assert_eq!(texts(&reader, "a"), ALL, "laid over the journal");
    let journal = layout().journal(&session_id("a"), &run_id("r"));
    drop(open(&disk).unwrap());
    let second = disk.files()[&journal].iter().position(|byte| *byte == b'\n').unwrap() as u64 + 1;
    disk.rot(&journal, second + 30, 1).unwrap();
    doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).unwrap();
    assert_eq!(texts(&reader, "a"), [ALL[0], ALL[2]], "the damaged line was cut out");
}
