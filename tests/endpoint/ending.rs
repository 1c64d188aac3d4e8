//! Answers that are complete although the connection is not closed, and answers that end with nothing in them.

use serde_json::json;

use crate::house::{Answered, House, Outcome, PATIENT, message, text, until};
use crate::server::{Reply, Step};
use crate::words::{DONE, HEAD, PING, data, document, fine, finish, role, send, sends, word};

/// Far below the idle budget.
const SOON_SECONDS: f64 = 20.0;

/// The answer is taken as complete although the connection stays open.
async fn check_left_open(reply: Reply, events: &str) -> (House, Answered) {
    let house = House::with(PATIENT, vec![reply]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome { events, closed_by: "", rows: &[("user", "hi"), ("assistant", "Hello.")], requests: 1 },
    );
    assert!(answered.seconds < SOON_SECONDS, "{} s", answered.seconds);
    until("the server sees that nobody listens any more", || house.server.gone() == 1).await;
    (house, answered)
}

#[tokio::test]
async fn an_answer_is_complete_at_its_last_word_whether_or_not_the_connection_closes() {
    let reply = vec![send(&[HEAD, &word("Hello."), &finish("stop"), DONE]), Step::Hang];
    check_left_open(reply, "attempt token done").await;
}

#[tokio::test]
async fn an_answer_that_says_that_it_is_complete_is_not_waited_for_until_it_is_called_silent() {
    let said = || send(&[HEAD, &word("Hello."), &finish("stop")]);
    let silent = check_left_open(vec![said(), Step::Hang], "attempt token done");
    let kept_open = check_left_open(vec![said(), Step::Repeat(PING.into(), 0.1)], "attempt token done");
    for (house, answered) in <[_; 2]>::from(tokio::join!(silent, kept_open)) {
        assert_eq!(text(&house.told(&answered.run, "done")[0], "finish_reason"), "stop");
    }
}

#[tokio::test]
async fn the_usage_that_comes_a_little_behind_the_end_is_taken() {
    let usage = data(&json!({"choices": [], "usage": {"total_tokens": 7}}));
    let reply =
        vec![send(&[HEAD, &word("Hello."), &finish("stop")]), Step::Pause(0.3), send(&[&usage, DONE]), Step::Hang];
    let (house, answered) = check_left_open(reply, "attempt token usage done").await;
    assert_eq!(house.told(&answered.run, "usage")[0].get("total_tokens"), Some("7"));
}

/// Nothing was said: the next attempt completes the run.
async fn check_empty(reply: Reply, says: &str) {
    let house = House::new(vec![reply, fine("Hello.")]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt attempt_end attempt token done",
            closed_by: "empty",
            rows: &[("user", "hi"), ("assistant", "Hello.")],
            requests: 2,
        },
    );
    let failed = &house.told(&answered.run, "attempt_end")[0];
    assert_eq!(text(failed, "type"), "empty_answer");
    assert!(text(failed, "message").contains(says), "{}", failed.to_json());
}

#[tokio::test]
async fn an_answer_without_a_word_is_none_however_properly_it_ends() {
    let usage = data(&json!({"choices": [], "usage": {"total_tokens": 7}}));
    check_empty(sends(&[HEAD, &role(), &finish("stop"), &usage, DONE]), "finish_reason \"stop\"").await;
    check_empty(sends(&[HEAD, &finish("content_filter")]), "finish_reason \"content_filter\"").await;
    check_empty(sends(&[HEAD, DONE]), "without an answer. ").await;
    let whole = r#"{"choices":[{"message":{"role":"assistant","content":""},"finish_reason":"length"}]}"#;
    let whole = document("200 OK", "content-type: application/json\r\n", whole);
    check_empty(whole, "finish_reason \"length\"").await;
}

#[tokio::test]
async fn a_run_fails_when_every_answer_is_empty() {
    let empty = || sends(&[HEAD, &finish("stop"), DONE]);
    let house = House::new(vec![empty(), empty(), empty()]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt attempt_end attempt attempt_end attempt apperror",
            closed_by: "empty empty empty",
            rows: &[("user", "hi"), ("notice", "empty_answer")],
            requests: 3,
        },
    );
    assert!(message(&answered).contains("stop"), "{answered:?}");
}
