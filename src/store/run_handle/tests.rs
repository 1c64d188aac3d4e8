//! A run that goes on after its readers have left it: its events get a place, also if the disk fails in between.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{ManualClock, Timestamp};
use crate::model::{Event, RunId, SessionId};
use crate::storage::sim::{Fault, SimDisk};
use crate::store::{NewSession, Options, Run, Store, UserTurn};

struct Scenario {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    store: Store,
    session: SessionId,
}

impl Scenario {
    fn new() -> Self {
        let disk = SimDisk::new();
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0)));
        let options = Options { clock: clock.clone(), ..Options::default() };
        let store = Store::open_on(Arc::new(disk.clone()), "/data", options).unwrap();
        let session = store.create(NewSession::titled("x")).unwrap();
        Scenario { disk, clock, store, session }
    }

    fn begin(&self, name: &str) -> Run {
        let turn = UserTurn { lease_seconds: Some(10.0), ..UserTurn::text("x") };
        let run = self.store.begin_run(&self.session, turn.with_run(RunId::parse(name).unwrap())).unwrap();
        run.append(Event::token("one")).unwrap();
        run
    }

    /// Begins another run when the lease of the one before has lapsed.
    fn begin_later(&self, name: &str) -> Run {
        self.clock.advance(Duration::from_secs(31));
        self.begin(name)
    }

    /// The parts of the session's stream: each run with the number after which it goes on.
    fn stream(&self) -> Vec<String> {
        let segments = self.store.segments(&self.session).unwrap();
        segments.iter().map(|segment| format!("{}:{}", segment.run, segment.after_seq)).collect()
    }
}

const IN_ORDER: [&str; 3] = ["first:0", "second:0", "first:1"];

#[test]
fn a_run_whose_continuation_could_not_be_noted_gets_its_place_with_the_next_append() {
    let scenario = Scenario::new();
    let first = scenario.begin("first");
    let _second = scenario.begin_later("second");
    scenario.disk.fill(scenario.disk.operations() + 1);
    let refused = first.append(Event::token("two")).unwrap_err();
    assert_eq!(refused.code(), "no_space");
    assert_eq!(first.last_seq(), 1);
    scenario.disk.make_room();
    first.append(Event::token("two")).unwrap();
    assert_eq!(scenario.stream(), IN_ORDER);
}

#[test]
fn a_run_whose_journal_failed_before_it_was_left_gets_its_place_when_it_is_opened_again() {
    let scenario = Scenario::new();
    let first = scenario.begin("first");
    scenario.disk.fail(scenario.disk.operations() + 1, Fault::Eio);
    first.append(Event::token("lost")).unwrap_err();
    let _second = scenario.begin_later("second");
    let again = scenario.store.resume_run(&scenario.session, first.id()).unwrap();
    again.append(Event::token("two")).unwrap();
    assert_eq!(scenario.stream(), IN_ORDER);
}
