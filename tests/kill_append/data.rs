//! A data directory of a test, and the commands that are given on it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Ended, Process};

pub(crate) const LASTWORD: &str = env!("CARGO_BIN_EXE_lastword");
pub(crate) const SESSION: &str = "trip";
pub(crate) const RUN: &str = "r1";
pub(crate) const PROMPT: &str = "Wohin? Où aller? どこへ?";

pub(crate) const BUFFERED: [&str; 5] = ["append", SESSION, RUN, "--durability", "buffered"];
pub(crate) const DURABLE: [&str; 5] = ["append", SESSION, RUN, "--durability", "durable"];
pub(crate) const DONE: &str = r#"{"event":"done","payload":{}}"#;

/// A data directory that goes with the test.
pub(crate) struct Data {
    root: PathBuf,
    _home: TempDir,
}

/// An event as `tail` shows it.
#[derive(Debug, PartialEq)]
pub(crate) struct Shown {
    pub(crate) seq: u64,
    pub(crate) event: String,
    pub(crate) text: String,
}

impl Data {
    /// A data directory that is not there yet.
    pub(crate) fn nowhere() -> Self {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory can be written");
        Data::at(home.path().join("data"), home)
    }

    /// A data directory at this place, and a directory that is removed after its use.
    pub(crate) fn at(root: PathBuf, home: TempDir) -> Self {
        Data { root, _home: home }
    }

    /// A session whose turn waits for the events of a run.
    pub(crate) fn with_turn() -> Self {
        let data = Data::nowhere();
        data.must(&["new", "--id", SESSION]);
        data.must(&["turn", SESSION, "--message", PROMPT, "--run", RUN]);
        data
    }

    /// The same files at another place.
    pub(crate) fn copy(&self) -> Self {
        let copy = Data::nowhere();
        if self.root.exists() {
            copy_folder(&self.root, &copy.root);
        }
        copy
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.root.join("_run_journal").join(SESSION).join(format!("{RUN}.jsonl"))
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(LASTWORD);
        command.arg("--data").arg(&self.root).args(args);
        command
    }

    pub(crate) fn start(&self, args: &[&str]) -> Process {
        Process::start(self.command(args))
    }

    /// Gives a command, with nothing on its stdin, and hears its answer.
    pub(crate) fn ask(&self, args: &[&str]) -> Ended {
        self.start(args).end()
    }

    /// Gives a command that has to succeed.
    pub(crate) fn must(&self, args: &[&str]) -> Ended {
        let ended = self.ask(args);
        assert_eq!(ended.code(), Some(0), "{args:?} failed: {}", ended.stderr);
        ended
    }

    /// Gives a command these lines of input and hears its answer.
    pub(crate) fn ask_with(&self, args: &[&str], input: &[String]) -> Ended {
        let mut process = self.start(args);
        let lines = input.to_vec();
        process.feed(lines.into_iter());
        process.end()
    }

    /// Appends events, which has to succeed, and gives their numbers.
    pub(crate) fn append(&self, args: &[&str], input: &[String]) -> Vec<u64> {
        let ended = self.ask_with(args, input);
        assert_eq!(ended.code(), Some(0), "{args:?} failed: {}", ended.stderr);
        ended.lines.iter().map(|line| seq_of(line)).collect()
    }

    /// The run's events behind this one.
    pub(crate) fn tail_after(&self, seq: u64) -> Vec<Shown> {
        shown(&self.must(&["tail", SESSION, RUN, "--after", &seq.to_string()]).lines)
    }

    /// The run's events, in a journal without damage.
    pub(crate) fn sound_tail(&self) -> Vec<Shown> {
        let ended = self.must(&["tail", SESSION, RUN]);
        assert_eq!(ended.stderr, "", "the journal is damaged");
        shown(&ended.lines)
    }

    /// The session as its file has it, without resolving anything; nothing if there is no file.
    pub(crate) fn stored(&self) -> Option<Value> {
        let text = fs::read_to_string(self.root.join(format!("{SESSION}.json"))).ok()?;
        Some(serde_json::from_str(&text).expect("a sidecar is JSON"))
    }

    /// Every file and folder below the data directory.
    pub(crate) fn everything(&self) -> Vec<PathBuf> {
        let mut found = vec![self.root.clone()];
        let mut at = 0;
        while at < found.len() {
            if found[at].is_dir() {
                let entries = fs::read_dir(&found[at]).expect("a folder can be listed");
                found.extend(entries.map(|entry| entry.expect("a folder can be listed").path()));
            }
            at += 1;
        }
        found
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).expect("the copy is new");
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).expect("the copy is ours");
    for entry in fs::read_dir(from).expect("the original can be listed") {
        let entry = entry.expect("the original can be listed");
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).expect("a file can be copied")),
        }
    }
}

/// The roles and contents of a session's transcript.
pub(crate) fn transcript(session: &Value) -> Vec<(String, String)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows = session["messages"].as_array().expect("a session has messages");
    rows.iter().map(|row| (text(row, "role"), text(row, "content"))).collect()
}

/// The transcript of one turn that was answered.
pub(crate) fn answered(answer: &str) -> Vec<(String, String)> {
    vec![("user".to_owned(), PROMPT.to_owned()), ("assistant".to_owned(), answer.to_owned())]
}

pub(crate) fn token(text: &str) -> String {
    json!({"event": "token", "payload": {"text": text}}).to_string()
}

/// These texts as lines of input.
pub(crate) fn lines_of(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| token(text)).collect()
}

/// The number in an acknowledgement.
pub(crate) fn seq_of(line: &str) -> u64 {
    let ack: Value = serde_json::from_str(line).expect("an acknowledgement is JSON");
    ack["seq"].as_u64().expect("an acknowledgement has a number")
}

/// The events in the lines of `tail`.
pub(crate) fn shown(lines: &[String]) -> Vec<Shown> {
    let parse = |line: &String| {
        let event: Value = serde_json::from_str(line).expect("tail prints JSON lines");
        Shown {
            seq: event["seq"].as_u64().expect("an event has a number"),
            event: event["event"].as_str().expect("an event has a name").to_owned(),
            text: event["payload"]["text"].as_str().unwrap_or_default().to_owned(),
        }
    };
    lines.iter().map(parse).collect()
}

/// These texts as the tokens of a run, from this number on.
pub(crate) fn tokens_from(first_seq: u64, texts: &[String]) -> Vec<Shown> {
    let token = |(seq, text): (u64, &String)| Shown { seq, event: "token".to_owned(), text: text.clone() };
    (first_seq..).zip(texts).map(token).collect()
}
