//! Deletions that fail or are cut in the middle, and journals whose creator died before their name was durable.

use std::path::Path;

use lastword::storage::sim::{Crash, Fault, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{Event, NewSession, ReadOptions, Run, RunId, Store, UserTurn};

use crate::machine::{USUAL, created, id, open, prepared};

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
    assert!(store.resume_run(&id(), run.id()).is_err(), "{what}: its run is opened again");
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

/// The tombstone is what deletes a session: a reader that has its document in memory looks for it.
#[test]
fn a_reader_that_knows_a_document_does_not_show_it_once_its_session_is_deleted() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    // The document cannot be moved away, and stays where it was.
    disk.create_dir(Path::new("/data/_trash")).unwrap();
    disk.mount("/data/_trash").unwrap();
    let readers = [USUAL.open_to_read(&disk).unwrap(), store.clone()];
    for reader in &readers {
        reader.get_session(&id()).unwrap();
        reader.metadata(&id()).unwrap();
        assert_eq!(reader.list().unwrap().len(), 1);
        assert_eq!(reader.list_page(None, 9).unwrap().sessions.len(), 1);
    }
    store.delete(&id()).unwrap();
    assert!(disk.files().contains_key(Path::new("/data/s.json")), "it could not be moved");
    drop(readers[1].begin_run(&id(), UserTurn::text("late")).unwrap_err());
    for reader in &readers {
        assert!(reader.get_session(&id()).is_err());
        assert!(reader.metadata(&id()).is_err());
        assert!(reader.list().unwrap().is_empty());
        assert!(reader.list_page(None, 9).unwrap().sessions.is_empty());
    }
}

/// What a damaged tombstone says is not taken as a place for the files of its session.
#[test]
fn the_rest_of_a_deletion_goes_to_the_trash_whatever_its_tombstone_says() {
    let names = ["", ".", "..", "x/../../..", "/../../../elsewhere", "../..", "a/b", "a\\b", "x\u{0}", "é"];
    for name in names {
        let (disk, store, run) = with_live_run();
        let (journal, sidecar) = (format!("/data/_run_journal/s/{}.jsonl", run.id()), Path::new("/data/s.json"));
        let parts = [&journal, sidecar.to_str().unwrap()].map(|path| disk.files()[Path::new(path)].clone());
        drop((run, store));
        for folder in ["/elsewhere", "/data/_tombstones"] {
            disk.create_dir(Path::new(folder)).unwrap();
        }
        let tombstone = serde_json::json!({"session_id": "s", "deleted_at": 1.0, "generation": name});
        let file = disk.open(Path::new("/data/_tombstones/s.json"), Access::CreateNew).unwrap();
        file.write_at(tombstone.to_string().as_bytes(), 0).unwrap();
        let store = open(&disk).unwrap();
        assert_eq!(store.findings(), [], "{name:?}");
        for bytes in parts {
            let found: Vec<_> = disk.files().into_iter().filter(|(_, found)| *found == bytes).collect();
            assert_eq!(found.len(), 1, "{name:?}: {found:?}");
            let in_trash = found[0].0.strip_prefix("/data/_trash").unwrap_or_else(|_| panic!("{name:?}: {found:?}"));
            let generation = in_trash.iter().next().unwrap().to_str().unwrap().strip_prefix("s.").unwrap();
            assert_eq!(generation.len(), 32, "{name:?}: a name of our own: {generation}");
        }
    }
}
