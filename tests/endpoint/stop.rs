//! Whoever stops an answer also hangs up: the server does not go on for nobody.

use crate::house::{Answered, House, Outcome, in_time, until};
use crate::server::{Reply, Step};
use crate::words::{HEAD, PING, send, word};

/// Stops a run as soon as the server was asked and so many words have arrived.
async fn stop_behind(words: usize, reply: Reply) -> (House, Answered) {
    let house = House::new(vec![reply]).await;
    let mut started = house.start("hi").await;
    let run = started.run().clone();
    let count = || house.names(&run).iter().filter(|name| *name == "token").count();
    until("the answer has come so far", || house.server.seen().len() == 1 && count() >= words).await;
    let begin = tokio::time::Instant::now();
    assert!(house.supervisor.stop(&house.session, &run).await.unwrap());
    let end = in_time(started.ended()).await;
    let seconds = begin.elapsed().as_secs_f64();
    assert!(end.is_stopped() && seconds < 10.0, "{end:?} after {seconds} s");
    until("the server sees that nobody listens any more", || house.server.gone() == 1).await;
    (house, Answered { run, end, seconds })
}

#[tokio::test]
async fn an_answer_is_stopped_before_its_first_word() {
    for reply in [vec![Step::Hang], vec![send(&[HEAD]), Step::Repeat(PING.into(), 0.1)]] {
        let (house, answered) = stop_behind(0, reply).await;
        house.check(
            &answered,
            &Outcome {
                events: "attempt cancel",
                closed_by: "stopped_by_user",
                rows: &[("user", "hi"), ("notice", "interrupted")],
                requests: 1,
            },
        );
    }
}

#[tokio::test]
async fn an_answer_is_stopped_in_the_middle_and_what_had_arrived_is_kept() {
    let reply = vec![send(&[HEAD, &word("One, "), &word("two")]), Step::Hang];
    let (house, answered) = stop_behind(2, reply).await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt token token cancel",
            closed_by: "stopped_by_user",
            rows: &[("user", "hi"), ("assistant", "One, two"), ("notice", "interrupted")],
            requests: 1,
        },
    );
}

#[tokio::test]
async fn an_answer_is_stopped_while_it_pours() {
    let (house, answered) = stop_behind(3, vec![send(&[HEAD]), Step::Repeat(word("x").into(), 0.01)]).await;
    let names = house.names(&answered.run);
    let tokens = names.len() - 2;
    assert!(tokens >= 3, "{names:?}");
    house.check(
        &answered,
        &Outcome {
            events: &format!("attempt {}cancel", "token ".repeat(tokens)),
            closed_by: "stopped_by_user",
            rows: &[("user", "hi"), ("assistant", &"x".repeat(tokens)), ("notice", "interrupted")],
            requests: 1,
        },
    );
}

#[tokio::test]
async fn a_pause_between_two_attempts_is_stopped_and_no_attempt_follows() {
    let refusal = crate::words::document("429 Too Many Requests", "retry-after: 100\r\n", "{}");
    let house = House::new(vec![refusal]).await;
    let mut started = house.start("hi").await;
    let run = started.run().clone();
    until("the first attempt has failed", || house.names(&run).contains(&"attempt_end".to_owned())).await;
    assert!(house.supervisor.stop(&house.session, &run).await.unwrap());
    let end = in_time(started.ended()).await;
    house.check(
        &Answered { run, end, seconds: 0.0 },
        &Outcome {
            events: "attempt attempt_end cancel",
            closed_by: "refused stopped_by_user",
            rows: &[("user", "hi"), ("notice", "interrupted")],
            requests: 1,
        },
    );
}
