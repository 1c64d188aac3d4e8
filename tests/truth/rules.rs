//! Scenarios made here: rules that the recorded ones do not show, and that a difference from them is found.

use std::fs;

use serde_json::{Value, json};

use crate::replay::{Ending, ending_of};
use crate::scenario::Scenario;

const NOW: i64 = 1_800_000_000;

/// The differences between this step, done to a session whose run left this journal, and what it is said to give.
fn differences(journal: Option<&str>, op: &str, result: &Value) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("made/before/sessions");
    fs::create_dir_all(sessions.join("_run_journal/s")).unwrap();
    let session = json!({
        "session_id": "s", "title": "t", "created_at": 1.0, "updated_at": 2.0, "active_stream_id": "r",
        "pending_user_message": "Where to?", "pending_attachments": [], "pending_started_at": NOW - 1_000,
        "pending_user_source": null, "message_count": 0, "messages": [], "tool_calls": [],
    });
    fs::write(sessions.join("s.json"), session.to_string()).unwrap();
    if let Some(journal) = journal {
        fs::write(sessions.join("_run_journal/s/r.jsonl"), journal).unwrap();
    }
    let step = json!({"op": op, "now": NOW, "sid": "s", "run_id": "r", "result": result});
    let scenario = json!({"name": "made", "server_start_time": NOW - 86_400, "steps": [step]});
    fs::write(folder.path().join("made/steps.json"), scenario.to_string()).unwrap();
    match ending_of(Scenario::all_in(folder.path()).remove(0)) {
        Ending::Compared(differences) => differences,
        Ending::Skipped => panic!("the scenario was skipped"),
    }
}

#[track_caller]
fn check(journal: Option<&str>, op: &str, right: &Value, wrong: &[Value]) {
    assert_eq!(differences(journal, op, right), [""; 0], "{right}");
    for wrong in wrong {
        assert!(!differences(journal, op, wrong).is_empty(), "no difference from {wrong}");
    }
}

fn session(time: i64, tids: [&str; 3]) -> Value {
    let cards = tids.map(|tid| json!({"tid": tid, "assistant_msg_idx": 1}));
    let rows = json!([
        {"role": "user", "content": "Where to?"},
        {"role": "assistant", "content": "To the sea", "timestamp": time},
        {"role": "assistant", "content": "@marker:recovered", "timestamp": NOW},
    ]);
    json!({"session": {"messages": rows, "tool_calls": cards}})
}

#[test]
fn rows_without_a_usable_time_and_cards_without_a_number() {
    let tids = ["journal-1", "journal-2", "journal-9"];
    for time in ["0", "-4", "true", "\"1700000000\""] {
        let journal = format!(
            r#"{{"event":"token","created_at":{time},"payload":{{"text":"To "}}}}
{{"event":"token","created_at":1799999100.0,"payload":{{"text":"the sea"}}}}
{{"event":"tool","payload":{{"name":"a"}}}}
{{"event":"tool","seq":0,"payload":{{"name":"b"}}}}
{{"event":"tool","seq":9,"payload":{{"name":"c"}}}}
"#
        );
        let wrong = [session(1_799_999_100, tids), session(NOW, ["journal-0", "journal-0", "journal-9"])];
        check(Some(&journal), "get_session", &session(NOW, tids), &wrong);
    }
}

#[test]
fn summaries_of_runs_that_have_not_ended() {
    let summary = |last_seq: u64, id: Value, state: &str| {
        json!({
            "session_id": "s", "run_id": "r", "stream_id": "r", "event_count": last_seq, "last_seq": last_seq,
            "last_event_id": id, "terminal": false, "terminal_state": state,
        })
    };
    let wrong =
        [summary(0, json!("r:0"), "unknown"), summary(0, json!(null), "running"), json!({"terminal_state": null})];
    for journal in [None, Some("")] {
        check(journal, "latest_run_summary", &summary(0, json!(null), "unknown"), &wrong);
    }
    let line = r#"{"version":1,"event_id":"r:1","seq":1,"run_id":"r","session_id":"s","event":"token","type":"token","created_at":1799999100.0,"terminal":false,"terminal_state":null,"payload":{"text":"x"}}"#;
    let wrong = [summary(1, json!(null), "running"), summary(1, json!("r:1"), "unknown")];
    check(Some(&format!("{line}\n")), "latest_run_summary", &summary(1, json!("r:1"), "running"), &wrong);
}
