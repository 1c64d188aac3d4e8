//! Locks of sessions: the same one for every caller while it is held, and what is remembered with it.

use std::sync::Arc;

use super::{CLEAR_AFTER, JournalEnd, SessionLock, SessionLocks};
use crate::model::{RunId, SessionId};

fn session(number: usize) -> SessionId {
    SessionId::parse(&format!("s{number}")).unwrap()
}

fn run(name: &str) -> RunId {
    RunId::parse(name).unwrap()
}

#[test]
fn a_lock_that_is_held_stays_the_same_however_many_others_come_and_go() {
    let locks = SessionLocks::default();
    let held: Vec<_> = (0..3).map(|number| locks.of(&session(number))).collect();
    for number in 3..CLEAR_AFTER * 5 {
        drop(locks.of(&session(number)));
    }
    for (number, lock) in held.iter().enumerate() {
        assert!(Arc::ptr_eq(lock, &locks.of(&session(number))), "{number}");
    }
}

#[test]
fn locks_that_are_not_held_are_cleared_away() {
    let locks = SessionLocks::default();
    for number in 0..CLEAR_AFTER * 5 {
        drop(locks.of(&session(number)));
    }
    assert!(locks.locks.lock().len() <= CLEAR_AFTER);
}

#[test]
fn how_a_journal_ends_is_known_of_one_run_at_one_length() {
    let lock = SessionLock::default();
    let sealed = JournalEnd { is_sealed: true, last_event_at: Some(1.0) };
    let open = JournalEnd { is_sealed: false, last_event_at: Some(2.0) };
    let unread = || -> JournalEnd { panic!("it was read before") };
    assert!(lock.end_at(&run("a"), 10, || sealed).is_sealed);
    assert!(lock.end_at(&run("a"), 10, unread).is_sealed);
    assert!(!lock.end_at(&run("b"), 10, || open).is_sealed, "another run of the same length");
    assert_eq!(lock.end_at(&run("b"), 10, unread).last_event_at, Some(2.0));
    assert!(lock.end_at(&run("b"), 11, || sealed).is_sealed, "the run has grown");
    assert!(!lock.end_at(&run("a"), 11, || open).is_sealed, "the run before, at this length");
}
