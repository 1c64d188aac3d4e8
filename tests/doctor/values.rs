//! Tool values that are too large for a document: a repair stores them before the document that refers to them.

use lastword::doctor::{self, Code, Severity};
use lastword::{Context, ContextMessage, Store};
use serde_json::json;

use crate::data::{Data, JOURNAL, sid, treated};
use crate::repairs::assert_nothing_is_left_to_do;
use crate::rows::{pending, plain_line};

fn value() -> String {
    "\u{e9}".repeat(40_000)
}

/// A turn that waits for a run whose tool was called with much and answered as much. The run has ended.
fn called() -> Data {
    let data = Data::foreign(&pending(&[], "where to", "run-1"));
    let line = |seq, name, payload| plain_line(["talk", "run-1"], seq, name, &payload);
    let lines = [
        line(1, "tool", json!({"id": "a", "name": "cat", "args": {"text": value()}})),
        line(2, "tool_complete", json!({"id": "a", "result": [value()]})),
        line(3, "done", json!({})),
    ];
    data.put(JOURNAL, &lines.concat());
    data
}

fn assert_whole(context: &Context) {
    assert_eq!(context.left_out, []);
    let ContextMessage::Assistant { calls, .. } = &context.messages[1] else { panic!("{context:?}") };
    assert_eq!(calls[0].arguments, json!({"text": value()}).to_string());
    assert_eq!(calls[0].result.text, json!([value()]).to_string());
}

fn context(data: &Data) -> Context {
    let store: Store = data.store();
    store.context(&sid("talk")).unwrap()
}

#[test]
fn a_repair_stores_what_the_cards_of_an_answer_refer_to() {
    let data = called();
    doctor::plan(&data.root, &data.doctor()).unwrap();
    assert!(!data.path("_attachments").exists(), "a plan writes nothing");
    assert!(!treated(&data.repair()).is_empty());
    assert!(data.path("_attachments/talk").exists());
    assert_nothing_is_left_to_do(&data, "a turn with large values");
    assert_whole(&context(&data));
}

#[test]
fn a_session_that_is_made_again_from_its_journals_has_them_too() {
    let data = called();
    data.put("talk.json", b"{");
    assert!(!treated(&data.repair()).is_empty());
    let found = data.sidecar("talk.json").to_string();
    assert!(found.contains("_args") && found.contains("sha256-"), "{found}");
    assert_eq!(std::fs::read_dir(data.path("_attachments/talk")).unwrap().count(), 4);
}

/// The directory after a repair, without the values that it had stored.
fn without_values() -> Data {
    let data = called();
    data.repair();
    std::fs::remove_dir_all(data.path("_attachments/talk")).unwrap();
    data
}

#[test]
fn values_that_are_gone_are_damage_and_are_stored_again_from_the_journal() {
    let data = without_values();
    let found = data.findings();
    let told: Vec<_> = found.iter().map(|finding| (finding.code, finding.severity, finding.is_mendable)).collect();
    assert_eq!(told, [(Code::ChecksumMismatch, Severity::Damage, true); 2], "{found:#?}");
    assert_eq!(treated(&data.repair()), [Code::ChecksumMismatch]);
    assert_eq!(data.bad_codes(), []);
    assert_nothing_is_left_to_do(&data, "values that were gone");
    assert_whole(&context(&data));
}

#[test]
fn a_value_that_no_journal_holds_is_told_and_left_alone() {
    let data = without_values();
    data.edit(JOURNAL, |lines| lines.truncate(0));
    let found = data.findings();
    let missing = found.iter().filter(|finding| finding.code == Code::ChecksumMismatch);
    assert_eq!(missing.map(|finding| finding.is_mendable).collect::<Vec<_>>(), [false; 2], "{found:#?}");
    data.repair();
    assert_eq!(data.bad_codes(), [Code::ChecksumMismatch; 2]);
}
