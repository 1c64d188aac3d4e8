//! Connections that break: what nobody saw is asked for again, what somebody saw is kept, and half a character is none.

use crate::house::{House, Outcome};
use crate::server::{Reply, Step};
use crate::words::{CHUNKED_HEAD, DONE, HEAD, fine, finish, piece, role, send, sends, thought, word};

/// Cut like this, nobody has seen anything, and the next attempt completes the run.
async fn check_unseen(cut: Reply, closed_by: &str) {
    let house = House::new(vec![cut, fine("Hello.")]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt attempt_end attempt token done",
            closed_by,
            rows: &[("user", "hi"), ("assistant", "Hello.")],
            requests: 2,
        },
    );
}

/// Cut like this, somebody has seen "half": it is kept, exactly, and the run fails.
async fn check_seen(cut: Reply, closed_by: &str, notice: &str) {
    let house = House::new(vec![cut, fine("Never asked for.")]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt token apperror",
            closed_by,
            rows: &[("user", "hi"), ("assistant", "half"), ("notice", notice)],
            requests: 1,
        },
    );
}

/// Cut like this, an answer that said that it is complete is complete.
async fn check_complete(cut: Reply) {
    let house = House::new(vec![cut]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt token done",
            closed_by: "",
            rows: &[("user", "hi"), ("assistant", "whole")],
            requests: 1,
        },
    );
}

/// The bytes of an event, up to the middle of the last character of its word.
fn half_a_character() -> Vec<u8> {
    let event = word("Gr\u{fc}\u{df}e \u{1f600}").into_bytes();
    let face = event.windows(4).position(|four| four == "\u{1f600}".as_bytes()).expect("it is not escaped");
    event[..face + 2].to_vec()
}

#[tokio::test]
async fn a_cut_in_the_middle_of_a_character_leaves_no_trace_of_it() {
    check_unseen(vec![send(&[HEAD, &role()]), Step::Send(half_a_character())], "cut_off").await;
    check_seen(vec![send(&[HEAD, &word("half")]), Step::Send(half_a_character())], "cut_off", "cut_off").await;
}

#[tokio::test]
async fn a_cut_in_the_middle_of_an_event_leaves_no_trace_of_it() {
    let event = word("never whole");
    for end in [3, event.len() / 2, event.len() - 2, event.len() - 1] {
        check_unseen(sends(&[HEAD, &event[..end]]), "cut_off").await;
        check_seen(sends(&[HEAD, &word("half"), &event[..end]]), "cut_off", "cut_off").await;
    }
}

#[tokio::test]
async fn a_stream_that_ends_before_the_answer_is_complete_was_cut_off() {
    check_unseen(sends(&[HEAD]), "cut_off").await;
    check_unseen(sends(&[HEAD, &role()]), "cut_off").await;
    check_seen(sends(&[HEAD, &word("half")]), "cut_off", "cut_off").await;
    check_seen(sends(&[HEAD, &word("half"), &finish("")]), "cut_off", "cut_off").await;
}

#[tokio::test]
async fn a_connection_that_is_reset_is_a_failure_of_the_connection() {
    check_unseen(vec![Step::Reset], "connection").await;
    check_unseen(vec![send(&[HEAD, &role()]), Step::Pause(0.2), Step::Reset], "connection").await;
    check_seen(vec![send(&[HEAD, &word("half")]), Step::Pause(0.2), Step::Reset], "connection", "connection").await;
}

#[tokio::test]
async fn a_connection_that_is_closed_without_a_word_is_a_failure_of_the_connection() {
    check_unseen(vec![], "connection").await;
    check_unseen(sends(&["HTTP/1.1 200 OK\r\ncontent-ty"]), "connection").await;
}

#[tokio::test]
async fn a_chunked_stream_without_its_last_piece_broke_off() {
    check_unseen(sends(&[CHUNKED_HEAD, &piece(&role())]), "connection").await;
    check_seen(sends(&[CHUNKED_HEAD, &piece(&word("half"))]), "connection", "connection").await;
    let torn = piece(&word("never whole"));
    check_seen(sends(&[CHUNKED_HEAD, &piece(&word("half")), &torn[..torn.len() / 2]]), "connection", "connection")
        .await;
}

#[tokio::test]
async fn a_stream_that_is_shorter_than_it_said_broke_off() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n";
    check_unseen(sends(&[head, &role()]), "connection").await;
    check_seen(sends(&[head, &word("half")]), "connection", "connection").await;
    check_complete(sends(&[head, &word("whole"), &finish("stop")])).await;
}

#[tokio::test]
async fn how_the_connection_ends_is_of_no_interest_once_the_answer_is_complete() {
    check_complete(sends(&[HEAD, &word("whole"), &finish("stop")])).await;
    check_complete(sends(&[HEAD, &word("whole"), DONE])).await;
    check_complete(sends(&[HEAD, &word("whole"), DONE.trim_end()])).await;
    check_complete(sends(&[HEAD, &word("whole"), &finish("stop"), &word("cut")[..20]])).await;
    check_complete(sends(&[CHUNKED_HEAD, &piece(&word("whole")), &piece(&finish("stop"))])).await;
    check_complete(vec![send(&[HEAD, &word("whole"), &finish("stop")]), Step::Pause(0.2), Step::Reset]).await;
}

#[tokio::test]
async fn a_thought_is_not_seen_and_the_thoughts_of_both_attempts_are_kept() {
    let second = sends(&[HEAD, &thought("second"), &word("Hello."), &finish("stop"), DONE]);
    let house = House::new(vec![sends(&[HEAD, &thought("first")]), second]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt reasoning attempt_end attempt reasoning token done",
            closed_by: "cut_off",
            rows: &[("user", "hi"), ("assistant", "Hello.")],
            requests: 2,
        },
    );
    assert_eq!(house.transcript().message(1).unwrap().reasoning().unwrap(), "first\n\nsecond");
}
