//! What a chat UI loads: a run is in the history or in the stream, and never in both or in neither.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::chat_client::{chat_house, chunks, history, live_run, rows, run_of, stop, submit, text_of, user};
use crate::house::{DONE, House};
use crate::wire::ask;

/// Ids and texts of messages.
fn told(messages: &[Value]) -> Vec<(String, String)> {
    let text = |message: &Value| {
        let parts = message["parts"].as_array().unwrap().iter();
        parts.filter_map(|part| part["text"].as_str()).collect::<String>()
    };
    messages.iter().map(|message| (message["id"].as_str().unwrap().to_owned(), text(message))).collect()
}

fn pair(id: &str, text: &str) -> (String, String) {
    (id.to_owned(), text.to_owned())
}

#[test]
fn the_history_is_the_messages_that_the_client_had() {
    let house = chat_house();
    assert_eq!(house.get("/api/chat/new/messages").expect(200).text(), "[]");
    let one = run_of(&submit(&house, "c", user("m1", "one")).expect(200));
    let two = run_of(&submit(&house, "c", user("m2", "two")).expect(200));
    let all = house.get("/api/chat/c/messages").expect(200);
    assert_eq!((all.header("content-type"), all.header("lastword-live-run")), (Some("application/json"), None));
    let whole = [pair("m1", "one"), pair(&one, "one! 0 files"), pair("m2", "two"), pair(&two, "two! 0 files")];
    assert_eq!(told(all.json().as_array().unwrap()), whole);
    let page =
        |query: &str| told(house.get(&format!("/api/chat/c/messages?{query}")).expect(200).json().as_array().unwrap());
    assert_eq!(page("limit=1"), whole[3..]);
    assert_eq!(page("before=m2&limit=1"), whole[1..2]);
    assert_eq!(page("before=m2"), whole[..2]);
    for bad in ["limit=0", "limit=x", "limit=10001"] {
        assert_eq!(house.get(&format!("/api/chat/c/messages?{bad}")).expect(400).code(), "invalid_argument");
    }
    house.get("/api/chat/..%2f/messages").expect(404);
}

#[test]
fn a_live_answer_is_in_the_stream_alone() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["one "]);
    let live = house.get("/api/chat/a/messages").expect(200);
    assert_eq!(live.header("lastword-live-run"), Some("r"));
    assert_eq!(told(live.json().as_array().unwrap()), [pair("r-user", "Where to?")]);
    thread::scope(|scope| {
        let reader = scope.spawn(|| house.get("/api/chat/a/stream"));
        thread::sleep(Duration::from_millis(100));
        house.append("a", "r", DONE).expect(200);
        let streamed = reader.join().unwrap().expect(200);
        assert_eq!((run_of(&streamed), text_of(&chunks(&streamed))), ("r".to_owned(), "one".to_owned()));
    });
    let whole = house.get("/api/chat/a/messages").expect(200);
    assert_eq!(whole.header("lastword-live-run"), None);
    assert_eq!(told(whole.json().as_array().unwrap()).len(), 2);
    house.get("/api/chat/a/stream").expect(204);
}

#[test]
fn an_answer_that_ends_between_history_and_stream_is_streamed_once() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["one "]);
    assert_eq!(history(&house, "a").len(), 1);
    house.append("a", "r", DONE).expect(200);
    let streamed = house.get("/api/chat/a/stream").expect(200);
    assert_eq!((run_of(&streamed), text_of(&chunks(&streamed))), ("r".to_owned(), "one".to_owned()));
    house.get("/api/chat/a/stream").expect(204);
    // Another reader's history that has it takes it from no one.
    house.post("/v1/sessions/a/runs", json!({ "message": "again", "run_id": "r2" })).expect(202);
    assert_eq!(history(&house, "a").len(), 3);
    house.append("a", "r2", r#"{"event":"token","payload":{"text":"two"}}"#).expect(200);
    house.append("a", "r2", DONE).expect(200);
    assert_eq!(history(&house, "a").len(), 4);
    assert_eq!(run_of(&house.get("/api/chat/a/stream").expect(200)), "r2");
    house.get("/api/chat/a/stream").expect(204);
    // A page of what came before says nothing of the end.
    house.post("/v1/sessions/a/runs", json!({ "message": "more", "run_id": "r3" })).expect(202);
    assert_eq!(house.get("/api/chat/a/messages?before=r2-user").expect(200).json().as_array().unwrap().len(), 2);
    house.append("a", "r3", DONE).expect(200);
    house.get("/api/chat/a/stream").expect(204);
}

#[test]
fn an_answer_that_was_just_interrupted_is_in_the_stream_alone() {
    let house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["half an ans"]);
    let gone =
        json!({ "event": "apperror", "payload": { "type": "interrupted", "message": "The producer went away." } });
    house.append("a", "r", &gone.to_string()).expect(200);
    for _ in 0..2 {
        let left = house.get("/api/chat/a/messages").expect(200);
        assert_eq!(left.header("lastword-live-run"), Some("r"));
        assert_eq!(told(left.json().as_array().unwrap()), [pair("r-user", "Where to?")]);
        assert_eq!(run_of(&house.get("/api/chat/a/stream").expect(200)), "r");
    }
}

#[test]
fn an_answer_that_the_user_stopped_is_in_the_history() {
    let house = chat_house();
    thread::scope(|scope| {
        scope.spawn(|| submit(&house, "c", user("m1", "half")));
        let run = live_run(&house, "c");
        thread::sleep(Duration::from_millis(200));
        stop(&house, "c", &run);
        assert_eq!(told(&history(&house, "c")), [pair("m1", "half"), pair(&run, "half")]);
    });
    house.get("/api/chat/c/stream").expect(204);
    assert!(rows(&house, "c").len() >= 2);
}

#[test]
fn a_run_that_is_named_is_streamed_whatever_its_state() {
    let house = chat_house();
    let one = run_of(&submit(&house, "c", user("m1", "one")).expect(200));
    submit(&house, "c", user("m2", "two")).expect(200);
    let again = house.get(&format!("/api/chat/c/stream?run={one}")).expect(200);
    assert_eq!((run_of(&again), text_of(&chunks(&again))), (one.clone(), "one! 0 files".to_owned()));
    for (chat, run) in [("c", "nothing"), ("c", "..%2fx"), ("none", &one[..])] {
        assert_eq!(house.get(&format!("/api/chat/{chat}/stream?run={run}")).expect(404).code(), "not_found");
    }
    house.send(&ask("GET", "/api/chat/c/stream?run=x&run=y")).expect(400);
}
