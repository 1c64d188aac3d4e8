//! Events in, chunks out: what they are, and that no events give a stream that a client would refuse.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::http::base_path::BasePath;
use crate::model::SessionId;

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
    ("tool_complete", r#"{"name":"sum","result":{"n":[0]}}"#),
    ("tool_complete", r#"{"tool_call_id":"c","result":""}"#),
    ("tool_delta", r#"{"tool_call_id":"a","name":"sum","arguments_delta":"{"}"#),
    ("tool_delta", r#"{"tool_call_id":"b","arguments_delta":"\ud83d"}"#),
    ("tool_delta", r#"{"arguments_delta":"{"}"#),
    ("tool", r#"{"tool_call_id":"c","name":"look"}"#),
    ("token", r#"{"text":" \n"}"#),
    ("file", r#"{"media_type":"image/png","url":"https://a/b.png","filename":"b.png"}"#),
    ("file", r#"{"attachment":"sha256-00"}"#),
    ("source", r#"{"id":"s","url":"https://a","title":"A"}"#),
    ("source", r#"{"id":"d","media_type":"text/plain","filename":"d.txt"}"#),
    ("data", r#"{"name":"plot","id":"1","data":{"__proto__":[1]}}"#),
    ("data", r#"{"name":"plot","id":"1","data":[2]}"#),
    ("data", r#"{"name":"no name","data":1}"#),
    ("metadata", r#"{"a":{"b":1},"lastword":7}"#),
    ("metadata", "[]"),
    ("usage", r#"{"prompt_tokens":3,"completion_tokens":4,"model":"m"}"#),
    ("usage", "{}"),
    ("attempt", r#"{"attempt":2}"#),
    ("\u{0}weather", ""),
    ("done", "{}"),
    ("stream_end", "{}"),
    ("cancel", ""),
    ("apperror", r#"{"type":"refused","message":"no credit"}"#),
    ("error", r#"{"type":"canceled"}"#),
];

fn writer() -> ChunkWriter {
    ChunkWriter::new(
        FileAddresses::of(&BasePath::default(), &SessionId::parse("s1").unwrap()),
        &RunId::parse("r1").unwrap(),
    )
}

pub(in super::super) fn stream(events: &[(&str, &str)]) -> String {
    let mut out = Vec::new();
    let mut writer = writer();
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
    let mut chunks = short(&stream(events));
    assert_eq!(chunks[..2], ["start r1", "start-step"]);
    let about = chunks.remove(chunks.len() - 4);
    assert!(about.starts_with(r#"message-metadata {"lastword":{"run_id":"r1","#), "{about}");
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
            ("tool_complete", r#"{"tool_call_id":"c","name":"sum","result":3,"preview":"three"}"#),
            ("token", r#"{"text":"3"}"#),
            ("done", "{}"),
        ],
        &[
            "reasoning-start 1",
            "reasoning-delta 1 Hm",
            "reasoning-delta 1 m",
            "reasoning-end 1",
            "text-start 2",
            "text-delta 2 Let me",
            "text-delta 2  see.",
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
         data: {\"type\":\"text-end\",\"id\":\"1\"}\n\n\
         data: {\"type\":\"message-metadata\",\"messageMetadata\":{\"lastword\":{\"run_id\":\"r1\",\"model\":null,\"usage\":null,\
         \"ended_at\":null,\"state\":\"completed\"}}}\n\ndata: {\"type\":\"finish-step\"}\n\n\
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
fn an_interim_note_is_the_last_paragraph_of_its_text() {
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
            &["text-start 1", "text-delta 1 a", "text-delta 1 \\n\\nb", "text-end 1"][..],
            &["text-start 2", "text-delta 2 c", "text-end 2"],
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
            &[r#"tool-output-available a {"n":1}"#, "tool-output-error call-3 the tool failed"],
            &["tool-output-available a#2 null"],
            &FINISHED,
        ]
        .concat(),
    );
}

#[test]
fn arguments_are_streamed_before_the_call_that_they_belong_to() {
    check(
        &[
            ("tool_delta", r#"{"tool_call_id":"a","name":"t","arguments_delta":"{\"x\":"}"#),
            ("tool_delta", r#"{"tool_call_id":"a","arguments_delta":"1}"}"#),
            ("tool_delta", r#"{"tool_call_id":"b","name":"u","arguments_delta":"{"}"#),
            ("tool", r#"{"tool_call_id":"a","name":"t","args":{"x":1}}"#),
            ("tool_delta", r#"{"tool_call_id":"a","arguments_delta":"late"}"#),
            ("tool_complete", r#"{"tool_call_id":"a","result":0}"#),
            ("cancel", "{}"),
        ],
        &[
            "tool-input-start a t",
            r#"tool-input-delta a {\"x\":"#,
            "tool-input-delta a 1}",
            "tool-input-start b u",
            "tool-input-delta b {",
            r#"tool-input-available a t {"x":1}"#,
            "tool-output-available a 0",
            "tool-input-error b u null interrupted",
            "finish-step",
            "abort",
            "[DONE]",
        ],
    );
}

#[test]
fn results_without_ids_are_matched_first_in_first_out_and_whole() {
    check(
        &[
            ("tool", r#"{"name":"t","preview":"one"}"#),
            ("tool", r#"{"name":"t","args":{"n":2}}"#),
            ("tool_complete", r#"{"name":"t","preview":"a","result":{"deep":[1, null]}}"#),
            ("tool_complete", r#"{"name":"t","preview":"b"}"#),
            ("done", "{}"),
        ],
        &[
            &["tool-input-available call-1 t {}", r#"tool-input-available call-2 t {"n":2}"#][..],
            &[r#"tool-output-available call-1 {"deep":[1, null]}"#, r#"tool-output-available call-2 {"preview":"b"}"#],
            &FINISHED,
        ]
        .concat(),
    );
}

#[test]
fn files_sources_and_data_are_parts_that_do_not_divide_a_text() {
    let id = format!("sha256-{}", "0f".repeat(32));
    let file = format!(r#"{{"media_type":"image/png","attachment":"{id}","filename":"a.png"}}"#);
    let address = format!("file image/png /v1/sessions/s1/attachments/{id}");
    check(
        &[
            ("token", r#"{"text":"Look: "}"#),
            ("file", &file),
            ("source", r#"{"id":"1","url":"https://a","title":"A"}"#),
            ("source", r#"{"id":"2","media_type":"text/plain","title":"B"}"#),
            ("data", r#"{"name":"plot","id":"p","data":{"x":[1, 2]}}"#),
            ("data", r#"{"name":"not a name"}"#),
            ("token", r#"{"text":"there."}"#),
            ("done", "{}"),
        ],
        &[
            &["text-start 1", "text-delta 1 Look:", &address, "source-url 1 https://a A"][..],
            &["source-document 2 text/plain B", r#"data-plot p {"x":[1, 2]}"#, "text-delta 1  there.", "text-end 1"],
            &FINISHED,
        ]
        .concat(),
    );
}

#[test]
fn metadata_says_whose_answer_it_is_and_what_it_took() {
    let (mut out, mut writer) = (Vec::new(), writer());
    writer.began_at(Some(17.5));
    for (name, payload) in [
        ("metadata", r#"{"topic":"sea","lastword":{"run_id":"not yours"}}"#),
        ("usage", r#"{"prompt_tokens":1,"completion_tokens":4}"#),
        ("usage", r#"{"input_tokens":2,"output_tokens":0}"#),
        ("done", r#"{"model":"m","usage":{"input_tokens":99}}"#),
    ] {
        writer.event(name, payload, &mut out);
    }
    writer.ended_at(Some(18.25));
    writer.end(&mut out);
    let out = String::from_utf8(out).unwrap();
    let metadata: Vec<&str> =
        out.lines().filter_map(|line| line.split_once("\"messageMetadata\":")?.1.strip_suffix('}')).collect();
    let first = r#""usage":{"input_tokens":1,"output_tokens":4,"total_tokens":5}"#;
    let usage = r#""usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7}"#;
    assert_eq!(
        metadata,
        [
            r#"{"topic":"sea"}"#.to_owned(),
            format!(r#"{{"lastword":{{"run_id":"r1","model":null,{first}}}}}"#),
            format!(r#"{{"lastword":{{"run_id":"r1","model":null,{usage}}}}}"#),
            format!(
                r#"{{"lastword":{{"run_id":"r1","model":"m",{usage},"began_at":17.5,"ended_at":18.25,"state":"completed"}}}}"#
            ),
        ]
    );
}

#[test]
fn white_space_around_a_text_is_not_sent() {
    check(
        &[
            ("token", r#"{"text":" \n"}"#),
            ("reasoning", r#"{"text":"\n"}"#),
            ("token", r#"{"text":"\t a "}"#),
            ("token", r#"{"text":" \n"}"#),
            ("token", r#"{"text":"b \n"}"#),
            ("done", "{}"),
        ],
        &[&["text-start 1", "text-delta 1 a", "text-delta 1   \\nb", "text-end 1"][..], &FINISHED].concat(),
    );
}

#[test]
fn a_message_begins_once_and_ends_once() {
    let (mut out, mut writer) = (Vec::new(), writer());
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

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallState {
    Streaming,
    Called,
    Over,
}

/// Reads a stream as strictly as the strictest release does, and as its reader of chunks goes on.
fn assert_sound(stream: &str) {
    let (mut open, mut begun) = (BTreeSet::new(), BTreeSet::new());
    let mut results: HashMap<String, CallState> = HashMap::new();
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
        let optional = ["title", "filename", "id"];
        let is_asked = |key: &&str| *key != "type" && (!kind.starts_with(['s', 'd']) || !optional.contains(key));
        let keys: Vec<&str> = chunk.keys().map(String::as_str).filter(is_asked).collect();
        let expected: &[&str] = match &*kind {
            "start" => &["messageId"],
            "start-step" | "finish-step" | "abort" => &[],
            "text-start" | "text-end" | "reasoning-start" | "reasoning-end" => &["id"],
            "text-delta" | "reasoning-delta" => &["delta", "id"],
            "tool-input-start" => &["dynamic", "providerExecuted", "toolCallId", "toolName"],
            "tool-input-delta" => &["inputTextDelta", "toolCallId"],
            "tool-input-available" => &["dynamic", "input", "providerExecuted", "toolCallId", "toolName"],
            "tool-input-error" => &["dynamic", "errorText", "input", "providerExecuted", "toolCallId", "toolName"],
            "tool-output-available" => &["dynamic", "output", "providerExecuted", "toolCallId"],
            "tool-output-error" => &["dynamic", "errorText", "providerExecuted", "toolCallId"],
            "finish" => &["finishReason"],
            "error" => &["errorText"],
            "message-metadata" => &["messageMetadata"],
            "file" => &["mediaType", "url"],
            "source-url" => &["sourceId", "url"],
            "source-document" => &["mediaType", "sourceId"],
            "data-plot" => &["data"],
            other => panic!("{other}"),
        };
        assert_eq!(keys, expected);
        match &*kind {
            "start" => assert_eq!(at, 0),
            "start-step" => assert_eq!(at, 1),
            "finish-step" => assert_eq!(at, frames.len() - 3),
            "message-metadata" => assert!(chunk["messageMetadata"].is_object() && !json.contains("__proto__")),
            "finish" | "abort" | "error" => assert_eq!(at, frames.len() - 2),
            "text-start" | "reasoning-start" => assert!(begun.insert(text("id")) && open.insert(text("id"))),
            "text-delta" | "reasoning-delta" => assert!(open.contains(&text("id")) && !text("delta").is_empty()),
            "text-end" | "reasoning-end" => assert!(open.remove(&text("id"))),
            // Once more if the producer has begun anew.
            "tool-input-start" => {
                let before = results.insert(text("toolCallId"), CallState::Streaming);
                assert!(before.is_none_or(|state| state == CallState::Streaming));
            }
            "tool-input-delta" => {
                assert!(results[&text("toolCallId")] == CallState::Streaming && !text("inputTextDelta").is_empty());
            }
            "tool-input-available" => {
                let before = results.insert(text("toolCallId"), CallState::Called);
                assert!(!text("toolName").is_empty() && before.is_none_or(|state| state == CallState::Streaming));
            }
            "tool-input-error" => {
                assert_eq!(results.insert(text("toolCallId"), CallState::Over), Some(CallState::Streaming));
            }
            "tool-output-available" | "tool-output-error" => {
                assert_eq!(results.insert(text("toolCallId"), CallState::Over), Some(CallState::Called));
            }
            _ => {}
        }
    }
    assert!(frames.len() >= 6 && frames.last() == Some(&"data: [DONE]"));
    assert!(frames[frames.len() - 4].starts_with("data: {\"type\":\"message-metadata\""));
    assert!(open.is_empty() && results.values().all(|state| *state == CallState::Over), "{stream}");
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
        odd in prop::collection::vec(("(token|reasoning|tool|tool_delta|tool_complete|data|file|source|metadata|usage|done|apperror|.{0,5})", ".{0,30}"), 0..8),
    ) {
        let odd = odd.iter().map(|(name, payload)| (name.as_str(), payload.as_str()));
        let events: Vec<(&str, &str)> = known.iter().copied().chain(odd).collect();
        assert_sound(&stream(&events));
    }
}
