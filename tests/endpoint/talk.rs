//! What is asked, and everything that an answer can hold: text, thoughts, tool calls, usage; in order, exactly.

use lastword::run::ApiKey;
use serde_json::json;

use crate::house::{House, Outcome, PATIENT, text};
use crate::server::{Server, Step};
use crate::words::{DONE, HEAD, data, delta, fine, finish, role, send, sends, thought, word};

#[tokio::test]
async fn the_server_is_asked_with_the_conversation_and_what_is_configured() {
    let server = Server::start(vec![fine("Paris."), fine("Rome.")]).await;
    let house = House::at(server, PATIENT, |runner, folder| {
        let path = folder.join("key");
        std::fs::write(&path, " sk-test \n").unwrap();
        runner.key = ApiKey::File(path);
        runner.system = Some("Be brief.".to_owned());
        let headers = [("X-Team", "blue"), ("Accept", "text/event-stream, */*")];
        runner.headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        runner.body = r#"{"temperature":0.25,"stream_options":null}"#.to_owned();
    });
    for question in ["Where to?", "And then?"] {
        assert!(house.answer(question).await.end.is_completed());
    }
    let seen = house.server.seen();
    assert_eq!(seen.len(), 2);
    for request in &seen {
        assert!(request.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", request.head);
        assert_eq!(request.header("authorization"), Some("Bearer sk-test"));
        assert_eq!(request.header("x-team"), Some("blue"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!(request.header("accept"), Some("text/event-stream, */*"), "what is configured wins");
        assert_eq!(request.head.to_lowercase().matches("\r\naccept:").count(), 1, "{}", request.head);
        assert_eq!(request.body["model"], "test-model");
        assert_eq!(request.body["stream"], true);
        assert_eq!(request.body["temperature"], 0.25);
        assert!(request.body["stream_options"].is_null(), "what is configured wins");
    }
    let system = json!({"role": "system", "content": "Be brief."});
    let first = json!({"role": "user", "content": "Where to?"});
    assert_eq!(seen[0].body["messages"], json!([system, first]));
    let answer = json!({"role": "assistant", "content": "Paris."});
    let second = json!({"role": "user", "content": "And then?"});
    assert_eq!(seen[1].body["messages"], json!([system, first, answer, second]));
}

#[tokio::test]
async fn a_server_that_needs_no_key_gets_none() {
    let house = House::new(vec![fine("Hello.")]).await;
    house.answer("hi").await;
    let seen = &house.server.seen()[0];
    assert_eq!((seen.header("authorization"), &seen.body["stream_options"]["include_usage"]), (None, &json!(true)));
}

#[tokio::test]
async fn what_failed_is_asked_again_with_the_same_words() {
    let house = House::new(vec![sends(&[HEAD, &role()]), fine("Hello.")]).await;
    house.answer("hi").await;
    let seen = house.server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].body, seen[1].body);
}

/// Two calls whose parts arrive in turns, between thoughts and words.
fn interleaved() -> String {
    let part = |part: serde_json::Value| delta(json!({"tool_calls": [part]}));
    [
        role(),
        thought("Both "),
        thought("at once."),
        word("Let me "),
        part(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "weather", "arguments": ""}})),
        part(json!({"index": 1, "id": "b", "type": "function", "function": {"name": "time", "arguments": "{\"in\":"}})),
        word("look."),
        part(json!({"index": 0, "function": {"arguments": "{\"of\":\"R"}})),
        part(json!({"index": 1, "function": {"arguments": "\"Rome\"}"}})),
        part(json!({"index": 0, "function": {"arguments": "ome\"}"}})),
        finish("tool_calls"),
        data(&json!({"model": "test-model-7", "choices": [], "usage": {"prompt_tokens": 3, "total_tokens": 10}})),
        DONE.to_owned(),
    ]
    .concat()
}

#[tokio::test]
async fn text_thoughts_tool_calls_and_usage_are_journalled_as_they_come_and_fold_into_the_transcript() {
    let house = House::new(vec![sends(&[HEAD, &interleaved()])]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: "attempt reasoning reasoning token tool_delta tool_delta token tool_delta tool_delta tool_delta \
                     tool tool usage done",
            closed_by: "",
            rows: &[("user", "hi"), ("assistant", "Let me look.")],
            requests: 1,
        },
    );
    let calls: Vec<_> = house.told(&answered.run, "tool").iter().map(|call| call.to_json()).collect();
    assert!(calls[0].contains(r#""tool_call_id":"a","name":"weather""#), "{calls:?}");
    assert!(calls[0].contains(r#""args":{"of":"Rome"}"#), "{calls:?}");
    assert!(calls[1].contains(r#""tool_call_id":"b","name":"time""#), "{calls:?}");
    assert!(calls[1].contains(r#""args":{"in":"Rome"}"#), "{calls:?}");
    assert_eq!(house.told(&answered.run, "usage")[0].get("total_tokens"), Some("10"));
    let done = &house.told(&answered.run, "done")[0];
    assert_eq!((text(done, "finish_reason"), text(done, "model")), ("tool_calls".into(), "test-model-7".into()));
    let transcript = house.transcript();
    assert_eq!(transcript.message(1).unwrap().reasoning().unwrap(), "Both at once.");
    let cards: Vec<_> = transcript.tool_cards().map(|card| (card.name().into_owned(), card.shown())).collect();
    let card = |name: &str, shown: &str| (name.to_owned(), shown.to_owned());
    assert_eq!(cards, [card("weather", r#"{"of":"Rome"}"#), card("time", r#"{"in":"Rome"}"#)]);
    assert!(transcript.tool_cards().all(|card| card.row_index() == Some(1)));
}

#[tokio::test]
async fn a_thousand_words_arrive_in_order_and_exactly() {
    let words: Vec<String> = (0..1_000).map(|number| format!("{number}\u{b7}\n\t\"\\\u{1f600} ")).collect();
    let body: String = words.iter().map(|text| word(text)).chain([finish("stop"), DONE.to_owned()]).collect();
    // Pieces whose ends fall anywhere: inside of events, escapes and characters.
    let pieces = body.as_bytes().chunks(997).flat_map(|piece| [Step::Send(piece.to_vec()), Step::Pause(0.001)]);
    let house = House::new(vec![[send(&[HEAD])].into_iter().chain(pieces).collect()]).await;
    let answered = house.answer("hi").await;
    house.check(
        &answered,
        &Outcome {
            events: &format!("attempt {}done", "token ".repeat(1_000)),
            closed_by: "",
            rows: &[("user", "hi"), ("assistant", words.concat().trim_end())],
            requests: 1,
        },
    );
    let told: Vec<String> = house.told(&answered.run, "token").iter().map(|token| text(token, "text")).collect();
    assert_eq!(told, words);
}
