//! Long polls: lines that come, an answer that says that none did, and one that says that none will.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::house::{DONE, House, token};
use crate::wire::{Answer, ask};

const EVENTS: &str = "/v1/sessions/a/runs/r/events";
/// Longer than a test may take.
const LONG: Duration = Duration::from_secs(60);
/// An answer that comes at once comes within this time.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A server whose long polls last this long, with an open run.
fn house(long_poll: Duration) -> House {
    let house = House::with(|options| options.long_poll = long_poll);
    house.run("a", "r");
    house
}

/// Status, state and number of lines of an answer.
#[track_caller]
fn said(answer: &Answer) -> (u16, &str, usize) {
    let state = answer.header("lastword-run-state").expect("it has the state of the run");
    (answer.status, state, answer.text().lines().count())
}

#[test]
fn nothing_in_time_is_204_and_says_that_the_run_goes_on() {
    let house = house(Duration::from_millis(200));
    let get = |query: &str| house.get(&format!("{EVENTS}{query}"));
    assert_eq!(said(&get("?wait=true")), (204, "running", 0), "it has no events yet, and goes on");
    house.tokens("a", "r", &["1", "2"]);
    let begun = Instant::now();
    let nothing = get("?wait=true&after=2");
    assert_eq!(said(&nothing), (204, "running", 0));
    assert!(begun.elapsed() >= Duration::from_millis(200), "it did not wait");
    assert_eq!(
        (nothing.header("content-type"), nothing.header("cache-control")),
        (None, Some("no-cache, no-transform"))
    );
    assert_eq!(said(&get("?wait=true&after=1")), (200, "running", 1));
}

#[test]
fn after_the_last_event_of_a_run_that_has_ended_the_answer_comes_at_once() {
    for (event, state) in [
        (DONE, "completed"),
        (r#"{"event":"cancel"}"#, "interrupted-by-user"),
        (r#"{"event":"done","payload":{"terminal_state":"tool_limit_reached"}}"#, "tool_limit_reached"),
        (r#"{"event":"apperror","payload":{"message":"no"}}"#, "errored"),
    ] {
        let house = house(LONG);
        let get = |query: &str| house.get(&format!("{EVENTS}{query}"));
        house.append("a", "r", &format!("{}\n{event}", token("1"))).expect(200);
        let begun = Instant::now();
        for (query, lines) in [
            ("?wait=true&after=2", 0),
            ("?wait=true&after=1", 1),
            ("?wait=true", 2),
            ("", 2),
            ("?after=2", 0),
            ("?after=1&follow=true", 1),
        ] {
            let answer = get(query);
            assert_eq!(said(&answer), (200, state, lines), "{query}");
            assert_eq!(answer.header("content-type"), Some("application/x-ndjson"), "{query}");
        }
        assert!(begun.elapsed() < AT_ONCE, "{state}");
    }
}

#[test]
fn a_waiting_reader_gets_what_comes_and_the_state_with_it() {
    let house = house(LONG);
    house.tokens("a", "r", &["1"]);
    std::thread::scope(|scope| {
        let wait = |after: u64| {
            let path = format!("{EVENTS}?wait=true&after={after}");
            let address = house.address;
            scope.spawn(move || ask("GET", &path).send(address))
        };
        let waiting = wait(1);
        std::thread::sleep(Duration::from_millis(100));
        house.tokens("a", "r", &["2"]);
        assert_eq!(said(&waiting.join().unwrap()), (200, "running", 1));
        let waiting = wait(2);
        std::thread::sleep(Duration::from_millis(100));
        house.append("a", "r", DONE).expect(200);
        assert_eq!(said(&waiting.join().unwrap()), (200, "completed", 1));
    });
}

#[test]
fn readers_that_wait_leave_room_for_requests() {
    let house = House::with(|options| (options.long_poll, options.connections_max) = (LONG, 16));
    house.run("a", "r");
    std::thread::scope(|scope| {
        let wait = || scope.spawn(|| ask("GET", &format!("{EVENTS}?wait=true")).send(house.address));
        let waiting: Vec<_> = (0..20).map(|_| wait()).collect();
        while waiting.iter().filter(|waiting| waiting.is_finished()).count() < 6 {
            std::thread::sleep(Duration::from_millis(10));
        }
        house.get("/healthz").expect(200);
        house.tokens("a", "r", &["1"]);
        let answers: Vec<_> = waiting.into_iter().map(|waiting| waiting.join().unwrap()).collect();
        let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
        assert!(refused.iter().all(|refusal| refusal.code() == "too_many_streams"));
        assert_eq!((refused.len(), answers.iter().filter(|answer| answer.status == 200).count()), (6, 14));
    });
}

#[test]
fn a_plain_read_has_the_state_too_also_of_a_journal_longer_than_its_first_piece() {
    let house = house(LONG);
    assert_eq!(said(&house.get(EVENTS)), (200, "unknown", 0));
    let words = vec!["x"; 3_000];
    house.tokens("a", "r", &words);
    assert_eq!(said(&house.get(EVENTS)), (200, "running", 3_000));
    house.append("a", "r", DONE).expect(200);
    assert_eq!(said(&house.get(EVENTS)), (200, "completed", 3_001));
    let stream = ask("GET", EVENTS).header("accept", "text/event-stream").open(house.address);
    assert!(!stream.headers.iter().any(|(name, _)| name == "lastword-run-state"), "a stream says it with its `end`");
}

#[test]
fn a_request_for_the_head_gets_the_same_headers_and_waits_for_nothing() {
    let house = house(LONG);
    house.tokens("a", "r", &["1"]);
    let head = |query: &str| {
        // An answer to HEAD has no body, whatever its headers say.
        let mut connection = TcpStream::connect(house.address).unwrap();
        connection.set_read_timeout(Some(AT_ONCE)).unwrap();
        let request = format!("HEAD {EVENTS}{query} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", house.address);
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "");
        assert!(!head.contains(" 204 ") || !head.contains("content-length"), "{head}");
        let state = head.lines().find_map(|line| line.strip_prefix("lastword-run-state: ")).unwrap_or("none");
        (head.split(' ').nth(1).unwrap().to_owned(), state.to_owned())
    };
    let is = |status: &str, state: &str| (status.to_owned(), state.to_owned());
    assert_eq!(head("?wait=true&after=1"), is("204", "running"));
    assert_eq!(head("?wait=true"), is("200", "running"));
    assert_eq!(head("?after=1"), is("200", "running"));
    assert_eq!(head("?after=1&follow=true"), is("200", "running"));
    house.append("a", "r", DONE).expect(200);
    assert_eq!(head("?wait=true&after=2"), is("200", "completed"));
}

#[test]
fn when_the_server_closes_a_waiting_reader_is_not_told_that_the_run_is_over() {
    let mut house = house(LONG);
    house.tokens("a", "r", &["1"]);
    let address = house.address;
    let waiting = std::thread::spawn(move || ask("GET", &format!("{EVENTS}?wait=true&after=1")).send(address));
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    house.end();
    assert_eq!(said(&waiting.join().unwrap()), (204, "running", 0));
    assert!(begun.elapsed() < AT_ONCE, "the server waited for its reader");
}

#[test]
fn a_page_of_another_origin_may_read_the_state() {
    let house = House::with(|options| options.origins = vec!["http://page.test".to_owned()]);
    house.run("a", "r");
    house.append("a", "r", &token("x")).expect(200);
    let answer = house.send(&ask("GET", EVENTS).header("origin", "http://page.test"));
    let exposed = answer.header("access-control-expose-headers").unwrap();
    assert!(exposed.split(", ").any(|name| name == "lastword-run-state"), "{exposed}");
}
