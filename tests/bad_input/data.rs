//! A data directory with one healthy session, and how commands answer on it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lastword::{Event, NewSession, Options, Outcome, RunId, SessionId, Store, UserTurn};
use tempfile::TempDir;

pub(crate) const NO: i32 = 1;
pub(crate) const USAGE: i32 = 2;
pub(crate) const STORAGE: i32 = 4;

/// A data directory with one healthy session.
pub(crate) struct Data {
    pub(crate) temp: TempDir,
    pub(crate) root: PathBuf,
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn sid(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

pub(crate) fn rid(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

impl Data {
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let data = Data { root: temp.path().join("data"), temp };
        let store = data.writer();
        store.create(NewSession::titled("Healthy").with_id(sid("good"))).unwrap();
        let run = store.begin_run(&sid("good"), UserTurn::text("hello")).unwrap();
        run.append(Event::token("healthy answer")).unwrap();
        run.finish(Outcome::Completed).unwrap();
        data
    }

    pub(crate) fn writer(&self) -> Store {
        Store::open(&self.root, Options::default()).unwrap()
    }

    pub(crate) fn reader(&self) -> Store {
        Store::open_read_only(&self.root, Options::default()).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn run(&self, args: &[&str]) -> Answer {
        self.feed(args, b"")
    }

    /// Runs the real command. One that hangs fails the test, one that panics too.
    pub(crate) fn feed(&self, args: &[&str], input: &[u8]) -> Answer {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lastword"))
            .arg("--data")
            .arg(&self.root)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        // A command that refuses early does not read the rest.
        thread::spawn(move || drop(stdin.write_all(&input)));
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(child.wait_with_output()));
        let output = receiver.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{args:?} hangs"));
        answer_of(args, &output.unwrap())
    }

    /// Ends a turn of the healthy session by the real command, and looks at it.
    pub(crate) fn assert_others_live(&self, why: &str) {
        let listed = self.run(&["ls", "--json"]);
        assert_eq!(listed.code, 0, "{why}: {listed:?}");
        assert!(listed.out.contains("\"session_id\":\"good\""), "{why}: {listed:?}");
        let turn = self.run(&["turn", "good", "--message", "again"]);
        assert_eq!(turn.code, 0, "{why}: {turn:?}");
        let input = b"{\"event\":\"token\",\"payload\":{\"text\":\"another answer\"}}\n{\"event\":\"done\"}\n";
        let appended = self.feed(&["append", "good", turn.out.trim()], input);
        assert_eq!((appended.code, appended.out.as_str()), (0, "{\"seq\":1}\n{\"seq\":2}\n"), "{why}: {appended:?}");
        let shown = self.run(&["show", "good"]);
        assert!(shown.code == 0 && shown.out.contains("another answer"), "{why}: {shown:?}");
    }

    /// A run of a session of its own with so many events, and the bytes of its journal.
    pub(crate) fn with_journal(&self, events: &[Event]) -> Vec<u8> {
        let store = self.writer();
        store.create(NewSession::titled("Bad").with_id(sid("bad"))).unwrap();
        let run = store.begin_run(&sid("bad"), UserTurn::text("hi").with_run(rid("run-1"))).unwrap();
        events.iter().for_each(|event| drop(run.append(event.clone()).unwrap()));
        fs::read(self.journal()).unwrap()
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path("_run_journal/bad/run-1.jsonl")
    }

    pub(crate) fn kept(&self) -> Vec<Vec<u8>> {
        let names = fs::read_dir(self.path("_kept/bad")).map(|names| names.collect::<Vec<_>>()).unwrap_or_default();
        names.into_iter().map(|name| fs::read(name.unwrap().path()).unwrap()).collect()
    }
}

pub(crate) fn answer_of(args: &[&str], output: &std::process::Output) -> Answer {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let answer =
        Answer { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) };
    assert!((0..=4).contains(&answer.code) && !answer.err.contains("panicked"), "{args:?}: {answer:?}");
    answer
}

/// Every file below a folder with its bytes.
pub(crate) fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files.extend(snapshot(&entry.path())),
            kind if kind.is_file() => drop(files.insert(entry.path(), fs::read(entry.path()).unwrap())),
            _ => {}
        }
    }
    files
}

pub(crate) fn three_lines(data: &Data) -> Vec<Vec<u8>> {
    let events =
        [Event::token("one"), Event::token("zw\u{f6}lf \u{2028}\u{2029}\u{85} \u{1f600}"), Event::token("three")];
    let bytes = data.with_journal(&events);
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}
