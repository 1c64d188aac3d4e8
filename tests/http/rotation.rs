//! Tokens that change while the server serves: new requests see the new ones at once, and the streams of removed ones end.

use std::time::{Duration, Instant};

use lastword::http::{BadTokens, Tokens};
use serde_json::json;

use crate::house::{House, token};
use crate::wire::{Ask, Coming, ask};

const OLD: &str = "the-old-token-0123456789";
const KEPT: &str = "the-kept-token-0123456789";
const NEW: &str = "the-new-token-0123456789";
const SOON: Duration = Duration::from_secs(5);

fn tokens(lines: &[&str]) -> Tokens {
    Tokens::parse(&lines.join("\n")).unwrap()
}

/// A server with a live run `r` in session `a`.
fn server() -> House {
    let server = House::with(|options| options.tokens = tokens(&[OLD, KEPT]));
    server.send(&by(OLD, ask("POST", "/v1/sessions").json(json!({ "session_id": "a" })))).expect(201);
    let turn = json!({ "message": "Where to?", "run_id": "r" });
    server.send(&by(OLD, ask("POST", "/v1/sessions/a/runs").json(turn))).expect(202);
    append(&server, "To the ");
    server
}

fn append(server: &House, text: &str) {
    server.send(&by(KEPT, ask("POST", "/v1/sessions/a/runs/r/events").lines(&token(text)))).expect(200);
}

fn by(token: &str, ask: Ask) -> Ask {
    ask.header("authorization", &format!("Bearer {token}"))
}

fn events(path: &str) -> Ask {
    ask("GET", path).header("accept", "text/event-stream")
}

fn cookie(server: &House, token: &str) -> String {
    let form = ask("POST", "/login").header("content-type", "application/x-www-form-urlencoded");
    let answer = server.send(&form.bytes(format!("token={token}").as_bytes())).expect(303);
    answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

fn ticket(server: &House, token: &str, path: &str) -> String {
    let issued = server.send(&by(token, ask("POST", "/v1/tickets").json(json!({ "path": path })))).expect(201);
    issued.json()["ticket"].as_str().unwrap().to_owned()
}

/// Every way to wait for something, opened with this token.
fn open_all(server: &House, token: &str) -> Vec<(&'static str, Coming)> {
    const RUN: &str = "/v1/sessions/a/runs/r/events";
    let ticketed = format!("{RUN}?ticket={}", ticket(server, token, "/v1/sessions/a"));
    let asked = [
        ("a run", by(token, events(RUN))),
        ("a session", by(token, events("/v1/sessions/a/events"))),
        ("the list", by(token, events("/v1/events"))),
        ("lines", by(token, ask("GET", &format!("{RUN}?follow=true")))),
        ("chat", by(token, ask("GET", "/api/chat/a/stream"))),
        ("a ticket's", events(&ticketed)),
        ("a cookie's", events(RUN).header("cookie", &cookie(server, token))),
    ];
    asked.into_iter().map(|(what, ask)| (what, ask.open(server.address))).collect()
}

#[test]
fn streams_of_a_removed_token_end_and_those_of_others_go_on() {
    let server = server();
    let handle = server.token_handle.clone();
    let (ended, kept) = (open_all(&server, OLD), open_all(&server, KEPT));
    let waiting_path = "/v1/sessions/a/runs/r/events?after=1&wait=true";
    let waiting = std::thread::scope(|scope| {
        let poll = scope.spawn(|| server.send(&by(OLD, ask("GET", waiting_path))));
        std::thread::sleep(Duration::from_millis(300));
        handle.replace(tokens(&[NEW, &format!("{KEPT} read-only")])).unwrap();
        let replaced = Instant::now();
        for (what, stream) in ended {
            assert!(stream.status == 200, "{what}");
            let complete = stream.ends_completely();
            assert!(replaced.elapsed() < SOON, "{what} did not end");
            // Where no notice tells the end, a part is not to look like the whole.
            assert_eq!(complete, !["lines", "chat"].contains(&what), "{what}");
        }
        poll.join().unwrap()
    });
    assert_eq!(waiting.expect(401).code(), "unauthorized");
    server.send(&by(OLD, ask("GET", "/v1/sessions"))).expect(401);
    server.send(&by(NEW, ask("GET", "/v1/sessions"))).expect(200);
    server.send(&by(KEPT, ask("POST", "/v1/sessions").json(json!({})))).expect(403);
    // The token that may only read by now still has its streams, and sees what comes.
    server.send(&by(NEW, ask("POST", "/v1/sessions/a/runs/r/events").lines(&token("aquarium.")))).expect(200);
    for (what, mut stream) in kept.into_iter().filter(|(what, _)| *what != "the list") {
        assert!(stream.read_until("aquarium").contains("aquarium"), "{what}");
    }
}

#[test]
fn a_server_that_had_no_tokens_can_be_given_some_and_never_loses_all() {
    let server = House::new();
    server.run("a", "r");
    server.tokens("a", "r", &["x"]);
    let anonymous = server.follow("a", "r", "");
    let handle = server.token_handle.clone();
    assert_eq!(handle.replace(Tokens::default()), Err(BadTokens::None));
    server.get("/v1/sessions").expect(200);
    handle.replace(tokens(&[NEW])).unwrap();
    server.get("/v1/sessions").expect(401);
    assert!(anonymous.ends_completely());
    assert_eq!(handle.replace(Tokens::default()), Err(BadTokens::None));
    server.get("/v1/sessions").expect(401);
    server.get("/healthz").expect(200);
    server.send(&by(NEW, ask("GET", "/v1/sessions"))).expect(200);
}

#[test]
fn a_handle_may_outlive_its_server() {
    let mut server = House::new();
    let handle = server.token_handle.clone();
    server.end();
    drop(server);
    handle.replace(tokens(&[NEW])).unwrap();
    assert!(!format!("{handle:?}").contains(NEW));
}
