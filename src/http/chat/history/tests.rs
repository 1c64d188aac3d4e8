//! Rows in, messages out; and that a reload shows what the chat stream showed, whatever the events were.

use std::collections::HashMap;
use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::clock::Timestamp;
use crate::http::base_path::BasePath;
use crate::http::chat::FileAddresses;
use crate::http::chat::chunk::tests::{EVENTS, stream};
use crate::model::fold::{FoldEvent, Folder, Provenance};
use crate::model::{BranchReason, List, ReplacedTurn, SessionId};

fn session(rows: &[Value], cards: &[Value]) -> Session {
    let mut session = Session::new(SessionId::parse("s1").unwrap(), "", Timestamp::from_seconds(1.0));
    rows.iter().try_for_each(|row| session.push_item(List::Messages, &row.to_string())).unwrap();
    cards.iter().try_for_each(|card| session.push_item(List::ToolCalls, &card.to_string())).unwrap();
    session
}

fn nothing_large(_: &AttachmentId) -> Option<Vec<u8>> {
    None
}

/// Every session of these tests has the same id.
fn addresses() -> &'static FileAddresses {
    static ADDRESSES: OnceLock<FileAddresses> = OnceLock::new();
    ADDRESSES.get_or_init(|| FileAddresses::of(&BasePath::default(), &SessionId::parse("s1").unwrap()))
}

fn view(session: &Session) -> HistoryView<'_> {
    HistoryView { session, files: addresses(), pending: None, left_out: None, large: &nothing_large }
}

fn read(view: &HistoryView<'_>, before: Option<&str>, limit: Option<usize>) -> Vec<Value> {
    let messages = ui_messages(view, before, limit);
    messages.iter().map(|message| serde_json::from_str(message).unwrap()).collect()
}

/// Messages, short: their ids and texts.
fn texts(messages: &[Value]) -> Vec<(String, String)> {
    let of = |message: &Value| {
        let parts = message["parts"].as_array().unwrap().iter().filter_map(|part| part["text"].as_str());
        (message["id"].as_str().unwrap().to_owned(), parts.collect::<Vec<_>>().join("|"))
    };
    messages.iter().map(of).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(id, text)| ((*id).to_owned(), (*text).to_owned())).collect()
}

fn two_turns() -> Vec<Value> {
    vec![
        json!({"role":"user","content":"one?","_run_id":"a","_message_id":"m1","_metadata":{"k":[1]}}),
        json!({"role":"assistant","content":"One.","_run_id":"a"}),
        json!({"role":"user","content":"two?","_run_id":"b"}),
        json!({"role":"assistant","content":"Two.","_run_id":"b"}),
        json!({"role":"assistant","content":"And more.","_run_id":"b"}),
    ]
}

#[test]
fn a_turn_is_a_message_of_the_user_and_one_of_its_run() {
    let mut rows = two_turns();
    rows[2]["_run"] = json!({
        "state":"tool_limit_reached","model":"m","usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3},
        "began_at":10.5,"ended_at":null,"metadata":{"topic":{"sea":true},"lastword":7},
    });
    let messages = read(&view(&session(&rows, &[])), None, None);
    assert_eq!(texts(&messages), pairs(&[("m1", "one?"), ("a", "One."), ("b-user", "two?"), ("b", "Two.|And more.")]));
    assert_eq!(messages[0]["metadata"], json!({"k":[1]}));
    assert_eq!(messages[2].get("metadata"), None);
    let usage = json!({"input_tokens":1,"output_tokens":2,"total_tokens":3});
    let ours = json!({
        "run_id":"b","model":"m","usage":usage,"began_at":10.5,"ended_at":null,"state":"tool_limit_reached"
    });
    assert_eq!(messages[3]["metadata"], json!({"topic":{"sea":true},"lastword":ours}));
    let unknown = json!({
        "run_id":"a","model":null,"usage":null,"began_at":null,"ended_at":null,"state":"completed"
    });
    assert_eq!(messages[1]["metadata"], json!({"lastword":unknown}));
    assert_eq!(messages[3]["parts"][0], json!({"type":"text","text":"Two.","state":"done"}));
}

#[test]
fn a_page_ends_before_a_message_and_has_the_last_ones() {
    let session = session(&two_turns(), &[]);
    let ids = |before, limit| {
        let messages = read(&view(&session), before, limit);
        messages.iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(None, Some(1)), ["b"]);
    assert_eq!(ids(Some("b"), Some(2)), ["a", "b-user"]);
    assert_eq!(ids(Some("a"), None), ["m1"]);
    assert!(ids(Some("m1"), None).is_empty() && ids(Some("unknown"), None).is_empty() && ids(None, Some(0)).is_empty());
}

#[test]
fn the_answer_that_the_stream_shows_is_left_out_and_its_question_is_not() {
    let run = RunId::parse("b").unwrap();
    let mut rows = two_turns();
    rows.push(json!({"role":"assistant","content":"Interrupted.","_error":true,"type":"interrupted","_run_id":"b"}));
    let session = session(&rows, &[json!({"name":"t","assistant_msg_idx":4,"_run_id":"b","done":true})]);
    let messages = read(&HistoryView { left_out: Some(&run), ..view(&session) }, None, None);
    assert_eq!(texts(&messages), pairs(&[("m1", "one?"), ("a", "One."), ("b-user", "two?")]));
    let all = read(&view(&session), None, None);
    assert_eq!(all[3]["metadata"]["lastword"]["state"], "interrupted-by-crash");
    assert_eq!(all[3]["parts"][2]["type"], "dynamic-tool");
}

#[test]
fn a_pending_message_comes_last_and_hides_what_it_replaces() {
    let (session, run) = (session(&two_turns(), &[]), RunId::parse("c").unwrap());
    let url = format!("lastword:sha256-{}", "ab".repeat(32));
    let turn = PendingTurn {
        message: "three?".to_owned(),
        attachments: json!([{"type":"file","mediaType":"image/png","filename":"a.png","url":url}]).to_string(),
        started_at: None,
        source: None,
    };
    let plain = Pending { run: &run, turn: &turn, note: None };
    let messages = read(&HistoryView { pending: Some(plain), ..view(&session) }, None, None);
    assert_eq!(messages.len(), 5);
    let address = url.replace("lastword:", "/v1/sessions/s1/attachments/");
    let file = json!({"type":"file","mediaType":"image/png","filename":"a.png","url":address});
    let words = json!({"type":"text","text":"three?"});
    assert_eq!(messages[4], json!({"id":"c-user","role":"user","parts":[file, words]}));
    for (message, left) in [("b-user", 2), ("m1", 0), ("gone", 4)] {
        let replaces = Some(ReplacedTurn { message: message.to_owned(), reason: BranchReason::Edit });
        let metadata = Some(r#"{"by":"me"}"#.to_owned());
        let note = TurnNote { message_id: Some("m3".to_owned()), metadata, replaces, ..TurnNote::default() };
        let pending = Pending { run: &run, turn: &turn, note: Some(&note) };
        let messages = read(&HistoryView { pending: Some(pending), ..view(&session) }, None, None);
        assert_eq!(messages.len(), left + 1, "{message}");
        assert_eq!((&messages[left]["id"], &messages[left]["metadata"]), (&json!("m3"), &json!({"by":"me"})));
    }
}

#[test]
fn a_message_of_files_alone_has_no_words() {
    let file = json!({"type":"file","mediaType":"text/plain","url":"https://a/b.txt"});
    let rows = [json!({"role":"user","content":"(attachments)","attachments":[file, {"url":"javascript:x"}, 7]})];
    let messages = read(&view(&session(&rows, &[])), None, None);
    assert_eq!(messages, [json!({"id":"row-0","role":"user","parts":[file]})]);
}

#[test]
fn cards_are_calls_with_what_really_happened() {
    let rows =
        [json!({"role":"user","content":"?","_run_id":"a"}), json!({"role":"assistant","content":"x","_run_id":"a"})];
    let card = |more: Value| {
        let mut card =
            json!({"name":"t","assistant_msg_idx":1,"preview":"p","snippet":"p","args":{"a":"1"},"done":true});
        card.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        card
    };
    let cards = [
        card(json!({"_call_id":"c","_args":{"a":[1]},"_result":{"r":0}})),
        card(json!({"_call_id":"c","_result":"no","_result_is_error":true})),
        card(json!({"_args":{},"_result_preview":"shown"})),
        card(json!({"_args":{},"_answered":false})),
        card(json!({"is_error":true})),
        card(json!({"assistant_msg_idx":9})),
    ];
    let messages = read(&view(&session(&rows, &cards)), None, None);
    let parts = messages[1]["parts"].as_array().unwrap();
    let call = |id: &str, state: &str, input: Value, key: &str, value: Value| json!({"type":"dynamic-tool","toolName":"t","toolCallId":id,"state":state,"input":input,key:value,"providerExecuted":true});
    assert_eq!(
        parts[1..],
        [
            call("c", "output-available", json!({"a":[1]}), "output", json!({"r":0})),
            call("c#2", "output-error", json!({"a":"1"}), "errorText", json!("no")),
            call("call-3", "output-available", json!({}), "output", json!({"preview":"shown"})),
            call("call-4", "output-error", json!({}), "errorText", json!("interrupted")),
            call("call-5", "output-error", json!({"a":"1"}), "errorText", json!("p")),
        ]
    );
}

#[test]
fn large_values_are_loaded_while_there_is_room() {
    let json = format!("\"{}\"", "x".repeat(100));
    let id = AttachmentId::of_bytes(json.as_bytes());
    let reference = |bytes: u64| json!({"attachment":id.as_str(),"bytes":bytes});
    let rows = [json!({"role":"assistant","content":"x","_run_id":"a"})];
    let shown = |bytes: u64, stored: Option<&str>| {
        let card = json!({"name":"t","assistant_msg_idx":0,"done":true,"_result":reference(bytes)});
        let session = session(&rows, &[card]);
        let load = |asked: &AttachmentId| stored.filter(|_| *asked == id).map(|json| json.as_bytes().to_vec());
        read(&HistoryView { large: &load, ..view(&session) }, None, None)[0]["parts"][1]["output"].clone()
    };
    assert_eq!(shown(102, Some(&json)), json!("x".repeat(100)));
    for (bytes, stored) in [(102, None), (7, Some(&*json)), (HISTORY_LARGE_BYTES_MAX + 1, Some(&*json))] {
        assert_eq!(shown(bytes, stored), reference(bytes));
    }
}

#[test]
fn rows_of_other_programs_are_messages_too() {
    let call =
        |id: &str, arguments: &str| json!({"id":id,"type":"function","function":{"name":"sum","arguments":arguments}});
    let rows = [
        json!({"role":"system","content":"Be nice."}),
        json!({"role":"user","content":[{"type":"text","text":"Look:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}),
        json!({"role":"assistant","content":null,"reasoning":"Hm.","tool_calls":[call("x", "{\"n\":1}"), call("y", "cut {")]}),
        json!({"role":"tool","tool_call_id":"y","content":[{"type":"text","text":"two"}]}),
        json!({"role":"tool","tool_call_id":"x","content":"one"}),
        json!({"role":"assistant","content":[{"type":"thinking","thinking":"So."},{"type":"text","text":"Three."},{"type":"tool_use","id":"z","name":"look","input":{}}]}),
        json!({"role":"user","content":[{"type":"tool_result","tool_use_id":"z","content":"seen","is_error":true}]}),
        json!({"role":"assistant","content":"The end."}),
        json!(7),
        json!({"role":"assistant","content":"Oh.","_error":"yes"}),
    ];
    let cards = [json!({"name":"sum","tid":"x","assistant_msg_idx":2,"done":true})];
    let messages = read(&view(&session(&rows, &cards)), None, None);
    assert_eq!(texts(&messages), pairs(&[("row-1", "Look:"), ("row-2", "Hm.|So.|Three.|The end.")]));
    assert_eq!(
        messages[0]["parts"][0],
        json!({"type":"file","mediaType":"image/png","url":"data:image/png;base64,AA=="})
    );
    let calls: Vec<_> =
        messages[1]["parts"].as_array().unwrap().iter().filter(|part| part["type"] == "dynamic-tool").collect();
    let told =
        |at: usize, key: &str| [&calls[at]["toolCallId"], &calls[at]["input"], &calls[at][key]].map(Value::to_string);
    assert_eq!(told(0, "output"), [r#""x""#, r#"{"n":1}"#, r#""one""#]);
    assert_eq!(told(1, "output"), [r#""y""#, r#""cut {""#, r#""two""#]);
    assert_eq!(told(2, "errorText"), [r#""z""#, "{}", r#""seen""#]);
    assert_eq!(messages[1].get("metadata"), None);
}

#[test]
fn ids_are_unique_whatever_the_rows_say() {
    let mut rows = two_turns();
    rows.extend(two_turns());
    rows.push(json!({"role":"user","content":"m","_message_id":"a"}));
    rows.push(json!({"role":"assistant","content":"n","_run_id":"m1"}));
    let messages = read(&view(&session(&rows, &[])), None, None);
    let ids: std::collections::HashSet<_> = messages.iter().map(|message| message["id"].to_string()).collect();
    assert_eq!((ids.len(), messages.len()), (8, 8));
}

/// The parts of a message as the packages build them from its chunks.
fn parts_of_stream(stream: &str) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    let mut open: HashMap<String, usize> = HashMap::new();
    for line in stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|line| *line != "[DONE]") {
        let chunk: Value = serde_json::from_str(line).unwrap();
        let kind = chunk["type"].as_str().unwrap();
        let id = format!("{}{}", kind.split('-').next().unwrap(), chunk["id"].as_str().unwrap_or_default());
        let call = chunk["toolCallId"].as_str().unwrap_or_default().to_owned();
        let of_call = |parts: &[Value]| parts.iter().position(|part| part["toolCallId"] == call);
        match kind {
            "text-start" | "reasoning-start" => {
                open.insert(id, parts.len());
                parts.push(json!({"type":kind.strip_suffix("-start"),"text":"","state":"done"}));
                // The packages keep the id of a thought, and not that of a text.
                if kind == "reasoning-start" {
                    parts.last_mut().expect("it was pushed")["id"] = chunk["id"].clone();
                }
            }
            "text-delta" | "reasoning-delta" => {
                let text = &mut parts[open[&id]]["text"];
                *text = json!(text.as_str().unwrap().to_owned() + chunk["delta"].as_str().unwrap());
            }
            "tool-input-start" if of_call(&parts).is_none() => parts.push(json!({"toolCallId":call})),
            "tool-input-available" => {
                let at = of_call(&parts).unwrap_or(parts.len());
                parts.truncate(parts.len().max(at));
                let (name, input) = (&chunk["toolName"], &chunk["input"]);
                let part = json!({"type":"dynamic-tool","toolName":name,"toolCallId":call,"input":input,"providerExecuted":true});
                if at == parts.len() { parts.push(part) } else { parts[at] = part }
            }
            "tool-output-available" | "tool-output-error" => {
                let at = of_call(&parts).unwrap();
                parts[at]["state"] = json!(kind.strip_prefix("tool-"));
                let key = if kind == "tool-output-error" { "errorText" } else { "output" };
                parts[at][key] = chunk[key].clone();
            }
            // The transcript has no call whose arguments never were complete.
            "tool-input-error" => parts.retain(|part| part["toolCallId"] != call),
            "file" | "source-url" | "source-document" => parts.push(chunk),
            data if data.starts_with("data-") => {
                let is_same = |part: &&mut Value| {
                    chunk.get("id").is_some() && part["id"] == chunk["id"] && part["type"] == chunk["type"]
                };
                match parts.iter_mut().find(is_same) {
                    Some(part) => part["data"] = chunk["data"].clone(),
                    None => parts.push(chunk),
                }
            }
            _ => {}
        }
    }
    parts
}

/// The parts of the answer as the history has them after these events were folded.
fn parts_of_history(events: &[(&str, &str)]) -> Vec<Value> {
    let mut folder = Folder::default();
    for ((name, payload), seq) in events.iter().zip(1..) {
        folder.push(&FoldEvent { seq: Some(seq), is_foreign: false, name, payload, created_at: None });
    }
    let folded = folder.finish();
    let mut session = session(&[json!({"role":"user","content":"?","_run_id":"r1"})], &[]);
    let provenance = Provenance::Live("r1");
    folded.rows.iter().try_for_each(|row| session.push_message(&row.to_row(provenance, 0))).unwrap();
    folded.cards.iter().try_for_each(|card| session.push_tool_card(&card.to_card(provenance, card.row + 1))).unwrap();
    let load = |id: &AttachmentId| {
        folded.large.iter().find(|large| large.id == *id).map(|large| large.json.as_bytes().to_vec())
    };
    let messages = read(&HistoryView { large: &load, ..view(&session) }, None, None);
    assert_eq!(messages[0]["id"], "r1-user");
    assert!(messages.len() <= 2 && messages.get(1).is_none_or(|message| message["id"] == "r1"));
    let mut parts = messages.get(1).map_or(Vec::new(), |message| message["parts"].as_array().unwrap().clone());
    // The packages do not read a file's name from a chunk.
    parts
        .iter_mut()
        .filter(|part| part["type"] == "file")
        .for_each(|part| drop(part.as_object_mut().unwrap().remove("filename")));
    parts
}

fn kinds(parts: &[Value], wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    parts.iter().filter(|part| wanted(part["type"].as_str().unwrap())).cloned().collect()
}

fn is_word(kind: &str) -> bool {
    matches!(kind, "text" | "reasoning")
}

/// All words of one kind, without white space, and without a character whose halves a thought between them may keep apart.
fn words(parts: &[Value], kind: &str) -> String {
    let texts = parts.iter().filter(|part| part["type"] == kind).map(|part| part["text"].as_str().unwrap());
    texts.collect::<String>().replace(|c: char| c.is_whitespace() || matches!(c, '\u{fffd}' | '\u{1f600}'), "")
}

/// A row has one reasoning and one text: thoughts after words of the same row are shown before them. And arguments that
/// arrive put a call before the words that follow. Else even the order is the same.
fn assert_same(events: &[(&str, &str)]) {
    let (streamed, stored) = (parts_of_stream(&stream(events)), parts_of_history(events));
    for kind in ["text", "reasoning"] {
        assert_eq!(words(&streamed, kind), words(&stored, kind), "{events:?}");
    }
    for wanted in ["dynamic-tool", "file", "source", "data"] {
        let of = |parts: &[Value]| kinds(parts, |kind| kind.starts_with(wanted));
        let by_id = |parts: &[Value]| {
            let mut calls = of(parts);
            calls.sort_by_key(|call| call["toolCallId"].to_string());
            calls
        };
        assert_eq!(by_id(&streamed), by_id(&stored), "{events:?}");
    }
    let talk = kinds(&streamed, |kind| is_word(kind) || kind == "dynamic-tool");
    let is_split = streamed.iter().any(|part| part["text"].as_str().is_some_and(|text| text.contains('\u{fffd}')));
    let is_mixed = is_split || talk.windows(2).any(|pair| pair[0]["type"] == "text" && pair[1]["type"] == "reasoning");
    if !is_mixed && events.iter().all(|(name, _)| *name != "tool_delta") {
        assert_eq!(talk, kinds(&stored, |kind| is_word(kind) || kind == "dynamic-tool"), "{events:?}");
    }
}

#[test]
fn any_two_events_give_the_same_message_live_and_after_a_reload() {
    for first in EVENTS {
        for second in EVENTS {
            assert_same(&[*first, *second]);
        }
    }
}

#[test]
fn a_large_result_is_the_same_live_and_after_a_reload() {
    let payload = json!({"tool_call_id":"a","result":{"picture":"x".repeat(100_000)}}).to_string();
    assert_same(&[("tool", r#"{"tool_call_id":"a","name":"draw"}"#), ("tool_complete", &payload), ("done", "{}")]);
}

proptest! {
    #![proptest_config(crate::seeds::config("history"))]

    #[test]
    fn any_events_give_the_same_message_live_and_after_a_reload(
        known in prop::collection::vec(prop::sample::select(EVENTS), 0..40),
    ) {
        // A card that has neither an id nor arguments looks like one of an earlier version, whose `is_error` counts.
        let known: Vec<_> = known.into_iter().filter(|event| *event != ("tool", "7")).collect();
        assert_same(&known);
    }

    #[test]
    fn any_rows_give_sound_messages(rows in prop::collection::vec((0..5usize, "[ab]{0,1}", ".{0,12}"), 0..20)) {
        let row = |(role, run, content): &(usize, String, String)| {
            let role = ["user", "assistant", "tool", "system", "?"][*role];
            let content = serde_json::from_str::<Value>(content).unwrap_or(json!(content));
            json!({"role":role,"content":content,"_run_id":run})
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        let messages = read(&view(&session(&rows, &[])), None, None);
        let ids: std::collections::HashSet<_> = messages.iter().map(|message| message["id"].to_string()).collect();
        prop_assert_eq!(ids.len(), messages.len());
        prop_assert!(messages.iter().all(|message| !message["parts"].as_array().unwrap().is_empty()));
    }
}
