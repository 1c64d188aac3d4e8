//! The workloads that are interrupted everywhere.

use std::path::PathBuf;

use lastword::storage::sim::{Crash, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{Event, NewSession, ReadOptions, RunId, Store, StoreError, UserTurn};

use crate::aftermath::check_aftermath;
use crate::machine::{End, USUAL, Work, begun, crash_everywhere, created, ended, id, nothing, open, prepared};
use crate::told::Told;

fn resumed_append_and_seal(store: &Store, told: &mut Told) -> Result<(), StoreError> {
    let run = store.resume_run(&id(), &RunId::parse("r1").unwrap())?;
    told.stream(&run, 5)?;
    told.finish(&run)
}

/// The title that a first message gives is saved with its turn: a crash leaves both or neither.
#[test]
fn a_session_is_titled_with_its_first_turn_or_not_at_all() {
    let untitled = |store: &Store, _: &mut Told| store.create(NewSession::titled("Untitled").with_id(id())).map(drop);
    let begin = |disk: &SimDisk| open(disk)?.begin_run(&id(), UserTurn::text("Where to?")).map(drop);
    let (before, _) = prepared(untitled);
    let whole = before.copy();
    begin(&whole).unwrap();
    let mut titles = std::collections::BTreeSet::new();
    for operation in before.operations()..=whole.operations() {
        let disk = before.copy();
        disk.stop_before(operation);
        let is_acknowledged = begin(&disk).is_ok();
        for (end, disk) in ended(&disk) {
            let session = open(&disk).unwrap().metadata(&id()).unwrap();
            let has_turn = session.pending_turn().is_some();
            assert_eq!(session.title(), if has_turn { "Where to?" } else { "Untitled" }, "{operation} {end:?}");
            assert!(has_turn || !is_acknowledged, "{operation} {end:?}");
            titles.insert(session.title().into_owned());
        }
    }
    assert_eq!(titles.len(), 2, "some crashes come before the save, and some after it");
}

#[test]
fn creating_the_store_and_a_session() {
    crash_everywhere(nothing, created);
    let create: Work<'_, Told> = &|disk, told| open(disk).and_then(|store| created(&store, told));
    USUAL.crash_everywhere_on(&SimDisk::new(), &Told::default(), create);
}

#[test]
fn append_and_seal() {
    crash_everywhere(begun, resumed_append_and_seal);
}

#[test]
fn begin_stream_finish() {
    crash_everywhere(created, |store, told| {
        told.turn(store, "r1", 4)?;
        told.turn(store, "r2", 2)
    });
}

#[test]
fn save_over_save() {
    crash_everywhere(created, |store, told| (1..=3).try_for_each(|number| told.save_title(store, number)));
}

#[test]
fn a_stated_cut_keeps_what_it_replaces() {
    crash_everywhere(
        |store, told| {
            told.create(store)?;
            told.turn(store, "r1", 2)?;
            told.turn(store, "r2", 2)
        },
        |store, told| told.cut(store),
    );
}

#[test]
fn delete_during_a_run() {
    crash_everywhere(created, |store, told| {
        let run = told.begin(store, "r1")?;
        told.stream(&run, 4)?;
        told.delete(store)?;
        assert!(run.append(Event::token("late")).is_err(), "a deleted session takes nothing");
        assert!(store.begin_run(&id(), UserTurn::text("again")).is_err());
        assert!(store.create(NewSession::titled("again").with_id(id())).is_err(), "and does not come back");
        store.create(NewSession::titled("other"))?;
        store.delete(&store.list()?[0].id)
    });
}

#[test]
fn a_torn_tail_is_cut_and_kept_before_the_next_append() {
    fn torn(store: &Store, told: &mut Told) -> Result<(), StoreError> {
        told.create(store)?;
        let run = told.begin(store, "r1")?;
        told.stream(&run, 2)
    }
    let (disk, told) = prepared(torn);
    let path = std::path::Path::new("/data/_run_journal/s/r1.jsonl");
    let tear = |disk: &SimDisk| {
        let file = disk.open(path, Access::Write).unwrap();
        let len = file.stat().unwrap().len;
        let torn = format!("{{\"version\":1,\"event_id\":\"r1:3\",\"seq\":3 {}", "\u{e9}".repeat(500));
        file.write_at(torn.as_bytes(), len).unwrap();
    };
    tear(&disk);
    let first = disk.operations();
    let go_on = |disk: &SimDisk, told: &mut Told| -> Result<lastword::Run, StoreError> {
        let run = open(disk)?.resume_run(&id(), &RunId::parse("r1").unwrap())?;
        told.stream(&run, 1).map(|()| run)
    };
    let run = go_on(&disk, &mut told.clone()).unwrap();
    let operations = disk.operations() - first;
    drop(run);
    let mended = open(&disk).unwrap().read_events(&id(), &RunId::parse("r1").unwrap(), ReadOptions::default()).unwrap();
    assert_eq!((mended.events.len(), mended.damage.len()), (3, 0));
    assert!(!disk.read_dir(std::path::Path::new("/data/_kept/s")).unwrap().is_empty(), "the fragment was not kept");
    for operation in 1..=operations {
        let (disk, mut told) = prepared(torn);
        tear(&disk);
        disk.stop_before(disk.operations() + operation);
        assert!(go_on(&disk, &mut told).is_err());
        disk.kill();
        check_aftermath(&disk, &told, End::Kill, &format!("operation {operation} of {operations}"));
    }
}

/// Other programs know nothing of tombstones: what was deleted must be gone from its place, too.
#[test]
fn a_deleted_session_is_in_the_trash_after_a_power_cut() {
    let (disk, mut told) = prepared(begun);
    told.delete(&open(&disk).unwrap()).unwrap();
    disk.power_cut(Crash::LoseAll);
    assert!(disk.stat(std::path::Path::new("/data/s.json")).is_err(), "the sidecar is back");
    assert!(disk.stat(std::path::Path::new("/data/_run_journal/s")).is_err(), "the journals are back");
    let trash = disk.read_dir(std::path::Path::new("/data/_trash")).unwrap();
    let folder = std::path::Path::new("/data/_trash").join(&trash[0].name);
    assert_eq!(disk.read_dir(&folder).unwrap().len(), 2, "sidecar and journals");
}

/// Acknowledged events that only the log holds are in the journal before it moves to the trash: no replay puts them there.
#[test]
fn acknowledged_events_of_a_deleted_session_are_in_the_trash_after_a_power_cut() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append_durable(Event::token("acknowledged")).unwrap().wait().unwrap();
    store.delete(&id()).unwrap();
    // Before the store is closed, which would make it durable.
    disk.power_cut(Crash::LoseAll);
    let is_there = |(path, bytes): (&PathBuf, &Vec<u8>)| {
        path.starts_with("/data/_trash") && String::from_utf8_lossy(bytes).contains("acknowledged")
    };
    assert!(disk.files().iter().any(is_there));
}

#[test]
fn the_same_seed_gives_the_same_operations() {
    let run = || {
        let (disk, mut told) = prepared(nothing);
        let store = open(&disk).unwrap();
        told.create(&store).unwrap();
        told.turn(&store, "r1", 5).unwrap();
        disk.log()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_folder_whose_creator_was_killed_is_made_durable() {
    for operation in 1..=8 {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        disk.stop_before(disk.operations() + operation);
        let _ = store.begin_run(&id(), UserTurn::text("x"));
        disk.kill();
        let store = open(&disk).unwrap();
        let Ok(run) = store.begin_run(&id(), UserTurn::text("x").with_run(RunId::parse("r2").unwrap())) else {
            continue;
        };
        run.append_durable(Event::token("one")).unwrap().wait().unwrap();
        disk.power_cut(Crash::LoseAll);
        let found = open(&disk).unwrap().read_events(&id(), run.id(), ReadOptions::default()).unwrap();
        assert_eq!(found.events.len(), 1, "killed before operation {operation}");
    }
}

/// The same where nothing else makes the folder above it durable.
#[test]
fn a_folder_whose_creator_was_killed_is_made_durable_for_a_run_without_a_turn() {
    for operation in 1..=8 {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        disk.stop_before(disk.operations() + operation);
        let _ = store.adopt_run(&id(), &RunId::parse("r1").unwrap());
        disk.kill();
        drop(open(&disk).unwrap().adopt_run(&id(), &RunId::parse("r2").unwrap()).unwrap());
        disk.power_cut(Crash::LoseAll);
        let runs = open(&disk).unwrap().runs(&id()).unwrap();
        assert!(runs.contains(&RunId::parse("r2").unwrap()), "killed before operation {operation}");
    }
}

/// A journal of another program has no record until it is removed; its id must stay taken all the same.
#[test]
fn a_removed_run_is_there_or_its_id_stays_taken() {
    fn with_foreign_run(store: &Store, told: &mut Told) -> Result<(), StoreError> {
        told.create(store)?;
        told.turn(store, "r1", 1)
    }
    let foreign = RunId::parse("foreign").unwrap();
    let path = std::path::Path::new("/data/_run_journal/s/foreign.jsonl");
    let prepared = || {
        let (disk, _) = prepared(with_foreign_run);
        let file = disk.open(path, Access::CreateNew).unwrap();
        file.write_at(b"{\"seq\":1,\"event\":\"token\"}\n", 0).unwrap();
        file.sync().unwrap();
        disk.sync_dir(path.parent().unwrap()).unwrap();
        disk
    };
    let disk = prepared();
    let first = disk.operations();
    open(&disk).unwrap().remove_run(&id(), &foreign).unwrap();
    let operations = disk.operations() - first;
    for operation in 1..=operations {
        let stopped = prepared();
        stopped.stop_before(stopped.operations() + operation);
        let removed = open(&stopped).and_then(|store| store.remove_run(&id(), &foreign));
        assert!(removed.is_err() || stopped.has_stopped());
        for (end, disk) in ended(&stopped) {
            let is_there = disk.stat(path).is_ok();
            let taken = matches!(open(&disk).unwrap().adopt_run(&id(), &foreign), Err(StoreError::RunTaken { .. }));
            assert!(is_there || taken, "operation {operation}, {end:?}\n{}", disk.log().join("\n"));
        }
    }
}
