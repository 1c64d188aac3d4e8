//! Encodings: none is taken in requests; answers that are text of a known size may come in gzip.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::house::{DONE, House};
use crate::wire::{Answer, Ask, ask};

const ROWS: usize = 40;

/// A server with a session of some kilobytes.
fn house() -> House {
    let house = House::new();
    house.run("a", "r");
    let word = "To the sea. ".repeat(ROWS);
    house.tokens("a", "r", &[&word, &word, &word]);
    house.append("a", "r", DONE).expect(200);
    house
}

fn gzipped(request: Ask) -> Ask {
    request.header("accept-encoding", "br, gzip")
}

fn decoded(answer: &Answer) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(&answer.body[..]).read_to_end(&mut plain).unwrap();
    plain
}

#[test]
fn a_body_that_is_encoded_is_refused_before_it_is_read() {
    let house = house();
    for (method, path) in [
        ("POST", "/v1/sessions"),
        ("POST", "/v1/sessions/a/runs"),
        ("POST", "/v1/sessions/a/runs/r/events"),
        ("POST", "/v1/sessions/a/attachments"),
        ("PATCH", "/v1/sessions/a"),
        ("POST", "/api/chat"),
        ("POST", "/v1/sessions/a/runs/r/stop"),
        ("DELETE", "/v1/sessions/a"),
    ] {
        for encoding in ["gzip", "br", "identity, gzip", "GZIP", "nonsense"] {
            // The body that is announced never comes.
            let request = ask(method, path).header("content-encoding", encoding).header("if-match", "*");
            let refusal = request.header("content-length", "1000000").open(house.address).whole();
            assert_eq!((refusal.status, refusal.code().as_str()), (415, "unsupported_encoding"), "{method} {path}");
            assert_eq!(refusal.header("accept-encoding"), Some("identity"));
        }
    }
    let plain = ask("POST", "/v1/sessions").header("content-encoding", "Identity").json(json!({ "title": "t" }));
    house.send(&plain).expect(201);
    house.get("/v1/sessions/a").expect(200);
}

#[test]
fn answers_of_some_size_come_in_gzip_to_those_who_take_it() {
    let house = house();
    for path in ["/v1/sessions/a", "/api/chat/a/messages", "/openapi.json", "/page.js", "/metrics", "/"] {
        let plain = house.get(path).expect(200);
        assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")), "{path}");
        let answer = house.send(&gzipped(ask("GET", path))).expect(200);
        assert_eq!(answer.header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!(answer.header("vary"), Some("accept-encoding"), "{path}");
        assert!(answer.body.len() < plain.body.len() && answer.header("content-length").is_some(), "{path}");
        if path != "/metrics" {
            assert_eq!(decoded(&answer), plain.body, "{path}");
        }
        for refuses in ["gzip;q=0", "identity", "*;q=0"] {
            let answer = house.send(&ask("GET", path).header("accept-encoding", refuses)).expect(200);
            assert_eq!(answer.header("content-encoding"), None, "{path} {refuses}");
        }
        let head = gzipped(ask("HEAD", path)).open(house.address);
        assert_eq!(head.status, 200, "{path}");
        assert!(!head.headers.iter().any(|(name, _)| name == "content-encoding"), "{path} {:?}", head.headers);
    }
}

#[test]
fn small_answers_streams_lines_and_attachments_come_as_they_are() {
    let house = house();
    let text = "To the sea. ".repeat(1_000);
    let file = ask("POST", "/v1/sessions/a/attachments").header("content-type", "text/plain").bytes(text.as_bytes());
    let stored = house.send(&file).expect(201).json()["attachment"].as_str().unwrap().to_owned();
    let attachment = format!("/v1/sessions/a/attachments/{stored}");
    for (path, accept) in [
        ("/healthz", "*/*"),
        ("/v1/sessions/nothing", "*/*"),
        ("/v1/sessions/a?view=metadata", "*/*"),
        ("/v1/sessions/a/runs/r/events", "*/*"),
        ("/v1/sessions/a/runs/r/events?follow=true", "*/*"),
        ("/v1/sessions/a/runs/r/events", "text/event-stream"),
        ("/api/chat/a/stream?run=r", "*/*"),
        (&attachment, "*/*"),
    ] {
        let coming = gzipped(ask("GET", path)).header("accept", accept).open(house.address);
        assert!(!coming.headers.iter().any(|(name, _)| name == "content-encoding"), "{path} {:?}", coming.headers);
    }
    assert_eq!(house.send(&gzipped(ask("GET", &attachment))).expect(200).body, text.as_bytes());
}

#[test]
fn the_tag_of_a_compressed_answer_is_the_revision_and_can_be_sent_back() {
    let house = house();
    let answer = house.send(&gzipped(ask("GET", "/v1/sessions/a"))).expect(200);
    let tag = answer.header("etag").unwrap().to_owned();
    assert_eq!(house.get("/v1/sessions/a").header("etag"), Some(tag.as_str()));
    let known = gzipped(ask("GET", "/v1/sessions/a")).header("if-none-match", &tag);
    let unchanged = house.send(&known).expect(304);
    assert_eq!((unchanged.header("content-encoding"), unchanged.body.len()), (None, 0));
    let change = ask("PATCH", "/v1/sessions/a").header("if-match", &tag).json(json!({ "title": "u" }));
    house.send(&change).expect(200);
}

#[test]
fn many_compressed_answers_at_the_same_time_are_all_whole() {
    let house = house();
    let plain: Value = house.get("/v1/sessions/a").json();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let answer = house.send(&gzipped(ask("GET", "/v1/sessions/a"))).expect(200);
                let body = match answer.header("content-encoding") {
                    Some(_) => decoded(&answer),
                    None => answer.body,
                };
                assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), plain);
            });
        }
    });
}
