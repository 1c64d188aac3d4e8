//! A session whose sidecar is lost or cannot be read: whoever knows most of it makes it again, and the words say who.

use lastword::doctor::{Code, Repair};
use serde_json::{Value, json};

use crate::data::{BEGAN, Data, JOURNAL, contents, sid};
use crate::repairs::assert_nothing_is_left_to_do;
use crate::rows::{assistant, pending, plain_answer, plain_journal, plain_line, session, user};

/// Something that knows so many messages of the session.
#[derive(Debug, Clone, Copy)]
enum Knows {
    /// What is left of the file itself, which was cut behind so many rows.
    Own(usize),
    Backup(usize),
    /// A kept version, with the second in which it was saved.
    Kept(usize, i64),
    /// A kept version that was cut behind so many rows.
    KeptInPart(usize),
    /// The session that a terminal event carries.
    Carried(usize),
}

use Knows::{Backup, Carried, Kept, KeptInPart, Own};

fn rows(count: usize) -> Vec<Value> {
    let row = |at: usize| match at % 2 {
        0 => user(&format!("question {at}"), BEGAN - 1_000 + at as i64),
        _ => assistant(&format!("answer {at}"), BEGAN - 1_000 + at as i64),
    };
    (0..count).map(row).collect()
}

fn whole(count: usize) -> Vec<u8> {
    serde_json::to_vec_pretty(&session(&rows(count))).unwrap()
}

/// A sidecar that ends in the middle of the row behind so many.
fn cut(count: usize) -> Vec<u8> {
    let text = String::from_utf8(whole(count + 1)).unwrap();
    let last =
        text.rfind(&format!("{} {count}\"", if count.is_multiple_of(2) { "question" } else { "answer" })).unwrap();
    text.as_bytes()[..last].to_vec()
}

fn set(data: &Data, knows: Knows) {
    match knows {
        Own(count) => data.put("talk.json", &cut(count)),
        Backup(count) => data.put("talk.json.bak", &whole(count)),
        Kept(count, at) => {
            let mut saved = session(&rows(count));
            saved["updated_at"] = json!(at as f64 + 0.5);
            data.put(&format!("_kept/talk/{at}-0a1b2c3d-session.json"), saved.to_string().as_bytes());
        }
        KeptInPart(count) => data.put("_kept/talk/session.json-9-0a1b2c3d", &cut(count)),
        Carried(count) => data.put(JOURNAL, &carrying(&session(&rows(count)))),
    }
}

/// A journal whose last event carries a session.
fn carrying(carried: &Value) -> Vec<u8> {
    plain_journal(["talk", "run-1"], &[("done", json!({"session": carried}))])
}

/// A directory without a sidecar, but with whatever knows something of it.
fn without_sidecar(knows: &[Knows]) -> Data {
    let data = Data::foreign(&session(&[]));
    data.remove("talk.json");
    knows.iter().for_each(|knows| set(&data, *knows));
    data
}

/// Which of these is taken, by a word of its name and the number of rows.
fn check(knows: &[Knows], winner: &str, count: usize) {
    let data = without_sidecar(knows);
    let repair = data.repair();
    assert_eq!(contents(&data.sidecar("talk.json")), contents(&session(&rows(count))), "{knows:?}");
    let words = words_of(&repair);
    assert!(words.contains(winner) && words.contains(&format!("which knows {count} ")), "{knows:?}: {words}");
    assert_nothing_is_left_to_do(&data, winner);
    assert_eq!(data.bad_codes(), [], "{knows:?}");
}

fn words_of(repair: &Repair) -> String {
    let is_document =
        |codes: &[Code]| codes.iter().any(|code| matches!(code, Code::SidecarUnreadable | Code::OrphanJournal));
    let actions: Vec<_> = repair.actions.iter().filter(|action| is_document(&action.codes)).collect();
    let [action] = actions[..] else { panic!("{:?}", repair.actions) };
    assert_eq!(action.file.to_str(), Some("talk.json"));
    action.words.clone()
}

#[test]
fn whoever_knows_most_messages_wins() {
    check(&[Backup(3)], "talk.json.bak", 3);
    check(&[Kept(3, BEGAN)], "-session.json", 3);
    check(&[Carried(3)], "run run-1 carried", 3);
    check(&[Own(3)], "the file itself", 3);
    check(&[Backup(2), Kept(3, BEGAN)], "-session.json", 3);
    check(&[Backup(3), Kept(2, BEGAN)], "talk.json.bak", 3);
    check(&[Backup(2), Carried(4)], "run run-1 carried", 4);
    check(&[Backup(4), Carried(2)], "talk.json.bak", 4);
    check(&[Own(4), Backup(3)], "the file itself", 4);
    check(&[Own(1), Backup(3)], "talk.json.bak", 3);
    check(&[Own(2), Kept(3, BEGAN), Backup(1), Carried(5)], "run run-1 carried", 5);
    check(&[Own(6), Kept(3, BEGAN), Backup(1), Carried(5)], "the file itself", 6);
    check(&[Backup(1), KeptInPart(3)], "session.json-9-0a1b2c3d", 3);
}

#[test]
fn of_those_that_know_the_same_a_whole_one_wins_and_then_the_backup() {
    check(&[Own(3), Backup(3)], "talk.json.bak", 3);
    check(&[Carried(3), Backup(3)], "talk.json.bak", 3);
    check(&[KeptInPart(3), Backup(3)], "talk.json.bak", 3);
}

#[test]
fn of_kept_versions_that_know_the_same_the_youngest_wins() {
    check(&[Kept(3, BEGAN), Kept(3, BEGAN + 9), Kept(3, BEGAN + 5)], &format!("{}-0a1b2c3d", BEGAN + 9), 3);
}

#[test]
fn a_restored_version_is_that_version_byte_for_byte() {
    for knows in [Backup(3), Kept(3, BEGAN)] {
        let data = without_sidecar(&[knows]);
        let (_, version) = data.files().into_iter().find(|(name, _)| name.contains("talk")).unwrap();
        data.repair();
        assert_eq!(data.read("talk.json"), version, "{knows:?}");
    }
}

#[test]
fn a_backup_stays_where_it_is_and_the_broken_file_is_kept() {
    let data = without_sidecar(&[Own(1), Backup(3)]);
    let (broken, backup) = (data.read("talk.json"), data.read("talk.json.bak"));
    let repair = data.repair();
    assert_eq!(data.read("talk.json.bak"), backup);
    assert_eq!(data.read("talk.json"), backup);
    assert!(data.has_kept(&broken));
    assert!(repair.report.findings[0].repair.contains("kept in _kept"), "{:?}", repair.report.findings[0]);
}

#[test]
fn any_kind_of_broken_file_is_rebuilt() {
    for broken in
        [&b""[..], b"\0\0\0\0\0\0\0\0", b"not json", b"[]", b"{\"session_id\":\"talk\",", b"\xff\xfe{}", b"null"]
    {
        let data = without_sidecar(&[Backup(2)]);
        data.put("talk.json", broken);
        assert_eq!(data.findings().iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::SidecarUnreadable]);
        data.repair();
        assert_eq!(data.read("talk.json"), whole(2), "{broken:?}");
        assert!(data.has_kept(broken));
    }
}

#[test]
fn what_nobody_knows_anything_of_is_left_as_it_is() {
    let data = without_sidecar(&[]);
    data.put("talk.json", b"\0\0\0\0");
    let repair = data.repair();
    assert!(repair.actions.is_empty());
    assert!(repair.report.findings[0].repair.starts_with("nothing"));
    assert_eq!(data.read("talk.json"), b"\0\0\0\0");
    assert_eq!(data.bad_codes(), [Code::SidecarUnreadable]);
}

#[test]
fn a_session_of_another_id_in_a_journal_is_not_taken() {
    let mut other = session(&rows(9));
    other["session_id"] = json!("another");
    let data = without_sidecar(&[Backup(2)]);
    data.put(JOURNAL, &carrying(&other));
    data.repair();
    assert_eq!(data.read("talk.json"), whole(2));
}

fn answers(data: &Data, run: &str, first_seq: u64, words: &[&str]) {
    let ids = ["talk", run];
    let tokens = (first_seq..).zip(words).map(|(seq, word)| plain_line(ids, seq, "token", &json!({"text": word})));
    let mut bytes: Vec<u8> = tokens.flatten().collect();
    bytes.extend(plain_line(ids, first_seq + words.len() as u64, "done", &json!({})));
    data.put(&format!("_run_journal/talk/{run}.jsonl"), &bytes);
}

#[test]
fn with_only_journals_the_answers_come_back_in_the_order_in_which_they_began() {
    let data = without_sidecar(&[]);
    // Lines get their time from their numbers.
    answers(&data, "run-z", 1, &["first ", "answer"]);
    answers(&data, "run-a", 50, &["third"]);
    answers(&data, "run-m", 20, &["second"]);
    let words = words_of(&data.repair());
    let found = data.sidecar("talk.json");
    assert_eq!(contents(&found)[..3], ["first answer", "second", "third"]);
    assert_eq!(found["messages"][3]["type"], "rebuilt");
    assert_eq!(found["message_count"], 4);
    assert!(words.contains("3 journals"), "{words}");
    assert!(data.findings().iter().all(|finding| finding.code == Code::MissingSeq), "{:?}", data.findings());
}

#[test]
fn answers_that_began_after_the_restored_version_are_added_at_its_end() {
    let data = without_sidecar(&[Backup(2)]);
    answers(&data, "run-1", 1, &["to the sea"]);
    let words = words_of(&data.repair());
    let mut expected = contents(&session(&rows(2)));
    expected.push("to the sea".to_owned());
    assert_eq!(contents(&data.sidecar("talk.json")), expected);
    assert!(words.contains("talk.json.bak") && words.contains("run run-1: its answer is added"), "{words}");
}

#[test]
fn answers_that_the_restored_version_may_know_are_not_added_again() {
    let data = without_sidecar(&[]);
    let mut backup = session(&rows(2));
    backup["updated_at"] = json!((BEGAN + 500) as f64);
    data.put("talk.json.bak", backup.to_string().as_bytes());
    answers(&data, "run-1", 1, &["answer 1"]);
    data.repair();
    assert_eq!(data.read("talk.json"), backup.to_string().as_bytes());
}

#[test]
fn a_turn_that_is_pending_in_the_restored_version_gets_its_answer() {
    let data = without_sidecar(&[]);
    let backup = pending(&rows(2), "where to", "run-1");
    data.put("talk.json.bak", backup.to_string().as_bytes());
    data.put(JOURNAL, &plain_answer(["talk", "run-1"], &["to ", "the ", "sea"]));
    let words = words_of(&data.repair());
    let found = data.sidecar("talk.json");
    assert_eq!(contents(&found)[2..], ["where to", "to the sea"]);
    assert_eq!((&found["pending_user_message"], &found["active_stream_id"]), (&Value::Null, &Value::Null));
    assert!(words.contains("talk.json.bak") && words.contains("run run-1"), "{words}");
    assert_nothing_is_left_to_do(&data, "a pending turn");
}

#[test]
fn a_pending_turn_whose_journal_is_lost_gets_a_marker() {
    let data = without_sidecar(&[]);
    data.put("talk.json.bak", pending(&rows(2), "where to", "run-1").to_string().as_bytes());
    data.repair();
    let found = data.sidecar("talk.json");
    assert_eq!(found["messages"][2]["content"], "where to");
    assert_eq!(found["messages"][3]["type"], "interrupted");
}

#[test]
fn a_deleted_session_is_not_revived() {
    let data = Data::healthy();
    data.edit_sidecar("talk.json", |session| session["title"] = json!("changed"));
    data.put("_kept/talk/1-0a1b2c3d-session.json", &whole(3));
    data.store().delete(&sid("talk")).unwrap();
    data.put("_run_journal/talk/run-9.jsonl", &plain_answer(["talk", "run-9"], &["late"]));
    data.put("talk.json.bak", &whole(2));
    assert!(data.findings().iter().all(|finding| finding.code == Code::DeletedLeftover), "{:?}", data.findings());
    data.repair();
    assert!(!data.path("talk.json").exists());
    assert!(data.store().get_session(&sid("talk")).is_err());
    assert_eq!(data.bad_codes(), []);
    assert_nothing_is_left_to_do(&data, "a deleted session");
}

#[test]
fn a_folder_in_place_of_a_sidecar_is_told_and_left() {
    let data = without_sidecar(&[Backup(2)]);
    crate::data::make_folder(&data.path("talk.json"));
    let findings = data.findings();
    assert_eq!((findings.len(), findings[0].code), (1, Code::SidecarUnreadable), "{findings:?}");
    assert!(data.repair().actions.is_empty());
}

#[test]
fn a_rebuilt_session_can_be_opened_and_gone_on_with() {
    let data = Data::healthy();
    data.remove("talk.json");
    data.repair();
    let store = data.store();
    let run = store.begin_run(&sid("talk"), lastword::UserTurn::text("again")).unwrap();
    run.append(lastword::Event::token("here")).unwrap();
    run.finish(lastword::Outcome::Completed).unwrap();
    let session = store.get_session(&sid("talk")).unwrap();
    let said: Vec<String> = session.messages().map(|row| row.content().into_owned()).collect();
    assert_eq!(said[..2], ["to the seaside", "by train"]);
    assert_eq!(said[said.len() - 2..], ["again", "here"]);
}
