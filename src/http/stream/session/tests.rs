//! Unit tests of the stream of a session: the order of its segments, and news that come at an awkward moment.

use std::pin::pin;

use futures_util::FutureExt;

use super::*;
use crate::http::tests::{DEADLINE, TestServer, done, run, session, tasks, until};
use crate::http::time::within;
use crate::model::Event;
use crate::store::Run;

async fn begin(server: &TestServer, start_at: StartAt) -> SessionFeed {
    SessionFeed::begin(&server.app.hub, &session(), start_at).await.unwrap()
}

/// What a reader is sent, up to and with this: ids of events, and `end RUN`.
async fn sent_until(feed: &mut SessionFeed, last: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    while all.last().is_none_or(|told| told != last) {
        let piece = within(DEADLINE, feed.next()).await.unwrap_or_else(|| panic!("{last} does not come: {all:?}"));
        let piece = piece.expect("the stream goes on").unwrap();
        all.extend(std::str::from_utf8(&piece).unwrap().split_terminator("\n\n").map(told));
    }
    all
}

fn told(event: &str) -> String {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    if let Some(id) = field("id") {
        return id.to_owned();
    }
    let data: serde_json::Value = serde_json::from_str(field("data").unwrap()).unwrap();
    format!("{} {}", field("event").unwrap(), data["run_id"].as_str().unwrap_or_default())
}

fn answer(server: &TestServer, id: &str) -> Run {
    let begun = server.begin(id);
    begun.append(Event::token("x")).unwrap();
    begun.append(done()).unwrap();
    begun
}

fn stream_end() -> Event {
    Event::parse(r#"{"event":"stream_end"}"#).unwrap()
}

#[tokio::test]
async fn a_run_that_goes_on_before_it_is_shown_is_shown_in_two_parts() {
    let server = TestServer::new();
    let first = answer(&server, "r1");
    let second = server.begin("r2");
    second.append(Event::token("x")).unwrap();
    let mut feed = begin(&server, StartAt::Start).await;
    first.append(stream_end()).unwrap();
    second.append(done()).unwrap();
    let sent = sent_until(&mut feed, "r1:3").await;
    assert_eq!(sent, ["r1:1", "r1:2", "r2:1", "r2:2", "end r2", "r1:3"]);
    // The order of the stream is the same for a reader that comes later.
    let sent = sent_until(&mut begin(&server, StartAt::Start).await, "r1:3").await;
    assert_eq!(sent, ["r1:1", "r1:2", "r2:1", "r2:2", "end r2", "r1:3"]);
}

#[tokio::test]
async fn a_run_that_goes_on_while_it_is_shown_is_shown_in_two_parts() {
    let server = TestServer::new();
    let first = server.begin("r1");
    first.append(Event::token("x")).unwrap();
    let mut feed = begin(&server, StartAt::Start).await;
    assert_eq!(sent_until(&mut feed, "r1:1").await, ["r1:1"]);
    first.append(done()).unwrap();
    let second = server.begin("r2");
    first.append(stream_end()).unwrap();
    second.append(done()).unwrap();
    let sent = sent_until(&mut feed, "r1:3").await;
    let events: Vec<&String> = sent.iter().filter(|told| !told.starts_with("end")).collect();
    assert_eq!(events, ["r1:2", "r2:1", "r1:3"]);
}

#[tokio::test]
async fn a_run_that_goes_on_before_its_end_is_told_is_shown_to_the_last_event() {
    let server = TestServer::new();
    let first = server.begin("r1");
    first.append(Event::token("x")).unwrap();
    let before = tasks();
    let mut feed = begin(&server, StartAt::Start).await;
    assert_eq!(sent_until(&mut feed, "r1:1").await, ["r1:1"]);
    assert!(feed.next().now_or_never().is_none());
    first.append(done()).unwrap();
    // The tail has ended, and the reader does not know it yet.
    until(|| tasks() == before).await;
    first.append(stream_end()).unwrap();
    assert_eq!(sent_until(&mut feed, "r1:3").await, ["r1:2", "end r1", "r1:3"]);
}

#[tokio::test]
async fn a_reader_that_missed_news_is_shown_the_rest_of_the_run_that_it_had_left() {
    let server = TestServer::new();
    let first = answer(&server, "r00");
    let mut feed = begin(&server, StartAt::Start).await;
    assert_eq!(sent_until(&mut feed, "end r00").await, ["r00:1", "r00:2", "end r00"]);
    // It leaves the run for good when it waits for the next one.
    assert!(feed.next().now_or_never().is_none());
    first.append(stream_end()).unwrap();
    // More than it is told of while it does not listen.
    let later: Vec<String> = (1..=40).map(|nth| format!("r{nth:02}")).collect();
    later.iter().for_each(|run| drop(answer(&server, run)));
    let sent = sent_until(&mut feed, "end r40").await;
    let rest = later.iter().flat_map(|run| [format!("{run}:1"), format!("{run}:2"), format!("end {run}")]);
    assert_eq!(sent, std::iter::once("r00:3".to_owned()).chain(rest).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_run_that_begins_while_a_reader_looks_for_runs_is_shown() {
    for start_at in [StartAt::Start, StartAt::Now] {
        let server = TestServer::new();
        let before = tasks();
        let mut beginning = pin!(begin(&server, start_at.clone()));
        // The look is under way; its result is not taken yet.
        assert!(beginning.as_mut().now_or_never().is_none());
        until(|| tasks() == before).await;
        let begun = answer(&server, "r1");
        let mut feed = within(DEADLINE, beginning).await.unwrap();
        let sent = sent_until(&mut feed, "end r1").await;
        let events = sent.iter().filter(|told| *told != "0").collect::<Vec<_>>();
        assert_eq!(events, ["r1:1", "r1:2", "end r1"], "{start_at:?}");
        drop(begun);
    }
}

#[test]
fn a_cursor_belongs_to_the_segment_that_holds_its_event() {
    let segment = |id: &str, after_seq, until_seq, order| Segment { run: run(id), after_seq, until_seq, order };
    let in_order = vec![
        segment("r1", 0, Some(2), 1),
        segment("r2", 0, None, 2),
        segment("r1", 2, Some(4), 3),
        segment("r1", 4, None, 4),
    ];
    let segments = Segments { in_order, live: None };
    let held = [0, 1, 2, 3, 4, 5, 9].map(|seq| segments.holding(&run("r1"), seq));
    assert_eq!(held, [0, 0, 0, 2, 2, 3, 3].map(Some));
    assert_eq!((segments.holding(&run("r2"), 9), segments.holding(&run("r3"), 1)), (Some(1), None));
}
