//! Producers outside: a lease instead of a task, the same stop, and no harm from those who come too late.

use std::sync::Arc;
use std::time::Duration;

use lastword::clock::{ManualClock, Timestamp};
use lastword::run::{RunOptions, Runners, StartError, Supervisor};
use lastword::{After, Event, NewSession, Options, Outcome, Run, Session, SessionId, Store, StoreError, UserTurn};

struct Outside {
    store: Store,
    supervisor: Supervisor,
    session: SessionId,
    clock: Arc<ManualClock>,
    _dir: tempfile::TempDir,
}

impl Outside {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1.8e9)));
        let options = Options { clock: clock.clone(), ..Options::default() };
        let store = Store::open(dir.path().join("data"), options).unwrap();
        let session = store.create(NewSession::titled("t")).unwrap();
        let supervisor = Supervisor::new(store.clone(), Runners::default(), RunOptions::default()).unwrap();
        Outside { store, supervisor, session, clock, _dir: dir }
    }

    fn begin(&self, message: &str) -> Run {
        let turn = UserTurn { lease_seconds: Some(60.0), ..UserTurn::text(message) };
        self.store.begin_run(&self.session, turn).unwrap()
    }

    fn transcript(&self) -> Arc<Session> {
        self.store.get_session(&self.session).unwrap()
    }

    fn words(&self) -> Vec<String> {
        self.transcript().messages().filter(|row| !row.is_error()).map(|row| row.content().into_owned()).collect()
    }

    fn notices(&self) -> usize {
        self.transcript().messages().filter(|row| row.is_error()).count()
    }
}

#[tokio::test]
async fn an_outside_producer_is_stopped_like_any_other_and_cannot_go_on() {
    let outside = Outside::new();
    let run = outside.begin("hi");
    run.append(Event::token("half")).unwrap();
    assert!(outside.supervisor.stop(&outside.session, run.id()).await.unwrap());
    let late = run.append(Event::token("more")).unwrap_err();
    assert_eq!(late.code(), "sealed", "{late}");
    assert_eq!((outside.words(), outside.notices()), (vec!["hi".to_owned(), "half".to_owned()], 1));
}

#[tokio::test]
async fn an_outside_producer_is_stopped_before_its_first_event() {
    let outside = Outside::new();
    let run = outside.begin("hi");
    assert!(outside.supervisor.stop(&outside.session, run.id()).await.unwrap());
    assert!(run.append(Event::token("more")).is_err());
    assert_eq!((outside.words(), outside.notices()), (vec!["hi".to_owned()], 1));
}

#[tokio::test]
async fn while_its_lease_lives_nobody_else_answers_in_its_session() {
    let outside = Outside::new();
    let run = outside.begin("hi");
    outside.clock.advance(Duration::from_secs(59));
    let refused = outside.supervisor.start(&outside.session, UserTurn::text("two"), None).await.unwrap_err();
    let StartError::Store(StoreError::RunInProgress { run: named, .. }) = refused else { panic!("{refused}") };
    assert_eq!(named, run.id().as_str());
}

#[tokio::test]
async fn a_producer_that_outlives_its_lease_cannot_append_to_a_run_that_was_closed_for_a_reader() {
    let outside = Outside::new();
    let run = outside.begin("hi");
    run.append(Event::token("half")).unwrap();
    outside.clock.advance(Duration::from_secs(120));
    let (store, session, id) = (outside.store.clone(), outside.session.clone(), run.id().clone());
    let reader = tokio::task::spawn_blocking(move || store.follow(&session, &id, After::Start).unwrap().count());
    assert_eq!(reader.await.unwrap(), 2, "the word, and the event that says that its producer went away");
    assert_eq!(run.append(Event::token("late")).unwrap_err().code(), "sealed");
    assert_eq!(outside.words(), ["hi", "half"]);
}

#[tokio::test]
async fn a_late_finisher_replaces_its_own_marker_and_no_other() {
    let outside = Outside::new();
    let first = outside.begin("one");
    first.append(Event::token("first")).unwrap();
    outside.clock.advance(Duration::from_secs(120));
    let second = outside.begin("two");
    second.append(Event::token("second")).unwrap();
    outside.clock.advance(Duration::from_secs(120));
    assert_eq!(outside.notices(), 2, "both are taken for dead");
    first.append(Event::token(" answer")).unwrap();
    first.finish(Outcome::Completed).unwrap();
    assert_eq!(outside.notices(), 1);
    assert_eq!(outside.words(), ["one", "first answer", "two", "second"]);
    let left = outside.transcript().messages().position(|row| row.is_error()).unwrap();
    assert_eq!(left, 4, "the marker that is left is the second turn's");
}
