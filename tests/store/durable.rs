//! How appended events become durable: by one sync for all, told once each, in the background too.

#![allow(clippy::disallowed_methods, reason = "what happens in the background takes its time")]

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use lastword::format::commit::{SegmentHeader, read_segment};
use lastword::{CommitOptions, Durability, Event, NewSession, Options, Outcome, ReadOptions, Run, Store, UserTurn};

use crate::fixture::{fixture, in_time};

fn open(folder: &Path, commit: CommitOptions) -> Store {
    Store::open(folder, Options { commit, ..Options::default() }).unwrap()
}

fn begin(store: &Store) -> Run {
    let id = store.create(NewSession::titled("x")).unwrap();
    store.begin_run(&id, UserTurn::text("x")).unwrap()
}

/// The segments of the log: their headers, and how many records count in each.
fn segments(folder: &Path) -> Vec<(SegmentHeader, usize)> {
    let files = std::fs::read_dir(folder.join("_commit_log")).map(|files| files.map(Result::unwrap).collect());
    let files: Vec<std::fs::DirEntry> = files.unwrap_or_default();
    let read = |file: &std::fs::DirEntry| {
        let bytes = std::fs::read(file.path()).unwrap();
        let header = SegmentHeader::decode(&bytes).ok()?;
        let records = read_segment(&header, &bytes).len();
        Some((header, records))
    };
    files.iter().filter_map(read).collect()
}

fn logged(folder: &Path) -> usize {
    segments(folder).iter().map(|(_, records)| records).sum()
}

#[test]
fn what_nobody_asked_for_becomes_durable_in_the_background() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), CommitOptions::default());
    let run = begin(&store);
    run.append(Event::token("unasked")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while logged(folder.path()) == 0 {
        assert!(Instant::now() < deadline, "nobody made it durable");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn with_the_background_off_only_what_is_asked_for_is_synced_and_all_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), CommitOptions { background: None, ..CommitOptions::default() });
    let runs = [begin(&store), begin(&store)];
    for run in &runs {
        run.append(Event::token("unasked")).unwrap();
    }
    std::thread::sleep(Duration::from_millis(120));
    assert_eq!(logged(folder.path()), 0);
    runs[0].append_durable(Event::token("asked")).unwrap().wait().unwrap().expect("proof");
    assert!(logged(folder.path()) >= 2, "the event before it too");
    runs[1].append(Event::token("unasked")).unwrap();
    let before = logged(folder.path());
    store.commit().unwrap();
    assert!(logged(folder.path()) > before, "and everything, when that is asked for");
}

#[test]
fn every_ticket_of_many_streams_is_settled_and_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), CommitOptions::default());
    let runs: Vec<Run> = (0..40).map(|_| begin(&store)).collect();
    let calls = Arc::new(AtomicUsize::new(0));
    let (told, heard) = mpsc::channel();
    for round in 0..25 {
        for run in &runs {
            let (told, calls) = (told.clone(), calls.clone());
            let appended = run.append_durable(Event::token(&round.to_string())).unwrap();
            appended.on_durable(move |durable| {
                calls.fetch_add(1, Ordering::SeqCst);
                told.send(durable.is_ok_and(|proof| proof.is_some())).unwrap();
            });
        }
        for _ in &runs {
            assert!(heard.recv_timeout(Duration::from_secs(30)).expect("a ticket is never settled"));
        }
    }
    assert_eq!(calls.load(Ordering::SeqCst), 40 * 25);
    assert!(heard.try_recv().is_err());
}

#[test]
fn threads_that_wait_for_their_own_tickets_all_get_through() {
    in_time(|| {
        let folder = tempfile::tempdir().unwrap();
        let small = CommitOptions { segment_bytes: 4096, log_bytes: 12_288, ..CommitOptions::default() };
        let store = open(folder.path(), small);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let run = begin(&store);
                scope.spawn(move || {
                    for number in 0..60 {
                        let text = "x".repeat(if number % 20 == 0 { 9_000 } else { number * thread });
                        let appended = run.append_durable(Event::token(&text)).unwrap();
                        appended.wait().unwrap().expect("proof");
                    }
                });
            }
        });
        let bytes: u64 = std::fs::read_dir(folder.path().join("_commit_log"))
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        assert!(bytes <= 12_288, "the log has grown to {bytes} bytes");
    });
}

#[test]
fn a_callback_may_append_and_wait_and_one_that_panics_harms_nobody() {
    in_time(|| {
        let fixture = fixture();
        let (run, again) = (fixture.begin("x"), mpsc::channel());
        run.append_durable(Event::token("one")).unwrap().on_durable(|_| panic!("on purpose"));
        let (inner, told) = (run.clone(), again.0);
        run.append_durable(Event::token("two")).unwrap().on_durable(move |_| {
            let appended = inner.append_durable(Event::token("three")).unwrap();
            told.send(appended.wait().unwrap().is_some()).unwrap();
        });
        assert!(again.1.recv_timeout(Duration::from_secs(20)).expect("the callback never came back"));
        assert_eq!(fixture.seqs(run.id()), [1, 2, 3]);
    });
}

/// Whoever waits for the end of a run holds its session; callbacks of others must not be called there.
#[test]
fn a_callback_may_use_the_session_that_is_just_being_finished() {
    in_time(|| {
        let fixture = fixture();
        for number in 0..20 {
            let run = fixture.begin(&number.to_string());
            let (store, session, id) = (fixture.store.clone(), fixture.id.clone(), run.id().clone());
            let (told, heard) = mpsc::channel();
            run.append_durable(Event::token("x")).unwrap().on_durable(move |_| {
                told.send(store.resume_run(&session, &id).is_ok()).unwrap();
            });
            run.finish(Outcome::Completed).unwrap();
            heard.recv_timeout(Duration::from_secs(20)).expect("the callback never came back");
        }
    });
}

#[test]
fn a_callback_may_append_to_a_run_that_waits_for_room_to_append() {
    in_time(|| {
        let fixture = fixture();
        let run = fixture.begin("x");
        let (again, (told, heard)) = (run.clone(), mpsc::channel());
        run.append_durable(Event::token("small")).unwrap().on_durable(move |_| {
            told.send(again.append(Event::token("next")).is_ok()).unwrap();
        });
        let large = run.append_durable(Event::token(&"x".repeat(9 << 20))).unwrap();
        assert!(heard.recv_timeout(Duration::from_secs(20)).expect("the callback never came back"));
        large.wait().unwrap().expect("proof");
    });
}

#[test]
fn a_durable_store_shows_no_reader_what_is_not_durable() {
    let folder = tempfile::tempdir().unwrap();
    let commit = CommitOptions { background: None, ..CommitOptions::default() };
    let options = Options { commit, durability: Durability::Durable, ..Options::default() };
    let store = Store::open(folder.path(), options).unwrap();
    let run = begin(&store);
    let (session, id) = (run.session().clone(), run.id().clone());
    let mut follow = store.follow(&session, &id, lastword::After::Start).unwrap();
    let pending = run.append_durable(Event::token("not yet")).unwrap();
    drop(run);
    let shown = || store.read_events(&session, &id, ReadOptions::default()).unwrap().events.len();
    assert_eq!((shown(), store.replay(&session, None).unwrap().events.len()), (0, 0));
    assert!(follow.poll().unwrap().is_none(), "not even when nobody holds the run any more");
    pending.wait().unwrap().expect("proof");
    assert_eq!((shown(), store.replay(&session, None).unwrap().events.len()), (1, 1));
    assert!(follow.poll().unwrap().is_some());
}

#[test]
fn a_store_that_is_let_go_by_a_callback_closes() {
    in_time(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), CommitOptions::default());
        let run = begin(&store);
        let (session, id) = (run.session().clone(), run.id().clone());
        let (told, heard) = mpsc::channel();
        let appended = run.append_durable(Event::token("last")).unwrap();
        appended.on_durable(move |durable| {
            assert!(durable.is_ok());
            drop((run, store));
            told.send(()).unwrap();
        });
        heard.recv_timeout(Duration::from_secs(20)).expect("it never closes");
        let again = open(folder.path(), CommitOptions::default());
        let found = again.read_events(&session, &id, ReadOptions::default()).unwrap();
        assert_eq!(found.events.len(), 1);
    });
}

#[test]
fn a_clean_close_leaves_nothing_to_replay() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), CommitOptions::default());
    let run = begin(&store);
    for number in 0..50 {
        run.append_durable(Event::token(&number.to_string())).unwrap().wait().unwrap().expect("proof");
    }
    assert!(logged(folder.path()) >= 50);
    drop((run, store));
    let newest = segments(folder.path()).into_iter().max_by_key(|(header, _)| header.number).unwrap();
    assert_eq!((newest.0.live_from, newest.1), (newest.0.number, 0));
}

#[test]
fn a_ticket_tells_whether_it_is_durable_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), CommitOptions { background: None, ..CommitOptions::default() });
    let run = begin(&store);
    let appended = run.append_durable(Event::token("x")).unwrap();
    assert!(!appended.ticket.is_durable());
    store.commit().unwrap();
    assert!(appended.ticket.is_durable());
    assert!(!run.append(Event::token("y")).unwrap().ticket.is_durable(), "nobody asked for it");
}

#[test]
fn a_follower_sees_what_is_to_be_durable_when_it_is_and_nothing_behind_it_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), CommitOptions { background: None, ..CommitOptions::default() });
    let run = begin(&store);
    let mut follow = store.follow(run.session(), run.id(), lastword::After::Start).unwrap();
    let durable = run.append_durable(Event::token("one")).unwrap();
    assert!(follow.poll().unwrap().is_none());
    run.append(Event::token("two")).unwrap();
    assert!(follow.poll().unwrap().is_none(), "what comes behind it waits with it");
    durable.wait().unwrap().expect("proof");
    assert_eq!(follow.poll().unwrap().unwrap().seq, Some(1));
    assert_eq!(follow.poll().unwrap().unwrap().seq, Some(2));
    run.append(Event::token("three")).unwrap();
    assert_eq!(follow.poll().unwrap().unwrap().seq, Some(3));
}
