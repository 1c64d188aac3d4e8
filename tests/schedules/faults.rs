//! Syncs that fail under a thread of the store's own: the store stops, tells every waiter, and acknowledges nothing more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lastword::storage::sim::Fault;
use lastword::storage::sim::schedule::{Explorer, spawn};

use crate::world::{SMALL_LOG, TINY_LOG, Trial, World, log_of};

/// Lets the operation of this number of the thread of this name fail.
fn fail_operation_of(world: &World, thread: &'static str, wanted: u64) -> Arc<AtomicBool> {
    let (count, has_failed) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
    let failed = has_failed.clone();
    world.observe_also(move |disk| {
        if std::thread::current().name() == Some(thread) && count.fetch_add(1, Ordering::SeqCst) + 1 == wanted {
            disk.fail(disk.operations() + 1, Fault::Eio);
            failed.store(true, Ordering::SeqCst);
        }
    });
    has_failed
}

/// Two appenders, until the store stops or they are done.
fn append_beside(world: &World) {
    let store = world.open();
    let runs = [world.begin(&store, "a", "r"), world.begin(&store, "b", "r")];
    let appenders = runs.map(|run| {
        let world = world.clone();
        spawn("appender", move || {
            (0..6).all(|number| {
                world.append(&run, &format!("buffered {number}."))
                    && world.append_durable(&run, &format!("durable {number}."))
            })
        })
    });
    let are_done = appenders.map(|appender| appender.join());
    let stopped = store.stopped_reason();
    let failed = world.disk.log().into_iter().find(|line| line.contains("!Eio"));
    let is_sync = failed.as_ref().is_some_and(|line| line.contains(" sync"));
    assert_eq!(stopped.is_some(), is_sync, "{failed:?} and {stopped:?}");
    // A write that fails closes its own run.
    let is_journal = failed.as_ref().is_some_and(|line| line.contains("jsonl"));
    let done = are_done.into_iter().filter(|is_done| *is_done).count();
    assert!(done == 2 || is_sync || (is_journal && done == 1), "{failed:?}");
}

/// Fails each operation of a thread in turn, each under a few schedules.
#[track_caller]
fn fail_each_operation_of(thread: &'static str, log: lastword::CommitOptions, at_least: u64) {
    let usual = Trial::default();
    let explorer = Explorer { singles_max: 4, pairs_max: 2, seeds: 4, ..usual.explorer };
    let trial = Trial { log, explorer, ..usual };
    for operation in 1.. {
        let has_failed = Arc::new(AtomicBool::new(false));
        let noted = has_failed.clone();
        trial.run(move |world| {
            let failed = fail_operation_of(world, thread, operation);
            append_beside(world);
            noted.fetch_or(failed.load(Ordering::SeqCst), Ordering::SeqCst);
        });
        if !has_failed.load(Ordering::SeqCst) {
            assert!(operation > at_least, "{thread} makes only {operation} operations");
            break;
        }
    }
}

#[test]
fn each_operation_of_the_thread_that_tends_the_log_fails() {
    fail_each_operation_of("lastword-tend", SMALL_LOG, 5);
}

#[test]
fn each_operation_of_the_thread_that_commits_fails() {
    fail_each_operation_of("lastword-commit", log_of(4096, 4), 2);
}

#[test]
fn each_operation_of_an_appender_fails_whose_log_is_full_again_and_again() {
    fail_each_operation_of("appender", TINY_LOG, 10);
}
