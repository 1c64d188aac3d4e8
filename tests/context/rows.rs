//! Who speaks when, and which words count.

use crate::session::{assistant, check, check_rows, session, user};
use lastword::ContextMessage;
use serde_json::json;

#[test]
fn a_plain_conversation_stays_as_it_is() {
    let rows = json!([user("a"), assistant("b"), user("c"), assistant("d")]);
    check_rows(rows.clone(), rows);
}

#[test]
fn a_session_in_which_nobody_spoke_has_no_messages() {
    check(json!({}), json!([]));
    check_rows(json!([null, 7, "x", {}, {"role": "user"}, {"role": "robot", "content": "x"}]), json!([]));
    check(json!({"messages": {"role": "user"}, "tool_calls": 3, "context_messages": "x"}), json!([]));
}

#[test]
fn markers_and_errors_are_no_part_of_it() {
    let marker = |key: &str, value| json!({"role": "assistant", "content": "Interrupted.", key: value});
    let rows = json!([
        user("a"),
        marker("_error", json!(true)),
        marker("_error", json!(1)),
        marker("interruption_cause", json!("process_restart")),
        marker("_pending_journal_recovery", json!(true)),
        {"role": "user", "content": "x", "_error": true},
        user("b"),
    ]);
    check_rows(rows, json!([user("a\n\nb")]));
}

#[test]
fn reasoning_is_never_shown() {
    let parts = json!([
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "redacted_thinking", "data": "hm"},
        {"type": "reasoning", "text": "hm"},
        {"text": "hm", "thought": true},
        {"type": "text", "text": "b"},
    ]);
    let rows = json!([
        user("a"),
        {"role": "assistant", "content": "", "reasoning": "hm"},
        {"role": "assistant", "content": parts, "reasoning": "hm", "reasoning_content": "hm", "_x": "hm"},
    ]);
    check_rows(rows, json!([user("a"), assistant("b")]));
}

#[test]
fn neighbours_of_one_speaker_become_one_message() {
    let rows = json!([user("a"), user(" \n"), user("b"), assistant("c"), assistant(""), assistant("d")]);
    check_rows(rows, json!([user("a\n\nb"), assistant("c\n\nd")]));
}

#[test]
fn an_answer_before_the_first_question_is_left_out() {
    check_rows(json!([assistant("Welcome!"), user("a"), assistant("b")]), json!([user("a"), assistant("b")]));
}

#[test]
fn what_the_system_says_comes_first_and_is_one_message() {
    let system = |text: &str| json!({"role": "system", "content": text});
    let rows = json!([user("a"), system("Be kind."), assistant("b"), {"role": "developer", "content": "Be brief."}]);
    check_rows(rows, json!([system("Be kind.\n\nBe brief."), user("a"), assistant("b")]));
}

#[test]
fn white_space_behind_an_answer_goes_and_a_users_own_stays() {
    check_rows(json!([user("  a\n"), assistant("\tb \n\u{a0}")]), json!([user("  a\n"), assistant("\tb")]));
}

#[test]
fn half_a_surrogate_pair_is_shown_as_a_replacement_character() {
    let shown = session(r#"{"messages":[{"role":"user","content":"a\ud800"}]}"#).context().to_json();
    assert_eq!(shown, "[{\"role\":\"user\",\"content\":\"a\u{fffd}\"}]");
}

#[test]
fn parts_that_a_provider_knows_stay_parts() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}});
    let rows = json!([
        {"role": "user", "content": [image, {"type": "text", "text": "What is this?"}, "Say."]},
        {"role": "user", "content": "And this?", "attachments": [image, null, "notes.pdf"]},
    ]);
    let text = json!({"type": "text", "text": "What is this?\n\nSay.\n\nAnd this?"});
    check_rows(rows, json!([{"role": "user", "content": [text, image, image]}]));
}

#[test]
fn parts_that_were_written_over_several_lines_stand_on_one() {
    let part = "{\n\t\"type\": \"file\",\r\n\"file\": {\"file_id\": \"a\\nb\"}}";
    let shown = session(&format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#)).context().to_json();
    assert_eq!(shown, r#"[{"role":"user","content":[{"type": "file","file": {"file_id": "a\nb"}}]}]"#);
}

#[test]
fn attachments_that_only_the_application_knows_are_kept_for_it() {
    let broken = json!({"type": "image_url", "image_url": {}});
    let keys = json!({"messages": [
        {"role": "user", "content": "", "attachments": [{"name": "a.pdf"}, broken]},
        {"role": "user", "content": [], "attachments": "b.pdf"},
    ]});
    check(keys.clone(), json!([user("(attachments)")]));
    let context = session(&keys.to_string()).context();
    let attachments = [r#"{"name":"a.pdf"}"#, &broken.to_string(), r#""b.pdf""#].map(Box::from).to_vec();
    assert_eq!(context.messages, [ContextMessage::User { text: String::new(), attachments }]);
}

/// A property test found the line separator: it is not empty, and no address either.
#[test]
fn an_attachment_whose_address_is_blank_is_not_sent_to_a_provider() {
    for blank in ["", " ", "\u{2028}"] {
        let image = json!({"type": "image_url", "image_url": {"url": blank}});
        check(json!({"pending_user_message": "a", "pending_attachments": [image]}), json!([user("a")]));
    }
}

#[test]
fn a_pending_message_comes_last() {
    let rows = json!([user("a"), assistant("b")]);
    check(json!({"messages": rows, "pending_user_message": "a"}), json!([user("a"), assistant("b"), user("a")]));
    check(json!({"messages": rows, "pending_user_message": "b"}), json!([user("a"), assistant("b"), user("b")]));
    check(json!({"pending_user_message": "a"}), json!([user("a")]));
    check(json!({"pending_user_message": " ", "pending_attachments": []}), json!([]));
}

#[test]
fn a_pending_message_that_is_there_already_and_unanswered_is_not_repeated() {
    let marker = json!({"role": "assistant", "content": "Interrupted.", "_error": true});
    check(
        json!({"messages": [user("a"), user("b  c"), marker, assistant("")], "pending_user_message": "b c\n"}),
        json!([user("a\n\nb  c")]),
    );
}

#[test]
fn a_pending_message_joins_one_that_was_never_answered() {
    check(json!({"messages": [user("a")], "pending_user_message": "b"}), json!([user("a\n\nb")]));
}

#[test]
fn a_pending_message_brings_its_attachments() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:x"}});
    check(
        json!({"pending_user_message": "a", "pending_attachments": [image]}),
        json!([{"role": "user", "content": [{"type": "text", "text": "a"}, image]}]),
    );
}

#[test]
fn a_conversation_that_was_shortened_stands_for_the_transcript() {
    check(
        json!({
            "messages": [user("a"), assistant("b"), user("c"), assistant("d")],
            "context_messages": [user("In short: a, b."), user("c"), assistant("d")],
            "pending_user_message": "e",
        }),
        json!([user("In short: a, b.\n\nc"), assistant("d"), user("e")]),
    );
}

#[test]
fn a_shortened_conversation_that_cannot_be_read_does_not() {
    check(json!({"messages": [user("a")], "context_messages": [null, {}]}), json!([user("a")]));
}
