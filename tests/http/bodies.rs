//! The memory that request bodies take, all of them together: bounded, given back on every path, with room for small ones.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::house::{House, token};
use crate::wire::ask;

const KIB: usize = 1024;
const BUDGET_BYTES: usize = 4096 * KIB;
const BODY_BYTES_MAX: usize = 1024 * KIB;

fn house() -> House {
    House::with(|options| (options.body_bytes_max, options.bodies_bytes_max) = (BODY_BYTES_MAX, BUDGET_BYTES))
}

fn metric(house: &House, name: &str) -> usize {
    let text = house.get("/metrics").expect(200).text().to_owned();
    let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap();
    value.parse().unwrap()
}

fn held(house: &House) -> usize {
    metric(house, "lastword_http_body_bytes")
}

#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    let came = (0..1_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        is_so()
    });
    assert!(came, "waited in vain");
}

/// A request that announces a body and sends the beginning of it.
fn begun(house: &House, path: &str, announced: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {announced}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses may close before all of it is sent.
    let _ = stream.write_all(&[b"{\"title\":\"".to_vec(), vec![b'x'; sent]].concat());
    stream
}

#[test]
fn half_read_bodies_stay_within_the_budget_which_small_ones_share_and_which_comes_back() {
    let house = house();
    let (announced, sent) = (900 * KIB, 800 * KIB);
    let stuck: Vec<_> = (0..12).map(|_| begun(&house, "/v1/sessions", announced, sent)).collect();
    until(|| metric(&house, "lastword_http_bodies_refused_total") >= 8);
    let bytes = held(&house);
    assert!((sent..=BUDGET_BYTES).contains(&bytes), "{bytes}");
    // A large one is refused, also one whose size is not announced, and told what to do.
    let large = ask("POST", "/v1/sessions").json(json!({ "title": "x".repeat(announced) }));
    let refusal = house.send(&large).expect(503);
    assert_eq!((refusal.code().as_str(), refusal.header("connection")), ("too_many_bodies", Some("close")));
    assert_eq!(refusal.header("retry-after"), Some("2"));
    // Small ones are not.
    house.run("a", "r");
    house.tokens("a", "r", &["x".repeat(40 * KIB).as_str()]);
    drop(stuck);
    until(|| held(&house) == 0);
    house.send(&large).expect(201);
    until(|| held(&house) == 0);
}

#[test]
fn what_is_announced_and_never_sent_takes_no_room() {
    let house = house();
    let silent: Vec<_> = (0..40).map(|_| begun(&house, "/v1/sessions", BODY_BYTES_MAX, 0)).collect();
    let chats: Vec<_> = (0..40).map(|_| begun(&house, "/api/chat", BODY_BYTES_MAX, 0)).collect();
    until(|| metric(&house, "lastword_http_connections") > silent.len() + chats.len());
    assert!(held(&house) < 80 * 64, "{}", held(&house));
    house.post("/v1/sessions", json!({ "title": "x".repeat(900 * KIB) })).expect(201);
}

#[test]
fn a_body_that_takes_too_long_or_cannot_be_read_gives_its_room_back() {
    let house = House::with(|options| options.body_timeout = Duration::from_millis(300));
    let mut slow = begun(&house, "/v1/sessions", 900 * KIB, 400 * KIB);
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    house.send(&ask("POST", "/v1/sessions").json(json!({ "title": 7 }))).expect(400);
    house.post("/v1/sessions/nothing/runs", json!({ "message": "x".repeat(200 * KIB) })).expect(404);
    until(|| held(&house) == 0);
}

#[test]
fn every_reader_of_bodies_is_within_the_budget() {
    let house = house();
    house.run("a", "r");
    let stuck: Vec<_> = (0..12).map(|_| begun(&house, "/v1/sessions", 900 * KIB, 800 * KIB)).collect();
    until(|| metric(&house, "lastword_http_bodies_refused_total") >= 8);
    let large = "x".repeat(900 * KIB);
    assert_eq!(house.append("a", "r", &token(&large)).expect(503).code(), "too_many_bodies");
    let file = ask("POST", "/v1/sessions/a/attachments").header("content-type", "image/png").bytes(large.as_bytes());
    assert_eq!(house.send(&file).expect(503).code(), "too_many_bodies");
    let message = json!({ "role": "user", "parts": [{ "type": "text", "text": large }] });
    let chat = house.post("/api/chat", json!({ "id": "c", "messages": [message] })).expect(503);
    assert_eq!(chat.code(), "too_many_bodies");
    drop(stuck);
    until(|| held(&house) == 0);
    house.append("a", "r", &token(&large)).expect(200);
    house.send(&file).expect(201);
    until(|| held(&house) == 0);
}

#[test]
fn a_client_that_still_sends_gets_the_answer_that_refuses_it() {
    let house = House::with(|options| options.body_bytes_max = 64 * KIB);
    for _ in 0..20 {
        // More than the sockets between us hold: the refusal is there while it is sent.
        let mut stream = begun(&house, "/v1/sessions", 2 * 1024 * KIB, 2 * 1024 * KIB - 100);
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413");
    }
}
