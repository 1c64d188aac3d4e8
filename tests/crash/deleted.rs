//! Deletions that fail or are cut in the middle, and journals whose creator died before their name was durable.

use std::path::Path;

use lastword::storage::Disk;
use lastword::storage::sim::{Crash, Fault, SimDisk};
use lastword::{Event, NewSession, ReadOptions, Run, RunId, Store, UserTurn};

use crate::machine::{created, id, open, prepared};

/// A session with a live run, whose deletion is about to begin.
fn with_live_run() -> (SimDisk, Store, Run) {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append_durable(Event::token("said")).unwrap().wait().unwrap();
    (disk, store, run)
}

fn has_tombstone(disk: &SimDisk) -> bool {
    disk.stat(Path::new("/data/_tombstones/s.json")).is_ok()
}

/// Neither the store nor a handle from before shows or takes anything of the session.
fn assert_gone(store: &Store, run: &Run, what: &str) {
    assert!(store.get_session(&id()).is_err(), "{what}: the session is readable");
    assert!(store.metadata(&id()).is_err(), "{what}: its metadata is readable");
    let events = store.read_events(&id(), run.id(), ReadOptions::default());
    assert!(events.is_err() || events.is_ok_and(|found| found.events.is_empty()), "{what}: its events are readable");
    assert!(store.list().unwrap().is_empty(), "{what}: it is listed");
    assert!(run.append(Event::token("late")).is_err(), "{what}: its run takes events");
    assert!(store.begin_run(&id(), UserTurn::text("late")).is_err(), "{what}: a turn begins");
    assert!(store.create(NewSession::titled("late").with_id(id())).is_err(), "{what}: its id is free");
}

/// From the moment the tombstone has its name, the session is deleted, whatever happens to its parts.
#[test]
fn a_deletion_that_fails_halfway_leaves_nothing_readable_or_writable() {
    let mut halfway = 0;
    for operation in 1.. {
        for fault in [Fault::Eio, Fault::Enospc] {
            let (disk, store, run) = with_live_run();
            let first = disk.operations();
            disk.fail(first + operation, fault);
            let deleted = store.delete(&id());
            if disk.operations() < first + operation {
                assert!(halfway > 5, "only {halfway} failures came after the tombstone");
                return;
            }
            let what = format!("operation {operation}, {fault:?}, {deleted:?}");
            if has_tombstone(&disk) {
                assert_gone(&store, &run, &what);
                halfway += 1;
            } else {
                assert!(deleted.is_err(), "{what}: there is no tombstone");
                assert_eq!(store.read_events(&id(), run.id(), ReadOptions::default()).unwrap().events.len(), 1);
            }
        }
    }
}

/// The log brings back lines, but once it has been retired, the journal's own name has to be there.
#[test]
fn a_journal_whose_creator_was_killed_keeps_what_is_acknowledged_in_it() {
    let name = RunId::parse("r1").unwrap();
    let mut resumed = 0;
    for operation in 1.. {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        disk.stop_before(disk.operations() + operation);
        let begun = store.adopt_run(&id(), &name);
        if begun.is_ok() {
            assert!(resumed > 1, "only {resumed} journals were left by a creator that was killed");
            return;
        }
        disk.kill();
        let store = open(&disk).unwrap();
        let Ok(run) = store.resume_run(&id(), &name) else { continue };
        resumed += 1;
        run.append_durable(Event::token("one")).unwrap().wait().unwrap();
        drop((run, store));
        disk.power_cut(Crash::LoseAll);
        let found = open(&disk).unwrap().read_events(&id(), &name, ReadOptions::default()).unwrap();
        assert_eq!(found.events.len(), 1, "killed before operation {operation}");
    }
}

/// Lines that an earlier process only buffered stand before those that are acknowledged now.
#[test]
fn a_durable_event_covers_what_an_earlier_process_left_in_the_journal() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append(Event::token("buffered")).unwrap();
    disk.kill();
    let store = open(&disk).unwrap();
    let again = store.resume_run(&id(), run.id()).unwrap();
    again.append_durable(Event::token("durable")).unwrap().wait().unwrap();
    disk.power_cut(Crash::LoseAll);
    let found = open(&disk).unwrap().read_events(&id(), run.id(), ReadOptions::default()).unwrap();
    assert_eq!((found.events.len(), found.damage.len()), (2, 0));
}
