//! The registry on its own: which leases a sweep drops, and what readers of a run have to do with each other.

use std::sync::Arc;
use std::time::Duration;

use super::{LastSign, Registry, RunKey, SWEEP_AFTER, SWEEP_SESSION_AFTER};
use crate::clock::{ManualClock, Timestamp};
use crate::journal::AppendWaker;
use crate::model::{RunId, SessionId};
use crate::store::{Options, StoreError};

const NOW: f64 = 1_800_000_000.0;

fn registry() -> (Arc<Registry>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(NOW)));
    let options = Options { clock: clock.clone(), ..Options::default() };
    (Arc::new(Registry::of(&options)), clock)
}

fn key(session: &str, run: &str) -> RunKey {
    (SessionId::parse(session).unwrap(), RunId::parse(run).unwrap())
}

fn last_sign(registry: &Registry, (session, run): &RunKey) -> Option<LastSign> {
    registry.known(session, run)?.lease.map(|lease| lease.last_sign)
}

/// Leases of these runs until the registry is swept: of one session that has many runs, or of many sessions.
fn sweep_by(registry: &Registry, keys: impl Iterator<Item = RunKey>) {
    keys.for_each(|(session, run)| drop(registry.lease(&session, &run, 10.0, None)));
}

#[test]
fn a_sweep_drops_the_lapsed_leases_that_no_handle_is_open_for_and_no_others() {
    let runs = || (0..=SWEEP_SESSION_AFTER).map(|number| key("s", &format!("r{number}")));
    let sessions = || (0..=SWEEP_AFTER).map(|number| key(&format!("s{number}"), "r"));
    for is_one_session in [true, false] {
        let (registry, clock) = registry();
        let [held, lapsed, fresh] = ["held", "lapsed", "fresh"].map(|run| key("s", run));
        let lease = |(session, run): &RunKey| registry.lease(session, run, 10.0, None);
        let handle = lease(&held);
        drop(lease(&lapsed));
        clock.advance(Duration::from_secs(11));
        drop(lease(&fresh));
        match is_one_session {
            true => sweep_by(&registry, runs()),
            false => sweep_by(&registry, sessions()),
        }
        assert_eq!(last_sign(&registry, &lapsed), None, "{is_one_session}");
        assert_eq!(last_sign(&registry, &fresh), Some(LastSign::Wall(NOW + 11.0)), "{is_one_session}");
        assert_eq!(last_sign(&registry, &held), Some(LastSign::Wall(NOW)), "{is_one_session}");
        handle.renew(registry.sign_time());
        assert_eq!(last_sign(&registry, &held), Some(LastSign::Wall(NOW + 11.0)), "a renewal counts");
    }
}

fn silent() -> AppendWaker {
    AppendWaker(Arc::new(|| ()))
}

/// Another process writes the run, so that only the timer sees it grow.
#[test]
fn each_reader_that_begins_to_wait_has_the_timer_take_the_journal_for_grown() {
    let (registry, _) = registry();
    let run = key("s", "r");
    let first = registry.wait_for(run.clone(), silent());
    assert!(registry.has_grown(&run, Some(10)));
    assert!(!registry.has_grown(&run, Some(10)));
    let second = registry.wait_for(run.clone(), silent());
    assert!(registry.has_grown(&run, Some(10)), "the second reader may have looked before");
    assert!(!registry.has_grown(&run, Some(10)));
    assert!(registry.has_grown(&run, Some(11)));
    drop((first, second));
    let _next = registry.wait_for(run.clone(), silent());
    assert!(registry.has_grown(&run, Some(11)));
}

#[test]
fn a_failure_is_given_to_one_reader_and_to_none_that_comes_after_those_it_concerned() {
    let (registry, _) = registry();
    let run = key("s", "r");
    let take = || registry.take_failure(&run.0, &run.1).is_some();
    // What is known of the run outlives its readers.
    let _held = registry.keep_alive(&run.0, &run.1);
    let [first, second] = [(); 2].map(|()| registry.wait_for(run.clone(), silent()));
    registry.report(&run, StoreError::EmptyMessage);
    drop(first);
    assert!(take(), "one reader is left");
    assert!(!take());
    registry.report(&run, StoreError::EmptyMessage);
    drop(second);
    let _next = registry.wait_for(run.clone(), silent());
    assert!(!take(), "the failure was of earlier readers");
}
