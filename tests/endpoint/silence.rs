//! A server that takes a request and says nothing is cut off early and asked again; one that is merely slow is not.

use serde_json::json;

use crate::house::{Answered, House, Outcome, budgets, message, text, until};
use crate::server::{Reply, Step};
use crate::words::{CHUNKED_HEAD, DONE, HEAD, PING, delta, fine, finish, role, send, thought, word};

/// Far below the idle budget of a minute, and far above the first-event budget.
const SOON_SECONDS: f64 = 20.0;

const TTFB_SECONDS: f64 = 1.5;

#[track_caller]
fn check_soon(answered: &Answered, budgets_overdrawn: u32) {
    let least = TTFB_SECONDS * f64::from(budgets_overdrawn);
    assert!((least..SOON_SECONDS).contains(&answered.seconds), "{} s", answered.seconds);
}

/// Whoever is silent like this is cut off at the first-event budget, and the next attempt completes the run.
async fn check_silence(silence: Reply) {
    let house = House::with(budgets(TTFB_SECONDS, 60.0), vec![silence, fine("Hello.")]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt attempt_end attempt token done",
            closed_by: "ttfb_timeout",
            rows: &[("user", "hi"), ("assistant", "Hello.")],
            requests: 2,
        },
    );
    check_soon(&answered, 1);
    let failed = &house.told(&answered.run, "attempt_end")[0];
    assert_eq!(text(failed, "type"), "timeout");
    assert!(text(failed, "message").contains("TTFB") && failed.is_true("retryable"), "{}", failed.to_json());
    until("the server sees that nobody waits any more", || house.server.gone() == 1).await;
}

#[tokio::test]
async fn a_server_that_never_answers_is_cut_off_at_the_first_event_budget_and_asked_again() {
    check_silence(vec![Step::Hang]).await;
}

#[tokio::test]
async fn a_head_is_no_event() {
    let until_closed = check_silence(vec![send(&[HEAD]), Step::Hang]);
    let chunked = check_silence(vec![send(&[CHUNKED_HEAD]), Step::Hang]);
    tokio::join!(until_closed, chunked);
}

#[tokio::test]
async fn bytes_that_only_keep_the_connection_open_are_no_event() {
    let comments = check_silence(vec![send(&[HEAD]), Step::Repeat(PING.into(), 0.1)]);
    let blank_lines = check_silence(vec![send(&[HEAD]), Step::Repeat(b"\n".into(), 0.1)]);
    let empty_data = check_silence(vec![send(&[HEAD]), Step::Repeat(b"data:\n\n".into(), 0.1)]);
    tokio::join!(comments, blank_lines, empty_data);
}

#[tokio::test]
async fn half_an_event_is_none() {
    let whole = word("Hello.");
    check_silence(vec![send(&[HEAD, &whole[..whole.len() - 1]]), Step::Hang]).await;
}

#[tokio::test]
async fn a_run_fails_when_every_attempt_meets_silence_and_says_ttfb() {
    let silence = || vec![Step::Hang];
    let house = House::with(budgets(TTFB_SECONDS, 60.0), vec![silence(), silence(), silence()]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt attempt_end attempt attempt_end attempt apperror",
            closed_by: "ttfb_timeout ttfb_timeout ttfb_timeout",
            rows: &[("user", "hi"), ("notice", "timeout")],
            requests: 3,
        },
    );
    check_soon(&answered, 3);
    assert!(message(&answered).contains("TTFB"), "{answered:?}");
    let last = &house.told(&answered.run, "apperror")[0];
    assert!(last.is_true("retryable") && last.get("attempts") == Some("3"), "{}", last.to_json());
    until("the server sees that nobody waits any more", || house.server.gone() == 3).await;
}

#[tokio::test]
async fn behind_a_word_keeping_the_connection_open_is_silence_and_the_partial_stays() {
    let reply = vec![send(&[HEAD, &word("half")]), Step::Repeat(PING.into(), 0.1)];
    let house = House::with(budgets(30.0, 0.7), vec![reply]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt token apperror",
            closed_by: "idle_timeout",
            rows: &[("user", "hi"), ("assistant", "half"), ("notice", "timeout")],
            requests: 1,
        },
    );
    assert!((0.7..SOON_SECONDS).contains(&answered.seconds), "{} s", answered.seconds);
    until("the server sees that nobody waits any more", || house.server.gone() == 1).await;
}

/// Behind this the answer may take longer than the first-event budget.
async fn check_sign_of_life(sign: &str, events: &str) {
    let late = send(&[&word("Late."), &finish("stop"), DONE]);
    let house = House::with(budgets(1.0, 30.0), vec![vec![send(&[HEAD, sign]), Step::Pause(1.5), late]]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome { events, closed_by: "", rows: &[("user", "hi"), ("assistant", "Late.")], requests: 1 },
    );
}

#[tokio::test]
async fn who_speaks_and_what_it_thinks_are_signs_of_life() {
    let (role, thought) = (role(), thought("Hm."));
    let who_speaks = check_sign_of_life(&role, "attempt token done");
    let what_it_thinks = check_sign_of_life(&thought, "attempt reasoning token done");
    tokio::join!(who_speaks, what_it_thinks);
}

#[tokio::test]
async fn a_chunk_is_a_sign_of_life_whatever_it_holds() {
    let thinking = delta(json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}));
    let unknown = delta(json!({"something_new": 7}));
    let thinking = check_sign_of_life(&thinking, "attempt reasoning token done");
    let unknown = check_sign_of_life(&unknown, "attempt token done");
    tokio::join!(thinking, unknown);
}

#[tokio::test]
async fn an_answer_that_comes_byte_by_byte_may_take_as_long_as_it_likes() {
    let words: Vec<String> = (0..12).map(|number| format!("{number}: Gr\u{fc}\u{df}e \u{1f600} ")).collect();
    let body: String = words.iter().map(|text| word(text)).chain([finish("stop"), DONE.to_owned()]).collect();
    let reply = vec![send(&[HEAD]), Step::Trickle(body.into_bytes(), 0.001)];
    let house = House::with(budgets(1.0, 30.0), vec![reply]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: &format!("attempt {}done", "token ".repeat(words.len())),
            closed_by: "",
            rows: &[("user", "hi"), ("assistant", words.concat().trim_end())],
            requests: 1,
        },
    );
    assert!(answered.seconds > 1.5, "{} s", answered.seconds);
}
