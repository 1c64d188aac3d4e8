//! Bounds: on bodies, heads, connections and time. Whoever goes beyond them is told, and costs nobody else anything.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::house::{House, token};
use crate::wire::ask;

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_held() {
    let house = House::with(|options| options.body_bytes_max = 2_000);
    house.run("a", "r");
    let long = "x".repeat(3_000);
    assert_eq!(house.append("a", "r", &token(&long)).expect(413).code(), "too_large");
    house.post("/v1/sessions", json!({ "title": long })).expect(413);
    house
        .post(
            "/api/chat",
            json!({ "id": "a", "messages": [{ "role": "user", "parts": [{ "type": "text", "text": long }] }] }),
        )
        .expect(413);
    house.tokens("a", "r", &["x"]);
    // In pieces of which nobody knows how many there will be.
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    let piece = format!("3e8\r\n{}\r\n", "x".repeat(1_000));
    let mut answer = [0; 12];
    for _ in 0..100 {
        if stream.write_all(piece.as_bytes()).is_err() {
            break;
        }
    }
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let house = House::new();
    let mut stream = TcpStream::connect(house.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // The connection may be gone before all of it is sent, or its answer read.
    let _ = write!(stream, "GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nx-large: {}\r\n\r\n", "x".repeat(300_000));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    let many = (0..150).fold(ask("GET", "/v1/sessions"), |ask, nth| ask.header(&format!("x-{nth}"), "x"));
    house.send(&many).expect(431);
    house.get("/v1/sessions").expect(200);
}

#[test]
fn whoever_takes_too_long_to_ask_is_let_go() {
    let house = House::with(|options| {
        options.head_timeout = Duration::from_millis(300);
        options.body_timeout = Duration::from_millis(300);
    });
    let begun = Instant::now();
    let mut silent = TcpStream::connect(house.address).unwrap();
    let mut slow_head = TcpStream::connect(house.address).unwrap();
    slow_head.write_all(b"GET /v1/sessions HTTP/1.1\r\nhost: local").unwrap();
    let mut slow_body = TcpStream::connect(house.address).unwrap();
    slow_body.write_all(b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{").unwrap();
    // One that has asked before and does not go on.
    let mut idle = TcpStream::connect(house.address).unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let ended = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        said
    };
    ended(&mut silent);
    ended(&mut slow_head);
    assert!(ended(&mut slow_body).starts_with("HTTP/1.1 408"));
    assert!(ended(&mut idle).starts_with("HTTP/1.1 200"));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn connections_beyond_the_bound_wait_for_their_turn() {
    let house = House::with(|options| options.connections_max = 3);
    house.run("a", "r");
    let mut following: Vec<_> = (0..3).map(|_| house.follow("a", "r", "")).collect();
    following[0].read_until("retry");
    let mut waiting = TcpStream::connect(house.address).unwrap();
    waiting.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut answer = [0; 12];
    assert!(waiting.read_exact(&mut answer).is_err(), "it was answered although there was no place");
    following.pop();
    waiting.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    waiting.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn garbage_is_no_request_and_harms_nobody() {
    let house = House::new();
    for garbage in
        [&b"\x16\x03\x01\x02\x00"[..], b"GET\r\n\r\n", b"\r\n\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", &[0xff; 1000]]
    {
        let mut stream = TcpStream::connect(house.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let _ = stream.write_all(garbage);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(!said.starts_with(b"HTTP/1.1 2"), "{garbage:?}");
    }
    house.get("/healthz").expect(200);
}

#[test]
fn streams_leave_an_eighth_of_the_connections_to_requests() {
    let house = House::with(|options| options.connections_max = 8);
    house.run("a", "r");
    let kinds = ["/v1/events", "/v1/sessions/a/events", "/v1/sessions/a/runs/r/events", "/api/chat/a/stream"];
    let stream = |path: &str| ask("GET", path).header("accept", "text/event-stream").open(house.address);
    let lines = || ask("GET", "/v1/sessions/a/runs/r/events?follow=true").open(house.address);
    let mut following: Vec<_> = kinds.into_iter().chain(kinds).take(6).map(stream).chain([lines()]).collect();
    assert!(following.iter().all(|coming| coming.status == 200));
    for path in kinds {
        let refusal = stream(path);
        assert_eq!(refusal.status, 503, "{path}");
        assert_eq!(refusal.whole().code(), "too_many_streams", "{path}");
    }
    house.get("/v1/sessions/a").expect(200);
    house.tokens("a", "r", &["x"]);
    following.pop();
    let is_free = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        stream(kinds[0]).status == 200
    });
    assert!(is_free, "the place of a follower that left is lost");
}
