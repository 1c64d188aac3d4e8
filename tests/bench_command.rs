//! `lastword bench` as a command: its rows, its JSON, what it leaves alone, and that it leaves nothing behind.
#![allow(clippy::disallowed_methods, reason = "a test of processes waits in real time, with deadlines")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lastword::{NewSession, Options, Store};
use serde_json::Value;
use tempfile::TempDir;

const ROWS: [(&str, &[&str]); 7] = [
    (
        "appends",
        &[
            "append, buffered, 1 stream",
            "append, buffered, 16 at a time",
            "append, durable, 1 stream, p50",
            "append, buffered, 2 streams",
            "append, durable, 2 streams",
            "append, durable, 3 streams",
        ],
    ),
    (
        "sessions",
        &[
            "get_session, warm",
            "get_session, cold, 100 rows",
            #[cfg(target_os = "linux")]
            "get_session, cold, 100 rows, heap at most",
            "metadata read",
            "save after adding one row, 100 rows",
            "a small turn: begin_run, append, finish",
        ],
    ),
    (
        "recovery",
        &[
            "recovery of 500 events: look and fold",
            "get_session of a dead run, 500 events",
            "finish of 500 events: seal, fold, save",
        ],
    ),
    ("listing", &["open and first page, 1,000 sessions", "first page of 1,000 sessions", "save one of 1,000 sessions"]),
    ("doctor", &["check of 20 sessions with a journal each"]),
    ("runs", &["a supervised run of 200 events", "2 supervised runs at once, 2 events each"]),
    (
        "serve",
        &[
            "HTTP append, durable, 1 connection",
            "HTTP append, durable, 2 connections",
            "HTTP append, durable, 2 connections",
            "append to 2 followers, p50",
            "catch-up of 2 followers, 0 MB each",
        ],
    ),
];

/// A folder with a data directory in it.
struct Place {
    temp: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Place { temp: tempfile::tempdir().unwrap() };
        let store = Store::open(place.data(), Options::default()).unwrap();
        store.create(NewSession::titled("Mine")).unwrap();
        place
    }

    fn data(&self) -> PathBuf {
        self.temp.path().join("data")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lastword"));
        command.arg("--data").arg(self.data()).arg("bench").args(args).current_dir(self.temp.path());
        command
    }

    fn bench(&self, args: &[&str]) -> Output {
        self.command(&["--rounds", "1", "--scale", "0.01"]).args(args).output().unwrap()
    }

    fn names(&self) -> Vec<String> {
        names_in(self.temp.path())
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names.into_iter().map(|name| name.into_string().unwrap()).collect()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn every_row_is_printed_and_nothing_is_left_behind() {
    let place = Place::new();
    let before = names_in(&place.data());
    let told = place.bench(&[]);
    assert!(told.status.success(), "{told:?}");
    let mut lines = text(&told.stdout).lines();
    assert!(lines.next().unwrap().starts_with("operation "), "{told:?}");
    for (operation, line) in ROWS.iter().flat_map(|(_, rows)| *rows).zip(lines.by_ref()) {
        assert!(line.starts_with(&format!("{operation:<44} ")), "{operation}: {line}");
    }
    assert_eq!(lines.next(), None);
    assert_eq!(text(&told.stdout).lines().count(), 1 + ROWS.iter().map(|(_, rows)| rows.len()).sum::<usize>());
    until(|| place.names() == ["data"], "the folder is removed");
    assert_eq!(names_in(&place.data()), before);
}

#[test]
fn json_is_one_object_a_row_of_what_was_asked_for() {
    let place = Place::new();
    let told = place.bench(&["--json", "--only", "listing", "--only", "appends"]);
    assert!(told.status.success(), "{told:?}");
    let rows: Vec<Value> = text(&told.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let operations: Vec<&str> = rows.iter().map(|row| row["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, [ROWS[0].1, ROWS[3].1].concat());
    for row in &rows {
        let has_number = |key: &str| row[key].as_f64().is_some_and(|number| number > 0.0);
        assert!(["ours", "limit", "ratio", "rounds"].into_iter().all(has_number), "{row}");
        assert!(row["unit"].is_string() && row["beside"].is_string(), "{row}");
        assert!(row["met"].is_null(), "the targets are for other sizes: {row}");
    }
    assert_eq!(rows[4]["at_least"], 20.0);
    assert_eq!(rows[2]["at_most"], 1.3);
    assert_eq!(rows[5]["unit"], "events/s");
}

#[test]
fn only_full_sizes_are_judged() {
    let place = Place::new();
    let told = place.command(&["--rounds", "1", "--only", "recovery", "--json"]).output().unwrap();
    let first: Value = serde_json::from_str(text(&told.stdout).lines().next().unwrap()).unwrap();
    assert!(first["met"].is_boolean(), "{first}");
    assert_eq!(text(&told.stderr).contains("debug build"), cfg!(debug_assertions), "{told:?}");
}

#[test]
fn a_killed_measurement_leaves_nothing_behind() {
    let place = Place::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = place.command(&["--rounds", "100000", "--only", "appends", "--dir"]);
    let mut child = command.arg(elsewhere.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until(|| !names_in(elsewhere.path()).is_empty(), "a folder is made");
    let folder = elsewhere.path().join(&names_in(elsewhere.path())[0]);
    until(|| folder.join("appends/raw/buffered").exists(), "appends are measured");
    child.kill().unwrap();
    child.wait().unwrap();
    until(|| names_in(elsewhere.path()).is_empty(), "the folder is removed");
    assert_eq!(place.names(), ["data"]);
}

fn until(is_so: impl Fn() -> bool, what: &str) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_place_that_cannot_be_used_is_named_with_what_to_do() {
    let place = Place::new();
    let inside = place.data().join("_run_journal");
    fs::create_dir_all(&inside).unwrap();
    for dir in [place.data(), inside, place.temp.path().join("missing")] {
        let told = place.bench(&["--dir", dir.to_str().unwrap()]);
        assert_eq!(told.status.code(), Some(2), "{told:?}");
        assert!(text(&told.stderr).contains("--dir") && told.stdout.is_empty(), "{told:?}");
    }
}

#[test]
fn odd_sizes_are_a_usage_error() {
    let place = Place::new();
    for args in [["--scale", "0"], ["--scale", "nan"], ["--scale", "2"], ["--rounds", "0"], ["--only", "nothing"]] {
        let told = place.command(&args).output().unwrap();
        assert_eq!(told.status.code(), Some(2), "{args:?}: {told:?}");
    }
    assert_eq!(place.names(), ["data"]);
}

#[test]
fn only_a_folder_of_its_own_is_ever_removed() {
    let place = Place::new();
    let told = place.command(&["--sweep", "data"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(told.status.code(), Some(2), "{told:?}");
    assert_eq!(place.names(), ["data"]);
}
