//! Markers and row numbers: answers that can still be read are brought in above their marker, others are left to hope.

use lastword::doctor::{Code, Severity};
use serde_json::{Value, json};

use crate::data::{BEGAN, Data, JOURNAL, contents, copy_of, sid, treated};
use crate::repairs::assert_nothing_is_left_to_do;
use crate::rows::{armed, assistant, lost, plain_answer, plain_journal, session, user};

/// A session with these rows and a journal of one answer.
fn answered(rows: &[Value]) -> Data {
    let data = Data::foreign(&session(rows));
    data.put(JOURNAL, &plain_answer(["talk", "run-1"], &["to ", "the ", "sea"]));
    data
}

/// A repair brings the answer in just above the marker in row 1.
fn is_promoted(data: &Data, code: Code) {
    let repair = data.repair();
    assert_eq!(treated(&repair), [code]);
    let found = data.sidecar("talk.json");
    let (answer, marker) = (&found["messages"][1], &found["messages"][2]);
    assert_eq!(answer["content"], "to the sea");
    assert_eq!(answer["_recovered_from_run_journal"], true);
    assert!(marker["content"].as_str().unwrap().contains("recovered from the run journal"), "{marker}");
    assert_eq!(marker["type"], "interrupted");
    assert!(marker.get("_pending_journal_recovery").is_none(), "{marker}");
    assert_eq!(found["message_count"], found["messages"].as_array().unwrap().len());
    let bad = [Code::GaveUpButReadable, Code::ArmedMarker];
    assert!(data.findings().iter().all(|finding| !bad.contains(&finding.code)), "{:?}", data.findings());
    assert_nothing_is_left_to_do(data, "a promoted marker");
}

#[test]
fn a_marker_of_ours_that_gave_up_gets_its_answer() {
    is_promoted(&answered(&[user("where to", BEGAN), lost(Some("run-1"), BEGAN + 60)]), Code::GaveUpButReadable);
}

#[test]
fn a_marker_of_the_reference_program_that_gave_up_gets_the_answer_of_its_turn() {
    is_promoted(&answered(&[user("where to", BEGAN), lost(None, BEGAN + 60)]), Code::GaveUpButReadable);
}

#[test]
fn a_marker_that_gave_up_gets_its_answer_with_turns_behind_it() {
    let later = [user("still there?", BEGAN + 900), assistant("yes", BEGAN + 901)];
    for run in [Some("run-1"), None] {
        let rows = [vec![user("where to", BEGAN), lost(run, BEGAN + 60)], later.to_vec()].concat();
        let data = answered(&rows);
        is_promoted(&data, Code::GaveUpButReadable);
        assert_eq!(contents(&data.sidecar("talk.json"))[3..], ["still there?", "yes"]);
    }
}

#[test]
fn a_marker_without_a_run_guesses_nothing() {
    // Two runs of that time, neither of them named.
    let data = answered(&[user("where to", BEGAN), lost(None, BEGAN + 60)]);
    data.put("_run_journal/talk/run-2.jsonl", &plain_answer(["talk", "run-2"], &["or not"]));
    assert_eq!(data.findings(), []);
    // One run, of another time.
    let data = answered(&[user("where to", BEGAN + 500), lost(None, BEGAN + 560)]);
    assert_eq!(data.findings(), []);
    // One run, and another row names it.
    let mut named = assistant("to the sea", BEGAN + 1);
    named["_run_id"] = json!("run-1");
    let data = answered(&[user("hm", BEGAN), named, user("where to", BEGAN), lost(None, BEGAN + 60)]);
    assert_eq!(data.findings(), []);
}

#[test]
fn a_marker_whose_journal_says_nothing_stays_given_up() {
    let data = Data::foreign(&session(&[user("where to", BEGAN), lost(Some("run-1"), BEGAN + 60)]));
    assert_eq!(data.findings(), []);
    data.put(JOURNAL, &plain_journal(["talk", "run-1"], &[("done", json!({}))]));
    assert_eq!(data.findings(), []);
}

#[test]
fn what_the_user_stopped_is_not_brought_back() {
    let mut stopped = lost(Some("run-1"), BEGAN + 60);
    stopped["interruption_cause"] = json!("stopped_by_user");
    assert_eq!(answered(&[user("where to", BEGAN), stopped]).findings(), []);
}

#[test]
fn an_answer_that_stands_above_its_marker_is_not_brought_in_again() {
    let mut above = assistant("to the sea", BEGAN + 1);
    above["_recovered_from_run_journal"] = json!(true);
    above["_recovered_stream_id"] = json!("run-1");
    let data = answered(&[user("where to", BEGAN), above, lost(Some("run-1"), BEGAN + 60)]);
    assert_eq!(data.bad_codes(), []);
    let before = data.read("talk.json");
    data.repair();
    assert_eq!(contents(&data.sidecar("talk.json")).len(), contents(&serde_json::from_slice(&before).unwrap()).len());
}

#[test]
fn an_armed_marker_whose_journal_tells_something_gets_its_answer() {
    is_promoted(&answered(&[user("where to", BEGAN), armed("run-1", 3, BEGAN)]), Code::ArmedMarker);
}

#[test]
fn an_armed_marker_gets_its_answer_however_old_it_is() {
    is_promoted(&answered(&[user("where to", BEGAN), armed("run-1", 12, BEGAN - 1_000_000)]), Code::ArmedMarker);
}

#[test]
fn an_armed_marker_without_anything_is_left_and_no_attempt_is_spent() {
    let silent = plain_journal(["talk", "run-1"], &[("done", json!({}))]);
    for journal in [None, Some(&b""[..]), Some(&silent[..])] {
        let data = Data::foreign(&session(&[user("where to", BEGAN), armed("run-1", 3, BEGAN)]));
        if let Some(journal) = journal {
            data.put(JOURNAL, journal);
        }
        let before = data.stamps();
        let repair = data.repair();
        let marker = repair.report.findings.iter().find(|finding| finding.code == Code::ArmedMarker).unwrap();
        assert_eq!(marker.severity, Severity::Info);
        assert!(marker.repair.starts_with("nothing"), "{marker:?}");
        assert!(repair.actions.is_empty(), "{:?}", repair.actions);
        assert!(before == data.stamps(), "{journal:?}");
    }
}

#[test]
fn markers_are_resolved_as_the_next_read_would() {
    for rows in [
        vec![user("where to", BEGAN), armed("run-1", 3, BEGAN)],
        vec![user("where to", BEGAN), armed("run-1", 3, BEGAN), user("hello?", BEGAN + 900)],
        vec![user("hi", BEGAN - 9), armed("run-0", 1, BEGAN - 5), user("where to", BEGAN), armed("run-1", 3, BEGAN)],
    ] {
        let data = answered(&rows);
        let other = copy_of(&data);
        data.repair_with(&data.only(Code::ArmedMarker));
        other.store().get_session(&sid("talk")).unwrap();
        assert_eq!(data.sidecar("talk.json")["messages"], other.sidecar("talk.json")["messages"]);
    }
}

#[test]
fn a_journal_that_grew_behind_its_marker_is_told_and_brought_in() {
    let data = answered(&[user("where to", BEGAN), armed("run-1", 3, BEGAN)]);
    data.edit(JOURNAL, |lines| lines.truncate(1));
    data.repair();
    assert_eq!(contents(&data.sidecar("talk.json"))[1], "to");
    data.put(JOURNAL, &plain_answer(["talk", "run-1"], &["to ", "the ", "sea"]));
    let told = data.findings();
    let repair = data.repair();
    assert_eq!(contents(&data.sidecar("talk.json"))[1], "to the sea");
    assert_eq!(repair.actions.len(), 1);
    assert!(
        told.iter().any(|finding| repair.actions[0].codes.contains(&finding.code)),
        "{told:?}, {:?}",
        repair.actions
    );
    assert_nothing_is_left_to_do(&data, "a journal that grew");
}

fn with_card(index: i64, run: Option<&str>) -> Data {
    let mut answer = assistant("to the sea", BEGAN);
    answer["_run_id"] = json!("run-1");
    let mut sidecar = session(&[user("where to", BEGAN), answer]);
    let mut card = json!({"name": "map", "tid": "journal-1", "assistant_msg_idx": index});
    if let Some(run) = run {
        card["_run_id"] = json!(run);
    }
    sidecar["tool_calls"] = json!([card]);
    Data::foreign(&sidecar)
}

#[test]
fn a_card_points_at_the_answer_of_its_run_afterwards() {
    for index in [0, 2, 99] {
        let data = with_card(index, Some("run-1"));
        assert_eq!(data.bad_codes(), [Code::RowIndexMismatch], "{index}");
        assert_eq!(treated(&data.repair()), [Code::RowIndexMismatch]);
        assert_eq!(data.sidecar("talk.json")["tool_calls"][0]["assistant_msg_idx"], 1);
        assert_eq!(data.findings(), []);
    }
}

#[test]
fn a_card_that_points_at_an_answer_is_right() {
    assert_eq!(with_card(1, Some("run-1")).findings(), []);
    assert_eq!(with_card(1, None).findings(), []);
}

#[test]
fn a_card_whose_run_nobody_knows_is_left_where_it_is() {
    let data = with_card(0, None);
    let before = data.read("talk.json");
    let repair = data.repair();
    assert!(repair.report.findings[0].repair.starts_with("nothing") && repair.actions.is_empty());
    assert_eq!(data.read("talk.json"), before);
}

#[test]
fn of_several_answers_of_a_run_a_card_gets_the_one_that_the_journal_names() {
    let mut sidecar = session(&[user("where to", BEGAN), assistant("first", BEGAN), assistant("second", BEGAN)]);
    sidecar["messages"][1]["_run_id"] = json!("run-1");
    sidecar["messages"][2]["_run_id"] = json!("run-1");
    let card = |tid: &str| json!({"name": "map", "tid": tid, "assistant_msg_idx": 0, "_run_id": "run-1"});
    sidecar["tool_calls"] = json!([card("journal-2"), card("journal-4")]);
    let data = Data::foreign(&sidecar);
    let events = [
        ("token", json!({"text": "first"})),
        ("tool", json!({"name": "map"})),
        ("token", json!({"text": "second"})),
        ("tool", json!({"name": "map"})),
        ("done", json!({})),
    ];
    data.put(JOURNAL, &plain_journal(["talk", "run-1"], &events));
    data.repair();
    let cards = &data.sidecar("talk.json")["tool_calls"];
    assert_eq!((&cards[0]["assistant_msg_idx"], &cards[1]["assistant_msg_idx"]), (&json!(1), &json!(2)));
}

/// Where the two cards of a run with two answers point after a repair, if the events of its calls lack these numbers.
fn pointed(tids: [&str; 2], names: [&str; 2], unnumbered: &[u64]) -> [Value; 2] {
    let mut sidecar = session(&[user("where to", BEGAN), assistant("first", BEGAN), assistant("second", BEGAN)]);
    sidecar["messages"][1]["_run_id"] = json!("run-1");
    sidecar["messages"][2]["_run_id"] = json!("run-1");
    let card = |at: usize| json!({"name": names[at], "tid": tids[at], "assistant_msg_idx": 0, "_run_id": "run-1"});
    sidecar["tool_calls"] = json!([card(0), card(1)]);
    let data = Data::foreign(&sidecar);
    let events = [
        ("token", json!({"text": "first"})),
        ("tool", json!({"name": names[0]})),
        ("token", json!({"text": "second"})),
        ("tool", json!({"name": names[1]})),
        ("done", json!({})),
    ];
    let mut journal = String::from_utf8(plain_journal(["talk", "run-1"], &events)).unwrap();
    for seq in unnumbered {
        journal = journal.replace(&format!("\"seq\":{seq},"), "");
    }
    data.put(JOURNAL, journal.as_bytes());
    data.repair_with(&data.only(Code::RowIndexMismatch));
    let stored = data.sidecar("talk.json");
    [0, 1].map(|at| stored["tool_calls"][at]["assistant_msg_idx"].clone())
}

#[test]
fn cards_without_a_number_get_the_answer_that_the_journal_names() {
    assert_eq!(pointed(["journal-1", "journal-2"], ["map", "map"], &[2, 4]), [1, 2]);
    assert_eq!(pointed(["journal-2", "journal-2"], ["map", "book"], &[4]), [1, 2]);
    assert_eq!(pointed(["journal-2", "journal-2"], ["map", "map"], &[4]), [0, 0], "nothing tells which is which");
    assert_eq!(pointed(["journal-0", "journal-0"], ["map", "map"], &[2, 4]), [0, 0], "ids of earlier versions");
}

#[test]
fn a_wrong_message_count_is_put_right_and_nothing_else_changes() {
    for count in [json!(0), json!(7)] {
        let mut sidecar = session(&[user("where to", BEGAN)]);
        sidecar["message_count"] = count;
        let data = Data::foreign(&sidecar);
        data.repair();
        sidecar["message_count"] = json!(1);
        assert_eq!(data.sidecar("talk.json"), sidecar);
    }
}

#[test]
fn a_repair_of_markers_alone_leaves_the_count() {
    let mut sidecar = session(&[user("where to", BEGAN), armed("run-1", 3, BEGAN)]);
    sidecar["message_count"] = json!(7);
    let data = Data::foreign(&sidecar);
    let repair = data.repair_with(&data.only(Code::ArmedMarker));
    assert!(repair.actions.is_empty());
    assert_eq!(data.sidecar("talk.json")["message_count"], 7);
}
