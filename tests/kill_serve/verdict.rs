//! What has to hold when all is over: the directory, as the commands show it, against what anybody was told.

use lastword::RunId;
use serde_json::Value;

use crate::data::Data;
use crate::producers::{End, Produced};
use crate::watchers::Seen;

/// The lines of a run's journal, which has no damage and counts from one.
pub(crate) fn journal(data: &Data, session: &str, run: &str) -> Vec<String> {
    let ended = data.must(&["tail", session, run]);
    assert_eq!(ended.stderr, "", "the journal of {run} is damaged");
    let numbers = ended.lines.iter().map(|line| field(line, "seq").as_u64().expect("an event has a number"));
    assert!(numbers.eq(1..=ended.lines.len() as u64), "the numbers of {run} repeat or lack");
    ended.lines
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|cause| panic!("{line:?} is no event: {cause}"))
}

fn field(line: &str, key: &str) -> Value {
    parsed(line)[key].clone()
}

/// The names of events.
pub(crate) fn names(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| field(line, "event").as_str().unwrap_or_default().to_owned()).collect()
}

/// The texts of the events of a name.
pub(crate) fn texts(lines: &[String], name: &str) -> Vec<String> {
    let named = lines.iter().map(|line| parsed(line)).filter(|event| event["event"] == name);
    named.map(|event| event["payload"]["text"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Nothing is damaged and nothing is left to do.
pub(crate) fn check_directory(data: &Data) {
    let ended = data.ask(&["check"]);
    assert_eq!(ended.code(), Some(0), "{:#?}\n{}", ended.lines, ended.stderr);
}

/// Everything that a follower saw of a run is what its journal has, and it saw it to the end.
pub(crate) fn check_seen(seen: &Seen, run: &RunId, lines: &[String]) {
    let told: Vec<&String> = seen.of(run).iter().map(|(_, line)| line).collect();
    let end = seen.end_of(run).unwrap_or_else(|| panic!("a follower was not told of the end of run {run}"));
    let same = told.iter().zip(lines).take_while(|(told, line)| **told == *line).count();
    let (seen, kept) = (told.len(), lines.len());
    let differing = told.get(same).zip(lines.get(same));
    assert!(
        same == seen && same == kept,
        "run {run}: a follower saw {seen} events and {end:?}, {kept} are kept, the first {same} are the same, then {differing:?}"
    );
    assert_eq!(end.last_seq, Some(lines.len() as u64));
}

/// Everything that a producer was told to be appended is in the journal, once and in order, and nothing else is.
pub(crate) fn check_produced(produced: &Produced, lines: &[String]) {
    let Produced { run, texts: said, end, .. } = produced;
    let found = texts(lines, "token");
    let last = names(lines).pop().unwrap_or_default();
    match end {
        End::Done => {
            assert_eq!(last, "done", "run {run}");
            assert!(&found == said, "run {run}: {} events were acknowledged, {} are kept", said.len(), found.len());
        }
        End::Lapsed(unsettled) => {
            assert_eq!(last, "apperror", "run {run}");
            let all = [said.as_slice(), unsettled].concat();
            assert!(found == *said || found == all, "run {run}: not what was acknowledged");
        }
    }
    assert_eq!(lines.len(), found.len() + 1, "run {run}: {:?}", names(lines));
}

/// The transcript holds every turn once: what was asked, all that was answered, and a notice where it was cut.
pub(crate) fn check_transcript(session: &Value, turns: &[(&str, &[String])]) {
    let mut expected = Vec::new();
    for (message, lines) in turns {
        expected.push(("user", (*message).to_owned()));
        let answer = texts(lines, "token").concat();
        if !answer.is_empty() {
            expected.push(("assistant", answer));
        }
        if names(lines).last().is_none_or(|name| name != "done") {
            expected.push(("notice", String::new()));
        }
    }
    let rows = rows(session);
    let found: Vec<&str> = rows.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(found, expected.iter().map(|(role, _)| *role).collect::<Vec<_>>());
    for ((role, content), (_, text)) in rows.iter().zip(&expected) {
        assert!(role == "notice" || content == text, "a row is not what was said: {content:?} instead of {text:?}");
    }
}

/// The roles and contents of a transcript; a marker's role is notice.
pub(crate) fn rows(session: &Value) -> Vec<(String, String)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let role = |row: &Value| if row["_error"] == true { "notice".to_owned() } else { text(row, "role") };
    let rows = session["messages"].as_array().expect("a session has messages");
    rows.iter().map(|row| (role(row), text(row, "content"))).collect()
}
