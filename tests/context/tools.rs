//! Tool calls, from rows and from cards: each with one result, right behind it.

use crate::session::{assistant, calling, check, check_rows, interrupted, result, session, user};
use lastword::{ContextMessage, ToolOutcome};
use serde_json::{Value, json};

fn card(name: &str, tid: &str, row: Value, done: Value, text: &str) -> Value {
    let args = json!({"a": "1"});
    json!({"name": name, "preview": "ls ..", "snippet": text, "tid": tid, "assistant_msg_idx": row, "args": args, "done": done})
}

/// What is said of a result of which only a preview is known.
fn preview(text: &str) -> String {
    format!("The tool answered; only a preview of its result was kept: {text}")
}

#[test]
fn a_card_is_a_call_of_its_row_and_what_it_shows_is_a_preview_of_the_result() {
    check(
        json!({
            "messages": [user("a"), assistant("Let me see."), assistant("Two files.")],
            "tool_calls": [card("ls", "journal-3", json!(1), json!(true), "x y")],
        }),
        json!([
            user("a"),
            calling(Some("Let me see."), &[("journal-3", "ls", r#"{"a":"1"}"#)]),
            result("journal-3", &preview("x y")),
            assistant("Two files."),
        ]),
    );
}

#[test]
fn a_tool_that_never_answered_was_interrupted() {
    check(
        json!({
            "messages": [user("a"), assistant("")],
            "tool_calls": [card("ls", "t1", json!(1), json!(true), "x"), card("cd", "t2", json!(1), json!(false), "x")],
            "pending_user_message": "b",
        }),
        json!([
            user("a"),
            calling(None, &[("t1", "ls", r#"{"a":"1"}"#), ("t2", "cd", r#"{"a":"1"}"#)]),
            result("t1", &preview("x")),
            interrupted("t2"),
            user("b"),
        ]),
    );
}

#[test]
fn a_card_that_does_not_say_whether_it_is_done_is_done_if_it_shows_something() {
    let card = |tid: &str, snippet: &str| json!({"name": "t", "tid": tid, "assistant_msg_idx": 1, "snippet": snippet});
    check(
        json!({"messages": [user("a"), assistant("b")], "tool_calls": [card("t1", "x"), card("t2", " ")]}),
        json!([
            user("a"),
            calling(Some("b"), &[("t1", "t", "{}"), ("t2", "t", "{}")]),
            result("t1", &preview("x")),
            interrupted("t2")
        ]),
    );
}

#[test]
fn how_a_tool_ended_can_be_asked_for() {
    let keys = json!({"messages": [user("a"), assistant("b")], "tool_calls": [
        {"name": "t", "assistant_msg_idx": 1, "done": true},
        {"name": "t", "assistant_msg_idx": 1, "done": true, "is_error": true, "preview": "no such file"},
        {"name": "t", "assistant_msg_idx": 1},
    ]});
    let context = session(&keys.to_string()).context();
    let ContextMessage::Assistant { calls, .. } = &context.messages[1] else { panic!("{context:?}") };
    let results: Vec<_> = calls.iter().map(|call| (call.result.outcome, call.result.text.as_str())).collect();
    assert_eq!(
        results,
        [
            (ToolOutcome::Answered, "The tool gave no output."),
            (ToolOutcome::Failed, preview("no such file").as_str()),
            (ToolOutcome::Interrupted, "The tool was interrupted before it answered."),
        ]
    );
}

#[test]
fn a_card_tied_to_a_marker_goes_to_the_row_before_it_in_the_same_turn() {
    let marker = json!({"role": "assistant", "content": "Interrupted.", "_error": true});
    check(
        json!({
            "messages": [user("a"), assistant("b"), marker, user("c"), marker],
            "tool_calls": [card("t", "t1", json!(2), json!(true), "x"), card("t", "t2", json!(4), json!(true), "y")],
        }),
        json!([user("a"), calling(Some("b"), &[("t1", "t", r#"{"a":"1"}"#)]), result("t1", &preview("x")), user("c")]),
    );
}

#[test]
fn a_card_tied_to_no_row_is_left_out() {
    for row in [json!(2), json!(-1), json!(0.5), json!("1"), json!(null), json!(1e300), json!(0)] {
        let rows = json!([user("a"), assistant("b")]);
        let cards = json!([card("t", "t1", row, json!(true), "x"), 7, null]);
        check(json!({"messages": rows, "tool_calls": cards}), rows);
    }
}

#[test]
fn calls_that_rows_hold_themselves_keep_their_ids_and_results() {
    let rows = json!([
        user("a"),
        calling(None, &[("c1", "ls", r#"{"p": "/"}"#), ("c2", "cd", "{}")]),
        result("c2", "two"),
        result("c1", "one"),
        assistant("b"),
    ]);
    let shown = json!([rows[0], rows[1], rows[3], rows[2], rows[4]]);
    check_rows(rows, shown);
}

#[test]
fn results_without_a_call_are_left_out() {
    let rows = json!([
        result("c0", "early"),
        user("a"),
        calling(None, &[("c1", "ls", "{}")]),
        result("c1", "one"),
        result("c1", "again"),
        result("c9", "stray"),
        {"role": "tool", "content": "nameless"},
        user("b"),
    ]);
    check_rows(rows, json!([user("a"), calling(None, &[("c1", "ls", "{}")]), result("c1", "one"), user("b")]));
}

#[test]
fn a_result_that_came_late_stands_behind_its_call() {
    let call = calling(None, &[("c1", "ls", "{}")]);
    check_rows(
        json!([user("a"), call, user("Still there?"), result("c1", "one"), assistant("Yes.")]),
        json!([user("a"), call, result("c1", "one"), user("Still there?"), assistant("Yes.")]),
    );
}

#[test]
fn ids_that_come_back_are_made_unique_and_results_stay_with_their_calls() {
    let call = |id: &str| calling(None, &[(id, "ls", "{}")]);
    check_rows(
        json!([user("a"), call("c"), call("c"), result("c", "second"), user("b"), call("c"), result("c", "third")]),
        json!([
            user("a"),
            call("c"),
            interrupted("c"),
            call("c-2"),
            result("c-2", "second"),
            user("b"),
            call("c-3"),
            result("c-3", "third"),
        ]),
    );
}

#[test]
fn calls_without_ids_are_answered_in_their_order() {
    let call = |name: &str| json!({"function": {"name": name, "arguments": {"n": 1}}});
    let answer = |text: &str| json!({"role": "tool", "tool_name": "t", "content": text});
    check_rows(
        json!([user("a"), {"role": "assistant", "tool_calls": [call("x"), call("y")]}, answer("one"), answer("two")]),
        json!([
            user("a"),
            calling(None, &[("call", "x", r#"{"n":1}"#), ("call-2", "y", r#"{"n":1}"#)]),
            result("call", "one"),
            result("call-2", "two"),
        ]),
    );
}

#[test]
fn blocks_of_another_provider_are_understood() {
    let rows = json!([
        user("a"),
        {"role": "assistant", "content": [
            {"type": "text", "text": "b"},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "/"}},
            {"type": "tool_use", "id": "t2", "name": "cd", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "x"}, {"type": "image"}]},
            {"type": "text", "text": "Go on."},
        ]},
    ]);
    let calls = [("t1", "ls", r#"{"p":"/"}"#), ("t2", "cd", "{}")];
    check_rows(
        rows,
        json!([user("a"), calling(Some("b"), &calls), result("t1", "x"), interrupted("t2"), user("Go on.")]),
    );
}

#[test]
fn a_tool_may_answer_with_any_value_but_not_with_its_thoughts() {
    for (content, text) in [
        (json!({"ok": true}), r#"{"ok":true}"#),
        (json!([{"n": 1}, "two", {"type": "text", "text": "three"}, null]), "{\"n\":1}\n\ntwo\n\nthree"),
        (json!(-7), "-7"),
        (json!(false), "false"),
        (json!(null), "The tool gave no output."),
        (json!({"type": "thinking", "thinking": "hm", "text": "hm"}), "The tool gave no output."),
        (json!({"text": "hm", "thought": true}), "The tool gave no output."),
        (json!([{"type": "image", "data": "AAAA"}]), "The tool gave no output."),
    ] {
        let call = calling(None, &[("c1", "ls", "{}")]);
        let row = json!({"role": "tool", "tool_call_id": "c1", "content": content});
        check_rows(json!([user("a"), call, row]), json!([user("a"), call, result("c1", text)]));
    }
}

#[test]
fn a_number_behind_an_id_is_never_one_that_is_taken() {
    let call = |id: &str| calling(None, &[(id, "ls", "{}")]);
    check_rows(
        json!([user("a"), call("c"), call("c-2"), call("c")]),
        json!([
            user("a"),
            call("c"),
            interrupted("c"),
            call("c-2"),
            interrupted("c-2"),
            call("c-3"),
            interrupted("c-3")
        ]),
    );
}

#[test]
fn a_card_without_an_id_is_not_taken_for_a_call_without_one() {
    let nameless = json!({"role": "assistant", "tool_calls": [{"function": {"name": "ls"}}]});
    check(
        json!({
            "messages": [user("a"), assistant("b"), user("c"), nameless],
            "tool_calls": [card("cd", "", json!(1), json!(true), "x")],
        }),
        json!([
            user("a"),
            calling(Some("b"), &[("call", "cd", r#"{"a":"1"}"#)]),
            result("call", &preview("x")),
            user("c"),
            calling(None, &[("call-2", "ls", "{}")]),
            interrupted("call-2"),
        ]),
    );
}

#[test]
fn ids_names_and_arguments_take_the_form_that_providers_accept() {
    let long = "n".repeat(90);
    let rows = json!([
        user("a"),
        calling(None, &[("call|1 é", "fs.read", "{\"p\": \"cut he"), (&long, &long, "[1]"), (&long, "", " ")])
    ]);
    let numbered = format!("{}-2", &long[..29]);
    check_rows(
        rows,
        json!([
            user("a"),
            calling(
                None,
                &[
                    ("call_1__", "fs_read", r#"{"input":"{\"p\": \"cut he"}"#),
                    (&long[..40], &long[..64], r#"{"input":"[1]"}"#),
                    (&numbered, "tool", "{}"),
                ]
            ),
            interrupted("call_1__"),
            interrupted(&long[..40]),
            interrupted(&numbered),
        ]),
    );
}

#[test]
fn a_card_of_a_call_that_the_row_holds_only_tells_how_it_ended() {
    let call = calling(None, &[("c1", "ls", "{}"), ("c2", "cd", "{}")]);
    check(
        json!({
            "messages": [user("a"), call, result("c1", "in full"), assistant("b")],
            "tool_calls": [
                card("ls", "c1", json!(3), json!(true), "in part"),
                card("cd", "c2", json!(3), json!(true), "from the card"),
                card("ls", "journal-4", json!(1), json!(true), "in part"),
            ],
        }),
        json!([user("a"), call, result("c1", "in full"), result("c2", &preview("from the card")), assistant("b")]),
    );
}

#[test]
fn a_shortened_conversation_takes_the_cards_of_the_rows_that_it_still_has() {
    let marker = json!({"role": "assistant", "content": "Stopped.", "_error": true});
    check(
        json!({
            "messages": [user("a"), assistant("b"), user("c"), assistant("d"), marker, user("e"), assistant("")],
            "tool_calls": [
                card("old", "t1", json!(1), json!(true), "x"),
                card("ls", "t2", json!(3), json!(true), "y"),
                card("cd", "t3", json!(6), json!(false), ""),
            ],
            "context_messages": [user("In short: a, b."), user("c"), assistant("d"), user("e"), assistant("")],
        }),
        json!([
            user("In short: a, b.\n\nc"),
            calling(Some("d"), &[("t2", "ls", r#"{"a":"1"}"#)]),
            result("t2", &preview("y")),
            user("e"),
            calling(None, &[("t3", "cd", r#"{"a":"1"}"#)]),
            interrupted("t3"),
        ]),
    );
}

#[test]
fn results_inside_results_do_not_exhaust_the_stack() {
    let deep = r#"{"type":"tool_result","content":["#.repeat(30_000) + &"]}".repeat(30_000);
    let shown = session(&format!(r#"{{"messages":[{{"role":"user","content":["a",{deep}]}}]}}"#)).context().to_json();
    assert_eq!(shown, r#"[{"role":"user","content":"a"}]"#);
}

/// With a cost that grows with the square, nobody would wait for this.
#[test]
fn fifty_thousand_calls_of_one_id_take_no_longer_each_than_one() {
    const CALLS: usize = 50_000;
    let list = |item: &str| vec![item; CALLS].join(",");
    let calls = list(r#"{"id":"c","function":{"name":"t"}}"#);
    let answers = list(r#"{"role":"tool","tool_call_id":"c","content":"x"}"#);
    let cards = list(r#"{"name":"t","tid":"t","assistant_msg_idx":1,"done":true}"#);
    let rows = r#"{"role":"user","content":"a"},{"role":"assistant","content":"b"}"#;
    let rows = format!(r#"{rows},{{"role":"assistant","tool_calls":[{calls}]}},{answers}"#);
    let context = session(&format!(r#"{{"messages":[{rows}],"tool_calls":[{cards}]}}"#)).context();
    assert_eq!(context.to_json().matches("tool_call_id").count(), 2 * CALLS);
}
