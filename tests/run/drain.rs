//! The end of the program: no new turns, a deadline for those that run, and a last word that says why.

use std::time::Duration;

use lastword::run::{BudgetSettings, Drained, Finish, Retries, RunFailure, StartError};
use lastword::{NewSession, UserTurn};

use crate::house::{House, Lingering, pause, rows, seconds_since, token};

fn house() -> House {
    House::new(|prompt, outlet| async move {
        outlet.say(token("begun")).await?;
        pause(if prompt.message == "quick" { 5.0 } else { 250.0 }).await;
        Ok(Finish::done())
    })
}

#[tokio::test(start_paused = true)]
async fn no_turn_begins_while_the_program_ends_and_those_that_are_quick_finish() {
    let house = house();
    let mut quick = house.start("quick").await;
    let other = house.store.create(NewSession::titled("other")).unwrap();
    let draining = tokio::spawn({
        let supervisor = house.supervisor.clone();
        async move { supervisor.drain(Duration::from_secs(60)).await }
    });
    pause(1.0).await;
    let refused = house.supervisor.start(&other, UserTurn::text("late"), None).await.unwrap_err();
    assert!(matches!(refused, StartError::Draining), "{refused}");
    assert!(quick.ended().await.is_completed());
    assert_eq!(draining.await.unwrap(), Drained { running: 1, cut: 0 });
}

#[tokio::test(start_paused = true)]
async fn who_is_not_done_by_the_deadline_is_told_why_and_the_partial_stays() {
    let house = house();
    let mut slow = house.start("slow").await;
    pause(1.0).await;
    let begin = tokio::time::Instant::now();
    assert_eq!(house.supervisor.drain(Duration::from_secs(60)).await, Drained { running: 1, cut: 1 });
    assert!((60.0..80.0).contains(&begin.elapsed().as_secs_f64()));
    let Some(RunFailure { kind, message }) = slow.ended().await.failure else { panic!("it was cut off") };
    assert_eq!(kind, "shutdown");
    assert!(message.contains("shut down"), "{message}");
    assert_eq!(house.last_words(slow.run()).text("close_reason").unwrap(), "shutdown");
    assert_eq!(house.rows(), rows(&[("user", "slow"), ("assistant", "begun"), ("notice", "shutdown")]));
    assert!(house.supervisor.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_nobody_at_work_it_is_over_at_once() {
    let begin = tokio::time::Instant::now();
    assert_eq!(house().supervisor.drain(Duration::from_secs(60)).await, Drained { running: 0, cut: 0 });
    assert!(begin.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_is_not_cut_off_although_its_producer_is_waited_for() {
    let house = House::of(BudgetSettings::default(), Retries::default(), Lingering);
    let started = house.start("hi").await;
    pause(1.0).await;
    let begin = tokio::time::Instant::now();
    assert!(house.supervisor.stop(&house.session, started.run()).await.unwrap());
    assert_eq!(house.supervisor.drain(Duration::from_secs(1)).await, Drained { running: 1, cut: 0 });
    assert!(seconds_since(begin) >= Lingering::SECONDS, "{} s", seconds_since(begin));
    assert_eq!(house.names(started.run()).last().unwrap(), "cancel");
}
