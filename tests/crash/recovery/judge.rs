//! What must hold of a session that was recovered, however often and whatever came in between.

use lastword::storage::sim::SimDisk;
use serde_json::Value;

use super::files::{PROMPT, bytes_of, journal, sidecar, temp_files};
use super::scenes::NEXT_RUNS;
use crate::machine::{id, open_at};

/// What a recovered transcript must hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Expected {
    /// Texts of events that were acknowledged. Each stands there once.
    pub(super) texts: Vec<String>,
    /// The names of the tools that were called. Each has one card.
    pub(super) tools: Vec<String>,
    /// How many markers there may be.
    pub(super) markers: std::ops::Range<usize>,
}

/// What the ids of the next turn's run are compared as.
fn with_one_next_run(text: String) -> String {
    NEXT_RUNS.iter().fold(text, |text, run| text.replace(run, "next"))
}

/// All files that a recovery may look at, and the one that it may change.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Files {
    pub(super) sidecar: String,
    pub(super) journal: Option<String>,
}

pub(super) fn files(disk: &SimDisk) -> Files {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("our files are text");
    Files {
        sidecar: with_one_next_run(text(bytes_of(disk, &sidecar()).expect("the session is there"))),
        journal: bytes_of(disk, &journal()).map(text),
    }
}

impl Expected {
    /// Checks the session's file, and that reading it again changes nothing.
    pub(super) fn check(&self, disk: &SimDisk, now: i64, what: &str) {
        let before = files(disk);
        self.check_sidecar(&before.sidecar, what);
        open_at(disk, now).and_then(|store| store.get_session(&id())).unwrap_or_else(|error| panic!("{error}: {what}"));
        assert_eq!(files(disk), before, "reading again changed something: {what}");
        assert_eq!(temp_files(disk), [""; 0], "a file that nobody writes any more: {what}");
    }

    fn check_sidecar(&self, text: &str, what: &str) {
        let session: Value = serde_json::from_str(text).unwrap_or_else(|cause| panic!("{cause}: {what}: {text}"));
        let rows = session["messages"].as_array().expect("a list of rows");
        let (markers, said): (Vec<&Value>, Vec<&Value>) = rows.iter().partition(|row| row["_error"] == true);
        assert!(
            self.markers.contains(&markers.len()),
            "{} markers, not {:?}: {what}: {text}",
            markers.len(),
            self.markers
        );
        let prompts = rows.iter().filter(|row| row["role"] == "user" && row["content"] == PROMPT).count();
        assert_eq!(prompts, 1, "the prompt stands there once: {what}: {text}");
        assert_eq!(session["message_count"], rows.len(), "{what}");
        self.check_texts(&said, what);
        self.check_cards(&session, what);
        let is_repeated = |(at, row): (usize, &Value)| rows[..at].contains(row);
        assert!(!rows.iter().enumerate().any(is_repeated), "a row stands there twice: {what}: {text}");
    }

    fn check_texts(&self, rows: &[&Value], what: &str) {
        let text = |row: &&Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let all: String = rows.iter().map(|row| text(row, "content") + "\n" + &text(row, "reasoning") + "\n").collect();
        for text in &self.texts {
            let times = all.matches(text.as_str()).count();
            assert_eq!(times, 1, "{text:?} stands there {times} times: {what}: {all}");
        }
    }

    fn check_cards(&self, session: &Value, what: &str) {
        let cards = session["tool_calls"].as_array().expect("a list of cards");
        let mut tools: Vec<&str> = cards.iter().filter_map(|card| card["name"].as_str()).collect();
        tools.sort_unstable();
        assert_eq!(tools, self.tools, "cards: {what}: {cards:?}");
        let rows = session["messages"].as_array().map_or(0, Vec::len) as u64;
        let is_tied = |card: &Value| card["assistant_msg_idx"].as_u64().is_some_and(|row| row < rows);
        assert!(cards.iter().all(is_tied), "a card without its row: {what}: {cards:?}");
    }
}
