//! How deeply JSON may be nested: a hundred levels from outside, and any number of them on disk.

use lastword::limits::JSON_DEPTH_MAX;
use serde_json::{Value, json};

use crate::chat_client::demo_house;
use crate::house::{DONE, House, token};
use crate::wire::{Answer, ask};

/// This many lists within each other.
fn lists(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

/// The levels of a value, counted without a stack.
fn levels(value: &Value) -> usize {
    let (mut open, mut most) = (vec![(value, 1)], 0);
    while let Some((value, level)) = open.pop() {
        let inner: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            _ => continue,
        };
        most = most.max(level);
        open.extend(inner.into_iter().map(|value| (value, level + 1)));
    }
    most
}

#[track_caller]
fn expect_too_deep(answer: Answer, line: usize) {
    let refused = answer.expect(400);
    assert_eq!(refused.code(), "invalid_argument");
    let message = refused.text().to_owned();
    assert!(message.contains("100 levels") && message.contains(&format!("line {line}")), "{message}");
}

fn send_json(house: &House, method: &str, path: &str, body: &str) -> Answer {
    let request = ask(method, path).header("content-type", "application/json").header("if-match", "*");
    house.send(&request.bytes(body.as_bytes()))
}

#[test]
fn at_every_door_json_that_is_nested_too_deeply_is_refused_with_its_line() {
    let house = House::new();
    house.run("a", "r");
    for levels in [JSON_DEPTH_MAX, 10_000, 1_000_000] {
        let deep = lists(levels);
        for (method, path, key) in [
            ("POST", "/v1/sessions", "title"),
            ("PATCH", "/v1/sessions/a", "title"),
            ("POST", "/v1/sessions/a/runs", "attachments"),
            ("POST", "/api/chat", "metadata"),
        ] {
            let body = format!("{{\"id\":\"c\",\n\"message\":\"x\",\n\"{key}\":{deep}}}");
            expect_too_deep(send_json(&house, method, path, &body), 3);
        }
        let line = format!("{{\"event\":\"x\",\"payload\":{deep}}}");
        expect_too_deep(house.append("a", "r", &format!("{}\n{line}\n{DONE}", token("x"))), 2);
    }
    assert_eq!(house.get("/v1/sessions/a/runs/r/events").text(), "", "nothing of such a batch is appended");
}

#[test]
fn brackets_in_a_text_are_no_levels() {
    let house = House::new();
    house.run("a", "r");
    let text = format!("\\\"{}\\\\", "[{".repeat(1_000));
    house.append("a", "r", &format!("{{\"event\":\"token\",\"payload\":{{\"text\":\"{text}\"}}}}")).expect(200);
    send_json(&house, "POST", "/v1/sessions", &format!("{{\"title\":\"{text}\"}}")).expect(201);
}

#[test]
fn what_is_taken_with_a_hundred_levels_can_be_read_back_everywhere() {
    let house = House::new();
    house.session("a");
    let body = format!(r#"{{"message":"x","run_id":"r","attachments":{}}}"#, lists(JSON_DEPTH_MAX - 1));
    send_json(&house, "POST", "/v1/sessions/a/runs", &body).expect(202);
    let deep = lists(JSON_DEPTH_MAX - 2);
    let events = [
        format!(
            r#"{{"event":"tool","payload":{{"tool_call_id":"c","name":"look","args":{{"a":{}}}}}}}"#,
            lists(JSON_DEPTH_MAX - 3)
        ),
        format!(r#"{{"event":"tool_complete","payload":{{"tool_call_id":"c","name":"look","result":{deep}}}}}"#),
        format!(r#"{{"event":"data","payload":{{"name":"d","data":{deep}}}}}"#),
        format!(r#"{{"event":"metadata","payload":{{"m":{deep}}}}}"#),
        format!(r#"{{"event":"own","payload":{}}}"#, lists(JSON_DEPTH_MAX - 1)),
        format!(r#"{{"event":"done","payload":{{"x":{deep}}}}}"#),
    ];
    house.append("a", "r", &events.join("\n")).expect(200);
    for event in house.follow("a", "r", "").events() {
        assert!(event.name == "end" || levels(&event.json()) == JSON_DEPTH_MAX, "{event:?}");
    }
    for line in house.get("/v1/sessions/a/runs/r/events").expect(200).text().lines() {
        assert_eq!(levels(&serde_json::from_str(line).unwrap()), JSON_DEPTH_MAX);
    }
    // Parsed by a reader that takes 128 levels.
    let session = house.get("/v1/sessions/a").expect(200).json();
    let history = house.get("/api/chat/a/messages").expect(200).json();
    assert!(
        levels(&session) >= JSON_DEPTH_MAX && levels(&history) >= JSON_DEPTH_MAX,
        "{} {}",
        levels(&session),
        levels(&history)
    );
    let chunks = house.get("/api/chat/a/stream?run=r").expect(200);
    for data in chunks.text().lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]") {
        serde_json::from_str::<Value>(data).unwrap_or_else(|cause| panic!("{cause}: {data}"));
    }
}

#[test]
fn a_message_of_a_chat_may_have_metadata_of_a_hundred_levels_in_its_body() {
    let house = demo_house(std::time::Duration::from_millis(1));
    let chat = |id: &str, levels: usize| {
        let metadata = format!("{{\"m\":{}}}", lists(levels - 4));
        let message =
            format!(r#"{{"id":"m","role":"user","parts":[{{"type":"text","text":"x"}}],"metadata":{metadata}}}"#);
        send_json(&house, "POST", "/api/chat", &format!(r#"{{"id":"{id}","messages":[{message}]}}"#))
    };
    chat("c", JSON_DEPTH_MAX).expect(200);
    expect_too_deep(chat("d", JSON_DEPTH_MAX + 1), 1);
    let history = house.get("/api/chat/c/messages").expect(200).json();
    assert!(levels(&history[0]["metadata"]["m"]) == JSON_DEPTH_MAX - 4, "{}", levels(&history));
    house.get("/v1/sessions/d").expect(404);
}

#[test]
fn files_that_are_nested_ten_thousand_levels_deep_are_read_as_they_are() {
    let mut house = House::new();
    house.run("a", "r");
    house.tokens("a", "r", &["said"]);
    house.end();
    let journal = house.data().join("_run_journal/a/r.jsonl");
    let mut lines = std::fs::read_to_string(&journal).unwrap();
    let deep = lists(10_000);
    for (seq, (name, payload)) in (2..).zip([
        ("token", format!(r#"{{"text":" more","x":{deep}}}"#)),
        ("reasoning", format!(r#"{{"text":{deep}}}"#)),
        ("tool", format!(r#"{{"tool_call_id":"c","name":"look","args":{{"a":{deep}}}}}"#)),
        ("tool_complete", format!(r#"{{"tool_call_id":"c","result":{deep}}}"#)),
        ("data", format!(r#"{{"name":"d","data":{deep}}}"#)),
        ("metadata", format!(r#"{{"m":{}{}}}"#, "{\"m\":".repeat(5_000), "1".to_owned() + &"}".repeat(5_000))),
        ("metadata", format!(r#"{{"m":{}{}}}"#, "{\"m\":".repeat(5_000), "2".to_owned() + &"}".repeat(5_000))),
        ("usage", format!(r#"{{"input_tokens":{deep}}}"#)),
        ("own", deep.clone()),
        ("done", format!(r#"{{"usage":{deep}}}"#)),
    ]) {
        let terminal = name == "done";
        lines.push_str(&format!(
            "{{\"seq\":{seq},\"event\":\"{name}\",\"terminal\":{terminal},\"payload\":{payload}}}\n"
        ));
    }
    std::fs::write(&journal, &lines).unwrap();
    let folder = std::mem::replace(&mut house.folder, tempfile::tempdir().unwrap());
    drop(house);
    let house = House::at(folder);
    let rows = house.get("/v1/sessions/a").expect(200);
    assert!(rows.text().contains("said more"), "{:.300}", rows.text());
    assert_eq!(house.get("/v1/sessions/a/runs/r/events").expect(200).text().lines().count(), 11);
    let followed = house.follow("a", "r", "").events();
    assert_eq!(followed.last().map(|last| last.name.as_str()), Some("end"));
    assert!(house.get("/api/chat/a/stream?run=r").expect(200).text().ends_with("[DONE]\n\n"));
    assert_eq!(house.get("/v1/check?session=a").expect(200).json()["summary"]["sessions"], json!(1));
    house.post("/v1/sessions/a/runs", json!({ "message": "and?", "run_id": "r2" })).expect(202);
    // The history leaves out what the stream has, which is the live run now.
    assert!(house.get("/api/chat/a/messages").expect(200).text().contains("said more"));
}
