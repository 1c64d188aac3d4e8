//! A failure that nobody saw is tried again; one that somebody saw is said.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lastword::Event;
use lastword::run::{BudgetSettings, Failure, Finish, Retries, Retry};

use serde_json::json;

use crate::house::{House, rows, seconds_since, token};

fn failure() -> Failure {
    Failure::new("backend_error", "It failed.").retryable()
}

fn retries() -> Retries {
    Retries { attempts_max: 3, first_pause: Duration::from_secs(4), ..Retries::default() }
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_anything_was_shown_is_tried_again_and_each_attempt_is_journalled() {
    let house = House::with(BudgetSettings::default(), retries(), |prompt, outlet| async move {
        if prompt.attempt < 3 {
            return Err(failure());
        }
        outlet.say(token("third time")).await?;
        Ok(Finish::done())
    });
    let begin = tokio::time::Instant::now();
    let (run, end) = house.answer("hi").await;
    assert!(end.is_completed());
    assert_eq!(house.names(&run), ["attempt", "attempt_end", "attempt", "attempt_end", "attempt", "token", "done"]);
    assert!((6.0..13.0).contains(&seconds_since(begin)), "pauses of 2 to 4 and of 4 to 8 s: {}", seconds_since(begin));
    assert_eq!(house.rows(), rows(&[("user", "hi"), ("assistant", "third time")]));
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded_and_the_last_failure_is_said() {
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    let house = House::with(BudgetSettings::default(), retries(), move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Err(failure()) }
    });
    let (run, end) = house.answer("hi").await;
    assert!(end.failure.is_some());
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
    assert_eq!(house.last_words(&run).get("attempts"), Some("3"));
    assert_eq!(house.rows(), rows(&[("user", "hi"), ("notice", "backend_error")]));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_tried_again_behind_the_back_of_somebody_who_saw_a_word() {
    for shown in [token("seen"), Event::tool("1", "rm", &json!({}))] {
        let house = House::with(BudgetSettings::default(), retries(), move |_, outlet| {
            let shown = shown.clone();
            async move {
                outlet.say(shown).await?;
                Err(failure())
            }
        });
        let (run, end) = house.answer("hi").await;
        assert!(end.failure.is_some());
        assert_eq!(house.names(&run).iter().filter(|name| *name == "attempt").count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_thought_is_not_shown_and_stays_in_its_own_paragraph() {
    let house = House::with(BudgetSettings::default(), retries(), |prompt, outlet| async move {
        outlet.say(Event::reasoning(&format!("thought {}", prompt.attempt))).await?;
        if prompt.attempt == 1 {
            return Err(failure());
        }
        outlet.say(token("answer")).await?;
        Ok(Finish::done())
    });
    house.answer("hi").await;
    let row = house.transcript().message(1).unwrap();
    assert_eq!((row.content().as_ref(), row.reasoning().unwrap().as_ref()), ("answer", "thought 1\n\nthought 2"));
}

#[tokio::test(start_paused = true)]
async fn a_stall_before_the_first_event_is_tried_again() {
    let house = House::with(BudgetSettings::default(), retries(), |prompt, outlet| async move {
        if prompt.attempt == 1 {
            std::future::pending::<()>().await;
        }
        outlet.say(token("reconnected")).await?;
        Ok(Finish::done())
    });
    let (run, end) = house.answer("hi").await;
    assert!(end.is_completed());
    let why = house.events(&run).into_iter().find(|event| event.name == "attempt_end").unwrap();
    assert!(why.payload().contains("\"close_reason\":\"ttfb_timeout\""), "{}", why.payload());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_backend_asks_for_is_waited_out_and_an_hour_is_too_long() {
    let asking = |seconds| Failure { retry: Retry::After(Some(Duration::from_secs(seconds))), ..failure() };
    let house = House::with(BudgetSettings::default(), retries(), move |prompt, outlet| async move {
        if prompt.attempt == 1 {
            return Err(asking(100));
        }
        outlet.say(token("x")).await?;
        Ok(Finish::done())
    });
    let begin = tokio::time::Instant::now();
    assert!(house.answer("hi").await.1.is_completed());
    assert!(seconds_since(begin) >= 100.0);
    let house = House::with(BudgetSettings::default(), retries(), move |_, _| async move { Err(asking(3_600)) });
    let (run, _) = house.answer("hi").await;
    assert_eq!(house.names(&run), ["attempt", "apperror"]);
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_panics_fails_its_run_and_no_other() {
    let house = House::with(BudgetSettings::default(), retries(), |prompt, outlet| async move {
        outlet.say(token("half")).await?;
        assert!(prompt.message != "break", "this runner breaks");
        Ok(Finish::done())
    });
    let (run, end) = house.answer("break").await;
    assert!(end.failure.is_some());
    assert_eq!(house.last_words(&run).text("close_reason").unwrap(), "panic");
    assert!(house.answer("go on").await.1.is_completed());
    assert_eq!(
        house.rows(),
        rows(&[
            ("user", "break"),
            ("assistant", "half"),
            ("notice", "runner_panicked"),
            ("user", "go on"),
            ("assistant", "half")
        ])
    );
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_panics_before_it_is_at_work_fails_its_run_and_no_other() {
    let house = House::with(BudgetSettings::default(), retries(), |prompt, outlet| {
        assert!(prompt.message != "break", "this runner breaks");
        async move {
            outlet.say(token("fine")).await?;
            Ok(Finish::done())
        }
    });
    let (run, end) = house.answer("break").await;
    assert!(end.has_failed_as("runner_panicked"), "{end:?}");
    assert_eq!(house.last_words(&run).text("close_reason").unwrap(), "panic");
    assert!(house.answer("go on").await.1.is_completed());
    let expected = [("user", "break"), ("notice", "runner_panicked"), ("user", "go on"), ("assistant", "fine")];
    assert_eq!(house.rows(), rows(&expected));
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_ends_the_run_itself_is_taken_at_its_word() {
    let house = House::new(|_, outlet| async move {
        outlet.say(token("all")).await?;
        outlet.say(Event::done()).await?;
        outlet.say(token("too late")).await?;
        std::future::pending().await
    });
    let (run, end) = house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(house.names(&run), ["attempt", "token", "done"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_written_fails_the_run_and_says_so() {
    let house = House::new(|_, outlet| async move {
        outlet.say(token("before")).await?;
        outlet.say(token(&"x".repeat(lastword::limits::LINE_BYTES_MAX))).await?;
        Ok(Finish::done())
    });
    let (run, end) = house.answer("hi").await;
    assert!(end.has_failed_as("invalid_argument"), "{end:?}");
    assert_eq!(house.last_words(&run).text("close_reason").unwrap(), "unwritten");
    assert_eq!(house.rows(), rows(&[("user", "hi"), ("assistant", "before"), ("notice", "invalid_argument")]));
}
