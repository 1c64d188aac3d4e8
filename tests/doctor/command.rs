//! The commands `check` and `repair` as programs and people use them: exit codes, JSON, what they restrict themselves to.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::data::{BEGAN, Data, JOURNAL, allow};
use crate::rows::{plain_answer, session, user};
use crate::scenes;

const OTHER: &str = "_run_journal/calm/run-c.jsonl";

struct Answer {
    code: i32,
    out: String,
    err: String,
}

fn lastword(data: &Data, args: &[&str]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
    command.arg("--data").arg(&data.root).args(args).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Answer { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn exits(data: &Data, args: &[&str], code: i32) -> Answer {
    let answer = lastword(data, args);
    assert_eq!(answer.code, code, "{args:?}: {}{}", answer.out, answer.err);
    let is_silent = code == 0 || code == 1 && !answer.out.is_empty();
    assert_eq!(answer.err.is_empty(), is_silent, "{args:?}: {:?}", answer.err);
    answer
}

fn json(answer: &Answer) -> Value {
    assert_eq!(answer.out.lines().count(), 1, "{}", answer.out);
    serde_json::from_str(&answer.out).unwrap()
}

/// One damaged journal, one warning, one note.
fn unwell() -> Data {
    let data = Data::healthy();
    data.edit(JOURNAL, |lines| lines[1][0] = b'?');
    data.put("_tmp-0123456789abcdef0123456789abcdef", b"{");
    allow(&data.path("calm.json"), 0o666);
    data
}

/// Damage in two sessions.
fn damaged_twice() -> Data {
    let data = Data::healthy();
    data.edit(JOURNAL, |lines| lines[1][0] = b'?');
    data.edit(OTHER, |lines| lines[1][0] = b'?');
    data
}

#[test]
fn a_healthy_directory_exits_0() {
    let data = Data::healthy();
    assert!(exits(&data, &["check"], 0).out.contains("all is well"));
    assert!(exits(&data, &["check", "talk", "calm"], 0).out.contains("2 sessions"));
    assert!(exits(&data, &["repair"], 0).out.contains("nothing to repair"));
    assert!(exits(&data, &["repair", "--apply"], 0).out.contains("nothing to repair"));
}

#[test]
fn what_is_only_worth_knowing_exits_0() {
    let data = scenes::a_file_that_nobody_finished_is_a_stale_temp().data;
    assert!(exits(&data, &["check"], 0).out.contains("info stale_temp"));
}

#[test]
fn a_warning_exits_1_and_so_does_damage() {
    exits(&scenes::a_wrong_message_count_is_a_row_index_mismatch().data, &["check"], 1);
    exits(&scenes::a_changed_letter_is_a_checksum_mismatch().data, &["check"], 1);
    exits(&scenes::a_changed_letter_is_a_checksum_mismatch().data, &["check", "--json"], 1);
    exits(&scenes::a_changed_letter_is_a_checksum_mismatch().data, &["check", "talk"], 1);
    exits(&scenes::a_changed_letter_is_a_checksum_mismatch().data, &["check", "calm"], 0);
}

#[test]
fn a_session_that_is_not_there_exits_1() {
    let data = unwell();
    for args in [&["check", "nobody"][..], &["check", "talk", "nobody"], &["repair", "nobody"], &["check", ".."]] {
        let answer = lastword(&data, args);
        assert_eq!((answer.code, answer.out.as_str()), (1, ""), "{args:?}");
        assert!(answer.err.starts_with("lastword: "), "{}", answer.err);
    }
    assert_eq!(lastword(&data, &["repair", "--apply", "--session", "nobody"]).code, 1);
    assert!(data.path("_tmp-0123456789abcdef0123456789abcdef").exists());
}

#[test]
fn a_directory_that_is_not_there_exits_1() {
    let data = Data::new();
    std::fs::remove_dir_all(&data.root).unwrap();
    for args in [&["check"][..], &["repair"], &["repair", "--apply"]] {
        assert_eq!(lastword(&data, args).code, 1, "{args:?}");
    }
    assert!(!data.root.exists(), "it was made");
}

#[test]
fn a_wrong_flag_exits_2() {
    let data = Data::healthy();
    for args in [
        &["check", "--apply"][..],
        &["repair", "--force"],
        &["repair", "--only", "no_such_code"],
        &["repair", "--only", ""],
        &["repair", "--only"],
    ] {
        exits(&data, args, 2);
    }
    assert!(lastword(&data, &["repair", "--only", "torn_tale"]).err.contains("torn_tail"), "the codes are not named");
}

#[test]
fn a_busy_directory_can_be_checked_and_exits_3_when_it_is_to_be_repaired() {
    let data = unwell();
    let _store = data.store();
    assert!(exits(&data, &["check"], 1).out.contains("a writer is at work"));
    exits(&data, &["repair", "--apply"], 3);
    assert!(exits(&data, &["repair"], 0).out.contains("stop it first"));
}

#[test]
fn a_directory_that_cannot_be_written_exits_4() {
    let data = scenes::an_identity_of_a_newer_program_is_a_newer_format().data;
    data.edit(JOURNAL, |lines| lines[1][0] = b'?');
    exits(&data, &["repair", "--apply"], 4);
}

#[test]
fn a_file_in_place_of_the_directory_is_not_found_healthy() {
    let data = Data::new();
    std::fs::remove_dir_all(&data.root).unwrap();
    std::fs::write(&data.root, b"not a directory").unwrap();
    for args in [&["check"][..], &["repair", "--apply"]] {
        assert_ne!(lastword(&data, args).code, 0, "{args:?}");
    }
}

const FINDING: [&str; 8] = ["code", "severity", "session", "run", "file", "offset", "message", "repair"];
const SUMMARY: [&str; 9] =
    ["sessions", "journals", "journal_bytes", "events", "damage", "warning", "info", "untold", "live_writer"];
const ACTION: [&str; 8] = ["codes", "session", "run", "file", "action", "state", "kept", "error"];

fn has_keys(value: &Value, keys: &[&str]) {
    let found: Vec<&String> = value.as_object().unwrap_or_else(|| panic!("{value}")).keys().collect();
    assert!(keys.iter().all(|key| value.get(key).is_some()) && found.len() == keys.len(), "{found:?}");
}

fn is_text_or_null(value: &Value) -> bool {
    value.is_string() || value.is_null()
}

fn assert_is_finding(finding: &Value) {
    has_keys(finding, &FINDING);
    assert!(["damage", "warning", "info"].contains(&finding["severity"].as_str().unwrap()));
    assert!(finding["code"].as_str().unwrap().parse::<lastword::doctor::Code>().is_ok());
    assert!(is_text_or_null(&finding["session"]) && is_text_or_null(&finding["run"]));
    assert!(!finding["file"].as_str().unwrap().starts_with('/'), "{finding}");
    assert!(finding["offset"].is_u64() || finding["offset"].is_null());
    assert!(!finding["message"].as_str().unwrap().is_empty() && !finding["repair"].as_str().unwrap().is_empty());
}

#[test]
fn check_prints_its_findings_as_json() {
    let data = unwell();
    let found = json(&exits(&data, &["check", "--json"], 1));
    has_keys(&found, &["findings", "summary"]);
    has_keys(&found["summary"], &SUMMARY);
    let findings = found["findings"].as_array().unwrap();
    findings.iter().for_each(assert_is_finding);
    let severities: Vec<&str> = findings.iter().map(|finding| finding["severity"].as_str().unwrap()).collect();
    assert_eq!(severities, ["damage", "warning", "info"]);
    assert_eq!(findings[0]["offset"], data.offset(JOURNAL, 1).unwrap());
    assert_eq!((&findings[1]["offset"], &findings[1]["session"]), (&Value::Null, &Value::Null));
    let summary = &found["summary"];
    assert_eq!((&summary["damage"], &summary["warning"], &summary["info"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(summary["live_writer"], false);
}

#[test]
fn a_healthy_directory_has_an_empty_list_of_findings() {
    let found = json(&exits(&Data::healthy(), &["check", "--json"], 0));
    assert_eq!(found["findings"], Value::Array(Vec::new()));
    assert_eq!((&found["summary"]["sessions"], &found["summary"]["events"]), (&3.into(), &12.into()));
}

#[test]
fn repair_prints_its_actions_as_json() {
    let data = unwell();
    data.edit(OTHER, |lines| drop(lines.remove(1)));
    for (args, state) in [(&["repair", "--json"][..], "planned"), (&["repair", "--apply", "--json"], "done")] {
        let found = json(&exits(&data, args, 0));
        has_keys(&found, &["applied", "actions", "left_alone", "summary"]);
        has_keys(&found["summary"], &SUMMARY);
        assert_eq!(found["applied"], state == "done");
        let actions = found["actions"].as_array().unwrap();
        assert_eq!(actions.len(), 3, "{actions:?}");
        for action in actions {
            has_keys(action, &ACTION);
            assert_eq!((&action["state"], &action["error"]), (&state.into(), &Value::Null));
            assert!(is_text_or_null(&action["kept"]) && !action["codes"].as_array().unwrap().is_empty());
        }
        let left = found["left_alone"].as_array().unwrap();
        assert_eq!((left.len(), &left[0]["code"]), (1, &"missing_seq".into()));
        left.iter().for_each(assert_is_finding);
    }
}

#[test]
fn people_are_told_the_worst_first() {
    let out = exits(&unwell(), &["check"], 1).out;
    let place = |words: &str| out.find(words).unwrap_or_else(|| panic!("{words}: {out}"));
    assert!(place("damage bad_json: ") < place("warning open_permissions: "), "{out}");
    assert!(place("warning open_permissions: ") < place("info stale_temp: "), "{out}");
    assert!(out.trim_end().lines().last().unwrap().contains("1 place damaged, 1 warning, 1 note"), "{out}");
    assert!(out.contains(" at byte ") && out.contains("  repair: "), "{out}");
}

#[test]
fn a_plan_says_that_nothing_changed() {
    let data = unwell();
    let before = data.stamps();
    let out = exits(&data, &["repair"], 0).out;
    assert!(out.contains("would ") && out.contains("add --apply"), "{out}");
    assert!(before == data.stamps());
}

#[test]
fn a_repair_says_where_the_old_file_is() {
    let data = unwell();
    let out = exits(&data, &["repair", "--apply"], 0).out;
    assert!(out.contains("done ") && out.contains("  before: _kept/talk/run-1.jsonl-"), "{out}");
    assert!(out.contains("3 repairs made"), "{out}");
    exits(&data, &["check"], 0);
}

#[test]
fn only_one_code_is_treated_if_asked() {
    let data = unwell();
    exits(&data, &["repair", "--apply", "--only", "stale_temp"], 0);
    assert_eq!(data.bad_codes().len(), 2);
    exits(&data, &["repair", "--apply", "--only", "bad_json", "--only", "open_permissions"], 0);
    assert_eq!(data.bad_codes(), []);
}

#[test]
fn only_one_kind_of_damage_in_a_journal_is_treated_if_asked() {
    let data = Data::healthy();
    data.edit(JOURNAL, |lines| {
        lines.insert(1, b"garbage\n".to_vec());
        lines.insert(3, vec![0; 64]);
        lines.insert(4, b"\n".to_vec());
    });
    let lines = data.lines(JOURNAL);
    exits(&data, &["repair", "--apply", "--only", "bad_json"], 0);
    assert_eq!(data.read(JOURNAL), [&lines[..1], &lines[2..]].concat().concat());
}

#[test]
fn only_one_session_is_treated_if_asked() {
    for args in [&["repair", "--apply", "talk"][..], &["repair", "--apply", "--session", "talk"]] {
        let data = damaged_twice();
        let before = data.read(OTHER);
        exits(&data, args, 0);
        assert_eq!(data.read(OTHER), before);
        assert_eq!(json(&lastword(&data, &["check", "--json"]))["summary"]["damage"], 1);
    }
    let data = damaged_twice();
    exits(&data, &["repair", "--apply", "talk", "--session", "calm"], 0);
    assert_eq!(data.bad_codes(), []);
}

#[test]
fn only_one_session_is_looked_at_if_asked() {
    let data = damaged_twice();
    let found = json(&exits(&data, &["check", "--json", "talk"], 1));
    assert_eq!(found["findings"].as_array().unwrap().len(), 1);
    assert_eq!((&found["findings"][0]["session"], &found["summary"]["sessions"]), (&"talk".into(), &1.into()));
}

#[test]
fn a_session_of_which_only_a_journal_is_left_can_be_named() {
    let data = Data::foreign(&session(&[user("where to", BEGAN)]));
    data.remove("talk.json");
    data.put(JOURNAL, &plain_answer(["talk", "run-1"], &["to the sea"]));
    exits(&data, &["check", "talk"], 1);
    exits(&data, &["repair", "--apply", "talk"], 0);
    exits(&data, &["check", "talk"], 0);
}

#[test]
fn names_of_files_do_not_reach_the_terminal_raw() {
    let data = Data::healthy();
    data.put("odd\u{1b}[31m.tmp", b"{");
    let out = exits(&data, &["check"], 0).out;
    assert!(out.contains("stale_temp") && !out.contains('\u{1b}'), "{out:?}");
}
