//! Who is alive: runs that somebody holds, producers whose lease has not lapsed, and turns within their grace.

use std::time::Duration;

use lastword::model::SessionState;
use lastword::{After, Change, Event, Liveness, NewSession, Outcome, Run, RunState, Store, UserTurn};
use serde_json::json;

use crate::scene::{BEGAN, RUN, Scene, contents, id, markers, run};

fn begun(scene: &Scene, lease_seconds: Option<f64>) -> (Store, Run) {
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    let turn = UserTurn { lease_seconds, ..UserTurn::text("Where to?").with_run(run(RUN)) };
    let run = store.begin_run(&id(), turn).unwrap();
    run.append(Event::token("To the sea")).unwrap();
    (store, run)
}

fn is_pending(store: &Store) -> bool {
    store.get_session(&id()).unwrap().pending_turn().is_some()
}

#[test]
fn a_run_that_somebody_holds_is_live_however_long_it_is_silent() {
    let scene = Scene::new();
    let (store, run) = begun(&scene, None);
    scene.wait(100_000);
    assert!(is_pending(&store));
    run.finish(Outcome::Completed).unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!(
        (contents(&session), markers(&session).len()),
        (vec!["Where to?".to_owned(), "To the sea".to_owned()], 0)
    );
}

#[test]
fn a_run_that_nobody_holds_any_more_is_left_alone_for_the_grace_and_then_recovered() {
    let scene = Scene::new();
    let (store, run) = begun(&scene, None);
    drop(run);
    scene.wait(29);
    assert!(is_pending(&store));
    scene.wait(1);
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea"]);
    assert_eq!(markers(&session).len(), 1);
}

#[test]
fn a_turn_that_began_before_this_process_is_recovered_at_once() {
    let scene = Scene::new();
    drop(begun(&scene, None));
    scene.wait(1);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea"]);
    assert_eq!(markers(&session)[0]["interruption_cause"], "process_restart");
}

#[test]
fn a_run_that_somebody_vouches_for_is_live_as_long_as_any_guard_lives() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    let store = scene.open();
    let (first, second) = (store.keep_alive(&id(), &run(RUN)), store.keep_alive(&id(), &run(RUN)));
    drop(second);
    assert!(is_pending(&store));
    drop(first);
    assert!(!is_pending(&store));
}

#[test]
fn a_producer_outside_is_alive_for_its_lease_after_its_last_sign_of_life() {
    let scene = Scene::new();
    let (store, run) = begun(&scene, Some(100.0));
    scene.wait(99);
    run.append(Event::token("side")).unwrap();
    drop(run);
    scene.wait(100);
    assert!(is_pending(&store), "an append renews the lease");
    store.resume_run(&id(), &crate::scene::run(RUN)).unwrap().renew_lease();
    scene.wait(100);
    assert!(is_pending(&store), "an empty sign of life renews it too");
    scene.wait(1);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the seaside"]);
}

#[test]
fn a_handle_in_this_process_does_not_keep_a_producer_outside_alive() {
    let scene = Scene::new();
    let (store, _run) = begun(&scene, Some(100.0));
    scene.wait(100);
    assert!(is_pending(&store));
    scene.wait(1);
    assert!(!is_pending(&store));
}

#[test]
fn a_lease_outlasts_a_restart_of_the_store() {
    let scene = Scene::new();
    drop(begun(&scene, Some(100.0)));
    scene.wait(50);
    let store = scene.open();
    assert!(is_pending(&store));
    scene.wait(51);
    assert!(!is_pending(&store));
}

#[test]
fn a_beginning_far_in_the_future_is_a_wrong_clock_and_counts_as_old() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.clock.set(lastword::clock::Timestamp::from_seconds((BEGAN - 3_600) as f64));
    let store = scene.open();
    assert!(!is_pending(&store));
}

#[test]
fn a_follower_that_waits_has_a_dead_run_closed() {
    let scene = Scene::new();
    let (store, run) = begun(&scene, None);
    drop(run);
    scene.wait(30);
    let names: Vec<String> =
        store.follow(&id(), &crate::scene::run(RUN), After::Start).unwrap().map(|event| event.unwrap().name).collect();
    assert_eq!(names, ["token", "apperror"]);
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea"]);
    assert_eq!(markers(&session)[0]["interruption_cause"], "producer_gone");
    assert_eq!(markers(&session)[0].get("_recovered_records"), None, "nothing more can come");
    let late = store.resume_run(&id(), &crate::scene::run(RUN)).and_then(|run| run.append(Event::token("late")));
    assert_eq!(late.unwrap_err().code(), "sealed", "a producer that outlived its run is told");
}

#[test]
fn a_follower_never_closes_a_journal_that_is_empty_or_not_ours() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "theirs"}))]);
    scene.journal("empty", 1, &[]);
    let store = scene.open();
    for (name, events) in [(RUN, 1), ("empty", 0)] {
        let (store, before) =
            (store.clone(), std::fs::read(scene.root.join(format!("_run_journal/talk/{name}.jsonl"))));
        let (told, heard) = std::sync::mpsc::channel();
        let follow = store.follow(&id(), &run(name), After::Start).unwrap();
        std::thread::spawn(move || follow.for_each(|event| told.send(event.unwrap().name).unwrap_or_default()));
        let mut seen = Vec::new();
        while let Ok(event) = heard.recv_timeout(std::time::Duration::from_millis(700)) {
            seen.push(event);
        }
        assert_eq!(seen.len(), events, "{seen:?}");
        assert_eq!(std::fs::read(scene.root.join(format!("_run_journal/talk/{name}.jsonl"))).unwrap(), before.unwrap());
    }
}

/// The names of a run's events as a follower sees them, to the end.
fn follow(store: &Store) -> Vec<String> {
    store.follow(&id(), &run(RUN), After::Start).unwrap().map(|event| event.unwrap().name).collect()
}

#[test]
fn a_dead_run_that_was_read_ends_for_its_followers() {
    for lease in [None, Some(20.0)] {
        let scene = Scene::new();
        let (store, run) = begun(&scene, lease);
        // A handle of the producer's run may well be open still.
        let _open = lease.map(|_| run.clone());
        drop(run);
        scene.wait(31);
        assert!(!is_pending(&store), "the read recovers the turn");
        assert_eq!(store.liveness(&id(), &crate::scene::run(RUN)).unwrap(), Liveness::Orphaned);
        let interrupted_at = markers(&store.get_session(&id()).unwrap())[0]["timestamp"].clone();
        scene.wait(60);
        assert_eq!(follow(&store), ["token", "apperror"], "{lease:?}");
        let session = store.get_session(&id()).unwrap();
        assert_eq!((contents(&session).len(), markers(&session).len()), (2, 1), "{:?}", contents(&session));
        assert_eq!(markers(&session)[0]["timestamp"], interrupted_at, "sealing a run does not interrupt it anew");
    }
}

#[test]
fn a_run_that_no_reader_waits_for_is_not_sealed_and_takes_late_events() {
    let scene = Scene::new();
    let (store, run) = begun(&scene, Some(20.0));
    scene.wait(1_000);
    assert!(!is_pending(&store));
    run.append(Event::token("side.")).unwrap();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the seaside."]);
    assert_eq!(store.liveness(&id(), run.id()).unwrap(), Liveness::Live { for_at_most: Some(Duration::from_secs(20)) });
    run.finish(Outcome::Completed).unwrap();
    assert_eq!((markers(&store.get_session(&id()).unwrap()).len(), follow(&store).len()), (0, 3));
}

#[test]
fn a_reader_that_waits_is_woken_when_the_run_is_let_go_and_when_it_is_opened_again() {
    let scene = Scene::new();
    let (store, run) = begun(&scene, None);
    let (told, heard) = std::sync::mpsc::channel();
    let following = store.follow(&id(), run.id(), After::Start).unwrap();
    let reader = std::thread::spawn(move || following.for_each(|event| told.send(event.unwrap().name).unwrap()));
    let next = || heard.recv_timeout(Duration::from_secs(3)).unwrap();
    assert_eq!(next(), "token");
    drop(run);
    let again = store.resume_run(&id(), &crate::scene::run(RUN)).unwrap();
    again.append(Event::token("side")).unwrap();
    assert_eq!(next(), "token");
    scene.wait(31);
    drop(again);
    assert_eq!(next(), "apperror");
    reader.join().unwrap();
}

#[test]
fn a_list_says_that_an_answer_was_interrupted_as_soon_as_its_lease_has_lapsed() {
    let scene = Scene::new();
    let (store, run) = begun(&scene, Some(60.0));
    let state = || store.list_page(None, 10).unwrap().sessions[0].state;
    assert_eq!(state(), SessionState::Answering);
    scene.wait(61);
    assert_eq!(state(), SessionState::Interrupted);
    run.append(Event::token("side.")).unwrap();
    assert_eq!(state(), SessionState::Answering, "its producer is back");
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(state(), SessionState::Idle);
}

/// What a session's stream shows, run by run.
fn stream(store: &Store) -> Vec<(String, u64, Option<u64>)> {
    let segments = store.segments(&id()).unwrap().into_iter();
    segments.map(|segment| (segment.run.to_string(), segment.after_seq, segment.until_seq)).collect()
}

#[test]
fn a_run_that_goes_on_after_another_one_began_has_a_place_after_it() {
    let scene = Scene::new();
    let (store, late) = begun(&scene, Some(20.0));
    scene.wait(31);
    let heard = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    store.on_change({
        let heard = heard.clone();
        move |change| match change {
            Change::Begun { run, .. } => heard.lock().push(format!("begun {run}")),
            Change::Continued { run, after_seq, .. } => heard.lock().push(format!("{run} after {after_seq}")),
            Change::Resumed(_, run) => heard.lock().push(format!("resumed {run}")),
            _ => {}
        }
    });
    let second = store.begin_run(&id(), UserTurn::text("And then?").with_run(run("second"))).unwrap();
    second.append(Event::token("Home.")).unwrap();
    for word in ["side", "!"] {
        late.append(Event::token(word)).unwrap();
    }
    second.finish(Outcome::Completed).unwrap();
    let own = |after, until| (RUN.to_owned(), after, until);
    let expected = [own(0, Some(1)), ("second".to_owned(), 0, None), own(1, None)];
    assert_eq!(stream(&store), expected);
    // An empty run, left by the readers that were told so, and then by another run.
    let empty = store.begin_run(&id(), UserTurn::text("Well?").with_run(run("empty"))).unwrap();
    drop(empty);
    scene.wait(31);
    let third = store.begin_run(&id(), UserTurn::text("Hello?").with_run(run("third"))).unwrap();
    let empty = store.resume_run(&id(), &run("empty")).unwrap();
    empty.append(Event::token("Yes.")).unwrap();
    late.append(Event::token("?")).unwrap();
    third.finish(Outcome::Completed).unwrap();
    let order: Vec<String> = stream(&store).into_iter().map(|(run, after, _)| format!("{run}:{after}")).collect();
    assert_eq!(order, ["run-1:0", "second:0", "run-1:1", "empty:0", "third:0", "empty:0", "run-1:3"]);
    let told = ["begun second", "run-1 after 1", "begun empty", "begun third", "empty after 0", "run-1 after 3"];
    assert_eq!(*heard.lock(), told);
    drop((late, second, third, empty, store));
    let again: Vec<String> =
        stream(&scene.open()).into_iter().map(|(run, after, _)| format!("{run}:{after}")).collect();
    assert_eq!(again, order, "the order is stored");
}

#[test]
fn a_run_that_goes_on_after_the_late_events_of_another_one_has_a_place_after_those() {
    let scene = Scene::new();
    let (store, first) = begun(&scene, Some(20.0));
    scene.wait(31);
    let turn = UserTurn { lease_seconds: Some(20.0), ..UserTurn::text("And then?").with_run(run("second")) };
    let second = store.begin_run(&id(), turn).unwrap();
    first.append(Event::token("side")).unwrap();
    scene.wait(31);
    // A reader is told that the second run, which is empty, is over.
    let mut reader = store.follow(&id(), second.id(), After::Start).unwrap();
    assert_eq!((reader.poll().unwrap().is_none(), reader.ended().unwrap()), (true, Some(RunState::Orphaned)));
    second.append(Event::token("Home.")).unwrap();
    let order: Vec<String> = stream(&store).into_iter().map(|(run, after, _)| format!("{run}:{after}")).collect();
    assert_eq!(order, ["run-1:0", "second:0", "run-1:1", "second:0"]);
}

#[test]
fn the_seal_of_a_run_that_readers_left_is_announced_also_if_its_journal_was_closed() {
    let scene = Scene::new();
    drop(begun(&scene, Some(20.0)));
    scene.wait(31);
    let store = scene.open();
    let (tell, told) = std::sync::mpsc::channel();
    store.on_change(move |change| {
        if matches!(change, Change::Resumed(..)) {
            let _ = tell.send(());
        }
    });
    assert_eq!(follow(&store).len(), 2);
    // The timer announces it after it has shown the end.
    told.recv_timeout(Duration::from_secs(20)).expect("it was not announced");
    drop(store);
    assert_eq!(told.iter().count(), 0, "it was announced once");
}

#[test]
fn the_next_run_of_a_session_that_was_copied_from_another_directory_comes_after_those_it_has() {
    let (from, to) = (Scene::new(), Scene::new());
    let store = from.open();
    // Each opening reserves numbers of its own.
    for title in 0..3 {
        let other = store.create(NewSession::titled(&title.to_string())).unwrap();
        store.begin_run(&other, UserTurn::text("x")).unwrap();
    }
    drop(store);
    let (store, old) = begun(&from, None);
    old.finish(Outcome::Completed).unwrap();
    drop((old, store));
    std::fs::copy(from.root.join("talk.json"), to.root.join("talk.json")).unwrap();
    std::fs::create_dir_all(to.root.join("_run_journal/talk")).unwrap();
    for entry in std::fs::read_dir(from.root.join("_run_journal/talk")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.root.join("_run_journal/talk").join(entry.file_name())).unwrap();
    }
    let store = to.open();
    let other = store.create(NewSession::titled("other")).unwrap();
    store.begin_run(&other, UserTurn::text("x")).unwrap();
    store.begin_run(&id(), UserTurn::text("And then?").with_run(run("a-new-one"))).unwrap();
    assert_eq!(store.runs_as_begun(&id()).unwrap(), [run(RUN), run("a-new-one")]);
}

#[test]
fn one_record_that_cannot_be_read_costs_no_other_run_its_events() {
    let scene = Scene::new();
    let (store, late) = begun(&scene, Some(20.0));
    scene.wait(31);
    store.begin_run(&id(), UserTurn::text("And then?").with_run(run("second"))).unwrap();
    drop((late, store));
    let record = scene.root.join("_run_journal/talk/_second.run");
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    let store = scene.open();
    store.resume_run(&id(), &run(RUN)).unwrap().append(Event::token("side")).unwrap();
    assert_eq!(store.segments(&id()).unwrap().len(), 2);
}

#[test]
fn a_process_that_only_reads_ends_no_run_for_its_followers() {
    let scene = Scene::new();
    let (store, run) = begun(&scene, Some(100.0));
    let reader = Store::open_read_only_on(scene.disk.clone(), &scene.root, scene.options.clone()).unwrap();
    let mut beside = reader.follow(&id(), run.id(), After::Start).unwrap();
    assert!(beside.poll().unwrap().is_some() && beside.poll().unwrap().is_none());
    scene.wait(1_000);
    assert_eq!(beside.ended().unwrap(), None, "the writer decides");
    drop((run, store));
    assert_eq!(beside.ended().unwrap(), None, "the next writer may go on with it");
    let run = scene.open().resume_run(&id(), &crate::scene::run(RUN)).unwrap();
    run.finish(Outcome::Completed).unwrap();
    assert!(beside.poll().unwrap().is_some());
    assert_eq!(beside.ended().unwrap(), Some(RunState::Ended(Outcome::Completed)));
}

#[test]
fn a_list_without_a_writer_says_what_the_next_reader_of_the_session_would_find() {
    for (lease, state) in [(None, SessionState::Interrupted), (Some(100.0), SessionState::Answering)] {
        let scene = Scene::new();
        drop(begun(&scene, lease));
        scene.wait(1);
        let reader = Store::open_read_only_on(scene.disk.clone(), &scene.root, scene.options.clone()).unwrap();
        assert_eq!(reader.list().unwrap()[0].state, state, "{lease:?}");
        assert_eq!(is_pending(&scene.open()), lease.is_some());
    }
}

#[test]
fn beside_the_process_that_began_it_a_run_without_a_lease_is_answered_however_long_that_takes() {
    let scene = Scene::new();
    let (store, run) = begun(&scene, None);
    scene.wait(1_000);
    let reader = Store::open_read_only_on(scene.disk.clone(), &scene.root, scene.options.clone()).unwrap();
    let state = || reader.list().unwrap()[0].state;
    assert_eq!(state(), SessionState::Answering);
    drop((run, store));
    assert_eq!(state(), SessionState::Interrupted, "no process holds the directory");
    let _next = scene.open();
    assert_eq!(state(), SessionState::Interrupted, "the one that holds it did not begin the run");
}

/// The journal is closed, so that no handle of it wakes the readers.
#[test]
fn readers_of_a_closed_run_are_woken_when_it_is_removed_and_when_its_session_is_deleted() {
    type Removal = fn(&Store);
    let removals: [Removal; 2] =
        [|store| store.delete(&id()).unwrap(), |store| store.remove_run(&id(), &run(RUN)).unwrap()];
    for remove in removals {
        let scene = Scene::new();
        let store = scene.open();
        store.create(NewSession::titled("A talk").with_id(id())).unwrap();
        store.adopt_run(&id(), &run(RUN)).unwrap().append(Event::token("To the sea")).unwrap();
        let mut follow = store.follow(&id(), &run(RUN), After::Start).unwrap();
        assert!(follow.poll().unwrap().is_some() && follow.poll().unwrap().is_none());
        let (wake, woken) = std::sync::mpsc::channel();
        follow.wake_with(std::sync::Arc::new(move || wake.send(()).unwrap_or_default())).unwrap();
        woken.recv_timeout(Duration::from_secs(20)).expect("the timer's first look wakes each reader");
        assert_eq!(follow.ended().unwrap(), None);
        remove(&store);
        woken.recv_timeout(Duration::from_secs(20)).expect("the reader was not woken");
        assert_eq!(follow.ended().unwrap(), Some(RunState::Gone));
    }
}

#[test]
fn the_lease_of_a_removed_run_is_over_although_its_handle_is_open() {
    let scene = Scene::new();
    let (store, late) = begun(&scene, Some(20.0));
    scene.wait(1_000);
    assert!(!is_pending(&store));
    late.append(Event::token("side.")).unwrap();
    assert!(matches!(store.liveness(&id(), late.id()).unwrap(), Liveness::Live { .. }));
    store.remove_run(&id(), late.id()).unwrap();
    assert_eq!(store.liveness(&id(), late.id()).unwrap(), Liveness::Gone);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the seaside."]);
}
