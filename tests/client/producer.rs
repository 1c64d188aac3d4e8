//! A producer over connections that break: each event is appended once, in order, or the producer says that it does not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lastword::Event;
use lastword::client::{AppendOptions, ClientError, EventBatch, Patience, Producer};
use lastword::entropy::SeededEntropy;
use serde_json::{Value, json};

use crate::journal::{Fate, Journal, run, session};
use crate::server::{PATIENT, Server, Step, json as answer, pause, refuse};

fn token(number: u64) -> Value {
    json!({"event": "token", "payload": {"text": number.to_string()}})
}

fn tokens(numbers: impl IntoIterator<Item = u64>) -> Vec<Event> {
    numbers.into_iter().map(|number| Event::token(&number.to_string())).collect()
}

async fn server_of(journal: &Journal, fates: Vec<Fate>) -> Server {
    let journal = journal.clone();
    Server::with(move |seen, number| journal.take(seen, fates.get(number).copied().unwrap_or(Fate::Done))).await
}

fn producer(server: &Server, patience: Patience) -> Producer {
    let mut producer = server.client().producer(&session(), &run(), 0);
    producer.patience = patience;
    producer
}

#[tokio::test]
async fn whatever_happens_to_a_batch_it_is_appended_once() {
    use Fate::*;
    for fates in [
        vec![Done],
        vec![DoneUnheard],
        vec![Lost, Lost],
        vec![BegunOnly],
        vec![Refused(500), Refused(503), Refused(507), DoneUnheard, Lost],
        vec![Done, BegunOnly, DoneUnheard],
    ] {
        let journal = Journal::default();
        let server = server_of(&journal, fates.clone()).await;
        let mut producer = producer(&server, PATIENT);
        assert_eq!(producer.append(&tokens(1..=3)[..]).await.unwrap(), 1..=3, "{fates:?}");
        assert_eq!(producer.append(&tokens([4])[..]).await.unwrap(), 4..=4, "{fates:?}");
        assert_eq!(journal.lines(), (1..=4).map(token).collect::<Vec<_>>(), "{fates:?}");
    }
}

#[tokio::test]
async fn any_number_of_failures_leaves_each_event_once() {
    let entropy = SeededEntropy::new(7);
    let fates: Vec<Fate> = (0..2_000)
        .map(|_| match entropy.next_u64() % 8 {
            0 => Fate::DoneUnheard,
            1 => Fate::Lost,
            2 => Fate::BegunOnly,
            3 => Fate::Refused(503),
            _ => Fate::Done,
        })
        .collect();
    let journal = Journal::default();
    let server = server_of(&journal, fates).await;
    let mut producer = producer(&server, PATIENT);
    let mut sent = 0;
    while sent < 120 {
        let count = 1 + entropy.next_u64() % 4;
        let numbers = sent + 1..=sent + count;
        assert_eq!(producer.append(&tokens(numbers.clone())[..]).await.unwrap(), numbers);
        sent += count;
    }
    assert_eq!(journal.lines(), (1..=sent).map(token).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_restart_of_the_server_is_waited_for() {
    let journal = Journal::default();
    let mut server = server_of(&journal, Vec::new()).await;
    let mut producer = producer(&server, PATIENT);
    producer.append(&tokens([1])[..]).await.unwrap();
    server.end().await;
    let appending = tokio::spawn(async move { producer.append(&tokens([2])[..]).await });
    pause(0.3).await;
    server.restart().await;
    assert_eq!(appending.await.unwrap().unwrap(), 2..=2);
    assert_eq!(journal.lines().len(), 2);
}

#[tokio::test]
async fn a_number_that_somebody_took_is_reported_and_never_passed_over() {
    let journal = Journal::default();
    let server = server_of(&journal, Vec::new()).await;
    let stranger = EventBatch::from(&tokens(7..=9)[..]);
    server.client().append(&session(), &run(), &stranger, AppendOptions::default()).await.unwrap();
    let mut producer = producer(&server, PATIENT);
    for _ in 0..2 {
        let conflict = producer.append(&tokens([1])[..]).await.unwrap_err();
        assert!(matches!(conflict, ClientError::Api { status: 409, last_seq: Some(3), .. }), "{conflict}");
        assert_eq!((producer.last_seq(), producer.is_unsettled()), (0, false));
    }
    assert_eq!(journal.lines(), [7, 8, 9].map(token));
}

#[tokio::test]
async fn when_patience_ends_nothing_else_is_sent_before_that_is_settled() {
    let journal = Journal::default();
    let server = server_of(&journal, vec![Fate::DoneUnheard]).await;
    let mut producer = producer(&server, Patience::none());
    let broken = producer.append(&tokens(1..=2)[..]).await.unwrap_err();
    assert!(matches!(broken, ClientError::BrokenOff { .. }), "{broken}");
    assert!(producer.is_unsettled());
    let unsettled = producer.append(&tokens([3])[..]).await.unwrap_err();
    assert!(matches!(unsettled, ClientError::Unsettled { seq: 1, .. }), "{unsettled}");
    assert_eq!(producer.settle().await.unwrap(), 1..=2);
    assert!(producer.settle().await.unwrap().is_empty());
    assert_eq!(producer.append(&tokens([3])[..]).await.unwrap(), 3..=3);
    assert_eq!(journal.lines(), [1, 2, 3].map(token));
}

#[tokio::test]
async fn a_refusal_behind_a_broken_connection_settles_nothing() {
    let journal = Journal::default();
    let shared = journal.clone();
    let server = Server::with(move |seen, number| match number {
        0 => shared.take(seen, Fate::DoneUnheard),
        1 => refuse(401, "unauthorized"),
        _ => shared.take(seen, Fate::Done),
    })
    .await;
    let mut producer = producer(&server, PATIENT);
    let refused = producer.append(&tokens([1])[..]).await.unwrap_err();
    assert_eq!((refused.status(), producer.is_unsettled()), (Some(401), true));
    assert_eq!(producer.settle().await.unwrap(), 1..=1);
}

#[tokio::test]
async fn nonsense_is_not_taken_for_an_acknowledgement() {
    for odd in ["{}", "[]", "ok", r#"{"last_seq":0}"#, r#"{"last_seq":-1}"#] {
        let server = Server::start(vec![answer(200, odd)]).await;
        let mut producer = producer(&server, PATIENT);
        let nonsense = producer.append(&tokens([1])[..]).await.unwrap_err();
        assert!(matches!(nonsense, ClientError::BadAnswer { .. }), "{nonsense}");
        assert!(producer.is_unsettled());
    }
}

#[tokio::test]
async fn a_producer_that_waits_says_that_it_is_alive() {
    let renewed = Arc::new(AtomicUsize::new(0));
    let counted = renewed.clone();
    let server = Server::with(move |seen, number| {
        assert_eq!((seen.line(), seen.body.as_str()), ("POST /v1/sessions/s/runs/r/events", ""));
        counted.fetch_add(1, Ordering::SeqCst);
        match number {
            0 => answer(200, r#"{"last_seq":5}"#),
            1 => vec![Step::Reset],
            2 => refuse(503, "draining"),
            3 => answer(200, r#"{"last_seq":5}"#),
            _ => refuse(409, "sealed"),
        }
    })
    .await;
    let mut producer = server.client().resume_producer(&session(), &run()).await.unwrap();
    assert_eq!(producer.last_seq(), 5);
    producer.renew_every = std::time::Duration::from_millis(30);
    let ended = producer.wait_for(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(ended.code(), Some("sealed"));
    assert_eq!(renewed.load(Ordering::SeqCst), 5);
    assert_eq!(producer.wait_for(async { 7 }).await.unwrap(), 7);
}
