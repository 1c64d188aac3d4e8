//! Operations that fail, and what is never claimed after that.

use std::path::PathBuf;
use std::sync::Arc;

use lastword::storage::sim::{Crash, Fault};
use lastword::{
    Durability, Event, List, Options, Outcome, ReadOptions, Run, RunId, StorageError, Store, StoreError, UserTurn,
};

use crate::aftermath::check_aftermath;
use crate::machine::{DATA, End, USUAL, Workload, created, id, open, operations_of, prepared};

/// A failing operation anywhere is told to the caller, and nothing that was acknowledged before it is lost.
#[test]
fn every_operation_fails_once() {
    let work: Workload = |store, told| {
        told.turn(store, "r1", 4)?;
        told.save_title(store, 1)
    };
    let operations = operations_of(created, work);
    for operation in 1..=operations {
        for fault in [Fault::Eio, Fault::Enospc, Fault::ShortWrite(0), Fault::ShortWrite(7)] {
            for end in [End::Kill, End::Power(Crash::LoseAll), End::Power(Crash::Seeded(operation))] {
                let (disk, mut told) = prepared(created);
                disk.fail(disk.operations() + operation, fault);
                let outcome = open(&disk).and_then(|store| work(&store, &mut told));
                // Where the log cannot be written each journal is synced where it is; only a failed fsync is a failure.
                let log = disk.log();
                let struck = log.iter().find(|line| line.contains(" !")).cloned().unwrap_or_default();
                // Without the note that the log was replayed, readers look into it themselves.
                let is_on_log = struck.contains("/_commit_log") && !struck.contains(" sync ");
                let is_absorbed = is_on_log || struck.contains("write /data/_lock");
                let must_fail = fault == Fault::Eio && !is_absorbed;
                assert!(outcome.is_err() || !must_fail, "operation {operation}: {fault:?} was swallowed");
                end.strike(&disk);
                check_aftermath(&disk, &told, end, &format!("operation {operation}, {fault:?}, {end:?}"));
            }
        }
    }
}

#[test]
fn a_store_that_stopped_says_so_and_why_and_one_that_never_could_write_has_no_reason() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    disk.fail(disk.operations() + 1, Fault::Enospc);
    run.append(Event::token("no room")).unwrap_err();
    assert!(store.is_writable() && store.stopped_reason().is_none(), "a full disk stops nobody");
    disk.break_syncs(disk.operations() + 1);
    run.append_durable(Event::token("one")).unwrap().wait().unwrap_err();
    let why = store.stopped_reason().expect("it stopped");
    assert_eq!((store.is_writable(), why.code()), (false, "stopped"));
    let source = std::error::Error::source(why.storage().unwrap()).map(ToString::to_string).unwrap_or_default();
    assert!(source.contains("sync"), "{why:?}");
    let reader = USUAL.open_to_read(&disk).unwrap();
    assert!(!reader.is_writable() && reader.stopped_reason().is_none());
    drop((run, store));
    disk.mend_syncs();
    let again = open(&disk).unwrap();
    assert!(again.is_writable() && again.stopped_reason().is_none(), "until it is opened again");
}

#[test]
fn a_journal_that_failed_refuses_further_work_and_says_why() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append(Event::token("one")).unwrap();
    disk.fail(disk.operations() + 1, Fault::Eio);
    run.append(Event::token("two")).unwrap_err();
    let second = run.append(Event::token("three")).unwrap_err();
    assert!(second.to_string().contains("could not append"), "{second}");
    let why = format!("{:?}", second.storage().unwrap());
    assert!(why.contains("Latched") && why.contains("write"), "{why}");
    let again = store.resume_run(&id(), run.id()).unwrap();
    assert_eq!(again.append(Event::token("two")).unwrap().last_seq, 2, "a new writer begins with what is there");
}

#[test]
fn a_full_disk_is_told_as_such_and_the_same_run_goes_on_when_there_is_room() {
    for taken in [0, 10, 240] {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
        run.append(Event::token("one")).unwrap();
        if taken > 0 {
            disk.fail(disk.operations() + 1, Fault::ShortWrite(taken));
        }
        disk.fail(disk.operations() + 1 + u64::from(taken > 0), Fault::Enospc);
        let refused = run.append_all(&[Event::token("two"), Event::token("three")], Durability::Buffered).unwrap_err();
        assert!(refused.storage().unwrap().is_no_space(), "{refused}");
        let there = store.read_events(&id(), run.id(), ReadOptions::default()).unwrap();
        assert!(there.damage.is_empty(), "half a line is visible: {:?}", there.damage);
        assert_eq!(run.append_durable(Event::token("four")).unwrap().last_seq, there.events.len() as u64 + 1);
        run.finish(Outcome::Completed).unwrap();
        let found = store.read_events(&id(), run.id(), ReadOptions::default()).unwrap();
        assert_eq!((found.events.len(), found.damage.len()), (there.events.len() + 2, 0), "after {taken} bytes");
    }
}

#[test]
fn an_end_that_got_through_before_the_disk_was_full_is_the_end() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append(Event::token("answer")).unwrap();
    disk.fail(disk.operations() + 1, Fault::ShortWrite(400));
    disk.fail(disk.operations() + 2, Fault::Enospc);
    let end = [Event::done(), Event::new("stream_end", "{}").unwrap()];
    assert!(run.append_all(&end, Durability::Durable).unwrap_err().storage().unwrap().is_no_space());
    assert!(run.is_sealed());
    assert!(run.append(Event::token("late")).is_err(), "behind the end");
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(store.get_session(&id()).unwrap().len(List::Messages), 2);
}

/// A journal that the log had no room for is looked after again when there is room.
#[test]
fn what_is_appended_after_a_full_disk_becomes_durable_like_anything_else() {
    for is_closed in [false, true] {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let names = ["a", "b"].map(|name| RunId::parse(name).unwrap());
        let runs = names.clone().map(|name| store.adopt_run(&id(), &name).unwrap());
        runs.iter().for_each(|run| drop(run.append(Event::token("one")).unwrap()));
        disk.fill(disk.operations() + 1);
        store.commit().unwrap();
        disk.make_room();
        runs.iter().rev().for_each(|run| drop(run.append(Event::token("two")).unwrap()));
        if is_closed {
            drop((runs, store));
        } else {
            store.commit().unwrap();
        }
        disk.power_cut(Crash::LoseAll);
        let store = open(&disk).unwrap();
        for name in &names {
            let found = store.read_events(&id(), name, ReadOptions::default()).unwrap();
            assert_eq!(found.events.len(), 2, "{name}, closed {is_closed}");
        }
    }
}

/// The operations of this that contain the word, counted from its beginning.
fn operations_with(word: &str, work: impl Fn(&Store, &Run)) -> Vec<u64> {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    let first = disk.operations() as usize;
    work(&store, &run);
    let log = disk.log();
    let numbered = log[first..].iter().zip(1..).filter(|(line, _)| line.split(' ').nth(1) == Some(word));
    numbered.map(|(_, number)| number).collect()
}

#[test]
fn after_a_failed_sync_the_store_writes_nothing_and_only_a_new_one_does() {
    let durable = |run: &Run, text: &str| run.append_durable(Event::token(text)).and_then(|done| Ok(done.wait()?));
    let work = |_: &Store, run: &Run| drop(durable(run, "one"));
    for operation in operations_with("sync", work) {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x").with_run(RunId::parse("r1").unwrap())).unwrap();
        run.append(Event::token("zero")).unwrap();
        disk.fail(disk.operations() + operation, Fault::Eio);
        let told = durable(&run, "one").unwrap_err();
        assert!(matches!(told.storage(), Some(StorageError::SyncFailed { .. })), "{told:?}");
        let before = disk.operations();
        for refused in [
            durable(&run, "two").map(drop),
            run.append(Event::token("three")).map(drop),
            run.finish(Outcome::Completed).map(drop),
            store.create(lastword::NewSession::titled("other")).map(drop),
            store.delete(&id()),
            store.commit(),
        ] {
            let why = refused.unwrap_err();
            assert!(matches!(why.storage(), Some(StorageError::Stopped { .. })), "{why:?}");
            assert_eq!(why.code(), "stopped");
        }
        assert_eq!(disk.operations(), before, "something was written:\n{}", disk.log().join("\n"));
        assert_eq!(store.get_session(&id()).unwrap().pending_turn().unwrap().message, "x", "reading goes on");
        drop((run, store));
        let store = open(&disk).unwrap();
        let run = store.resume_run(&id(), &RunId::parse("r1").unwrap()).unwrap();
        durable(&run, "four").unwrap();
        let seen = store.read_events(&id(), run.id(), ReadOptions::default()).unwrap().events.len();
        disk.power_cut(Crash::LoseAll);
        let found = open(&disk).unwrap().read_events(&id(), &RunId::parse("r1").unwrap(), ReadOptions::default());
        let found = found.unwrap();
        assert_eq!(
            (found.events.len(), found.damage.len()),
            (seen, 0),
            "operation {operation}\n{}",
            disk.log().join("\n")
        );
    }
}

#[test]
fn a_short_write_keeps_the_whole_lines_and_no_part_of_the_next() {
    for taken in [0, 10, 240, 300, 400, 10_000] {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
        disk.fail(disk.operations() + 1, Fault::ShortWrite(taken));
        disk.fail(disk.operations() + 2, Fault::Enospc);
        let events: Vec<_> = (0..4).map(|number| Event::token(&number.to_string())).collect();
        let outcome = run.append_all(&events, lastword::Durability::Buffered);
        let found = store.read_events(&id(), run.id(), ReadOptions::default()).unwrap();
        assert!(found.damage.is_empty(), "{taken}: part of a line stayed: {:?}", found.damage);
        match outcome {
            Ok(_) => assert_eq!(found.events.len(), 4),
            Err(StoreError::Append(lastword::AppendError::Failed { appended_to, .. })) => {
                assert_eq!(appended_to.unwrap_or(0), found.events.len() as u64, "after {taken} bytes");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// A file that is closed to make room for another is synced first. If that fails, the store stops.
#[test]
fn a_sync_that_fails_when_a_file_is_closed_for_another_stops_the_store() {
    const PLACES: usize = 16;
    let (disk, _) = prepared(created);
    let options = Options { open_journals_max: PLACES, ..Options::default() };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap();
    let adopt = |number: usize| store.adopt_run(&id(), &RunId::parse(&format!("r{number}")).unwrap()).unwrap();
    let runs: Vec<_> = (0..=PLACES).map(adopt).collect();
    let (last, open_ones) = runs.split_last().unwrap();
    for run in open_ones {
        run.append(Event::token("one")).unwrap();
    }
    disk.fail(disk.operations() + 1, Fault::Eio);
    for run in [last, &runs[0], &runs[1]] {
        let refusal = run.append(Event::token("two")).unwrap_err();
        assert!(matches!(refusal.storage(), Some(StorageError::Stopped { .. })), "{refusal:?}");
    }
    drop((runs, store));
    let store = open(&disk).unwrap();
    let again = store.resume_run(&id(), &RunId::parse("r0").unwrap()).unwrap();
    again.append_durable(Event::token("two")).unwrap().wait().unwrap().expect("proof");
    disk.power_cut(Crash::LoseAll);
    let found = open(&disk).unwrap().read_events(&id(), again.id(), ReadOptions::default()).unwrap();
    assert_eq!(found.events.len(), 2, "what the failed sync forgot was written again: {:?}", found.damage);
}

#[test]
fn a_store_told_to_be_durable_tells_a_failed_sync_and_shows_nothing_of_it() {
    let (disk, _) = prepared(created);
    let options = Options { durability: lastword::Durability::Durable, ..Options::default() };
    let store = Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    let mut follow = store.follow(&id(), run.id(), lastword::After::Start).unwrap();
    disk.break_syncs(disk.operations() + 1);
    assert!(run.append(Event::token("one")).is_err());
    assert!(follow.poll().unwrap().is_none(), "a reader saw what power loss could take back");
}

#[test]
fn an_answer_that_could_not_be_saved_is_saved_by_the_next_finish() {
    let work = |_: &Store, run: &Run| {
        run.append_durable(Event::token("answer")).unwrap().wait().unwrap();
        run.finish(Outcome::Completed).unwrap();
    };
    let creations = operations_with("create", work);
    assert!(creations.len() > 1, "the log, and the sidecar");
    for operation in creations {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
        disk.fail(disk.operations() + operation, Fault::Enospc);
        run.append_durable(Event::token("answer")).unwrap().wait().unwrap();
        if let Err(unsaved) = run.finish(Outcome::Completed) {
            assert!(unsaved.storage().unwrap().is_no_space(), "{unsaved}");
            run.finish(Outcome::Completed).unwrap();
        }
        assert!(run.finish(Outcome::Completed).is_err(), "and only once");
        let session = store.get_session(&id()).unwrap();
        assert_eq!((session.len(List::Messages), session.pending_turn()), (2, None));
    }
}

/// A line that no appender handed in is read back from its journal for the log. If that fails, the journal itself is synced.
#[test]
fn a_journal_that_cannot_be_read_back_is_synced_in_place() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append(Event::token("buffered")).unwrap();
    let journal = format!("/data/_run_journal/s/{}.jsonl", run.id());
    disk.break_reads(&journal).unwrap();
    run.append_durable(Event::token("durable")).unwrap().wait().unwrap();
    disk.power_cut(Crash::LoseAll);
    disk.mend_reads(&journal).unwrap();
    let found = open(&disk).unwrap().read_events(&id(), run.id(), ReadOptions::default()).unwrap();
    assert_eq!(found.events.len(), 2);
}

/// Part of a line may still stand in the file: what this writer put there next would stand before its rest.
#[test]
fn a_writer_that_cannot_take_back_part_of_a_line_does_no_more() {
    let long = Event::token(&"many words ".repeat(300));
    for (taken, fault) in [(10, Fault::Eio), (10, Fault::Enospc), (2_000, Fault::Eio), (2_000, Fault::Enospc)] {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
        run.append(Event::token("one")).unwrap();
        let first = disk.operations();
        disk.fail(first + 1, Fault::ShortWrite(taken));
        disk.fail(first + 2, Fault::Enospc);
        disk.fail(first + 3, fault);
        run.append_all(&[Event::token("two"), long.clone()], Durability::Buffered).unwrap_err();
        assert!(disk.log().iter().any(|line| line.contains(" !") && line.contains("cut")), "{}", disk.log().join("\n"));
        let refused = run.append(Event::token("three")).unwrap_err();
        assert!(matches!(refused.storage(), Some(StorageError::Latched { .. })), "{refused:?}");
        let again = store.resume_run(&id(), run.id()).unwrap();
        let appended = again.append_durable(Event::token("four")).unwrap();
        let last_seq = appended.last_seq;
        appended.wait().unwrap();
        assert_eq!(last_seq, if taken > 1_000 { 3 } else { 2 });
        for _ in 0..2 {
            let store = USUAL.open_to_read(&disk).unwrap();
            let found = store.read_events(&id(), run.id(), ReadOptions::default()).unwrap();
            assert_eq!((found.events.len() as u64, found.damage.len()), (last_seq, 0), "{taken}, {fault:?}");
            disk.power_cut(Crash::LoseAll);
        }
    }
}

/// A line that lacks only its line feed counts, and the next one must not be glued onto it.
#[test]
fn a_writer_whose_last_line_lacks_its_line_feed_does_no_more() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    let journal = PathBuf::from(format!("/data/_run_journal/s/{}.jsonl", run.id()));
    let len = || disk.files()[&journal].len();
    run.append(Event::token("one")).unwrap();
    let one = len();
    run.append(Event::token("two")).unwrap();
    let line = len() - one;
    let first = disk.operations();
    disk.fail(first + 1, Fault::ShortWrite(line - 1));
    disk.fail(first + 2, Fault::Enospc);
    assert_eq!(run.append(Event::token("six")).unwrap().last_seq, 3, "it counts");
    assert_eq!(len(), one + 2 * line - 1, "all but the line feed");
    let refused = run.append(Event::token("ten")).unwrap_err();
    assert!(matches!(refused.storage(), Some(StorageError::Latched { .. })), "{refused:?}");
    let again = store.resume_run(&id(), run.id()).unwrap();
    assert_eq!(again.append(Event::token("ten")).unwrap().last_seq, 4);
    let found = store.read_events(&id(), run.id(), ReadOptions::default()).unwrap();
    assert_eq!((found.events.len(), found.damage.len(), len()), (4, 0, one + 3 * line));
}

/// Events that got through before a write failed are appended, and become durable with everything else.
#[test]
fn whole_lines_of_a_write_that_failed_are_covered_by_the_next_commit() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    let long = Event::token(&"many words ".repeat(300));
    disk.fail(disk.operations() + 1, Fault::ShortWrite(2_000));
    disk.fail(disk.operations() + 2, Fault::Eio);
    let failed = run.append_all(&[Event::token("one"), long], Durability::Buffered).unwrap_err();
    assert!(
        matches!(failed, StoreError::Append(lastword::AppendError::Failed { appended_to: Some(1), .. })),
        "{failed:?}"
    );
    store.commit().unwrap();
    disk.power_cut(Crash::LoseAll);
    let found = open(&disk).unwrap().read_events(&id(), run.id(), ReadOptions::default()).unwrap();
    assert_eq!((found.events.len(), found.damage.len()), (1, 0));
}
