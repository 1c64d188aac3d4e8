//! Events in, chunks out: what they are, and that no events give a stream that a client would refuse.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Every kind of event, and payloads that do not fit.
pub(in super::super) const EVENTS: &[(&str, &str)] = &[
    ("token", r#"{"text":"Hello "}"#),
    ("token", r#"{"text":"a\ud83d"}"#),
    ("token", r#"{"text":"\ude00b"}"#),
    ("token", r#"{"text":""}"#),
    ("token", r#"{"text":{"a":[1,null]}}"#),
    ("token", r#"["text"]"#),
    ("reasoning", r#"{"text":"Hm. "}"#),
    ("reasoning", r#"{"thinking":"Well\n\"\u2028\u0000"}"#),
    ("interim_assistant", r#"{"text":" Soon. "}"#),
    ("interim_assistant", r#"{"text":"x","already_streamed":true}"#),
    ("tool", r#"{"tool_call_id":"a","name":"sum","args":{"x":1}}"#),
    ("tool", r#"{"tool_call_id":"b","name":"sum","preview":"1 + 1"}"#),
    ("tool", "{\"name\":7,\"args\":{\"__proto__\":\n1}}"),
    ("tool", "7"),
    ("tool_complete", r#"{"tool_call_id":"a","name":"sum","preview":"2"}"#),
    ("tool_complete", r#"{"tool_call_id":"b","is_error":true,"error":"no"}"#),
    ("tool_complete", "null"),
    ("tool_delta", r#"{"tool_call_id":"a","arguments_delta":"{"}"#),
    ("attempt", r#"{"attempt":2}"#),
    ("\u{0}weather", ""),
    ("done", "{}"),
    ("stream_end", "{}"),
    ("cancel", ""),
    ("apperror", r#"{"type":"refused","message":"no credit"}"#),
    ("error", r#"{"type":"canceled"}"#),
];

pub(in super::super) fn stream(events: &[(&str, &str)]) -> String {
    let mut out = Vec::new();
    let mut writer = ChunkWriter::new(&RunId::parse("r1").unwrap());
    writer.begin(&mut out);
    events.iter().for_each(|(name, payload)| writer.event(name, payload, &mut out));
    writer.end(&mut out);
    String::from_utf8(out).unwrap()
}

/// The chunks of a stream, short: type without its quotes, then the values of its keys in order.
fn short(stream: &str) -> Vec<String> {
    let chunk = |frame: &str| {
        let json = frame.strip_prefix("data: ").unwrap();
        if json == "[DONE]" {
            return json.to_owned();
        }
        let fields = Fields::parse(json).unwrap();
        let values = fields.0.iter().filter(|(key, _)| !matches!(&**key, "providerExecuted" | "dynamic"));
        values.map(|(_, value)| value.trim_matches('"')).collect::<Vec<_>>().join(" ")
    };
    stream.strip_suffix("\n\n").unwrap().split("\n\n").map(chunk).collect()
}

#[track_caller]
fn check(events: &[(&str, &str)], expected: &[&str]) {
    let chunks = short(&stream(events));
    assert_eq!(chunks[..2], ["start r1", "start-step"]);
    assert_eq!(chunks[2..], *expected, "{events:?}");
}

const FINISHED: [&str; 3] = ["finish-step", "finish stop", "[DONE]"];

#[test]
fn an_answer_is_a_message_of_thoughts_texts_and_calls() {
    check(
        &[
            ("attempt", r#"{"attempt":1}"#),
            ("reasoning", r#"{"text":"Hm"}"#),
            ("reasoning", r#"{"text":"m"}"#),
            ("token", r#"{"text":"Let me "}"#),
            ("token", r#"{"text":"see."}"#),
            ("tool", r#"{"tool_call_id":"c","name":"sum","args":{"x":[1, 2]}}"#),
            ("tool_complete", r#"{"tool_call_id":"c","name":"sum","preview":"3"}"#),
            ("token", r#"{"text":"3"}"#),
            ("done", "{}"),
        ],
        &[
            "reasoning-start 1",
            "reasoning-delta 1 Hm",
            "reasoning-delta 1 m",
            "reasoning-end 1",
            "text-start 2",
            "text-delta 2 Let me ",
            "text-delta 2 see.",
            "text-end 2",
            r#"tool-input-available c sum {"x":[1, 2]}"#,
            "tool-output-available c 3",
            "text-start 3",
            "text-delta 3 3",
            "text-end 3",
            "finish-step",
            "finish stop",
            "[DONE]",
        ],
    );
}

#[test]
fn the_frames_are_what_the_packages_read() {
    let expected = "data: {\"type\":\"start\",\"messageId\":\"r1\"}\n\ndata: {\"type\":\"start-step\"}\n\n\
         data: {\"type\":\"text-start\",\"id\":\"1\"}\n\ndata: {\"type\":\"text-delta\",\"id\":\"1\",\"delta\":\"a\\nb\"}\n\n\
         data: {\"type\":\"text-end\",\"id\":\"1\"}\n\ndata: {\"type\":\"finish-step\"}\n\n\
         data: {\"type\":\"finish\",\"finishReason\":\"stop\"}\n\ndata: [DONE]\n\n";
    assert_eq!(stream(&[("token", r#"{"text":"a\nb"}"#), ("done", "{}")]), expected);
}

#[test]
fn the_end_is_what_the_events_say() {
    let check = |events: &[(&str, &str)], expected: &str| {
        let chunks = short(&stream(events));
        assert_eq!(chunks[chunks.len() - 2], expected, "{events:?}");
    };
    check(&[], "error the answer was interrupted");
    check(&[("done", "{}")], "finish stop");
    check(&[("stream_end", "null")], "finish stop");
    check(&[("done", r#"{"finish_reason":"length"}"#), ("stream_end", "{}")], "finish length");
    check(&[("done", r#"{"finish_reason":"tool_calls"}"#)], "finish tool-calls");
    check(&[("done", r#"{"finish_reason":"moon"}"#)], "finish other");
    check(&[("done", r#"{"finish_reason":7}"#)], "finish stop");
    check(&[("done", r#"{"terminal_state":"tool_limit_reached"}"#)], "finish tool-calls");
    check(&[("cancel", "{}")], "abort");
    check(&[("apperror", r#"{"type":"Cancelled","message":"x"}"#), ("stream_end", "{}")], "abort");
    check(&[("apperror", r#"{"type":"refused","message":" no credit "}"#)], "error no credit");
    check(&[("error", r#"{"type":"interrupted"}"#)], "error interrupted");
    check(&[("error", "[]")], "error the run failed");
    check(&[("done", "{}"), ("apperror", r#"{"message":"late"}"#)], "error late");
}

#[test]
fn what_is_open_is_closed_at_the_end() {
    check(
        &[("token", r#"{"text":"a"}"#), ("tool", r#"{"id":"c","name":"t"}"#), ("cancel", "{}")],
        &[
            "text-start 1",
            "text-delta 1 a",
            "text-end 1",
            "tool-input-available c t {}",
            "tool-output-error c interrupted",
            "finish-step",
            "abort",
            "[DONE]",
        ],
    );
}

#[test]
fn half_a_character_waits_for_its_other_half() {
    let halves = [("token", r#"{"text":"\ud83d"}"#), ("token", r#"{"text":"\ude00!"}"#), ("done", "{}")];
    check(&halves, &[&["text-start 1", "text-delta 1 \u{1f600}!", "text-end 1"][..], &FINISHED].concat());
    let alone = [("token", r#"{"text":"\ud83d"}"#), ("done", "{}")];
    check(&alone, &[&["text-start 1", "text-delta 1 \u{fffd}", "text-end 1"][..], &FINISHED].concat());
}

#[test]
fn a_paragraph_of_its_own_stands_alone() {
    check(
        &[
            ("token", r#"{"text":"a"}"#),
            ("interim_assistant", r#"{"text":"b"}"#),
            ("interim_assistant", r#"{"text":" "}"#),
            ("token", r#"{"text":"c"}"#),
            ("interim_assistant", r#"{"text":"c","already_streamed":1}"#),
            ("done", "{}"),
        ],
        &[
            &["text-start 1", "text-delta 1 a", "text-end 1", "text-start 2", "text-delta 2 b", "text-end 2"][..],
            &["text-start 3", "text-delta 3 c", "text-end 3"],
            &FINISHED,
        ]
        .concat(),
    );
}

#[test]
fn calls_have_ids_of_their_own_and_results_find_them() {
    check(
        &[
            ("tool", r#"{"id":"a","name":"t"}"#),
            ("tool", r#"{"id":"a","name":"t"}"#),
            ("tool", r#"{"name":"u"}"#),
            ("tool_complete", r#"{"id":"a","result":{"n":1}}"#),
            ("tool_complete", r#"{"id":"x","name":"u","is_error":true}"#),
            ("tool_complete", r#"{"id":"y","name":"nobody"}"#),
            ("tool_complete", "{}"),
            ("tool_complete", "{}"),
            ("done", "{}"),
        ],
        &[
            &["tool-input-available a t {}", "tool-input-available a#2 t {}", "tool-input-available call-3 u {}"][..],
            &[r#"tool-output-available a#2 {"n":1}"#, "tool-output-error call-3 the tool failed"],
            &["tool-output-available a null"],
            &FINISHED,
        ]
        .concat(),
    );
}

#[test]
fn a_message_begins_once_and_ends_once() {
    let (mut out, mut writer) = (Vec::new(), ChunkWriter::new(&RunId::parse("r1").unwrap()));
    writer.event("token", r#"{"text":"a"}"#, &mut out);
    writer.begin(&mut out);
    writer.event("done", "{}", &mut out);
    writer.end(&mut out);
    let length = out.len();
    writer.event("token", r#"{"text":"b"}"#, &mut out);
    writer.end(&mut out);
    writer.begin(&mut out);
    assert_eq!(out.len(), length);
    assert_eq!(String::from_utf8(out).unwrap(), stream(&[("token", r#"{"text":"a"}"#), ("done", "{}")]));
}

/// Reads a stream as strictly as the strictest release does, and as its reader of chunks goes on.
fn assert_sound(stream: &str) {
    let (mut open, mut begun) = (BTreeSet::new(), BTreeSet::new());
    let mut results: HashMap<String, bool> = HashMap::new();
    let frames: Vec<&str> = stream.split_terminator("\n\n").collect();
    for (at, frame) in frames.iter().enumerate() {
        assert!(!frame.contains(['\n', '\r']), "{frame:?}");
        let json = frame.strip_prefix("data: ").unwrap();
        if json == "[DONE]" {
            assert_eq!(at, frames.len() - 1);
            continue;
        }
        let chunk: serde_json::Map<String, Value> = serde_json::from_str(json).unwrap();
        let text = |key: &str| chunk[key].as_str().unwrap().to_owned();
        let kind = text("type");
        let keys: Vec<&str> = chunk.keys().map(String::as_str).filter(|key| *key != "type").collect();
        let expected: &[&str] = match &*kind {
            "start" => &["messageId"],
            "start-step" | "finish-step" | "abort" => &[],
            "text-start" | "text-end" | "reasoning-start" | "reasoning-end" => &["id"],
            "text-delta" | "reasoning-delta" => &["delta", "id"],
            "tool-input-available" => &["dynamic", "input", "providerExecuted", "toolCallId", "toolName"],
            "tool-output-available" => &["dynamic", "output", "providerExecuted", "toolCallId"],
            "tool-output-error" => &["dynamic", "errorText", "providerExecuted", "toolCallId"],
            "finish" => &["finishReason"],
            "error" => &["errorText"],
            other => panic!("{other}"),
        };
        assert_eq!(keys, expected);
        match &*kind {
            "start" => assert_eq!(at, 0),
            "start-step" => assert_eq!(at, 1),
            "finish-step" => assert_eq!(at, frames.len() - 3),
            "finish" | "abort" | "error" => assert_eq!(at, frames.len() - 2),
            "text-start" | "reasoning-start" => assert!(begun.insert(text("id")) && open.insert(text("id"))),
            "text-delta" | "reasoning-delta" => assert!(open.contains(&text("id")) && !text("delta").is_empty()),
            "text-end" | "reasoning-end" => assert!(open.remove(&text("id"))),
            "tool-input-available" => {
                assert!(!text("toolName").is_empty() && results.insert(text("toolCallId"), false).is_none());
            }
            "tool-output-available" | "tool-output-error" => {
                assert_eq!(results.insert(text("toolCallId"), true), Some(false));
            }
            _ => {}
        }
    }
    assert!(frames.len() >= 5 && frames.last() == Some(&"data: [DONE]"));
    assert!(open.is_empty() && results.values().all(|is_done| *is_done), "{stream}");
}

#[test]
fn any_three_events_give_a_sound_stream() {
    for first in EVENTS {
        for second in EVENTS {
            for third in EVENTS {
                assert_sound(&stream(&[*first, *second, *third]));
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::seeds::config("chunk"))]

    #[test]
    fn any_events_give_a_sound_stream(
        known in prop::collection::vec(prop::sample::select(EVENTS), 0..40),
        odd in prop::collection::vec(("(token|reasoning|tool|tool_complete|done|apperror|.{0,5})", ".{0,30}"), 0..8),
    ) {
        let odd = odd.iter().map(|(name, payload)| (name.as_str(), payload.as_str()));
        let events: Vec<(&str, &str)> = known.iter().copied().chain(odd).collect();
        assert_sound(&stream(&events));
    }
}
