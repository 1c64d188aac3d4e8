//! Stop is its own call: before the first event, in the middle, from anywhere. Leaving stops nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lastword::run::{BudgetSettings, Failure, Finish, Outlet, Retries, RunFailure, StartError};
use lastword::{After, Event, Outcome, RunId, StoreError, UserTurn};
use tokio::sync::mpsc;

use crate::house::{House, Lingering, pause, rows, seconds_since, token, until};

#[tokio::test(start_paused = true)]
async fn a_run_is_stopped_before_its_first_event() {
    let house = House::new(|_, _| std::future::pending());
    let mut started = house.start("hi").await;
    assert!(house.supervisor.stop(&house.session, started.run()).await.unwrap());
    assert!(started.ended().await.is_stopped());
    assert_eq!(house.names(started.run()).last().unwrap(), "cancel");
    assert_eq!(house.rows(), rows(&[("user", "hi"), ("notice", "interrupted")]));
}

#[tokio::test(start_paused = true)]
async fn what_had_arrived_is_kept_and_nothing_is_added_behind_a_stop() {
    let house = House::new(|_, outlet| async move {
        let mut said = 0;
        loop {
            outlet.say(token(&format!("{said} "))).await?;
            said += 1;
            pause(1.0).await;
        }
    });
    let started = house.start("hi").await;
    pause(3.5).await;
    assert!(house.supervisor.stop(&house.session, started.run()).await.unwrap());
    let names = house.names(started.run());
    assert_eq!(names, ["attempt", "token", "token", "token", "token", "cancel"]);
    pause(10.0).await;
    assert_eq!(house.names(started.run()), names);
    assert_eq!(house.rows(), rows(&[("user", "hi"), ("assistant", "0 1 2 3"), ("notice", "interrupted")]));
}

/// A house whose producer leaves it to the test to speak.
fn house_with_a_voice() -> (House, mpsc::UnboundedReceiver<Outlet>) {
    let (lend, lent) = mpsc::unbounded_channel();
    let house = House::new(move |_, outlet| {
        lend.send(outlet).unwrap();
        std::future::pending()
    });
    (house, lent)
}

#[tokio::test(start_paused = true)]
async fn words_that_wait_in_the_queue_when_a_run_is_ended_are_written_before_its_end() {
    for (is_stopped, last, notice) in [(true, "cancel", "interrupted"), (false, "apperror", "shutdown")] {
        let (house, mut lent) = house_with_a_voice();
        let started = house.start("hi").await;
        let outlet = lent.recv().await.unwrap();
        // No other task runs between these words and the end.
        outlet.say(token("the last ")).await.unwrap();
        outlet.say(token("words")).await.unwrap();
        match is_stopped {
            true => assert!(house.supervisor.stop(&house.session, started.run()).await.unwrap()),
            false => assert_eq!(house.supervisor.drain(Duration::ZERO).await.cut, 1),
        }
        assert_eq!(house.names(started.run()), ["attempt", "token", "token", last]);
        assert_eq!(house.rows(), rows(&[("user", "hi"), ("assistant", "the last words"), ("notice", notice)]));
        assert!(outlet.say(token("too late")).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_stopped_before_its_first_attempt_starts_no_producer() {
    let house = Arc::new(House::new(|_, _| async { panic!("it was stopped before that") }));
    let run = RunId::parse("r1").unwrap();
    let starting = tokio::spawn({
        let (house, turn) = (house.clone(), UserTurn::text("hi").with_run(run.clone()));
        async move { house.supervisor.start(&house.session, turn, None).await.unwrap() }
    });
    while !house.supervisor.is_running(&house.session, &run) {
        tokio::task::yield_now().await;
    }
    assert!(house.supervisor.stop(&house.session, &run).await.unwrap());
    assert!(starting.await.unwrap().ended().await.is_stopped());
    assert_eq!(house.names(&run), ["cancel"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_another_handle_ends_is_reported_as_it_was_ended() {
    type End = fn(&lastword::Run) -> Result<lastword::Appended, StoreError>;
    let ends: [(End, Result<Outcome, RunFailure>); 4] = [
        (|run| run.finish(Outcome::Completed), Ok(Outcome::Completed)),
        (|run| run.finish(Outcome::InterruptedByUser), Ok(Outcome::InterruptedByUser)),
        (|run| run.append_all(&[at_the_limit(), stream_end()], Default::default()), Ok(Outcome::ToolLimitReached)),
        (|run| run.fail("quota", "Come back."), Err(RunFailure { kind: "quota".into(), message: "Come back.".into() })),
    ];
    for (end, expected) in ends {
        let house = House::new(|_, _| std::future::pending());
        let mut started = house.start("hi").await;
        end(&house.store.resume_run(&house.session, started.run()).unwrap()).unwrap();
        let report = started.ended().await;
        let found = report.failure.clone().map_or_else(|| Ok(report.end.clone().unwrap()), Err);
        assert_eq!(found, expected);
        assert!(!house.supervisor.stop(&house.session, started.run()).await.unwrap(), "it had ended before");
    }
}

fn at_the_limit() -> Event {
    Event::new("done", r#"{"terminal_state":"tool_limit_reached"}"#).unwrap()
}

fn stream_end() -> Event {
    Event::new("stream_end", "{}").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_while_the_producer_takes_its_time_finds_that_the_run_has_ended() {
    let house = House::of(BudgetSettings::default(), Retries::default(), Lingering);
    let mut started = house.start("hi").await;
    pause(1.0).await;
    let begin = tokio::time::Instant::now();
    assert!(house.supervisor.stop(&house.session, started.run()).await.unwrap());
    assert!(!house.supervisor.stop(&house.session, started.run()).await.unwrap());
    assert!(seconds_since(begin) < Lingering::SECONDS, "neither waits for the producer");
    assert!(house.supervisor.is_running(&house.session, started.run()));
    started.gone().await;
    assert!(seconds_since(begin) >= Lingering::SECONDS, "the producer had its time");
}

#[tokio::test(start_paused = true)]
async fn stopping_twice_or_too_late_changes_nothing() {
    let house = House::new(|_, outlet| async move {
        outlet.say(token("x")).await?;
        Ok(Finish::done())
    });
    let (run, end) = house.answer("hi").await;
    assert!(end.is_completed());
    let before = house.names(&run);
    assert!(!house.supervisor.stop(&house.session, &run).await.unwrap());
    assert!(!house.supervisor.stop(&house.session, &run).await.unwrap());
    assert_eq!(house.names(&run), before);
    assert_eq!(house.rows(), rows(&[("user", "hi"), ("assistant", "x")]));
}

#[tokio::test(start_paused = true)]
async fn many_who_stop_at_once_agree() {
    let house = Arc::new(House::new(|_, _| std::future::pending()));
    let started = house.start("hi").await;
    let stops: Vec<_> = (0..20)
        .map(|_| {
            let (house, run) = (house.clone(), started.run().clone());
            tokio::spawn(async move { house.supervisor.stop(&house.session, &run).await.unwrap() })
        })
        .collect();
    for stop in stops {
        stop.await.unwrap();
    }
    assert_eq!(house.names(started.run()).iter().filter(|name| *name == "cancel").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_stopped_while_it_waits_for_its_next_attempt() {
    let retries = Retries { first_pause: Duration::from_secs(1_000), ..Retries::default() };
    let house =
        House::with(BudgetSettings::default(), retries, |_, _| async { Err(Failure::new("x", "m").retryable()) });
    let started = house.start("hi").await;
    until("the first attempt has failed", || house.names(started.run()).contains(&"attempt_end".to_owned())).await;
    let begin = tokio::time::Instant::now();
    assert!(house.supervisor.stop(&house.session, started.run()).await.unwrap());
    assert!(seconds_since(begin) < 10.0, "the pause was not waited out: {} s", seconds_since(begin));
    assert_eq!(house.names(started.run()), ["attempt", "attempt_end", "cancel"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_not_there_cannot_be_stopped() {
    let house = House::new(|_, _| std::future::pending());
    let run = RunId::parse("nobody").unwrap();
    let error = house.supervisor.stop(&house.session, &run).await.unwrap_err();
    assert!(matches!(error, StoreError::RunNotFound { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn no_reader_stops_a_run_by_leaving() {
    let house = House::new(|_, outlet| async move {
        for _ in 0..5 {
            outlet.say(token("x")).await?;
            pause(1.0).await;
        }
        Ok(Finish::done())
    });
    let started = house.start("hi").await;
    let mut reader = house.store.follow(&house.session, started.run(), After::Start).unwrap();
    while reader.poll().unwrap().is_none() {
        pause(0.1).await;
    }
    drop(reader);
    let run = started.run().clone();
    drop(started);
    until("the run has ended", || house.names(&run).contains(&"done".to_owned())).await;
    until("the answer is saved", || house.rows() == rows(&[("user", "hi"), ("assistant", "xxxxx")])).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_waiting_for_a_start_stops_nothing() {
    let house = House::new(|_, outlet| async move {
        outlet.say(token("x")).await?;
        Ok(Finish::done())
    });
    let run = RunId::parse("r1").unwrap();
    let turn = UserTurn::text("hi").with_run(run.clone());
    {
        let mut starting = std::pin::pin!(house.supervisor.start(&house.session, turn, None));
        let polled = std::future::poll_fn(|context| std::task::Poll::Ready(starting.as_mut().poll(context))).await;
        assert!(polled.is_pending(), "it was begun, and nobody waits for it any more");
    }
    until("the answer is saved", || house.rows() == rows(&[("user", "hi"), ("assistant", "x")])).await;
}

#[tokio::test(start_paused = true)]
async fn two_runs_of_a_session_at_a_time_are_refused_by_name() {
    let house = House::new(|_, _| std::future::pending());
    let started = house.start("one").await;
    let refused = house.supervisor.start(&house.session, UserTurn::text("two"), None).await.unwrap_err();
    let StartError::Store(StoreError::RunInProgress { run, .. }) = &refused else { panic!("{refused}") };
    assert_eq!(run, started.run().as_str());
    assert!(refused.to_string().contains(started.run().as_str()), "{refused}");
    let outside = house.store.begin_run(&house.session, UserTurn::text("three")).unwrap_err();
    assert!(matches!(outside, StoreError::RunInProgress { .. }));
}

#[tokio::test(start_paused = true)]
async fn the_next_turn_waits_until_the_producer_of_a_stopped_one_is_gone() {
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = is_gone.clone();
    let house = House::new(move |prompt, outlet| {
        let gone = gone.clone();
        async move {
            if prompt.message == "two" {
                outlet.say(token(if gone.load(Ordering::SeqCst) { "alone" } else { "not alone" })).await?;
                return Ok(Finish::done());
            }
            // Outlives a stop for a while, in a task of its own that nobody can drop.
            let leaving = outlet.clone();
            tokio::spawn(async move { leaving.stopped().await });
            std::future::pending().await
        }
    });
    let mut started = house.start("one").await;
    assert!(house.supervisor.stop(&house.session, started.run()).await.unwrap());
    started.gone().await;
    is_gone.store(true, Ordering::SeqCst);
    assert!(house.answer("two").await.1.is_completed());
    assert_eq!(house.rows().last().unwrap().1, "alone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_seen_the_end_of_a_run_can_begin_the_next_at_once() {
    let house = House::new(|_, outlet| async move {
        outlet.say(token("x")).await?;
        Ok(Finish::done())
    });
    for turn in 0..100 {
        let started = house.start(&format!("turn {turn}")).await;
        let (store, session, run) = (house.store.clone(), house.session.clone(), started.run().clone());
        let seen = tokio::task::spawn_blocking(move || store.follow(&session, &run, After::Start).unwrap().count());
        assert_eq!(seen.await.unwrap(), 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_has_stopped_a_run_without_its_supervisor_can_begin_the_next_at_once() {
    let house = House::new(|_, _| std::future::pending());
    for turn in 0..50 {
        let mut started = house.start(&format!("turn {turn}")).await;
        let (store, session, run) = (house.store.clone(), house.session.clone(), started.run().clone());
        assert!(tokio::task::spawn_blocking(move || store.stop_run(&session, &run)).await.unwrap().unwrap());
        if turn % 10 == 0 {
            assert!(started.ended().await.is_stopped());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_deleted_ends_its_run() {
    let house = House::new(|_, outlet| async move {
        loop {
            outlet.say(token("x")).await?;
            pause(1.0).await;
        }
    });
    let mut started = house.start("hi").await;
    pause(2.0).await;
    house.store.delete(&house.session).unwrap();
    assert!(started.ended().await.is_unwritten());
    started.gone().await;
    assert!(house.supervisor.running().is_empty());
}
