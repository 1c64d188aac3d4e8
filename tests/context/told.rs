//! Tools as they were: whole arguments, whole results, each with its own call, whatever the producer's ids and order.

use crate::anything::config;
use crate::provider::assert_provider_valid;
use crate::session::{assistant, calling, check, interrupted, result, session, user};
use lastword::model::fold::{FoldEvent, Folded, Folder, Provenance, StoredValue};
use lastword::{ContextMessage, Event, List, Row, Session, ToolOutcome};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

fn fold(events: &[Event]) -> Folded {
    let mut folder = Folder::default();
    for (at, event) in events.iter().enumerate() {
        folder.push(&FoldEvent {
            seq: Some(at as u64 + 1),
            is_foreign: false,
            name: event.name(),
            payload: event.payload(),
            created_at: None,
        });
    }
    folder.finish()
}

fn session_of(folded: &Folded) -> Session {
    let mut session = session("{}");
    session.push_message(&Row::user("a", 1)).unwrap();
    for row in &folded.rows {
        session.push_message(&row.to_row(Provenance::Live("r"), 2)).unwrap();
    }
    for card in &folded.cards {
        session.push_tool_card(&card.to_card(Provenance::Live("r"), 1 + card.row)).unwrap();
    }
    session
}

fn event(name: &str, payload: Value) -> Event {
    Event::new(name, &payload.to_string()).unwrap()
}

/// The calls of a conversation: id, name, arguments, result.
fn calls(session: &Session) -> Vec<(String, String, String, String)> {
    let context = session.context();
    assert_provider_valid(&serde_json::from_str(&context.to_json()).unwrap());
    let calls = context.messages.into_iter().flat_map(|message| match message {
        ContextMessage::Assistant { calls, .. } => calls,
        _ => Vec::new(),
    });
    calls.map(|call| (call.id, call.name, call.arguments, call.result.text)).collect()
}

#[track_caller]
fn check_calls(events: &[Event], expected: &[(&str, &str, &str)]) {
    let found = calls(&session_of(&fold(events)));
    let found: Vec<_> = found.iter().map(|(id, _, args, result)| (&**id, &**args, &**result)).collect();
    assert_eq!(found, expected);
}

const INTERRUPTED: &str = "The tool was interrupted before it answered.";

#[test]
fn a_model_is_shown_all_arguments_as_they_were_spelt() {
    let args = format!(
        r#"{{"z":1.50,"list":[{{"deep":[1,2e3,null]}}],"long":"{}","five":false,"six":{{}},"b":"\u00e9"}}"#,
        "x".repeat(10_000)
    );
    check_calls(&[Event::tool_json("c1", "search", &args)], &[("c1", &args, INTERRUPTED)]);
    for key in ["args", "arguments", "input"] {
        let payload = format!(r#"{{"id":"c1","name":"t","{key}":{args}}}"#);
        check_calls(&[Event::new("tool", &payload).unwrap()], &[("c1", &args, INTERRUPTED)]);
    }
    let text = event("tool", json!({"id": "c1", "name": "t", "arguments": args}));
    check_calls(&[text], &[("c1", &args, INTERRUPTED)]);
}

#[test]
fn a_result_of_any_kind_is_shown_as_it_was_and_no_preview_in_its_place() {
    for (value, shown) in [
        (r#"{"b": 1.50, "a": [null]}"#, r#"{"b": 1.50, "a": [null]}"#),
        ("[1,2]", "[1,2]"),
        (r#""two\nlines""#, "two\nlines"),
        ("-7.0", "-7.0"),
        ("false", "false"),
        ("null", "null"),
        ("0", "0"),
        (r#""""#, "The tool gave no output."),
    ] {
        for key in ["result", "output"] {
            let payload = format!(r#"{{"tool_call_id":"c1","name":"t","{key}":{value},"preview":"p"}}"#);
            let events = [Event::tool("c1", "t", &json!({})), Event::new("tool_complete", &payload).unwrap()];
            check_calls(&events, &[("c1", "{}", shown)]);
        }
        let events =
            [Event::tool("c1", "t", &json!({})), Event::tool_complete_json("c1", "t", value, false).with_preview("p")];
        check_calls(&events, &[("c1", "{}", shown)]);
    }
}

#[test]
fn a_failure_is_shown_with_its_words() {
    let failed = |payload: Value| {
        let session = session_of(&fold(&[Event::tool("c1", "t", &json!({})), event("tool_complete", payload)]));
        let ContextMessage::Assistant { calls, .. } = &session.context().messages[1] else { panic!("{session:?}") };
        (calls[0].result.outcome, calls[0].result.text.clone())
    };
    let expected = (ToolOutcome::Failed, "no such file".to_owned());
    assert_eq!(failed(json!({"id": "c1", "result": "no such file", "is_error": true})), expected);
    assert_eq!(failed(json!({"id": "c1", "result": null, "error": "no such file"})), expected);
    let answered = (ToolOutcome::Answered, "no such file".to_owned());
    assert_eq!(failed(json!({"id": "c1", "result": "no such file", "error": null})), answered);
}

#[test]
fn a_preview_says_that_it_is_one() {
    let complete = |payload| [Event::tool("c1", "t", &json!({})).with_preview("look"), event("tool_complete", payload)];
    let kept = "The tool answered; only a preview of its result was kept: 2 files";
    check_calls(&complete(json!({"id": "c1", "preview": "2 files"})), &[("c1", "{}", kept)]);
    check_calls(&complete(json!({"id": "c1"})), &[("c1", "{}", "The tool gave no output.")]);
}

#[test]
fn results_of_parallel_calls_find_their_calls_by_id_in_any_order() {
    let begin = |id: &str| Event::tool(id, "t", &json!({"of": id}));
    let end = |id: &str| Event::tool_complete(id, "t", &json!(id), false);
    check_calls(
        &[begin("a"), begin("b"), end("b"), begin("c"), end("a")],
        &[("a", r#"{"of":"a"}"#, "a"), ("b", r#"{"of":"b"}"#, "b"), ("c", r#"{"of":"c"}"#, INTERRUPTED)],
    );
}

#[test]
fn results_without_ids_are_first_in_first_out() {
    let begin = |n: u64| event("tool", json!({"name": "t", "args": {"n": n}}));
    let end = |text: &str| event("tool_complete", json!({"name": "t", "result": text, "preview": text}));
    let events = [begin(1), begin(2), end("one"), end("two")];
    check_calls(&events, &[("journal-1", r#"{"n":1}"#, "one"), ("journal-2", r#"{"n":2}"#, "two")]);
    check_calls(&events[..3], &[("journal-1", r#"{"n":1}"#, "one"), ("journal-2", r#"{"n":2}"#, INTERRUPTED)]);
    // What people see keeps the reference program's rule.
    let folded = fold(&events[..3]);
    let done: Vec<_> = folded.cards.iter().map(|card| card.card.is_done()).collect();
    assert_eq!(done, [false, true]);
}

#[test]
fn a_card_of_an_earlier_version_or_another_program_shows_a_preview_at_most() {
    let card = json!({"name": "ls", "preview": "x y", "tid": "journal-3", "assistant_msg_idx": 1, "args": {"a": "1..."}, "done": true});
    let kept = "The tool answered; only a preview of its result was kept: x y";
    check(
        json!({"messages": [user("a"), assistant("b")], "tool_calls": [card]}),
        json!([
            user("a"),
            calling(Some("b"), &[("journal-3", "ls", r#"{"a": "1..."}"#.replace(": ", ":").as_str())]),
            result("journal-3", kept)
        ]),
    );
}

/// Agents count their calls anew in each answer.
#[test]
fn the_same_id_in_two_turns_is_two_calls() {
    let native = calling(None, &[("call-0", "ls", "{}")]);
    let card = json!({"name": "cd", "_call_id": "call-0", "_args": {"p": 1}, "_result": [2], "tid": "journal-1", "assistant_msg_idx": 4, "done": true});
    check(
        json!({"messages": [user("a"), native, result("call-0", "x"), user("b"), assistant("c")], "tool_calls": [card]}),
        json!([
            user("a"),
            native,
            result("call-0", "x"),
            user("b"),
            calling(Some("c"), &[("call-0-2", "cd", r#"{"p":1}"#)]),
            result("call-0-2", "[2]"),
        ]),
    );
}

#[test]
fn a_large_value_is_left_out_of_a_conversation_made_of_the_session_alone_and_named() {
    let large = json!("x".repeat(70_000));
    let events = [Event::tool("c1", "cat", &json!({"p": large})), Event::tool_complete("c1", "cat", &large, false)];
    let folded = fold(&events);
    assert_eq!(folded.large.len(), 2);
    let session = session_of(&folded);
    let card = session.tool_cards().next().unwrap();
    let stored = StoredValue::parse(card.fields().get("_result").unwrap()).unwrap();
    assert_eq!((stored.bytes, &stored.id), (70_002, &folded.large[1].id));
    assert!(session.texts(List::ToolCalls).next().unwrap().len() < 2_000);
    let context = session.context();
    let left: Vec<_> = context.left_out.iter().map(|left| left.what.as_str()).collect();
    assert_eq!(left, ["the arguments of the tool cat", "the result of the tool cat"]);
    let text = "The tool answered with 70002 bytes, which are left out here.";
    assert_eq!(calls(&session)[0].3, text);
}

/// What a producer does with a tool.
#[derive(Debug, Clone)]
enum Step {
    Begin {
        id: Option<u8>,
        name: u8,
    },
    /// Completes the call that is the so-many-th of those under way that a producer can tell apart.
    End {
        which: usize,
        value: Value,
        is_error: bool,
    },
    Say,
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\\u{e9}\n]{1,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (prop::option::of(any::<u8>()), 0..2u8).prop_map(|(id, name)| Step::Begin { id, name }),
        4 => (any::<usize>(), value(), any::<bool>()).prop_map(|(which, value, is_error)| Step::End { which, value, is_error }),
        1 => Just(Step::Say),
    ]
}

/// The events of these steps, and what each call was called with and answered, by the producer's own book.
fn played(steps: &[Step]) -> (Vec<Event>, Vec<(String, Option<String>)>) {
    let (mut events, mut book, mut open) = (Vec::new(), Vec::new(), Vec::<(usize, Option<String>, u8)>::new());
    for (nth, step) in steps.iter().enumerate() {
        match step {
            Step::Say => events.push(Event::token("word ")),
            Step::Begin { id, name } => {
                // An id is the call's own: the number of the step is in it.
                let id = id.map(|id| format!("call_{id}_{nth}"));
                let args = json!({"nth": nth, "more": [1.5, {"x": null}]});
                let mut payload = json!({"name": format!("t{name}"), "args": args});
                if let Some(id) = &id {
                    payload["tool_call_id"] = json!(id);
                }
                events.push(event("tool", payload));
                open.push((book.len(), id, *name));
                book.push((args.to_string(), None));
            }
            Step::End { which, value, is_error } => {
                if open.is_empty() {
                    continue;
                }
                let at = which % open.len();
                let (_, id, name) = open[at].clone();
                // Of calls without an id, the first of a name answers first.
                let first = |open: &[(usize, Option<String>, u8)]| {
                    open.iter().position(|(_, id, other)| id.is_none() && *other == name).unwrap()
                };
                let (call, ..) = open.remove(if id.is_some() { at } else { first(&open) });
                let mut payload =
                    json!({"name": format!("t{name}"), "result": value, "is_error": is_error, "preview": "p"});
                if let Some(id) = &id {
                    payload["tool_call_id"] = json!(id);
                }
                events.push(event("tool_complete", payload));
                book[call].1 = Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
        }
    }
    (events, book)
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn each_call_has_exactly_its_own_arguments_and_result_wherever_the_run_is_cut(steps in vec(step(), 0..24)) {
        for cut in 0..=steps.len() {
            let (events, book) = played(&steps[..cut]);
            let found = calls(&session_of(&fold(&events)));
            let shown: Vec<_> = found.into_iter().map(|(_, _, args, result)| (args, result)).collect();
            let expected = book.into_iter().map(|(args, result)| {
                let result = result.map(|text| if text.trim().is_empty() { "The tool gave no output.".to_owned() } else { text });
                (args, result.unwrap_or_else(|| INTERRUPTED.to_owned()))
            });
            prop_assert_eq!(shown, expected.collect::<Vec<_>>());
        }
    }

    /// Ids that come back, results that come twice or for no call, payloads of other shapes: nothing is left open.
    #[test]
    fn whatever_a_producer_says_of_its_tools_providers_take_the_conversation(
        said in vec((any::<bool>(), prop::option::of(0..3u8), 0..2u8, value(), value()), 0..24),
    ) {
        let events: Vec<_> = said.into_iter().map(|(is_call, id, name, first, second)| {
            let payload = json!({"id": id.map(|id| format!("c{id}")), "name": format!("t{name}"), "args": first, "result": first, "error": second, "preview": second});
            event(if is_call { "tool" } else { "tool_complete" }, payload)
        }).collect();
        calls(&session_of(&fold(&events)));
    }
}

#[test]
fn a_tool_that_never_answered_keeps_its_arguments() {
    let session = session_of(&fold(&[Event::tool("c1", "ls", &json!({"a": [1]}))]));
    let shown: Value = serde_json::from_str(&session.context().to_json()).unwrap();
    assert_eq!(shown, json!([user("a"), calling(None, &[("c1", "ls", r#"{"a":[1]}"#)]), interrupted("c1")]));
}
