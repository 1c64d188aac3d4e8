//! Tool values that are too large for the document, cut at every disk operation of the turn's end: whatever a document refers
//! to is there, whole, and reading it again changes nothing.

use lastword::format::encode;
use lastword::{Context, Event, Outcome, RunId, Store, StoreError, ToolOutcome, UserTurn};
use serde_json::json;

use crate::machine::{created, ended, id, open, operations_of, prepared};
use crate::told::Told;

fn value() -> String {
    "\u{e9}".repeat(40_000)
}

fn turn(store: &Store, _: &mut Told) -> Result<(), StoreError> {
    let run = store.begin_run(&id(), UserTurn::text("Go").with_run(RunId::parse("r1").unwrap()))?;
    run.append(Event::tool("a", "cat", &json!({"text": value()})))?;
    run.append(Event::tool_complete("a", "cat", &json!([value()]), false))?;
    run.finish(Outcome::Completed).map(drop)
}

/// How many calls a conversation shows, each whole.
fn assert_whole(context: &Context, what: &str) -> usize {
    assert_eq!(context.left_out, [], "{what}");
    let mut seen = 0;
    for message in &context.messages {
        let lastword::ContextMessage::Assistant { calls, .. } = message else { continue };
        for call in calls {
            seen += 1;
            assert_eq!(call.arguments, json!({"text": value()}).to_string(), "{what}");
            if call.result.outcome != ToolOutcome::Interrupted {
                assert_eq!(call.result.text, json!([value()]).to_string(), "{what}");
            }
        }
    }
    seen
}

#[test]
fn a_document_never_refers_to_a_value_that_is_not_there() {
    let (fresh, told) = prepared(created);
    let (mut with_call, mut without) = (0, 0);
    for operation in 0..=operations_of(created, turn) {
        let (disk, mut told) = (fresh.copy(), told.clone());
        disk.stop_before(disk.operations() + operation);
        let done = open(&disk).and_then(|store| turn(&store, &mut told));
        for (end, disk) in ended(&disk) {
            let what = format!("{end:?} before operation {operation}");
            let store = open(&disk).unwrap();
            let seen = assert_whole(&store.context(&id()).unwrap(), &what);
            assert!(done.is_err() || seen == 1, "it was acknowledged and is gone: {what}");
            if seen == 1 {
                with_call += 1
            } else {
                without += 1
            }
            if end.is_power() && operation % 4 != 0 {
                continue;
            }
            let document = |store: &Store| encode(&store.get_session(&id()).unwrap()).bytes().to_vec();
            let before = document(&store);
            drop(store);
            let store = open(&disk).unwrap();
            assert_whole(&store.context(&id()).unwrap(), &what);
            assert!(document(&store) == before, "{what}");
        }
    }
    assert!(with_call > 0 && without > 0, "{with_call} {without}");
}
