//! Leases: what counts as a sign of life, what a pause or a step of the clock does, and lengths that are refused.

use lastword::clock::Timestamp;
use lastword::model::SessionState;
use lastword::{Event, Liveness, NewSession, Outcome, Run, Store, StoreError, UserTurn};

use crate::scene::{OPENED, RUN, Scene, contents, id, run};

fn begin(store: &Store, name: &str, lease_seconds: f64) -> Result<Run, StoreError> {
    let turn = UserTurn { lease_seconds: Some(lease_seconds), ..UserTurn::text("Where to?").with_run(run(name)) };
    store.begin_run(&id(), turn)
}

fn set_back(scene: &Scene, seconds: i64) {
    scene.clock.set(Timestamp::from_seconds((OPENED - seconds) as f64));
}

/// A session with a run that has a lease of 100 s and one event.
fn begun(scene: &Scene) -> (Store, Run) {
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    let run = begin(&store, RUN, 100.0).unwrap();
    run.append(Event::token("To the sea")).unwrap();
    (store, run)
}

fn is_pending(store: &Store) -> bool {
    store.get_session(&id()).unwrap().pending_turn().is_some()
}

#[test]
fn a_lease_from_the_far_future_does_not_hold_a_run_alive() {
    for reopened in [false, true] {
        let scene = Scene::new();
        let (mut store, run) = begun(&scene);
        if reopened {
            drop((store, run));
            store = scene.open();
        }
        set_back(&scene, 99);
        assert!(is_pending(&store), "a little wrong is not wrong");
        set_back(&scene, 36_000);
        assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea"], "{reopened}");
    }
}

#[test]
fn a_step_of_the_clock_does_not_end_a_lease_in_a_store_that_serves_producers() {
    for seconds in [-36_000, -99, 36_000, 10_000_000] {
        let mut scene = Scene::new();
        scene.options.serves_producers = true;
        let (store, _run) = begun(&scene);
        set_back(&scene, -seconds);
        for _ in 0..200 {
            assert!(is_pending(&store), "{seconds}");
            scene.wait_a_moment();
        }
        assert!(is_pending(&store), "{seconds}");
        scene.wait_a_moment();
        assert!(!is_pending(&store), "{seconds}");
    }
}

/// A server that is started again, or was stopped for a while, does not know how its producers fared.
#[test]
fn a_store_that_serves_producers_grants_every_lease_anew_when_it_is_opened_and_after_a_pause() {
    let mut scene = Scene::new();
    let (store, run) = begun(&scene);
    drop((store, run));
    scene.wait(5_000);
    assert!(is_pending_in(&scene, true), "the server grants a whole lease");
    assert!(!is_pending_in(&scene, false), "a command grants nothing");
    scene = Scene::new();
    drop(begun(&scene));
    scene.wait(50);
    scene.options.serves_producers = true;
    let store = scene.open();
    for _ in 0..200 {
        scene.wait_a_moment();
        assert!(is_pending(&store));
    }
    // Stopped for an hour.
    scene.wait(3_600);
    assert!(is_pending(&store));
    for _ in 0..200 {
        scene.wait_a_moment();
        assert!(is_pending(&store));
    }
    scene.wait_a_moment();
    assert!(!is_pending(&store));
}

fn is_pending_in(scene: &Scene, serves_producers: bool) -> bool {
    let options = lastword::Options { serves_producers, ..scene.options.clone() };
    is_pending(&Store::open_on(scene.disk.clone(), &scene.root, options).unwrap())
}

/// The handle and its store are gone: only the journal says when the producer last appended.
#[test]
fn after_a_restart_a_lease_counts_from_the_last_event() {
    let scene = Scene::new();
    let (store, open) = begun(&scene);
    for word in ["side", ", I think."] {
        scene.wait(90);
        open.append(Event::token(word)).unwrap();
    }
    drop((store, open));
    scene.wait(100);
    let reader = Store::open_read_only_on(scene.disk.clone(), &scene.root, scene.options.clone()).unwrap();
    let state = |store: &Store| store.list().unwrap()[0].state;
    assert_eq!(state(&reader), SessionState::Answering, "in a process that only reads");
    let store = scene.open();
    assert_eq!(state(&store), SessionState::Answering);
    assert!(matches!(store.liveness(&id(), &run(RUN)).unwrap(), Liveness::Live { .. }));
    assert!(is_pending(&store), "a full read leaves it alone");
    scene.wait(1);
    assert_eq!((state(&reader), state(&store)), (SessionState::Interrupted, SessionState::Interrupted));
    assert_eq!(store.liveness(&id(), &run(RUN)).unwrap(), Liveness::Orphaned);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the seaside, I think."]);
}

#[test]
fn a_renewed_lease_holds_for_a_read_by_another_command() {
    let scene = Scene::new();
    let (store, run) = begun(&scene);
    for _ in 0..3 {
        scene.wait(90);
        run.renew_lease();
    }
    drop((store, run));
    scene.wait(100);
    assert!(is_pending_in(&scene, false));
    scene.wait(1);
    assert!(!is_pending_in(&scene, false));
}

#[test]
fn a_request_that_waits_for_the_disk_keeps_its_run_alive_and_is_a_sign_of_life_when_it_is_answered() {
    let scene = Scene::new();
    let (store, _run) = begun(&scene);
    let request = store.keep_alive(&id(), &run(RUN));
    scene.wait(5_000);
    assert!(is_pending(&store));
    request.end_with_sign_of_life();
    scene.wait(100);
    assert!(is_pending(&store));
    let refused = store.keep_alive(&id(), &run(RUN));
    drop(refused);
    scene.wait(1);
    assert!(!is_pending(&store), "a refused request is not a sign of life");
}

#[test]
fn a_lease_that_has_lapsed_leaves_a_young_run_its_grace() {
    let scene = Scene::new();
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    let run = begin(&store, RUN, 1.0).unwrap();
    run.append(Event::token("To the sea")).unwrap();
    drop((store, run));
    let store = scene.open();
    scene.wait(29);
    assert!(is_pending(&store));
    scene.wait(1);
    assert!(!is_pending(&store));
}

#[test]
fn a_lease_that_cannot_be_granted_is_refused_and_leaves_nothing() {
    let scene = Scene::new();
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    for seconds in [-1.0, -0.001, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 86_400.5, 1e300] {
        let refused = begin(&store, RUN, seconds).unwrap_err();
        assert!(matches!(refused, StoreError::BadLease { .. }), "{seconds}: {refused}");
        assert_eq!(refused.code(), "invalid_argument");
        assert!(store.get_session(&id()).unwrap().pending_turn().is_none());
        assert!(store.runs(&id()).unwrap().is_empty());
    }
    for (seconds, name) in [(0.0, "shortest"), (86_400.0, "longest")] {
        begin(&store, name, seconds).unwrap().finish(Outcome::Completed).unwrap();
    }
}
