//! The meter: every number moves by what has happened, and by nothing else.

use std::fs;
use std::sync::Arc;
use std::thread;

use lastword::meter::{Appends, Meter};
use lastword::{CommitOptions, Durability, Event, NewSession, Options, Outcome, SaveOptions, Store, UserTurn};

use crate::fixture::fixture;

fn appends(calls: u64, events: u64, bytes: u64) -> Appends {
    Appends { calls, events, bytes, ..Appends::default() }
}

/// A store that makes nothing durable unless it is asked to.
fn by_request() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let commit = CommitOptions { background: None, ..CommitOptions::default() };
    let store = Store::open(folder.path(), Options { commit, ..Options::default() }).unwrap();
    (folder, store)
}

#[test]
fn appends_are_counted_by_call_by_event_and_by_byte() {
    let fixture = fixture();
    let measured = || fixture.store.meter().snapshot().appends;
    let journal = |run: &str| fixture.folder.path().join(format!("_run_journal/{}/{run}.jsonl", fixture.id));
    let mut bytes = 0;
    for round in 0..3 {
        let run = fixture.begin("Where to?");
        assert_eq!(measured(), appends(4 * round, 7 * round, bytes), "a run that begins appends nothing");
        run.append(Event::token("To")).unwrap();
        run.append_durable(Event::token(" the")).unwrap().wait().unwrap();
        run.append_all(&vec![Event::token(" sea"); 4], Durability::Buffered).unwrap();
        run.finish(Outcome::Completed).unwrap();
        bytes += fs::metadata(journal(run.id().as_str())).unwrap().len();
        assert_eq!(measured(), appends(4 * (round + 1), 7 * (round + 1), bytes));
    }
}

#[test]
fn an_append_that_is_refused_counts_as_that_alone() {
    let fixture = fixture();
    let run = fixture.begin("Where to?");
    run.finish(Outcome::Completed).unwrap();
    let before = fixture.store.meter().snapshot().appends;
    run.append(Event::token("late")).unwrap_err();
    assert_eq!(fixture.store.meter().snapshot().appends, Appends { refused: 1, ..before });
}

/// All of them to one run, so that some wait for the pen, and each to one of its own. A number never shrinks meanwhile.
#[test]
fn nothing_is_lost_where_many_append_at_once() {
    const EACH: u64 = 300;
    let fixture = fixture();
    let shared = fixture.begin("Where to?");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..EACH).for_each(|_| drop(shared.append(Event::token("x")).unwrap())));
            scope.spawn(|| {
                let session = fixture.store.create(NewSession::titled("own")).unwrap();
                let own = fixture.store.begin_run(&session, UserTurn::text("Where to?")).unwrap();
                (0..EACH).for_each(|_| drop(own.append(Event::token("x")).unwrap()));
            });
        }
        let mut before = 0;
        for _ in 0..200 {
            let now = fixture.store.meter().snapshot().appends.events;
            assert!(now >= before);
            before = now;
        }
    });
    let measured = fixture.store.meter().snapshot().appends;
    assert_eq!((measured.calls, measured.events), (8 * EACH, 8 * EACH));
}

#[test]
fn one_sync_counts_once_however_many_appends_it_makes_durable() {
    let (_folder, store) = by_request();
    let id = store.create(NewSession::titled("A title")).unwrap();
    let run = store.begin_run(&id, UserTurn::text("Where to?")).unwrap();
    assert_eq!(store.meter().snapshot().syncs, 0);
    let tickets: Vec<_> = (0..5).map(|_| run.append_durable(Event::token("x")).unwrap()).collect();
    assert!(tickets.into_iter().all(|ticket| ticket.wait().unwrap().is_some()));
    run.append(Event::token("x")).unwrap();
    store.commit().unwrap();
    store.commit().unwrap();
    let measured = store.meter().snapshot();
    assert_eq!((measured.syncs, measured.sync_failures), (2, 0), "nothing was left for the last one");
    assert_eq!((measured.batch_appends.count(), measured.batch_appends.sum), (2, 5));
    let within = |bound| measured.batch_appends.cumulative().find(|(known, _)| *known == Some(bound)).unwrap().1;
    assert_eq!((within(0), within(4), within(8)), (1, 1, 2), "one had five, one had none");
    assert_eq!(measured.sync_nanos.count(), 2);
    assert!(measured.sync_nanos.sum > 0);
}

#[test]
fn a_save_counts_when_something_was_written() {
    let fixture = fixture();
    let saves = || {
        let measured = fixture.store.meter().snapshot();
        assert_eq!((measured.save_nanos.count(), measured.save_failures), (measured.saves, 0));
        measured.saves
    };
    assert_eq!(saves(), 1, "the creation");
    fixture.store.update(&fixture.id, SaveOptions::default(), |session| session.set_text("title", "B")).unwrap();
    assert_eq!(saves(), 2);
    let untouched = SaveOptions { touch_updated_at: false, ..SaveOptions::default() };
    fixture.store.update(&fixture.id, untouched, |_| {}).unwrap();
    assert_eq!(saves(), 2, "it was stored already");
    fixture.store.create(NewSession::titled("again").with_id(fixture.id.clone())).unwrap_err();
    assert_eq!(saves(), 2, "a conflict is no save and no failure");
    fixture.begin("Where to?").finish(Outcome::Completed).unwrap();
    assert_eq!(saves(), 4, "the turn and its answer");
    assert_eq!(fixture.store.meter().snapshot().recoveries, Default::default(), "that was no recovery");
}

#[test]
fn reads_are_counted_as_served_from_memory_or_not() {
    let fixture = fixture();
    let reads = |store: &Store| {
        let measured = store.meter().snapshot();
        (measured.cache_hits, measured.cache_misses)
    };
    assert_eq!(reads(&fixture.store), (0, 0));
    (0..3).for_each(|_| drop(fixture.store.get_session(&fixture.id).unwrap()));
    assert_eq!(reads(&fixture.store), (3, 0), "what was created is in memory");
    let reader = Store::open_read_only(fixture.folder.path(), Options::default()).unwrap();
    (0..3).for_each(|_| drop(reader.get_session(&fixture.id).unwrap()));
    assert_eq!(reads(&reader), (2, 1));
    fixture.store.update(&fixture.id, SaveOptions::default(), |session| session.set_text("title", "B")).unwrap();
    reader.get_session(&fixture.id).unwrap();
    assert_eq!(reads(&reader), (2, 2), "what was held is out of date");
    reader.get_session_for_scan(&fixture.id).unwrap();
    assert_eq!(reads(&reader), (2, 2), "a scan leaves no trace");
}

#[test]
fn the_size_of_the_cache_is_what_it_holds_now() {
    let fixture = fixture();
    let one = fixture.store.cache_size();
    assert_eq!((one.sessions, one.bytes > 0), (1, true));
    let other = fixture.store.create(NewSession::titled(&"long ".repeat(1_000))).unwrap();
    let two = fixture.store.cache_size();
    assert_eq!(two.sessions, 2);
    assert!(two.bytes > one.bytes + 5_000);
    fixture.store.delete(&other).unwrap();
    assert_eq!(fixture.store.cache_size(), one);
}

#[test]
fn stores_of_the_same_options_share_a_meter_and_others_do_not() {
    let meter = Arc::new(Meter::default());
    let options = Options { meter: meter.clone(), ..Options::default() };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for folder in &folders {
        let store = Store::open(folder.path(), options.clone()).unwrap();
        store.create(NewSession::titled("A title")).unwrap();
    }
    assert_eq!(meter.snapshot().saves, 2);
    assert_eq!(fixture().store.meter().snapshot().saves, 1);
}

#[cfg(feature = "sim")]
mod failures {
    use lastword::storage::sim::{Fault, SimDisk};
    use lastword::{Run, SessionId};

    use super::*;

    fn begun(disk: &SimDisk) -> (Store, SessionId, Run) {
        let store = Store::open_on(Arc::new(disk.clone()), "/data", Options::default()).unwrap();
        let id = store.create(NewSession::titled("A title")).unwrap();
        let run = store.begin_run(&id, UserTurn::text("Where to?")).unwrap();
        (store, id, run)
    }

    #[test]
    fn an_append_that_fails_counts_as_that_and_what_got_through_before_as_events() {
        let disk = SimDisk::new();
        let (store, _, run) = begun(&disk);
        run.append(Event::token("one")).unwrap();
        let one = store.meter().snapshot().appends;
        // A whole line and a part of the next; then there is no more room.
        disk.fail(disk.operations() + 1, Fault::ShortWrite(one.bytes as usize + 10));
        disk.fail(disk.operations() + 2, Fault::Enospc);
        run.append_all(&[Event::token("two"), Event::token("six")], Durability::Buffered).unwrap_err();
        let expected = Appends { calls: 1, events: 2, bytes: 2 * one.bytes, refused: 0, failures: 1 };
        assert_eq!(store.meter().snapshot().appends, expected);
    }

    #[test]
    fn a_sync_that_fails_is_no_sync_and_counts_once() {
        let disk = SimDisk::new();
        let (store, _, run) = begun(&disk);
        run.append_durable(Event::token("one")).unwrap().wait().unwrap();
        disk.break_syncs(disk.operations() + 1);
        run.append_durable(Event::token("two")).unwrap().wait().unwrap_err();
        store.commit().unwrap_err();
        let measured = store.meter().snapshot();
        assert_eq!((measured.syncs, measured.sync_failures, measured.appends.calls), (1, 1, 2));
        assert_eq!(measured.sync_nanos.count(), 1);
    }

    #[test]
    fn a_save_that_the_disk_fails_counts_as_a_failure() {
        let disk = SimDisk::new();
        let (store, id, _run) = begun(&disk);
        let before = store.meter().snapshot().saves;
        disk.fill(disk.operations() + 1);
        store.update(&id, SaveOptions::default(), |session| session.set_text("title", "B")).unwrap_err();
        let measured = store.meter().snapshot();
        assert_eq!((measured.saves, measured.save_failures), (before, 1));
    }

    #[test]
    fn what_was_found_wrong_at_the_opening_is_counted() {
        let disk = SimDisk::new();
        let (store, _, run) = begun(&disk);
        for _ in 0..9 {
            run.append_durable(Event::token("one")).unwrap().wait().unwrap();
        }
        let copy = disk.copy();
        copy.kill();
        let segment = copy.files().into_keys().find(|path| path.starts_with("/data/_commit_log")).unwrap();
        // Inside of the first record, with good ones behind it.
        copy.rot(&segment, 150, 0).unwrap();
        let again = Store::open_on(Arc::new(copy), "/data", Options::default()).unwrap();
        let found = again.findings().len() as u64;
        assert_eq!((found > 0, again.meter().snapshot().findings), (true, found));
        assert_eq!(store.meter().snapshot().findings, 0);
    }
}
