//! Who is alive: runs that somebody holds, producers whose lease has not lapsed, and turns within their grace.

use lastword::{After, Event, NewSession, Outcome, Run, Store, UserTurn};
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
