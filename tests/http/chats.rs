//! The AI SDK's chat, byte by byte. What its own packages make of it is tested with them (tests/web).

use std::time::Duration;

use lastword::run::{DemoRunner, Runners};
use serde_json::{Value, json};

use crate::house::{DONE, House};
use crate::wire::{Answer, ask};

fn quick() -> House {
    let runners = Runners::default().with_demo(DemoRunner { pace: Duration::from_millis(1) });
    House::of(lastword::Options::default(), runners, |_| {})
}

fn user(text: &str) -> Value {
    json!({ "id": "m", "role": "user", "parts": [{ "type": "text", "text": text }] })
}

/// The chunks of an answer, without the last word.
#[track_caller]
fn chunks(answer: &Answer) -> Vec<Value> {
    let mut data: Vec<&str> = answer.text().lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    data.into_iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
}

fn text_of(chunks: &[Value]) -> String {
    let deltas = chunks.iter().filter(|chunk| chunk["type"] == "text-delta");
    deltas.map(|chunk| chunk["delta"].as_str().unwrap()).collect()
}

#[test]
fn a_chat_is_a_session_and_its_answer_a_message_stream() {
    let house = quick();
    let answer = house.post("/api/chat", json!({ "id": "c1", "messages": [user("What is\nthis?")] })).expect(200);
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
    let kinds: Vec<_> = chunks.iter().map(|chunk| chunk["type"].as_str().unwrap()).collect();
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
fn a_question_that_is_asked_again_is_there_once_and_its_old_answer_is_kept() {
    let house = quick();
    for text in ["first", "second"] {
        house.post("/api/chat", json!({ "id": "c", "messages": [user(text)] })).expect(200);
    }
    let before = house.get("/v1/sessions/c").json();
    let again = json!({ "id": "c", "messages": [user("second")], "trigger": "regenerate-message" });
    house.post("/api/chat", again).expect(200);
    let after = house.get("/v1/sessions/c").json();
    let questions: Vec<_> = after["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["role"] == "user")
        .map(|row| row["content"].clone())
        .collect();
    assert_eq!(questions, ["first", "second"]);
    assert_eq!(before["messages"].as_array().unwrap().len(), after["messages"].as_array().unwrap().len());
    assert_eq!(before["tool_calls"].as_array().unwrap().len(), after["tool_calls"].as_array().unwrap().len());
    assert_ne!(before["messages"][3], after["messages"][3]);
    let kept = std::fs::read_dir(house.data().join("_kept/c")).unwrap().count();
    assert_eq!(kept, 1);
    // One that was never asked is a question like any other.
    let new = json!({ "id": "c", "messages": [user("third")], "trigger": "regenerate-message" });
    house.post("/api/chat", new).expect(200);
    assert_eq!(
        house.get("/v1/sessions/c").json()["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["role"] == "user")
            .count(),
        3
    );
}

fn said(text: &str) -> Value {
    json!({ "id": "a", "role": "assistant", "parts": [{ "type": "text", "text": text }] })
}

#[test]
fn an_earlier_question_is_asked_again_at_its_place_and_the_model_forgets_what_followed() {
    let house = quick();
    for text in ["go on", "go on", "third"] {
        house.post("/api/chat", json!({ "id": "c", "messages": [user(text)] })).expect(200);
    }
    let session = lastword::SessionId::parse("c").unwrap();
    let context = ["go on", "A1", "go on", "A2", "third", "A3"];
    let change = |session: &mut lastword::Session| {
        for (at, text) in context.iter().enumerate() {
            let role = if at % 2 == 0 { "user" } else { "assistant" };
            let item = json!({ "role": role, "content": text }).to_string();
            session.push_item(lastword::List::ContextMessages, &item).unwrap();
        }
    };
    house.store.update(&session, lastword::SaveOptions::default(), change).unwrap();
    let regenerate = |messages: Value| {
        house.post("/api/chat", json!({ "id": "c", "messages": messages, "trigger": "regenerate-message" }))
    };
    // The client has another question there.
    assert_eq!(regenerate(json!([user("x"), said("y"), user("third")])).expect(409).code(), "refused");
    assert_eq!(
        house.get("/v1/sessions/c").json()["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["role"] == "user")
            .count(),
        3
    );
    regenerate(json!([user("go on"), said("y"), user("go on")])).expect(200);
    let read = house.get("/v1/sessions/c").json();
    let questions = read["messages"].as_array().unwrap().iter().filter(|row| row["role"] == "user").count();
    let context: Vec<&str> =
        read["context_messages"].as_array().unwrap().iter().filter_map(|row| row["content"].as_str()).collect();
    assert_eq!((questions, &context[..3]), (2, &["go on", "A1", "go on"][..]));
    assert!(["A2", "third", "A3"].iter().all(|old| !context.contains(old)), "{context:?}");
}

#[test]
fn a_question_that_cannot_be_asked_again_now_stays_where_it_is() {
    let house = quick();
    house.post("/api/chat", json!({ "id": "c", "messages": [user("first")] })).expect(200);
    let before = house.get("/v1/sessions/c").json();
    let again = |runner: &str| json!({ "id": "c", "runner": runner, "messages": [user("first")], "trigger": "regenerate-message" });
    house.post("/api/chat", again("nobody")).expect(400);
    assert_eq!(house.get("/v1/sessions/c").json(), before);
    house.post("/v1/sessions/c/runs", json!({ "message": "other", "run_id": "r" })).expect(202);
    assert_eq!(house.post("/api/chat", again("demo")).expect(409).code(), "run_in_progress");
    assert_eq!(house.get("/v1/sessions/c").json()["messages"], before["messages"]);
}

#[test]
fn what_is_no_chat_is_refused() {
    let house = House::new();
    for body in [
        json!({}),
        json!({ "id": "../x", "messages": [user("x")] }),
        json!({ "id": "c" }),
        json!({ "id": "c", "messages": [] }),
        json!([]),
    ] {
        assert_eq!(house.post("/api/chat", body).expect(400).code(), "invalid_argument");
    }
    let assistant = json!({ "id": "c", "messages": [{ "role": "assistant", "parts": [] }] });
    house.post("/api/chat", assistant).expect(400);
    house.send(&ask("POST", "/api/chat").header("content-type", "text/plain").bytes(b"{}")).expect(415);
    let nobody = json!({ "id": "c", "runner": "nobody", "messages": [user("x")] });
    assert_eq!(house.post("/api/chat", nobody).expect(400).code(), "unknown_runner");
    house.get("/v1/sessions/c").expect(404);
}

#[test]
fn a_reader_who_leaves_stops_nothing() {
    let runners = Runners::default().with_demo(DemoRunner { pace: Duration::from_millis(5) });
    let house = House::of(lastword::Options::default(), runners, |_| {});
    let chat = ask("POST", "/api/chat").json(json!({ "id": "c", "messages": [user("hi")] }));
    drop(chat.open(house.address));
    let resumed = house.get("/api/chat/c/stream").expect(200);
    assert_eq!(chunks(&resumed).last().unwrap()["type"], "finish");
}
