//! Unit tests of appending over HTTP on a simulated disk: what is acknowledged, when, and who waits for whom.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;

use super::*;
use crate::http::options::ServerOptions;
use crate::http::tests::{DEADLINE, LEASE_SECONDS, TestServer, done, run, session, until};
use crate::http::time::within;
use crate::storage::sim::Fault;
use crate::store::{Liveness, UserTurn};

/// Longer than the lease and the grace of a run.
const LONG: Duration = Duration::from_secs(3_600);

fn lines(events: &[Event]) -> SentLines {
    let line = |event: &Event| format!(r#"{{"event":"{}","payload":{}}}"#, event.name(), event.payload());
    SentLines(events.iter().map(line).collect::<Vec<_>>().join("\n").into())
}

/// Appends to the run `r`, as a request does.
async fn post(
    app: SharedApp,
    events: &[Event],
    durability: Option<Lasting>,
    expect_seq: Option<u64>,
) -> Result<u64, ApiError> {
    let asked = AppendAsked { durability, expect_seq };
    let taken = append(State(app), OfRun(session(), run("r")), Asked(asked), lines(events)).await;
    taken.map(|Json(taken)| taken.last_seq)
}

fn words() -> Vec<Event> {
    vec![Event::token("to the "), Event::token("sea")]
}

/// Whether the run's turn can be had now.
fn is_turn_free(app: &SharedApp) -> bool {
    app.producers.turn(&session(), &run("r")).now_or_never().is_some()
}

fn is_live(server: &TestServer) -> bool {
    matches!(server.store().liveness(&session(), &run("r")).unwrap(), Liveness::Live { .. })
}

#[tokio::test]
async fn a_repeat_that_asks_for_durable_survives_a_power_cut_although_the_first_try_was_buffered() {
    for count in [1, 2] {
        let server = TestServer::new();
        drop(server.begin("r"));
        let first = post(server.app.clone(), &words()[..count], Some(Lasting::Buffered), Some(1)).await.unwrap();
        assert_eq!((first, server.seqs_after_power_cut("r")), (count as u64, vec![]), "the first try was buffered");
        let repeat = post(server.app.clone(), &words()[..count], Some(Lasting::Durable), Some(1)).await.unwrap();
        assert_eq!((repeat, server.seqs_after_power_cut("r").len()), (count as u64, count));
    }
}

#[tokio::test]
async fn a_repeat_to_a_durable_server_survives_a_power_cut_whatever_it_asks_for() {
    for asked in [None, Some(Lasting::Buffered), Some(Lasting::Durable)] {
        let server = TestServer::with(Durability::Durable, ServerOptions::default());
        // The first try waits for an fsync that does not come, and its caller leaves.
        let begun = server.begin("r");
        begun.append_all(&words(), Durability::Durable).unwrap();
        assert!(server.seqs_after_power_cut("r").is_empty());
        let repeat = within(DEADLINE, post(server.app.clone(), &words(), asked, Some(1))).await.unwrap();
        assert_eq!((repeat.unwrap(), server.seqs_after_power_cut("r")), (2, vec![1, 2]), "{asked:?}");
    }
}

#[tokio::test]
async fn a_repeat_whose_fsync_fails_is_not_acknowledged() {
    let server = TestServer::new();
    drop(server.begin("r"));
    post(server.app.clone(), &words(), Some(Lasting::Buffered), Some(1)).await.unwrap();
    server.disk.break_syncs(server.disk.operations() + 1);
    post(server.app.clone(), &words(), Some(Lasting::Durable), Some(1)).await.unwrap_err();
}

#[tokio::test]
async fn a_durable_append_is_acknowledged_after_its_fsync_and_not_if_that_fails() {
    for is_broken in [false, true] {
        let server = TestServer::new();
        drop(server.begin("r"));
        let app = server.app.clone();
        let posted = tokio::spawn(async move { post(app, &words(), Some(Lasting::Durable), None).await });
        until(|| server.seqs("r") == [1, 2]).await;
        assert!(within(Duration::from_millis(20), until(|| posted.is_finished())).await.is_none());
        if is_broken {
            server.disk.break_syncs(server.disk.operations() + 1);
        }
        until(|| server.store().commit().is_err() || posted.is_finished()).await;
        let outcome = within(DEADLINE, posted).await.unwrap().unwrap();
        match is_broken {
            true => assert!(outcome.is_err(), "acknowledged without an fsync"),
            false => assert_eq!((outcome.unwrap(), server.seqs_after_power_cut("r")), (2, vec![1, 2])),
        }
    }
}

#[tokio::test]
async fn a_repeat_of_the_end_is_acknowledged_with_the_answer_saved() {
    let mut repeats = 0;
    for operation in 1.. {
        let server = TestServer::new();
        drop(server.begin("r"));
        post(server.app.clone(), &words(), None, Some(1)).await.unwrap();
        let failing = server.disk.operations() + operation;
        server.disk.fail(failing, Fault::Enospc);
        let first = post(server.app.clone(), &[done()], None, Some(3)).await;
        if server.disk.operations() < failing {
            break;
        }
        if first.is_ok() {
            continue;
        }
        // Appended without being saved: what a repeat is acknowledged for is saved.
        let was_there = server.store().resume_run(&session(), &run("r")).is_ok_and(|run| run.is_sealed());
        let repeat = post(server.app.clone(), &[done()], None, Some(3)).await;
        if repeat.is_ok() {
            assert!(server.document().contains("to the sea"), "operation {operation}: {}", server.document());
            repeats += u64::from(was_there);
        }
    }
    assert!(repeats > 0, "no try was appended without being saved");
}

#[tokio::test]
async fn a_turn_is_held_while_events_are_compared_and_appended() {
    let server = TestServer::new();
    drop(server.begin("r"));
    let held = Arc::new(Mutex::new(Vec::new()));
    let (app, noted) = (Arc::downgrade(&server.app), held.clone());
    server.disk.observe(move |_| {
        let is_held = app.upgrade().is_some_and(|app| !is_turn_free(&app));
        noted.lock().push(is_held);
    });
    for durability in [Lasting::Buffered, Lasting::Durable] {
        // The second one is a repeat, which has the log committed.
        post(server.app.clone(), &words(), Some(durability), Some(1)).await.unwrap();
        let held = std::mem::take(&mut *held.lock());
        assert!(!held.is_empty() && held.iter().all(|is_held| *is_held), "{durability:?}: {held:?}");
        assert!(is_turn_free(&server.app));
    }
}

#[tokio::test]
async fn a_turn_is_held_until_the_work_is_done_although_its_caller_has_left() {
    let server = TestServer::new();
    drop(server.begin("r"));
    // So that the run is open.
    post(server.app.clone(), &words(), None, Some(1)).await.unwrap();
    let is_stuck = Arc::new(AtomicBool::new(false));
    let (release, released) = mpsc::channel::<()>();
    let (stuck, released) = (is_stuck.clone(), Mutex::new(released));
    server.disk.observe(move |_| {
        if !stuck.swap(true, Ordering::SeqCst) {
            let _ = released.lock().recv_timeout(DEADLINE);
        }
    });
    let app = server.app.clone();
    let leaving = tokio::spawn(async move { post(app, &words(), None, Some(3)).await });
    until(|| is_stuck.load(Ordering::SeqCst)).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    assert!(!is_turn_free(&server.app), "the next request compares with what is not appended yet");
    let app = server.app.clone();
    let repeat = tokio::spawn(async move { post(app, &words(), None, Some(3)).await });
    release.send(()).unwrap();
    assert_eq!(within(DEADLINE, repeat).await.unwrap().unwrap().unwrap(), 4);
    assert_eq!(server.seqs("r"), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_producer_that_waits_for_the_disk_is_alive_and_its_lease_counts_from_the_answer() {
    let server = TestServer::new();
    drop(server.begin("r"));
    let app = server.app.clone();
    let posted = tokio::spawn(async move { post(app, &words(), Some(Lasting::Durable), None).await });
    until(|| server.seqs("r") == [1, 2]).await;
    server.pass(LONG);
    assert!(is_live(&server), "its append waits for an fsync");
    until(|| server.store().commit().is_err() || posted.is_finished()).await;
    posted.await.unwrap().unwrap();
    server.pass(Duration::from_secs_f64(LEASE_SECONDS / 2.0));
    assert!(is_live(&server), "half of its lease is left");
    server.pass(Duration::from_secs_f64(LEASE_SECONDS));
    assert!(!is_live(&server), "its lease has lapsed");
}

#[tokio::test]
async fn a_run_without_a_lease_is_not_alive_because_it_was_appended_to() {
    let server = TestServer::new();
    drop(server.store().begin_run(&session(), UserTurn::text("m").with_run(run("r"))).unwrap());
    post(server.app.clone(), &words(), None, Some(1)).await.unwrap();
    server.pass(LONG);
    assert!(!is_live(&server));
    assert_eq!(server.app.producers.len(), 0);
}

#[tokio::test]
async fn a_run_whose_append_failed_is_opened_again_and_goes_on() {
    let server = TestServer::new();
    drop(server.begin("r"));
    post(server.app.clone(), &words(), None, Some(1)).await.unwrap();
    assert_eq!(server.app.producers.len(), 1);
    post(server.app.clone(), &words(), None, Some(7)).await.unwrap_err();
    assert_eq!(server.app.producers.len(), 0);
    assert_eq!(post(server.app.clone(), &words(), None, Some(3)).await.unwrap(), 4);
    post(server.app.clone(), &[done()], None, Some(5)).await.unwrap();
    assert_eq!(server.app.producers.len(), 0, "a run that has ended stays open");
}

/// Bytes of the journal of the run `r` in the test of what a repeat costs.
const LONG_JOURNAL_BYTES: u64 = 8 << 20;

#[tokio::test]
async fn a_repeat_does_not_read_the_whole_journal_neither_while_the_run_goes_on_nor_when_it_has_ended() {
    let server = TestServer::new();
    drop(server.begin("r"));
    let words = Event::token(&"x".repeat(32 << 10));
    let mut last_seq = 0;
    while last_seq * (32 << 10) < LONG_JOURNAL_BYTES {
        last_seq = post(server.app.clone(), std::slice::from_ref(&words), None, Some(last_seq + 1)).await.unwrap();
    }
    let repeat = async |events: Vec<Event>, seq: u64| {
        let before = server.disk.bytes_read();
        let answer = post(server.app.clone(), &events, None, Some(seq)).await;
        (answer.map_err(|error| format!("{error:?}")), server.disk.bytes_read() - before)
    };
    let bound = LONG_JOURNAL_BYTES / 8;
    for seq in [last_seq, last_seq / 2, 1] {
        let (answer, read) = repeat(vec![words.clone()], seq).await;
        assert_eq!(answer, Ok(seq));
        assert!((1..bound).contains(&read), "a repeat of {seq} read {read} bytes");
        let (answer, read) = repeat(vec![Event::token("other words")], seq).await;
        assert!(answer.is_err() && (1..bound).contains(&read), "other words at {seq}: {answer:?}, {read} bytes");
    }
    post(server.app.clone(), &[done()], None, Some(last_seq + 1)).await.unwrap();
    for (events, seq) in [(vec![done()], last_seq + 1), (vec![words.clone(), done()], last_seq), (vec![words], 1)] {
        let (answer, read) = repeat(events, seq).await;
        assert!(answer.is_ok(), "{answer:?}");
        assert!((1..bound).contains(&read), "a repeat of {seq} in a run that has ended read {read} bytes");
    }
}
