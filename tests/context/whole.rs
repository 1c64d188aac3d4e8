//! The way through the real store and the command.

use crate::provider::assert_provider_valid;
use crate::session::{assistant, calling, interrupted, result, user};
use lastword::{Event, NewSession, Options, Outcome, SessionId, Store, UserTurn};
use serde_json::{Value, json};

/// A store with a turn that was stopped while a tool ran, and the next turn begun.
fn interrupted_store() -> (tempfile::TempDir, SessionId) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let id = store.create(NewSession::titled("A title")).unwrap();
    let run = store.begin_run(&id, UserTurn::text("Where to?")).unwrap();
    for event in [
        Event::reasoning("hm"),
        Event::token("Let me see."),
        Event::tool("1", "ls", &json!({"path": "/"})),
        Event::tool_complete("1", "ls", &json!(["x", 7]), false),
        Event::token("And there."),
        Event::tool("2", "cd", &json!({"to": "y"})),
    ] {
        run.append(event).unwrap();
    }
    run.finish(Outcome::InterruptedByUser).unwrap();
    store.begin_run(&id, UserTurn::text("Go on.")).unwrap();
    (folder, id)
}

fn expected() -> Value {
    json!([
        user("Where to?"),
        calling(Some("Let me see."), &[("1", "ls", r#"{"path":"/"}"#)]),
        result("1", r#"["x",7]"#),
        calling(Some("And there."), &[("2", "cd", r#"{"to":"y"}"#)]),
        interrupted("2"),
        user("Go on."),
    ])
}

#[test]
fn a_turn_stopped_while_a_tool_ran_does_not_spoil_the_next() {
    let (folder, id) = interrupted_store();
    let store = Store::open(folder.path(), Options::default()).unwrap();
    let context: Value = serde_json::from_str(&store.get_session(&id).unwrap().context().to_json()).unwrap();
    assert_provider_valid(&context);
    assert_eq!(context, expected());
}

#[cfg(feature = "cli")]
#[test]
fn the_command_prints_the_conversation_on_one_line() {
    let (folder, id) = interrupted_store();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lastword"));
    let shown = command.arg("--data").arg(folder.path()).args(["show", id.as_str(), "--context"]).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
    let text = String::from_utf8(shown.stdout).unwrap();
    assert_eq!((text.lines().count(), serde_json::from_str::<Value>(&text).unwrap()), (1, expected()));
}

#[test]
#[should_panic(expected = "a result behind the call")]
fn the_validator_sees_a_loose_end() {
    assert_provider_valid(&json!([user("a"), calling(None, &[("c", "t", "{}")])]));
}

#[test]
#[should_panic(expected = "the same speaker twice")]
fn the_validator_sees_a_speaker_who_does_not_wait() {
    assert_provider_valid(&json!([user("a"), assistant("b"), assistant("c")]));
}
