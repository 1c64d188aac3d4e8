//! Who says nothing is cut off, who is slow is not, and no clock can be fooled into confusing them.

use lastword::run::{BudgetSettings, Finish, RunFailure, RunReport};
use lastword::{Event, Options};

use serde_json::json;

use crate::house::{House, pause, rows, seconds_since, token};

fn settings(first: f64, idle: f64) -> BudgetSettings {
    BudgetSettings { first_event_seconds: Some(first), idle_seconds: Some(idle), tool_seconds: None }
}

/// The end of a run whose backend never says anything. A test should fail, not wait for ever.
async fn cut_off(house: &House) -> (lastword::RunId, RunReport) {
    let hour = std::time::Duration::from_secs(3_600);
    tokio::time::timeout(hour, house.answer("hi")).await.expect("a silent backend is cut off")
}

fn once() -> lastword::run::Retries {
    lastword::run::Retries { attempts_max: 1, ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_never_says_anything_is_cut_off_after_45_seconds_and_the_error_says_ttfb() {
    let house = House::with(BudgetSettings::default(), once(), |_, _| std::future::pending());
    let begin = tokio::time::Instant::now();
    let (run, end) = house.answer("hi").await;
    assert!((45.0..60.0).contains(&seconds_since(begin)), "{} s", seconds_since(begin));
    let Some(RunFailure { kind, message }) = end.failure else { panic!("it did not fail") };
    assert_eq!(kind, "timeout");
    assert!(message.contains("TTFB"), "{message}");
    let words = house.last_words(&run);
    assert_eq!(words.text("close_reason").unwrap(), "ttfb_timeout");
    assert!(words.is_true("retryable"));
    assert_eq!(house.names(&run), ["attempt", "apperror"]);
    assert_eq!(house.rows(), rows(&[("user", "hi"), ("notice", "timeout")]));
}

#[tokio::test(start_paused = true)]
async fn once_an_event_has_arrived_an_answer_may_take_as_long_as_it_likes() {
    let house = House::with(settings(1.0, 60.0), once(), |_, outlet| async move {
        for _ in 0..100 {
            outlet.say(token("x")).await?;
            pause(59.0).await;
        }
        Ok(Finish::done())
    });
    let begin = tokio::time::Instant::now();
    assert!(house.answer("hi").await.1.is_completed());
    assert!(seconds_since(begin) > 5_800.0);
    assert_eq!(house.rows()[1].1, "x".repeat(100));
}

#[tokio::test(start_paused = true)]
async fn silence_in_the_middle_of_an_answer_is_cut_at_the_idle_budget_and_the_partial_stays() {
    let house = House::with(settings(1.0, 60.0), once(), |_, outlet| async move {
        outlet.say(token("half")).await?;
        std::future::pending().await
    });
    let (run, _) = house.answer("hi").await;
    assert_eq!(house.last_words(&run).text("close_reason").unwrap(), "idle_timeout");
    assert_eq!(house.rows(), rows(&[("user", "hi"), ("assistant", "half"), ("notice", "timeout")]));
}

#[tokio::test(start_paused = true)]
async fn any_event_counts_as_the_first() {
    let firsts = [Event::reasoning("hm"), Event::tool("1", "t", &json!({})), Event::new("whatever", "{}").unwrap()];
    for first in firsts {
        let name = first.name().to_owned();
        let house = House::with(settings(1.0, 60.0), once(), move |_, outlet| {
            let first = first.clone();
            async move {
                outlet.say(first).await?;
                pause(30.0).await;
                Ok(Finish::done())
            }
        });
        let (_, end) = house.answer("hi").await;
        assert!(end.is_completed(), "{name}: {end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_has_begun_to_answer_is_no_stall_although_there_is_nothing_to_show() {
    let house = House::with(settings(1.0, 60.0), once(), |_, outlet| async move {
        outlet.stir().await?;
        pause(30.0).await;
        outlet.say(token("x")).await?;
        Ok(Finish::done())
    });
    let (run, end) = house.answer("hi").await;
    assert!(end.is_completed());
    assert_eq!(house.names(&run), ["attempt", "token", "done"], "such a sign is not journalled");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_called_silent_while_a_tool_is_at_work() {
    let house = House::with(settings(1.0, 60.0), once(), |_, outlet| async move {
        outlet.say(Event::tool("1", "build", &json!({}))).await?;
        pause(7_200.0).await;
        outlet.say(Event::tool_complete("1", "build", &json!(null), false)).await?;
        pause(59.0).await;
        outlet.say(token("built")).await?;
        Ok(Finish::done())
    });
    assert!(house.answer("hi").await.1.is_completed());
}

#[tokio::test(start_paused = true)]
async fn after_the_tool_has_answered_silence_counts_again() {
    let house = House::with(settings(1.0, 60.0), once(), |_, outlet| async move {
        outlet.say(Event::tool("1", "build", &json!({}))).await?;
        outlet.say(Event::tool_complete("1", "build", &json!(null), false)).await?;
        std::future::pending().await
    });
    let (run, _) = house.answer("hi").await;
    assert_eq!(house.last_words(&run).text("close_reason").unwrap(), "idle_timeout");
}

#[tokio::test(start_paused = true)]
async fn a_budget_for_tools_is_kept_if_there_is_one() {
    let budgets = BudgetSettings { tool_seconds: Some(100.0), ..settings(1.0, 60.0) };
    let house = House::with(budgets, once(), |_, outlet| async move {
        outlet.say(Event::tool("1", "build", &json!({}))).await?;
        std::future::pending().await
    });
    let begin = tokio::time::Instant::now();
    let (run, _) = house.answer("hi").await;
    assert_eq!(house.last_words(&run).text("close_reason").unwrap(), "tool_timeout");
    assert!(seconds_since(begin) >= 100.0);
}

#[tokio::test(start_paused = true)]
async fn without_a_first_event_budget_the_idle_budget_counts_from_the_start() {
    let house = House::with(settings(0.0, 60.0), once(), |_, _| std::future::pending());
    let begin = tokio::time::Instant::now();
    let (run, end) = cut_off(&house).await;
    assert!((60.0..75.0).contains(&seconds_since(begin)), "{} s", seconds_since(begin));
    let Some(RunFailure { kind, message }) = end.failure else { panic!("it did not fail") };
    assert_eq!(kind, "timeout");
    assert!(message.contains("sent nothing for 60 s") && !message.contains("TTFB"), "{message}");
    let words = house.last_words(&run);
    assert_eq!(words.text("close_reason").unwrap(), "idle_timeout");
    assert!(words.is_true("retryable"));
    assert_eq!(house.rows(), rows(&[("user", "hi"), ("notice", "timeout")]));
}

#[tokio::test(start_paused = true)]
async fn without_a_first_event_budget_each_attempt_has_the_whole_idle_budget() {
    let retries = lastword::run::Retries { attempts_max: 2, ..Default::default() };
    let house = House::with(settings(0.0, 60.0), retries, |_, _| std::future::pending());
    let begin = tokio::time::Instant::now();
    let (run, _) = cut_off(&house).await;
    assert!(seconds_since(begin) >= 120.0, "{} s", seconds_since(begin));
    assert_eq!(house.names(&run), ["attempt", "attempt_end", "attempt", "apperror"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_first_event_budget_a_backend_that_comes_before_the_idle_budget_ends_answers() {
    let house = House::with(settings(0.0, 60.0), once(), |_, outlet| async move {
        pause(59.0).await;
        outlet.say(token("x")).await?;
        pause(59.0).await;
        Ok(Finish::done())
    });
    assert!(house.answer("hi").await.1.is_completed());
}

#[tokio::test(start_paused = true)]
async fn zero_waits_for_ever() {
    let house = House::with(settings(0.0, 0.0), once(), |_, outlet| async move {
        pause(1e6).await;
        outlet.say(token("at last")).await?;
        pause(1e6).await;
        Ok(Finish::done())
    });
    assert!(house.answer("hi").await.1.is_completed());
}

#[tokio::test(start_paused = true)]
async fn a_night_in_which_the_machine_slept_is_no_silence() {
    let house = House::with(settings(45.0, 60.0), once(), |_, outlet| async move {
        pause(20.0).await;
        outlet.say(token("awake")).await?;
        pause(20.0).await;
        Ok(Finish::done())
    });
    let mut started = house.start("hi").await;
    for _ in 0..3 {
        pause(10.0).await;
        house.steady.add(8 * 3600);
    }
    assert!(started.ended().await.is_completed());
}

#[tokio::test(start_paused = true)]
async fn after_a_night_a_silent_producer_is_still_cut_off() {
    let house = House::with(settings(45.0, 60.0), once(), |_, _| std::future::pending());
    let begin = tokio::time::Instant::now();
    let mut started = house.start("hi").await;
    pause(10.0).await;
    house.steady.add(8 * 3600);
    assert!(started.ended().await.failure.is_some());
    assert!((35.0..47.0).contains(&seconds_since(begin)), "{} s", seconds_since(begin));
}

#[tokio::test(start_paused = true)]
async fn a_date_that_is_set_neither_cuts_nor_saves_anybody() {
    use lastword::clock::{ManualClock, Timestamp};
    use std::sync::Arc;
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1.8e9)));
    let dir = tempfile::tempdir().unwrap();
    let options = Options { clock: clock.clone(), ..Options::default() };
    let store = lastword::Store::open(dir.path().join("data"), options).unwrap();
    let session = store.create(lastword::NewSession::titled("t")).unwrap();
    let runners = lastword::run::Runners::default().with(
        "script",
        crate::house::Scripted(|_, outlet: lastword::run::Outlet| async move {
            pause(2.0).await;
            outlet.say(token("x")).await?;
            Ok(Finish::done())
        }),
    );
    let options = lastword::run::RunOptions::default();
    let supervisor = lastword::run::Supervisor::new(store, runners, options).unwrap();
    let turn = lastword::UserTurn::text("hi");
    let mut started = supervisor.start(&session, turn, Some("script")).await.unwrap();
    clock.set(Timestamp::from_seconds(1.9e9));
    pause(1.0).await;
    clock.set(Timestamp::from_seconds(1.0e9));
    assert!(started.ended().await.is_completed());
}

#[tokio::test(start_paused = true)]
async fn a_word_that_waits_in_the_queue_when_the_budget_runs_out_is_not_a_stall() {
    // The word and the end of the budget come at the same moment: first before any event, then between two.
    let house = House::with(settings(45.0, 60.0), once(), |_, outlet| async move {
        for silence in [45.0, 60.0, 60.0] {
            pause(silence).await;
            outlet.say(token("x")).await?;
        }
        Ok(Finish::done())
    });
    let (run, end) = house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(house.names(&run), ["attempt", "token", "token", "token", "done"]);
    assert_eq!(house.rows(), rows(&[("user", "hi"), ("assistant", "xxx")]));
}
