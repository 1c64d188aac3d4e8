//! Resources that run out: descriptors and space, however that shows. Only a failed fsync stops the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword::doctor::{self, DoctorOptions};
use lastword::storage::sim::{Crash, Fault, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{
    Durability, Event, NewSession, Options, Outcome, ReadOptions, RunId, SaveOptions, Store, StoreError, UserTurn,
};

use crate::aftermath::check_aftermath;
use crate::ledger::{run_id, session_id};
use crate::logged::{ALL, layout, logged, options_of, texts};
use crate::machine::{DATA, End, USUAL, Workload, created, id, open, operations_of, prepared};

/// Whatever the number of files that may be open: what fails can be tried again, nothing stops, and nothing is lost.
#[test]
fn without_descriptors_operations_fail_and_nothing_stops_or_is_lost() {
    let options = |disk: &SimDisk| Options { open_journals_max: 2, commit: USUAL.log, ..options_of(disk) };
    for spare in 0..16 {
        let (disk, mut told) = prepared(created);
        let store = Store::open_on(Arc::new(disk.clone()), DATA, options(&disk)).unwrap();
        let open_files = disk.open_files();
        disk.limit_open_files(Some(open_files + spare));
        let mut failures = 0;
        for (number, name) in (1..).zip(["r1", "r2", "r3"]) {
            let turn = told.turn(&store, name, 4).and_then(|()| told.save_title(&store, number));
            if let Err(error) = turn {
                failures += 1;
                let is_told = error.storage().is_some_and(|cause| cause.is_no_descriptor());
                let is_busy = matches!(error, StoreError::RunInProgress { .. });
                assert!(is_told || is_busy, "{spare}: {error:?}");
                told.turns.pop_if(|turn| !turn.has_begun);
            }
            assert!(store.stopped_reason().is_none(), "{spare}: {:?}", store.stopped_reason());
        }
        assert!(spare > 0 || failures > 0, "the limit is felt");
        disk.limit_open_files(None);
        if let Some(turn) = told.turns.iter_mut().find(|turn| turn.has_begun && !turn.has_finished) {
            let run = store.resume_run(&id(), &RunId::parse(&turn.run).unwrap()).unwrap();
            match run.finish(Outcome::Completed) {
                Ok(_) => turn.has_finished = true,
                Err(error) => panic!("{spare}: with descriptors again: {error:?}"),
            }
        }
        told.save_title(&store, 99).unwrap();
        drop(store);
        for end in [End::Kill, End::Power(Crash::LoseAll)] {
            let disk = disk.copy();
            end.strike(&disk);
            check_aftermath(&disk, &told, end, &format!("{spare} descriptors to spare, {end:?}"));
        }
    }
}

/// Many runs and few descriptors: the store closes the least recently used, and saves go on.
#[test]
fn a_store_keeps_below_the_descriptors_that_it_may_have() {
    let disk = SimDisk::new();
    disk.limit_open_files(Some(64));
    let options = Options { open_journals_max: 16, ..options_of(&disk) };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap();
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    let adopt = |number| store.adopt_run(&id(), &RunId::parse(&format!("r{number}")).unwrap()).unwrap();
    let runs: Vec<_> = (0..100).map(adopt).collect();
    for round in 0..3 {
        for run in &runs {
            let durability = if round == 1 { Durability::Durable } else { Durability::Buffered };
            run.append_all(&[Event::token("x")], durability).unwrap();
            assert!(disk.open_files() < 48, "{} files are open", disk.open_files());
        }
        store.commit().unwrap();
        store.update(&id(), SaveOptions::default(), |session| session.set_text("title", "y")).unwrap();
    }
    drop((runs, store));
    disk.power_cut(Crash::LoseAll);
    let store = open(&disk).unwrap();
    for number in 0..100 {
        let run = RunId::parse(&format!("r{number}")).unwrap();
        assert_eq!(store.read_events(&id(), &run, ReadOptions::default()).unwrap().events.len(), 3);
    }
}

/// The mark that tells the next writer of a failed fsync is written although no file can be opened.
#[test]
fn a_failed_sync_is_noted_without_a_descriptor() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append_durable(Event::token("one")).unwrap().wait().unwrap();
    disk.limit_open_files(Some(disk.open_files()));
    disk.break_syncs(disk.operations() + 1);
    run.append_durable(Event::token("two")).unwrap().wait().unwrap_err();
    let note = String::from_utf8(disk.files()[Path::new("/data/_lock")].clone()).unwrap();
    assert!(note.contains("\"unsure\":true"), "{note}");
}

/// A full disk that finds no room for bytes in the place of others does not stop the store.
#[test]
fn no_space_for_the_log_however_it_shows_stops_nothing() {
    type Shortage = fn(&SimDisk);
    let shortages: [(&str, Shortage); 3] = [
        ("no room to overwrite", |disk| {
            disk.copy_on_write(true);
            disk.fill(disk.operations() + 1);
        }),
        ("no room at a sync of the log", |disk| disk.fill_at_sync(disk.operations() + 2)),
        ("no room for another segment", |disk| disk.fill(disk.operations() + 1)),
    ];
    for (name, run_short) in shortages {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
        // Segments are used up, so that old ones are overwritten.
        for _ in 0..60 {
            run.append_durable(Event::token("some words that take room")).unwrap().wait().unwrap();
        }
        run_short(&disk);
        let mut appended = 60;
        for _ in 0..5 {
            match run.append_durable(Event::token("more")) {
                Ok(more) => {
                    appended = more.last_seq;
                    disk.make_room();
                    more.wait().unwrap_or_else(|error| panic!("{name}: {error:?}\n{}", disk.log().join("\n")));
                }
                Err(error) => assert_eq!(error.code(), "no_space", "{name}: {error:?}"),
            }
            assert!(store.stopped_reason().is_none(), "{name}: {:?}", store.stopped_reason());
        }
        disk.make_room();
        disk.copy_on_write(false);
        run.append_durable(Event::token("with room")).unwrap().wait().unwrap();
        drop((run, store));
        disk.power_cut(Crash::LoseAll);
        let store = open(&disk).unwrap();
        let runs = store.runs(&id()).unwrap();
        let found = store.read_events(&id(), &runs[0], ReadOptions::default()).unwrap();
        assert_eq!((found.events.len() as u64, found.damage.len()), (appended + 1, 0), "{name}");
    }
}

/// Every operation on the log finds no space, or fails without being an fsync, once: the batch is durable all the same.
#[test]
fn an_operation_on_the_log_that_fails_costs_no_durability_and_stops_nothing() {
    let work = |store: &Store| {
        let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r1")))?;
        (0..30).try_for_each(|number| {
            let text = format!("word {number} with some more of them around it");
            run.append_durable(Event::token(&text))?.wait().map(drop).map_err(StoreError::from)
        })
    };
    let (whole, _) = prepared(created);
    let store = open(&whole).unwrap();
    let first = whole.operations();
    work(&store).unwrap();
    drop(store);
    let on_log = whole.log().into_iter().filter_map(|line| {
        let number: u64 = line.split(' ').next()?.parse().ok()?;
        (number > first && line.contains("/_commit_log")).then(|| (number - first, line))
    });
    let on_log: Vec<_> = on_log.collect();
    assert!(on_log.len() > 30);
    for (operation, line) in on_log {
        let is_sync = line.contains(" sync ");
        for fault in [Fault::Enospc, Fault::Eio, Fault::ShortWrite(10)] {
            if is_sync && fault == Fault::Eio {
                continue;
            }
            let (disk, _) = prepared(created);
            let store = open(&disk).unwrap();
            disk.fail(disk.operations() + operation, fault);
            let what = format!("{line}: {fault:?}");
            work(&store).unwrap_or_else(|error| panic!("{what}: {error:?}\n{}", disk.log().join("\n")));
            assert!(store.stopped_reason().is_none(), "{what}");
            let disk = disk.copy();
            disk.power_cut(Crash::LoseAll);
            let found = open(&disk).unwrap().read_events(&id(), &run_id("r1"), ReadOptions::default()).unwrap();
            assert_eq!((found.events.len(), found.damage.len()), (30, 0), "{what}\n{}", disk.log().join("\n"));
        }
    }
}

/// A store that is closed in order leaves nothing to replay, also if its log could not be written for a while.
#[test]
fn a_log_that_could_not_be_written_is_retired_by_a_clean_close_all_the_same() {
    for fails in [false, true] {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r"))).unwrap();
        run.append_durable(Event::token("one")).unwrap().wait().unwrap();
        let appended = run.append_durable(Event::token("two")).unwrap();
        if fails {
            disk.fail(disk.operations() + 1, Fault::Enospc);
        }
        appended.wait().unwrap();
        let struck = disk.log().iter().any(|line| line.contains(" !") && line.contains("/_commit_log"));
        assert_eq!(struck, fails);
        drop((run, store));
        // Another program cuts the journal. A replay would bring the line back.
        let journal = layout().journal(&id(), &run_id("r"));
        let first = disk.files()[&journal].iter().position(|byte| *byte == b'\n').unwrap() as u64 + 1;
        disk.open(&journal, Access::Write).unwrap().set_len(first).unwrap();
        let store = open(&disk).unwrap();
        let found = store.read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap();
        assert_eq!(found.events.len(), 1, "fails: {fails}");
    }
}

/// What a directory fsync could not make durable has its new name all the same: the store cannot take it back, and stops.
#[test]
fn no_space_at_a_directory_fsync_stops_the_store() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let save = |title: &str| store.update(&id(), SaveOptions::default(), |session| session.set_text("title", title));
    let before = disk.operations();
    save("one").unwrap();
    let log = disk.log();
    let sync = log.iter().rfind(|line| line.ends_with("sync folder /data")).unwrap();
    let sync = sync.split(' ').next().unwrap().parse::<u64>().unwrap() - before;
    disk.fail(disk.operations() + sync, Fault::Enospc);
    let refused = save("two").unwrap_err();
    assert_ne!(refused.code(), "no_space", "trying again would be in vain");
    assert!(store.stopped_reason().is_some());
}

/// Neither the log nor the journal can be made durable for lack of space: the store stops, and does not say to try again.
#[test]
fn no_space_at_every_fsync_of_a_batch_stops_the_store() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append_durable(Event::token("one")).unwrap().wait().unwrap();
    let appended = run.append_durable(Event::token("two")).unwrap();
    disk.fill_at_sync(disk.operations() + 1);
    let refused = StoreError::from(appended.wait().unwrap_err());
    assert_eq!(refused.code(), "stopped", "{refused:?}");
    assert!(store.stopped_reason().is_some());
}

/// A sync that wrote some of the pages before it failed leaves no hole that a replay trusts.
#[test]
fn a_sync_that_wrote_some_of_the_pages_loses_nothing_that_was_acknowledged() {
    let work: Workload = |store, told| {
        told.turn(store, "r1", 5)?;
        told.save_title(store, 1)?;
        told.turn(store, "r2", 3)
    };
    let operations = operations_of(created, work);
    for operation in 1..=operations {
        for seed in [operation, operation + 1_000] {
            let (disk, mut told) = prepared(created);
            let disk = disk.with_page_bytes(64);
            disk.fail(disk.operations() + operation, Fault::PartialSync(seed));
            let outcome = open(&disk).and_then(|store| work(&store, &mut told));
            if outcome.is_ok() {
                continue;
            }
            for end in [End::Kill, End::Power(Crash::LoseAll), End::Power(Crash::KeepAll)] {
                let disk = disk.copy();
                end.strike(&disk);
                check_aftermath(&disk, &told, end, &format!("operation {operation}, seed {seed}, {end:?}"));
            }
        }
    }
}

/// A log that could not be retired must not be replayed over a journal that a repair has rewritten since.
#[test]
fn a_repair_that_finds_no_room_for_a_segment_is_not_undone_by_the_log() {
    let disk = logged();
    let journal = layout().journal(&session_id("b"), &run_id("r"));
    // The second event rots, so that a repair cuts it out. The log still holds it.
    let second = disk.files()[&journal].iter().position(|byte| *byte == b'\n').unwrap() as u64 + 1;
    disk.rot(&journal, second + 30, 1).unwrap();
    let used: u64 = disk.files().values().map(|bytes| bytes.len() as u64).sum();
    // Room for the repair, and none for a segment of the doctor's own size.
    disk.set_capacity(Some(used + 200_000));
    let repair = || doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default());
    let repaired = repair().unwrap();
    assert!(!repaired.has_failed(), "{:#?}", repaired.actions);
    let after = disk.files()[&journal].clone();
    disk.reboot();
    drop(open(&disk).unwrap());
    assert_eq!(disk.files()[&journal], after, "the old log was replayed over the repaired journal");
}

/// Where not even the header of the log can be overwritten, a repair does not begin, and a server does.
#[test]
fn a_repair_refuses_to_begin_while_the_log_cannot_be_retired() {
    let repair = |disk: &SimDisk| {
        doctor::repair_on(Arc::new(disk.clone()), Path::new(DATA), &DoctorOptions::default()).map(drop)
    };
    let serve = |disk: &SimDisk| open(disk).map(drop);
    // How many operations follow that are tried in the place of the one that fails.
    let refuse_log = |work: &dyn Fn(&SimDisk), instead: u64| {
        let (disk, whole) = (logged(), logged());
        let before = whole.operations();
        work(&whole);
        for line in whole.log().iter().filter(|line| line.contains("write /data/_commit_log")) {
            let number: u64 = line.split(' ').next().unwrap().parse().unwrap();
            if number > before {
                (number..=number + instead).for_each(|number| disk.fail(number, Fault::Enospc));
            }
        }
        disk
    };
    let disk = refuse_log(&|disk| repair(disk).unwrap(), 2);
    let refused = repair(&disk).unwrap_err();
    assert!(matches!(&refused, doctor::DoctorError::Storage(error) if error.is_no_space()), "{refused:?}");
    disk.kill();
    assert_eq!(texts(&open(&disk).unwrap(), "a"), ALL);
    let disk = refuse_log(&|disk| serve(disk).unwrap(), 1);
    serve(&disk).unwrap();
    disk.kill();
    assert_eq!(texts(&open(&disk).unwrap(), "a"), ALL, "replaying once more changes nothing");
}

/// Whatever operation finds no room: a turn that is refused leaves the directory as it was.
#[test]
fn a_turn_that_is_refused_leaves_nothing() {
    let begin = |store: &Store| store.begin_run(&id(), UserTurn::text("x").with_run(run_id("r1")));
    let tree = |disk: &SimDisk| -> Vec<PathBuf> {
        // Run numbers that are reserved and not used are no harm.
        let is_data = |path: &PathBuf| {
            !path.ends_with("_lock") && !path.ends_with("_run_order") && !path.starts_with("/data/_commit_log")
        };
        disk.files().into_keys().filter(is_data).collect()
    };
    let mut refused = 0;
    for operation in 1..40 {
        for fault in [Fault::Enospc, Fault::Eio, Fault::ShortWrite(1)] {
            let (disk, _) = prepared(created);
            let store = open(&disk).unwrap();
            let before = (tree(&disk), store.metadata(&id()).unwrap().revision().cloned());
            disk.fail(disk.operations() + operation, fault);
            let begun = begin(&store);
            let is_no_space = begun.as_ref().is_err_and(|error| error.code() == "no_space");
            // A directory fsync that finds no space comes after the turn was put in place.
            let is_in_place = store.metadata(&id()).unwrap().active_run().is_some();
            if begun.is_err() && store.stopped_reason().is_none() && !is_in_place {
                refused += 1;
                assert!(!is_no_space || fault != Fault::Eio);
                let after = (tree(&disk), store.metadata(&id()).unwrap().revision().cloned());
                assert_eq!(after, before, "operation {operation}, {fault:?}\n{}", disk.log().join("\n"));
                begin(&store).unwrap();
            }
        }
    }
    assert!(refused > 10, "{refused}");
}

/// Lines that a killed process left unsynced, and part of one more.
fn left_unsynced(is_torn: bool) -> SimDisk {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.adopt_run(&id(), &run_id("r")).unwrap();
    (0..2).for_each(|_| drop(run.append(Event::token("left")).unwrap()));
    disk.kill();
    if is_torn {
        let file = disk.open(&layout().journal(&id(), &run_id("r")), Access::Write).unwrap();
        file.write_at(b"{\"seq\":3,", file.stat().unwrap().len).unwrap();
    }
    disk
}

/// An fsync that finds no space leaves pages that look clean and are not on the medium. The next opening writes them again.
#[test]
fn a_run_whose_opening_finds_no_space_once_loses_nothing_that_is_acknowledged_after_it() {
    for is_torn in [false, true] {
        let mut refused = 0;
        for operation in 1.. {
            let disk = left_unsynced(is_torn);
            let store = open(&disk).unwrap();
            let first = disk.operations();
            disk.fail(first + operation, Fault::Enospc);
            let opened = store.resume_run(&id(), &run_id("r"));
            if disk.operations() < first + operation {
                break;
            }
            let what = format!("{}\n{}", opened.is_ok(), disk.log().join("\n"));
            if store.stopped_reason().is_some() {
                continue;
            }
            refused += usize::from(opened.is_err());
            drop(opened);
            let run = store.resume_run(&id(), &run_id("r")).unwrap_or_else(|error| panic!("{error:?} {what}"));
            run.append_durable(Event::token("acknowledged")).unwrap().wait().unwrap();
            disk.power_cut(Crash::LoseAll);
            let found = open(&disk).unwrap().read_events(&id(), &run_id("r"), ReadOptions::default()).unwrap();
            assert_eq!((found.events.len(), found.damage.len()), (3, 0), "{what}");
        }
        assert!(refused > 0, "torn {is_torn}: no opening was refused");
    }
}
