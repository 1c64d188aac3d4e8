//! Dialects of the protocol: how servers spell tool calls, choices and usage, and which options they refuse.

use serde_json::{Value, json};

use crate::house::{House, Outcome, PATIENT, message, text};
use crate::server::{Reply, Server};
use crate::words::{DONE, HEAD, call, data, delta, document, fine, finish, sends, word};

/// Id, name and arguments of each call that is journalled.
fn calls(house: &House, run: &lastword::RunId) -> Vec<[String; 3]> {
    let calls = house.told(run, "tool");
    let arguments = |call: &lastword::model::Object| call.get("args").unwrap_or_default().to_owned();
    calls.iter().map(|call| [text(call, "tool_call_id"), text(call, "name"), arguments(call)]).collect()
}

/// An answer of these parts calls these tools.
async fn check_calls(parts: &[String], expected: &[[&str; 3]]) {
    let house = House::new(vec![sends(&[HEAD, &parts.concat(), DONE])]).await;
    let answered = house.answer("hi").await;
    assert!(answered.end.is_completed(), "{answered:?}");
    assert_eq!(calls(&house, &answered.run), expected);
    let deltas = house.told(&answered.run, "tool_delta");
    let joined = |id: &str| -> String {
        let own = deltas.iter().filter(|delta| text(delta, "tool_call_id") == id);
        own.map(|delta| text(delta, "arguments_delta")).collect()
    };
    for [id, _, arguments] in expected {
        assert_eq!(joined(id), *arguments, "{id}: {deltas:?}");
    }
}

#[tokio::test]
async fn calls_that_share_an_index_and_have_different_ids_are_separate() {
    let whole = |id: &str, arguments: &str| {
        call(json!({"index": 0, "id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}}))
    };
    let (rome, oslo) = (r#"{"of":{"city":"Rome","at":[41.9,12.5]}}"#, r#"{ "of": {"city": "Oslo"} }"#);
    let parts = [whole("gemini-1", rome), whole("gemini-2", oslo), finish("tool_calls")];
    check_calls(&parts, &[["gemini-1", "weather", rome], ["gemini-2", "weather", oslo]]).await;
}

#[tokio::test]
async fn calls_without_ids_are_told_apart_in_order() {
    let whole =
        |name: &str, arguments: &str| call(json!({"index": 0, "function": {"name": name, "arguments": arguments}}));
    let parts = [whole("weather", r#"{"of":"Rome"}"#), whole("weather", r#"{"of":"Oslo"}"#), finish("tool_calls")];
    let expected = [["call-0", "weather", r#"{"of":"Rome"}"#], ["call-1", "weather", r#"{"of":"Oslo"}"#]];
    check_calls(&parts, &expected).await;
}

#[tokio::test]
async fn parts_of_one_call_still_join() {
    let part = |part: Value| call(json!({"index": 0, "function": part}));
    let parts = [
        call(json!({"index": 0, "id": "a", "function": {"name": "weather", "arguments": ""}})),
        part(json!({"arguments": "{\"of\":"})),
        call(json!({"index": 0, "id": "a", "function": {"arguments": "\"Rome\""}})),
        part(json!({"arguments": "}"})),
        finish("tool_calls"),
    ];
    check_calls(&parts, &[["a", "weather", r#"{"of":"Rome"}"#]]).await;
}

#[tokio::test]
async fn the_legacy_function_call_is_a_tool_call() {
    let part = |part: Value| delta(json!({"function_call": part}));
    let parts = [
        part(json!({"name": "weather", "arguments": ""})),
        part(json!({"arguments": "{\"of\":"})),
        part(json!({"arguments": "\"Rome\"}"})),
        finish("function_call"),
    ];
    check_calls(&parts, &[["call-0", "weather", r#"{"of":"Rome"}"#]]).await;
}

fn whole(body: &Value) -> Reply {
    document("200 OK", "content-type: application/json\r\n", &body.to_string())
}

#[tokio::test]
async fn a_whole_answer_calls_tools_in_both_ways() {
    let function = |name: &str| json!({"name": name, "arguments": "{\"of\":\"Rome\"}"});
    let listed = json!([{"id": "a", "type": "function", "function": function("weather")},
                        {"id": "b", "type": "function", "function": function("time")}]);
    let (of_now, of_old) =
        (json!({"content": null, "tool_calls": listed}), json!({"function_call": function("weather")}));
    let rome = r#"{"of":"Rome"}"#;
    for (message, expected) in
        [(of_now, vec![["a", "weather", rome], ["b", "time", rome]]), (of_old, vec![["call-0", "weather", rome]])]
    {
        let house = House::new(vec![whole(&json!({"choices": [{"message": message, "finish_reason": "stop"}]}))]).await;
        let answered = house.answer("hi").await;
        assert_eq!(calls(&house, &answered.run), expected, "{answered:?}");
    }
}

/// A chunk of choices: their index, words and reason.
fn choices(list: &[(u64, &str, Option<&str>)]) -> String {
    let choice = |(index, words, reason): &(u64, &str, Option<&str>)| json!({"index": index, "delta": {"content": words}, "finish_reason": reason});
    data(&json!({"choices": list.iter().map(choice).collect::<Vec<_>>()}))
}

#[tokio::test]
async fn of_several_choices_the_one_with_index_0_is_the_answer() {
    let in_many = [
        choices(&[(1, "Wrong", None)]),
        choices(&[(0, "Hel", None)]),
        choices(&[(1, ".", Some("error"))]),
        choices(&[(0, "lo.", Some("stop"))]),
    ];
    let in_one = [
        choices(&[(1, "Wrong", None), (0, "Hel", None)]),
        choices(&[(1, "!", Some("length")), (0, "lo.", Some("stop"))]),
    ];
    for parts in [&in_many[..], &in_one[..]] {
        let house = House::new(vec![sends(&[HEAD, &parts.concat(), DONE])]).await;
        let answered = house.answer("hi").await;
        house.check(
            &answered,
            &Outcome {
                events: "attempt token token done",
                closed_by: "",
                rows: &[("user", "hi"), ("assistant", "Hello.")],
                requests: 1,
            },
        );
        assert_eq!(text(&house.told(&answered.run, "done")[0], "finish_reason"), "stop");
    }
}

#[tokio::test]
async fn the_end_of_another_choice_is_not_the_end_of_the_answer() {
    let parts = [choices(&[(0, "half", None)]), choices(&[(1, "x", Some("stop"))])];
    let house = House::new(vec![sends(&[HEAD, &parts.concat()])]).await;
    assert!(house.answer("hi").await.end.has_failed_as("cut_off"));
}

#[tokio::test]
async fn of_a_whole_answer_with_several_choices_the_one_with_index_0_counts() {
    let choice =
        |index: u64, words: &str| json!({"index": index, "message": {"content": words}, "finish_reason": "stop"});
    let house = House::new(vec![whole(&json!({"choices": [choice(1, "Wrong."), choice(0, "Hello.")]}))]).await;
    house.answer("hi").await;
    assert_eq!(house.rows()[1], ("assistant".to_owned(), "Hello.".to_owned()));
}

#[tokio::test]
async fn usage_is_journalled_with_the_names_that_every_producer_uses() {
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7,
                       "completion_tokens_details": {"reasoning_tokens": 2}});
    let last = data(&json!({"model": "test-model-7", "choices": [], "usage": usage}));
    let house = House::new(vec![sends(&[HEAD, &word("Hello."), &finish("stop"), &last, DONE])]).await;
    let answered = house.answer("hi").await;
    let expected = r#"{"input_tokens":3,"output_tokens":4,"total_tokens":7,"model":"test-model-7","completion_tokens_details":{"reasoning_tokens":2}}"#;
    assert_eq!(house.told(&answered.run, "usage")[0].to_json(), expected);
}

#[tokio::test]
async fn stream_options_can_be_left_out() {
    let server = Server::start(vec![fine("Hello.")]).await;
    let house = House::at(server, PATIENT, |runner, _| runner.stream_options = false);
    house.answer("hi").await;
    let expected = r#"{"model":"test-model","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    assert_eq!(house.server.seen()[0].raw, expected);
}

/// How servers refuse an option that they do not know.
fn refusals() -> [Reply; 3] {
    let openai = r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#;
    let pydantic = r#"{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}"#;
    [
        document("400 Bad Request", "", openai),
        document("422 Unprocessable Entity", "", pydantic),
        document("400 Bad Request", "", "unknown field stream_options"),
    ]
}

#[tokio::test]
async fn an_endpoint_that_refuses_stream_options_is_asked_without_them_from_then_on() {
    for refusal in refusals() {
        let house = House::new(vec![refusal, fine("One."), fine("Two.")]).await;
        let answered = house.answer("hi").await;
        house.check(
            &answered,
            &Outcome {
                events: "attempt token done",
                closed_by: "",
                rows: &[("user", "hi"), ("assistant", "One.")],
                requests: 2,
            },
        );
        assert!(house.answer("more").await.end.is_completed());
        let bodies: Vec<String> = house.server.seen().into_iter().map(|seen| seen.raw).collect();
        let said = r#""messages":[{"role":"user","content":"hi"}]}"#;
        let options = r#""stream_options":{"include_usage":true},"#;
        let begin = r#"{"model":"test-model","stream":true,"#;
        assert_eq!(bodies[0], [begin, options, said].concat());
        assert_eq!(bodies[1], [begin, said].concat());
        assert!(!bodies[2].contains("stream_options") && bodies.len() == 3, "{bodies:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_refused_for_another_reason_is_not_made_twice() {
    let other = || document("400 Bad Request", "", r#"{"error":{"message":"The context is too long"}}"#);
    let house = House::new(vec![other()]).await;
    let answered = house.answer("hi").await;
    assert!(message(&answered).contains("The context is too long"), "{answered:?}");
    assert_eq!(house.server.seen().len(), 1);
    let [refusal, ..] = refusals();
    let house = House::new(vec![refusal, other()]).await;
    assert!(message(&house.answer("hi").await).contains("The context is too long"));
    assert_eq!(house.server.seen().len(), 2);
}

#[tokio::test]
async fn stream_options_that_are_configured_are_not_left_out() {
    let [refusal, ..] = refusals();
    let server = Server::start(vec![refusal]).await;
    let house = House::at(server, PATIENT, |runner, _| {
        runner.body = r#"{"stream_options":{"include_usage":true}}"#.to_owned();
    });
    assert!(house.answer("hi").await.end.has_failed_as("rejected"));
    assert_eq!(house.server.seen().len(), 1);
}
