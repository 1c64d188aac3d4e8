//! Producers outside of the server, and what they know to have been appended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lastword::client::{Client, EventBatch, Producer};
use lastword::{Durability, Event, RunId, SessionId};

use crate::dice::Dice;
use crate::host::{PATIENCE, begin, outside};

/// How a producer works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) durability: Durability,
    pub(crate) lease_seconds: Option<f64>,
    pub(crate) seed: u64,
}

/// A run as its producer knows it.
#[derive(Debug)]
pub(crate) struct Produced {
    pub(crate) run: RunId,
    pub(crate) message: String,
    /// The texts of the tokens that were acknowledged.
    pub(crate) texts: Vec<String>,
    pub(crate) end: End,
}

#[derive(Debug, PartialEq)]
pub(crate) enum End {
    /// It was ended by its producer.
    Done,
    /// Its lease lapsed while the server was away. These texts may have been appended before.
    Lapsed(Vec<String>),
}

/// What a producer says as this event of this run. No two are the same; most are short, some are long.
fn text_of(run: &RunId, seq: u64, dice: &mut Dice) -> String {
    let letters = ["a", "é", "漢字", "🦀", "\"", "\\", "\n", "\u{2028}", "\r"];
    let length = if dice.below(40) == 0 { 20_000 } else { dice.below(60) };
    let phrase: String = (0..5).map(|_| letters[dice.below(9) as usize]).collect();
    // White space at the edges of an answer is not kept in the transcript.
    format!("{run}/{seq}:{}.", phrase.repeat(length as usize / phrase.len() + 1))
}

pub(crate) fn batch_of(texts: &[String]) -> EventBatch {
    let events: Vec<Event> = texts.iter().map(|text| Event::token(text)).collect();
    EventBatch::from(&events[..])
}

/// Begins a run and produces an answer of so many batches. Counts what is acknowledged.
pub(crate) async fn answer(
    client: Client,
    session: SessionId,
    run: RunId,
    batches: u64,
    manner: Manner,
    acknowledged: Arc<AtomicU64>,
) -> Produced {
    let mut dice = Dice(manner.seed);
    let message = format!("What about {run}?");
    begin(&client, &session, &outside(&run, &message, manner.lease_seconds)).await;
    let mut last_sign = Instant::now();
    let mut producer = client.producer(&session, &run, 0);
    let mut texts = Vec::new();
    for _ in 0..batches {
        let first = texts.len() as u64 + 1;
        let batch: Vec<String> = (first..=first + dice.below(12)).map(|seq| text_of(&run, seq, &mut dice)).collect();
        prepare(&mut producer, manner.durability);
        match producer.append(batch_of(&batch)).await {
            Ok(numbers) => assert_eq!(numbers, first..=first + batch.len() as u64 - 1, "run {run}"),
            Err(error) => {
                let lease = manner.lease_seconds.unwrap_or(30.0);
                let silence = last_sign.elapsed();
                assert_eq!(error.code(), Some("sealed"), "run {run} behind {}: {error}", first - 1);
                assert!(silence.as_secs_f64() >= lease, "run {run} was ended after {silence:?}, lease {lease} s");
                return Produced { run, message, texts, end: End::Lapsed(batch) };
            }
        }
        last_sign = Instant::now();
        acknowledged.fetch_add(batch.len() as u64, Ordering::Relaxed);
        texts.extend(batch);
        if dice.below(10) == 0 {
            producer = take_up(&client, &session, &run, texts.len() as u64).await;
            last_sign = Instant::now();
        }
        tokio::time::sleep(dice.millis(8)).await;
    }
    let last = texts.len() as u64 + 1;
    prepare(&mut producer, manner.durability);
    let end = producer.append(EventBatch::from(&[Event::done()][..])).await;
    assert_eq!(end.unwrap_or_else(|error| panic!("run {run} does not end: {error}")), last..=last);
    Produced { run, message, texts, end: End::Done }
}

fn prepare(producer: &mut Producer, durability: Durability) {
    producer.durability = durability;
    producer.patience = PATIENCE;
}

/// Another producer takes the run up: the server knows how far it is.
async fn take_up(client: &Client, session: &SessionId, run: &RunId, last_seq: u64) -> Producer {
    let producer = crate::host::answered(|| client.resume_producer(session, run)).await;
    let producer = producer.unwrap_or_else(|error| panic!("run {run} cannot be taken up: {error}"));
    assert_eq!(producer.last_seq(), last_seq, "run {run}: what was acknowledged is what is there");
    producer
}

/// Waits until so many more events are acknowledged, but not for ever.
pub(crate) fn wait_for(acknowledged: &AtomicU64, more: u64) {
    let (goal, deadline) = (acknowledged.load(Ordering::Relaxed) + more, Instant::now() + Duration::from_secs(5));
    while acknowledged.load(Ordering::Relaxed) < goal && Instant::now() < deadline {
        std::hint::spin_loop();
        std::thread::yield_now();
    }
}
