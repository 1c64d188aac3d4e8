//! Damage that hides: spoilt checksums and keys, links, things in the place of others; and what must not be taken for it.

use std::fs;
use std::os::unix::fs::symlink;

use lastword::doctor::{self, Code, Severity};
use lastword::{Event, NewSession, UserTurn};
use serde_json::json;

use crate::data::{BEGAN, Data, JOURNAL, NOW, contents, rid, said, sid};
use crate::rows::{assistant, lost, plain_answer, plain_journal, session, user};
use crate::scenes::{BadJson, ChecksumMismatch, GaveUpButReadable, MissingSeq, SidecarUnreadable};

/// Changes one character of the line of an event, counted from its end.
fn spoil(data: &Data, line: usize, from_end: usize, to: u8) {
    data.edit(JOURNAL, |lines| {
        let at = lines[line].len() - 1 - from_end;
        assert_ne!(lines[line][at], to);
        lines[line][at] = to;
    });
}

#[test]
fn an_event_whose_checksum_alone_is_damaged_gets_it_back() {
    // The last two characters of the digits: one that is still a digit, one that is none; and the key.
    for (from_end, to) in [(3, b'x'), (3, b'~'), (14, b'k')] {
        let data = Data::healthy();
        let whole = data.read(JOURNAL);
        spoil(&data, 1, from_end, to);
        let found = data.findings();
        assert_eq!(found.iter().map(|finding| finding.code).collect::<Vec<_>>(), [ChecksumMismatch], "{from_end}");
        assert_eq!(found[0].offset, data.offset(JOURNAL, 1));
        data.repair();
        assert_eq!(data.read(JOURNAL), whole, "{from_end}");
        assert_eq!(data.bad_codes(), []);
    }
}

#[test]
fn a_digit_that_became_another_is_known_from_the_other_seven() {
    let data = Data::healthy();
    let whole = data.read(JOURNAL);
    let digit = whole[data.lines(JOURNAL)[0].len() - 4];
    spoil(&data, 0, 3, if digit == b'0' { b'1' } else { b'0' });
    assert_eq!(data.findings()[0].severity, Severity::Damage);
    data.repair();
    assert_eq!(data.read(JOURNAL), whole);
}

#[test]
fn an_event_that_is_no_json_but_for_its_checksum_gets_that_back() {
    for (from_end, to) in [(1, b'\0'), (2, b'x'), (12, b'k'), (18, b'\xff')] {
        let data = Data::healthy();
        let whole = data.read(JOURNAL);
        spoil(&data, 1, from_end, to);
        assert_eq!(data.findings()[0].offset, data.offset(JOURNAL, 1));
        data.repair();
        assert!(data.read(JOURNAL) == whole, "{from_end}");
    }
}

#[test]
fn a_line_of_ours_without_its_checksum_is_damaged() {
    let data = Data::healthy();
    data.edit(JOURNAL, |lines| {
        let text = String::from_utf8(lines[1].clone()).unwrap();
        lines[1] = format!("{}}}\n", text.split(",\"crc\"").next().unwrap()).into_bytes();
    });
    assert_eq!(data.bad_codes(), [ChecksumMismatch]);
    assert_eq!(data.findings()[0].severity, Severity::Damage);
    let before = data.read(JOURNAL);
    data.repair();
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines(&data.read(JOURNAL)), lines(&before) - 1, "it is cut out, and the journal before that is kept");
}

#[test]
fn an_event_that_lost_a_key_is_told_though_it_is_json() {
    let journal = plain_answer(["talk", "run-1"], &["to ", "the ", "sea"]);
    for (key, other) in [("\"payload\"", "\"paxload\""), ("\"terminal\":true", "\"tarminal\":true")] {
        let data = Data::foreign(&session(&[]));
        let text = String::from_utf8(journal.clone()).unwrap();
        data.put(JOURNAL, text.replacen(key, other, 1).as_bytes());
        assert!(data.bad_codes().contains(&BadJson), "{key}: {:?}", data.findings());
    }
}

#[test]
fn a_message_that_lost_its_content_is_told() {
    let data =
        Data::foreign(&session(&[user("Where to?", BEGAN), json!({"role": "assistant", "cxntent": "To the sea"})]));
    assert_eq!(data.bad_codes(), [BadJson]);
}

#[test]
fn a_damaged_key_of_the_messages_is_no_empty_session() {
    let rows = [user("Where to?", BEGAN), assistant("To the sea", BEGAN + 1)];
    for damaged in ["messbges", "Messages", "messages\\\\"] {
        let data = Data::foreign(&session(&rows));
        let text = String::from_utf8(data.read("talk.json")).unwrap();
        data.put("talk.json", text.replacen("\"messages\"", &format!("\"{damaged}\""), 1).as_bytes());
        assert_eq!(data.bad_codes(), [SidecarUnreadable], "{damaged}");
        data.repair();
        assert_eq!(contents(&data.sidecar("talk.json")), ["Where to?", "To the sea"], "{damaged}");
        assert_eq!(data.bad_codes(), [], "{damaged}");
    }
}

#[test]
fn answers_that_a_broken_file_lost_come_back_from_their_journals_where_they_stood() {
    let data = Data::new();
    let store = data.store();
    store.create(NewSession::titled("Talk").with_id(sid("talk"))).unwrap();
    for at in 0..4 {
        data.set_clock(NOW + at * 10);
        let run = UserTurn::text(&format!("question {at}")).with_run(rid(&format!("run-{at}")));
        let run = store.begin_run(&sid("talk"), run).unwrap();
        run.append(Event::token(&format!("answer {at}"))).unwrap();
        run.finish(lastword::Outcome::Completed).unwrap();
    }
    drop(store);
    let whole = said(&data.reader().get_session(&sid("talk")).unwrap());
    let mut bytes = data.read("talk.json");
    let at = String::from_utf8_lossy(&bytes).find("answer 2").unwrap();
    bytes[at - 2..at + 4].fill(b'"');
    data.put("talk.json", &bytes);
    data.repair();
    assert_eq!(said(&data.reader().get_session(&sid("talk")).unwrap()), whole);
    let cut = String::from_utf8(data.read("talk.json")).unwrap().find("question 2").unwrap();
    data.put("talk.json", &data.read("talk.json")[..cut]);
    data.repair();
    let left = said(&data.reader().get_session(&sid("talk")).unwrap());
    assert!(whole.iter().filter(|(role, _)| role == "assistant").all(|row| left.contains(row)), "{left:?}");
}

#[test]
fn a_link_is_left_alone() {
    let data = Data::healthy();
    let elsewhere = data.path("elsewhere");
    data.edit(JOURNAL, |lines| lines[1] = b"garbage\n".to_vec());
    fs::rename(data.path(JOURNAL), &elsewhere).unwrap();
    symlink(&elsewhere, data.path(JOURNAL)).unwrap();
    fs::remove_file(data.path("talk.json")).unwrap();
    symlink(data.path("nowhere"), data.path("talk.json")).unwrap();
    let before = fs::read(&elsewhere).unwrap();
    let repair = doctor::repair(&data.root, &data.doctor()).unwrap();
    assert!(repair.has_failed());
    assert_eq!(fs::read(&elsewhere).unwrap(), before);
    for name in [JOURNAL, "talk.json"] {
        assert!(fs::symlink_metadata(data.path(name)).unwrap().is_symlink(), "{name}");
    }
}

#[test]
fn something_in_the_place_of_a_folder_or_file_hides_nothing_else() {
    type Change = fn(&Data);
    let changes: [(&str, Change); 5] = [
        ("_commit_log", |data| data.replace_by_file("_commit_log")),
        ("_tombstones", |data| data.put("_tombstones", b"")),
        ("_trash", |data| data.put("_trash", b"")),
        ("_sessions.index", |data| data.replace_by_folder("_sessions.index")),
        ("_lastword.json", |data| data.replace_by_folder("_lastword.json")),
    ];
    for (name, change) in changes {
        let data = Data::healthy();
        data.edit(JOURNAL, |lines| lines[1] = b"garbage\n".to_vec());
        change(&data);
        let found = data.findings();
        assert!(found.iter().any(|finding| finding.file.starts_with("_run_journal")), "{name}: {found:?}");
    }
}

#[test]
fn an_event_that_a_kept_journal_still_has_is_not_called_cut_out() {
    let data = Data::healthy();
    data.edit(JOURNAL, |lines| lines.insert(1, b"garbage\n".to_vec()));
    data.repair();
    assert_eq!(data.bad_codes(), []);
    data.edit(JOURNAL, |lines| drop(lines.remove(1)));
    assert_eq!(data.bad_codes(), [MissingSeq]);
}

#[test]
fn what_arrives_behind_a_journal_that_was_cut_is_seen() {
    let data = Data::new();
    let store = data.store();
    store.create(NewSession::titled("Talk").with_id(sid("talk"))).unwrap();
    let run = store.begin_run(&sid("talk"), UserTurn::text("Where to?").with_run(rid("run-1"))).unwrap();
    for word in ["one ", "two ", "six "] {
        run.append(Event::token(word)).unwrap();
    }
    drop((run, store));
    let len = data.read(JOURNAL).len();
    data.edit(JOURNAL, |lines| {
        let at = lines[2].windows(3).position(|word| word == b"six").unwrap();
        lines[2][at] = b'x';
    });
    data.set_clock(NOW + 60);
    data.repair();
    let store = data.store();
    store.resume_run(&sid("talk"), &rid("run-1")).unwrap().append(Event::token("ten ")).unwrap();
    drop(store);
    assert_eq!(data.read(JOURNAL).len(), len);
    let rows = said(&data.store().get_session(&sid("talk")).unwrap());
    assert_eq!(rows[1].1, "one two ten");
}

#[test]
fn an_answer_that_stands_below_its_marker_is_not_added_above_it() {
    let rows = [user("Where to?", BEGAN), lost(Some("run-1"), BEGAN + 5), assistant("to the sea", BEGAN + 6)];
    let data = Data::foreign(&session(&rows));
    data.put(JOURNAL, &plain_answer(["talk", "run-1"], &["to ", "the ", "sea"]));
    assert_eq!(data.bad_codes(), []);
    assert!(data.repair().actions.is_empty());
}

#[test]
fn without_times_no_run_is_taken_for_that_of_a_marker() {
    let mut prompt = user("Where to?", BEGAN);
    prompt.as_object_mut().unwrap().remove("timestamp");
    let data = Data::foreign(&session(&[prompt, lost(None, BEGAN + 5)]));
    data.put(JOURNAL, &plain_answer(["talk", "run-1"], &["elsewhere"]));
    assert!(!data.bad_codes().contains(&GaveUpButReadable));
}

#[test]
fn many_torn_records_on_one_line_are_looked_at_in_time() {
    let data = Data::foreign(&session(&[]));
    let line = String::from_utf8(plain_journal(["talk", "run-1"], &[("token", json!({"text": "a"}))])).unwrap();
    let torn = line.split("{\"text\"").next().unwrap();
    data.put(JOURNAL, torn.repeat(40_000).as_bytes());
    let report = data.check();
    assert_eq!(report.summary.damage, 40_000);
    assert!(report.findings.iter().any(|finding| finding.code == Code::GluedRecords));
}
