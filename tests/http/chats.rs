//! The AI SDK's chat, byte by byte. What its own packages make of it is tested with them (tests/web).

use std::time::Duration;

use serde_json::json;

use crate::chat_client::{chunks, demo_house, text_of, user};
use crate::house::{DONE, House};
use crate::wire::ask;

fn quick() -> House {
    demo_house(Duration::from_millis(1))
}

#[test]
fn a_chat_is_a_session_and_its_answer_a_message_stream() {
    let house = quick();
    let answer = house.post("/api/chat", json!({ "id": "c1", "messages": [user("m", "What is\nthis?")] })).expect(200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("x-vercel-ai-ui-message-stream"), Some("v1"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    let chunks = chunks(&answer);
    assert_eq!((chunks[0]["type"].clone(), chunks.last().unwrap()["type"].clone()), (json!("start"), json!("finish")));
    let session = house.get("/v1/sessions/c1").json();
    assert_eq!(
        (session["title"].clone(), session["messages"][0]["content"].clone()),
        (json!("What is this?"), json!("What is\nthis?"))
    );
    let rows = session["messages"].as_array().unwrap();
    let said: String =
        rows.iter().filter(|row| row["role"] == "assistant").map(|row| row["content"].as_str().unwrap()).collect();
    assert_eq!(text_of(&chunks).replace(char::is_whitespace, ""), said.replace(char::is_whitespace, ""));
    house.get("/api/chat/c1/stream").expect(204);
    house.get("/api/chat/never/stream").expect(204);
    house.get("/api/chat/..%2f/stream").expect(404);
}

#[test]
fn a_live_answer_is_streamed_from_its_start_to_whoever_comes() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["one ", "two "]);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(|| house.get("/api/chat/a/stream"))).collect();
        std::thread::sleep(Duration::from_millis(100));
        house.tokens("a", "r", &["three"]);
        house.append("a", "r", DONE).expect(200);
        for reader in readers {
            let answer = reader.join().unwrap().expect(200);
            let chunks = chunks(&answer);
            assert_eq!((text_of(&chunks), chunks[0]["messageId"].clone()), ("one two three".to_owned(), json!("r")));
        }
    });
    house.get("/api/chat/a/stream").expect(204);
}

#[test]
fn an_answer_that_another_reader_had_ended_is_closed_properly_for_the_next() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["half an ans"]);
    // What recovery says of a producer that is gone.
    let gone =
        json!({ "event": "apperror", "payload": { "type": "interrupted", "message": "The producer went away." } });
    house.append("a", "r", &gone.to_string()).expect(200);
    assert_eq!(house.get("/v1/sessions/a").json()["active_stream_id"], json!(null));
    let chunks = chunks(&house.get("/api/chat/a/stream").expect(200));
    let kinds = chunks.iter().map(|chunk| chunk["type"].as_str().unwrap());
    let kinds: Vec<_> = kinds.filter(|kind| *kind != "message-metadata").collect();
    assert_eq!(kinds, ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "error"]);
    // The next turn is what counts then.
    house.post("/v1/sessions/a/runs", json!({ "message": "again", "run_id": "r2" })).expect(202);
    house.append("a", "r2", DONE).expect(200);
    house.get("/api/chat/a/stream").expect(204);
}

#[test]
fn an_answer_that_the_user_stopped_is_over() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["half"]);
    house.send(&ask("POST", "/v1/sessions/a/runs/r/stop")).expect(200);
    house.get("/api/chat/a/stream").expect(204);
}

#[test]
fn what_is_no_chat_is_refused() {
    let house = House::new();
    for body in [
        json!({}),
        json!({ "id": "../x", "messages": [user("m", "x")] }),
        json!({ "id": "c" }),
        json!({ "id": "c", "messages": [] }),
        json!([]),
    ] {
        assert_eq!(house.post("/api/chat", body).expect(400).code(), "invalid_argument");
    }
    let assistant = json!({ "id": "c", "messages": [{ "role": "assistant", "parts": [] }] });
    house.post("/api/chat", assistant).expect(400);
    house.send(&ask("POST", "/api/chat").header("content-type", "text/plain").bytes(b"{}")).expect(415);
    let nobody = json!({ "id": "c", "runner": "nobody", "messages": [user("m", "x")] });
    assert_eq!(house.post("/api/chat", nobody).expect(400).code(), "unknown_runner");
    house.get("/v1/sessions/c").expect(404);
}

#[test]
fn a_reader_who_leaves_stops_nothing() {
    let house = demo_house(Duration::from_millis(5));
    let chat = ask("POST", "/api/chat").json(json!({ "id": "c", "messages": [user("m", "hi")] }));
    drop(chat.open(house.address));
    let resumed = house.get("/api/chat/c/stream").expect(200);
    assert_eq!(chunks(&resumed).last().unwrap()["type"], "finish");
}

#[test]
fn an_error_is_the_message_alone_and_its_code_is_in_a_header() {
    let house = House::new();
    house.session("c");
    let unknown = json!({ "id": "c", "runner": "nobody", "messages": [user("m", "x")] });
    for (ask, status, code) in [
        (ask("POST", "/api/chat").json(unknown.clone()), 400, "unknown_runner"),
        (ask("POST", "/api/chat").json(json!({})), 400, "invalid_argument"),
        (ask("POST", "/api/chat").header("content-type", "text/plain").bytes(b"{}"), 415, "unsupported_type"),
        (ask("GET", "/api/chat"), 405, "method_not_allowed"),
        (ask("DELETE", "/api/chat/c/stream"), 405, "method_not_allowed"),
        (ask("GET", "/api/chat/c/nothing"), 404, "not_found"),
        (ask("GET", "/api/chat/..%2f/stream"), 404, "not_found"),
        (ask("GET", "/api/chat/c/stream").header("host", "evil.example.org"), 403, "forbidden"),
        (ask("GET", "/api/chat/c/messages").header("origin", "http://evil.example.org"), 403, "forbidden"),
    ] {
        let plain = house.send(&ask).expect(status);
        assert_eq!(plain.header("content-type"), Some("text/plain; charset=utf-8"), "{ask:?}");
        assert_eq!(plain.header("lastword-error"), Some(code), "{ask:?}");
        assert!(plain.text().len() > 10 && !plain.text().starts_with('{'), "{}", plain.text());
        let object = house.send(&ask.clone().header("accept", "text/html, application/json;q=0.9")).expect(status);
        assert_eq!(object.json()["error"], json!({ "code": code, "message": plain.text() }));
        assert_eq!(object.header("lastword-error"), Some(code));
        assert!(house.send(&ask.header("accept", "application/json;q=0, */*")).text() == plain.text());
    }
    // Elsewhere the object is what it always was.
    let elsewhere = house.get("/api/chatter").expect(404);
    assert_eq!((elsewhere.header("lastword-error"), elsewhere.code()), (None, "not_found".to_owned()));
}

#[test]
fn a_body_that_does_not_come_is_given_up_and_one_that_comes_slowly_is_not() {
    use std::io::{Read, Write};
    let house = House::with(|options| options.body_timeout = Duration::from_millis(300));
    let head =
        "POST /api/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let mut stream = std::net::TcpStream::connect(house.address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("lastword-error: too_slow"), "{answer}");
    // Each MiB has the time that a body has.
    let house = House::with(|options| options.body_timeout = Duration::from_millis(1_500));
    let piece = format!("\"{}\",", "x".repeat(1 << 20));
    let body = format!("{{\"id\":\"c\",\"messages\":[{}7]}}", piece.repeat(3));
    let head = format!(
        "POST /api/chat HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = std::net::TcpStream::connect(house.address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    for piece in body.as_bytes().chunks(1 << 20) {
        stream.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(700));
    }
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}
