//! Leases that make no sense: from a clock that was wrong, or of a length that nobody can be granted.

use lastword::clock::Timestamp;
use lastword::{Event, NewSession, Outcome, Run, Store, StoreError, UserTurn};

use crate::scene::{OPENED, RUN, Scene, contents, id, run};

fn begin(store: &Store, name: &str, lease_seconds: f64) -> Result<Run, StoreError> {
    let turn = UserTurn { lease_seconds: Some(lease_seconds), ..UserTurn::text("Where to?").with_run(run(name)) };
    store.begin_run(&id(), turn)
}

fn set_back(scene: &Scene, seconds: i64) {
    scene.clock.set(Timestamp::from_seconds((OPENED - seconds) as f64));
}

#[test]
fn a_lease_from_the_far_future_does_not_hold_a_run_alive() {
    for reopened in [false, true] {
        let scene = Scene::new();
        let mut store = scene.open();
        store.create(NewSession::titled("A talk").with_id(id())).unwrap();
        let run = begin(&store, RUN, 100.0).unwrap();
        run.append(Event::token("To the sea")).unwrap();
        if reopened {
            drop(run);
            drop(store);
            store = scene.open();
        }
        set_back(&scene, 99);
        assert!(store.get_session(&id()).unwrap().pending_turn().is_some(), "a little wrong is not wrong");
        set_back(&scene, 36_000);
        assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea"], "{reopened}");
    }
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
