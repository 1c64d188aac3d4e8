//! What a model is shown of earlier turns: what the tools were really called with and what they answered, byte for byte.

use lastword::{Event, Outcome, RunId, UserTurn};
use serde_json::{Value, json};

use crate::house::House;
use crate::words::{DONE, HEAD, call, fine, finish, sends, word};

const REQUEST: &str = r#"{"model":"test-model","stream":true,"stream_options":{"include_usage":true},"messages":"#;

/// A turn that a producer outside answered with these events.
fn answered(house: &House, message: &str, events: &[(&str, &str)]) {
    let run = house.store.begin_run(&house.session, UserTurn::text(message)).unwrap();
    for (name, payload) in events {
        run.append(Event::new(name, payload).unwrap()).unwrap();
    }
    run.finish(Outcome::Completed).unwrap();
}

/// The messages of the only request, as they were spelt.
fn asked(house: &House) -> String {
    let seen = house.server.seen();
    let [request] = &seen[..] else { panic!("{seen:?}") };
    let rest = request.raw.strip_prefix(REQUEST).expect("the request begins as every request does");
    rest.strip_suffix('}').expect("nothing follows the messages").to_owned()
}

fn user(text: &str) -> String {
    format!(r#"{{"role":"user","content":{}}}"#, json!(text))
}

/// A message that calls tools, each with its id, name and arguments.
fn calling(text: &Value, calls: &[[&str; 3]]) -> String {
    let call = |[id, name, arguments]: &[&str; 3]| {
        let (id, name, arguments) = (json!(id), json!(name), json!(arguments));
        format!(r#"{{"id":{id},"type":"function","function":{{"name":{name},"arguments":{arguments}}}}}"#)
    };
    let calls: Vec<String> = calls.iter().map(call).collect();
    format!(r#"{{"role":"assistant","content":{text},"tool_calls":[{}]}}"#, calls.join(","))
}

fn result(id: &str, content: &str) -> String {
    format!(r#"{{"role":"tool","tool_call_id":{},"content":{}}}"#, json!(id), json!(content))
}

fn said(text: &str) -> String {
    format!(r#"{{"role":"assistant","content":{}}}"#, json!(text))
}

const NESTED_ARGS: &str = r#"{"z":1.50,"query":{"text":"caf\u00e9 \"au\" lait","near":[{"lat":41.9,"lon":12.5},null,[]]},"a":true,"b":1e3,"c":{},"d":"x"}"#;
const NESTED_RESULT: &str =
    r#"{"hits":[{"name":"Bar","tags":["a","b",{"deep":[1,2,3]}],"open":false},{"name":null}],"next":1.0}"#;

#[tokio::test]
async fn nested_arguments_and_results_are_shown_as_they_were() {
    let house = House::new(vec![fine("Fine.")]).await;
    let tool = format!(r#"{{"tool_call_id":"toolu_1","name":"search","args":{NESTED_ARGS},"preview":"cafes"}}"#);
    let complete = format!(
        r#"{{"tool_call_id":"toolu_1","name":"search","result":{NESTED_RESULT},"preview":"2 hits","duration":0.2}}"#
    );
    answered(
        &house,
        "Coffee?",
        &[("tool", &tool), ("tool_complete", &complete), ("token", r#"{"text":"There is one."}"#)],
    );
    house.answer("Is it open?").await;
    let expected = [
        user("Coffee?"),
        calling(&json!(null), &[["toolu_1", "search", NESTED_ARGS]]),
        result("toolu_1", NESTED_RESULT),
        said("There is one."),
        user("Is it open?"),
    ];
    assert_eq!(asked(&house), format!("[{}]", expected.join(",")));
}

#[tokio::test]
async fn large_arguments_and_results_are_shown_whole() {
    let house = House::new(vec![fine("Fine.")]).await;
    let text = "\u{e9}\"\n".repeat(40_000);
    let (args, output) = (json!({"text": text}).to_string(), json!({"lines": [text]}).to_string());
    let tool = format!(r#"{{"tool_call_id":"c1","name":"write","args":{args}}}"#);
    let complete = format!(r#"{{"tool_call_id":"c1","name":"write","result":{output}}}"#);
    answered(&house, "Write.", &[("tool", &tool), ("tool_complete", &complete), ("token", r#"{"text":"Done."}"#)]);
    house.answer("Thanks.").await;
    let expected = [
        user("Write."),
        calling(&json!(null), &[["c1", "write", &args]]),
        result("c1", &output),
        said("Done."),
        user("Thanks."),
    ];
    assert!(asked(&house) == format!("[{}]", expected.join(",")));
}

#[tokio::test]
async fn results_without_ids_belong_to_the_calls_in_order() {
    let house = House::new(vec![fine("Fine.")]).await;
    let tool = |city: &str| format!(r#"{{"name":"weather","args":{{"of":"{city}"}}}}"#);
    let complete = |words: &str| format!(r#"{{"name":"weather","result":"{words}"}}"#);
    let (rome, oslo, sun, snow) = (tool("Rome"), tool("Oslo"), complete("sun"), complete("snow"));
    let events = [
        ("tool", &*rome),
        ("tool", &*oslo),
        ("tool_complete", &*sun),
        ("tool_complete", &*snow),
        ("token", "{\"text\":\"So.\"}"),
    ];
    answered(&house, "Weather?", &events);
    house.answer("Thanks.").await;
    let seen: Value = serde_json::from_str(&asked(&house)).unwrap();
    let calls = seen[1]["tool_calls"].as_array().unwrap();
    let arguments: Vec<&str> = calls.iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(arguments, [r#"{"of":"Rome"}"#, r#"{"of":"Oslo"}"#]);
    for (nth, words) in ["sun", "snow"].iter().enumerate() {
        assert_eq!((&seen[2 + nth]["tool_call_id"], &seen[2 + nth]["content"]), (&calls[nth]["id"], &json!(words)));
    }
}

#[tokio::test]
async fn calls_of_an_endpoint_are_shown_to_it_with_its_own_ids_and_words() {
    let part = |id: &str, arguments: &str| {
        call(json!({"index": 0, "id": id, "function": {"name": "search", "arguments": arguments}}))
    };
    let spelt = r#"{ "q" : ["a", {"b": 1.0}] }"#;
    let first =
        [HEAD, &word("Let me look."), &part("g-1", NESTED_ARGS), &part("g-2", spelt), &finish("tool_calls"), DONE];
    let house = House::new(vec![sends(&first), fine("Fine.")]).await;
    let run: RunId = house.answer("Coffee?").await.run;
    assert_eq!(house.told(&run, "tool").len(), 2);
    house.answer("And?").await;
    let messages = &house.server.seen()[1].body["messages"];
    let calls = messages[1]["tool_calls"].as_array().unwrap();
    let shown = |call: &Value| (call["id"].clone(), call["function"]["arguments"].clone());
    assert_eq!(
        calls.iter().map(shown).collect::<Vec<_>>(),
        [(json!("g-1"), json!(NESTED_ARGS)), (json!("g-2"), json!(spelt))]
    );
}
