//! What the timer does for lists.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{ManualClock, Timestamp};
use crate::model::{Event, SessionState};
use crate::storage::sim::SimDisk;
use crate::store::{Change, NewSession, Options, Store, UserTurn};
use crate::sync::Mutex;

#[test]
fn lists_are_told_when_a_lease_lapses_and_when_its_producer_goes_on_after_all() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0)));
    let options = Options { clock: clock.clone(), ..Options::default() };
    let store = Store::open_on(Arc::new(SimDisk::new()), "/data", options).unwrap();
    let id = store.create(NewSession::titled("x")).unwrap();
    let run = store.begin_run(&id, UserTurn { lease_seconds: Some(10.0), ..UserTurn::text("x") }).unwrap();
    run.append(Event::token("one")).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    store.on_change({
        let told = told.clone();
        move |change| {
            if let Change::Listed(_, state) = change {
                told.lock().push(*state);
            }
        }
    });
    let examine = || store.shared.examine_due(&(id.clone(), run.id().clone()));
    examine();
    assert_eq!(*told.lock(), [], "its producer is alive");
    for _ in 0..2 {
        told.lock().clear();
        clock.advance(Duration::from_secs(31));
        examine();
        assert_eq!(*told.lock(), [SessionState::Interrupted]);
        run.append(Event::token("more")).unwrap();
        run.append(Event::token("and more")).unwrap();
        assert_eq!(*told.lock(), [SessionState::Interrupted, SessionState::Answering]);
    }
}
