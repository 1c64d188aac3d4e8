//! `show` is killed at each of its steps while it recovers an interrupted answer. The next one comes to the same session.

use std::fs;

use serde_json::{Value, json};

use crate::data::{BUFFERED, Data, PROMPT, SESSION, token};
use crate::every_step::{Case, Killed, NEXT_TURN, answer, require_strace, sealed_but_not_folded, with_stale_temp};

const SHOW: [&str; 2] = ["show", SESSION];

/// The files of a data directory that recovery is about.
#[derive(Debug, PartialEq)]
struct Files {
    sidecar: Vec<u8>,
    journal: Option<Vec<u8>>,
}

fn files(data: &Data) -> Files {
    let sidecar = data.root().join(format!("{SESSION}.json"));
    Files { sidecar: fs::read(sidecar).expect("the session is there"), journal: fs::read(data.journal()).ok() }
}

/// The stored session, without the moments at which it was recovered.
fn timeless(data: &Data) -> Value {
    let mut session = data.stored().expect("the session is there");
    session["updated_at"] = Value::Null;
    for marker in rows_mut(&mut session).filter(|row| row["_error"] == true) {
        marker["timestamp"] = Value::Null;
        if let Some(first_seen) = marker.get_mut("_journal_retry_first_seen_ts") {
            *first_seen = Value::Null;
        }
    }
    session
}

fn rows_mut(session: &mut Value) -> impl Iterator<Item = &mut Value> {
    session["messages"].as_array_mut().expect("a session has messages").iter_mut()
}

/// The texts of the rows that are no markers, and how many are.
fn told(session: &Value) -> (Vec<&str>, usize) {
    let rows = session["messages"].as_array().expect("a session has messages");
    let (markers, said): (Vec<&Value>, Vec<&Value>) = rows.iter().partition(|row| row["_error"] == true);
    (said.iter().filter_map(|row| row["content"].as_str()).collect(), markers.len())
}

fn temp_files(data: &Data) -> usize {
    data.everything().iter().filter(|path| path.to_string_lossy().contains("_tmp-")).count()
}

/// Kills `show` at every step of the recovery, which must come to these texts and so many markers.
fn check_recovery(before: Data, texts: &[&str], markers: usize) {
    require_strace();
    let calm = before.copy();
    calm.must(&SHOW);
    let (unresolved, resolved) = (timeless(&before), timeless(&calm));
    assert_eq!(told(&resolved), (texts.to_vec(), markers), "undisturbed");
    let journal = files(&before).journal;
    let case = Case::new(with_stale_temp(before), &SHOW, &[]);
    case.kill_at_every_step(&["openat", "pwrite64", "utimensat", "rename", "fsync", "unlink"], |killed| {
        let left = timeless(&killed.data);
        assert!(left == unresolved || left == resolved, "half a recovery was saved: {left}");
        check_resolved(killed, &resolved);
        assert_eq!(files(&killed.data).journal, journal, "reading never writes a journal");
        check_next_writer(killed);
    });
}

/// The next `show` gives what an undisturbed one gave, and the one behind it changes no byte.
fn check_resolved(killed: &Killed, resolved: &Value) {
    let shown = killed.data.must(&SHOW).lines;
    assert_eq!(&timeless(&killed.data), resolved);
    let saved = files(&killed.data);
    assert_eq!(killed.data.must(&SHOW).lines, shown);
    assert!(files(&killed.data) == saved, "reading again changed something");
}

/// Whoever writes next clears away what the dead had not finished, and keeps every row.
fn check_next_writer(killed: &Killed) {
    let before = killed.data.stored().expect("the session is there");
    killed.data.must(&NEXT_TURN);
    assert_eq!(temp_files(&killed.data), 0, "{:?}", killed.data.everything());
    assert_eq!(killed.data.stored().expect("the session is there")["messages"], before["messages"]);
}

/// Tokens and a tool call, and then nothing more.
fn interrupted() -> Data {
    let data = Data::with_turn();
    let tool = json!({"event": "tool", "payload": {"name": "map", "preview": "海"}}).to_string();
    data.append(&BUFFERED, &[token("Nach "), token("Sète."), tool, token("Où? 🦀")]);
    data
}

#[test]
fn show_killed_at_any_step_of_recovering_half_an_answer_leaves_it_once() {
    check_recovery(interrupted(), &[PROMPT, "Nach Sète.", "Où? 🦀"], 1);
}

#[test]
fn show_killed_at_any_step_of_marking_a_turn_without_a_journal_leaves_one_marker() {
    let data = Data::with_turn();
    fs::remove_file(data.journal()).expect("a turn has a journal");
    check_recovery(data, &[PROMPT], 1);
}

#[test]
fn show_killed_at_any_step_of_folding_a_whole_answer_leaves_it_once() {
    check_recovery(sealed_but_not_folded(), &[PROMPT, &answer().concat()], 0);
}
