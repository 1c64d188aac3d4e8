//! What is looked at under the session's lock before a run is sealed.

use std::sync::Arc;
use std::time::Duration;

use super::Examined;
use crate::clock::{ManualClock, Timestamp};
use crate::model::{Event, SessionId};
use crate::storage::sim::SimDisk;
use crate::store::{Liveness, NewSession, Options, Run, Store, UserTurn};

/// A run whose lease has lapsed: the first look of an examination finds it orphaned.
fn orphaned() -> (Store, SessionId, Run) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0)));
    let options = Options { clock: clock.clone(), ..Options::default() };
    let store = Store::open_on(Arc::new(SimDisk::new()), "/data", options).unwrap();
    let id = store.create(NewSession::titled("x")).unwrap();
    let run = store.begin_run(&id, UserTurn { lease_seconds: Some(10.0), ..UserTurn::text("x") }).unwrap();
    run.append(Event::token("one")).unwrap();
    clock.advance(Duration::from_secs(31));
    assert_eq!(store.liveness(&id, run.id()).unwrap(), Liveness::Orphaned);
    (store, id, run)
}

fn seal_alone(store: &Store, id: &SessionId, run: &Run) -> Examined {
    store.shared.seal_alone(&store.shared.locks.of(id), id, run.id()).unwrap()
}

#[test]
fn a_run_whose_producer_came_back_before_the_lock_was_taken_is_not_sealed() {
    let (store, id, run) = orphaned();
    run.append(Event::token("two")).unwrap();
    assert!(matches!(seal_alone(&store, &id, &run), Examined::Waits(Some(_))));
    assert!(!run.is_sealed());
    run.append(Event::token("three")).unwrap();
}

#[test]
fn an_orphaned_run_is_sealed_unless_its_session_is_being_changed() {
    let (store, id, run) = orphaned();
    let lock = store.shared.locks.of(&id);
    let changing = lock.document.lock();
    assert!(matches!(seal_alone(&store, &id, &run), Examined::Waits(Some(_))));
    assert!(!run.is_sealed());
    drop(changing);
    assert_eq!(seal_alone(&store, &id, &run), Examined::Over);
    assert!(run.is_sealed());
}
