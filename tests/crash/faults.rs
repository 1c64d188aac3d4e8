//! Operations that fail, and what is never claimed after that.

use std::sync::Arc;

use lastword::storage::sim::{Crash, Fault};
use lastword::{Event, List, Options, Outcome, ReadOptions, RunId, Store, StoreError, UserTurn};

use crate::aftermath::check_aftermath;
use crate::machine::{DATA, End, Workload, created, id, open, operations_of, prepared};

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
                let must_fail = !matches!(fault, Fault::ShortWrite(_));
                assert!(outcome.is_err() || !must_fail, "operation {operation}: {fault:?} was swallowed");
                end.strike(&disk);
                check_aftermath(&disk, &told, end, &format!("operation {operation}, {fault:?}, {end:?}"));
            }
        }
    }
}

#[test]
fn a_journal_that_failed_refuses_further_work_and_says_why() {
    for fault in [Fault::Eio, Fault::Enospc] {
        let (disk, _) = prepared(created);
        let store = open(&disk).unwrap();
        let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
        run.append(Event::token("one")).unwrap();
        disk.fail(disk.operations() + 1, fault);
        let first = run.append(Event::token("two")).unwrap_err();
        let second = run.append(Event::token("three")).unwrap_err();
        assert_eq!(first.storage().unwrap().is_no_space(), fault == Fault::Enospc);
        assert!(second.to_string().contains("could not append"), "{second}");
        let why = format!("{:?}", second.storage().unwrap());
        assert!(why.contains("Latched") && why.contains("write"), "{why}");
        let again = store.resume_run(&id(), run.id()).unwrap();
        assert_eq!(again.append(Event::token("two")).unwrap().last_seq, 2, "a new writer begins with what is there");
    }
}

#[test]
fn a_failed_sync_is_never_followed_by_a_success() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    disk.fail(disk.operations() + 2, Fault::Eio);
    assert!(run.append_durable(Event::token("one")).unwrap().wait().is_err());
    assert!(run.append_durable(Event::token("two")).is_err());
    disk.power_cut(Crash::KeepAll);
    let found = open(&disk).unwrap().read_events(&id(), run.id(), ReadOptions::default()).unwrap();
    assert!(found.events.is_empty(), "what the failed sync forgot was never acknowledged");
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

#[test]
fn durable_covers_all_before_it_even_after_a_failed_sync() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append(Event::token("one")).unwrap();
    disk.fail(disk.operations() + 2, Fault::Eio);
    assert!(run.append_durable(Event::token("two")).unwrap().wait().is_err());
    let again = store.resume_run(&id(), run.id()).unwrap();
    assert!(again.append_durable(Event::token("three")).unwrap().wait().unwrap().is_some());
    disk.power_cut(Crash::LoseAll);
    let found = open(&disk).unwrap().read_events(&id(), run.id(), ReadOptions::default()).unwrap();
    assert_eq!(found.events.len(), 3, "{:?}", found.damage);
}

/// A file that is closed to make room for another is synced first. If that fails, its journal is closed for good.
#[test]
fn a_sync_that_fails_when_a_file_is_closed_for_another_latches_its_journal() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let adopt = |number: usize| store.adopt_run(&id(), &RunId::parse(&format!("r{number}")).unwrap()).unwrap();
    let runs: Vec<_> = (0..=lastword::limits::OPEN_JOURNALS_MAX).map(adopt).collect();
    let (last, open_ones) = runs.split_last().unwrap();
    for run in open_ones {
        run.append(Event::token("one")).unwrap();
    }
    disk.fail(disk.operations() + 1, Fault::Eio);
    assert_eq!(last.append(Event::token("one")).unwrap().last_seq, 1, "the newcomer is not to blame");
    let refusal = runs[0].append(Event::token("two")).unwrap_err();
    let why = format!("{:?}", refusal.storage().unwrap());
    assert!(why.contains("Latched") && why.contains("sync"), "{why}");
    runs[1].append(Event::token("two")).unwrap();
    let again = store.resume_run(&id(), runs[0].id()).unwrap();
    again.append_durable(Event::token("three")).unwrap().wait().unwrap().expect("proof");
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
    disk.fail(disk.operations() + 2, Fault::Eio);
    assert!(run.append(Event::token("one")).is_err());
    assert!(follow.poll().unwrap().is_none(), "a reader saw what power loss could take back");
}

#[test]
fn an_answer_that_could_not_be_saved_is_saved_by_the_next_finish() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let run = store.begin_run(&id(), UserTurn::text("x")).unwrap();
    run.append(Event::token("answer")).unwrap();
    disk.fail(disk.operations() + 3, Fault::Enospc);
    let unsaved = run.finish(Outcome::Completed).unwrap_err();
    assert!(unsaved.storage().unwrap().is_no_space(), "{unsaved}");
    run.finish(Outcome::Completed).unwrap();
    assert!(run.finish(Outcome::Completed).is_err(), "and only once");
    let session = store.get_session(&id()).unwrap();
    assert_eq!((session.len(List::Messages), session.pending_turn()), (2, None));
}
