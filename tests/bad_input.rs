//! Bad input of every kind: each bad thing is named, stops nobody else, and stays as it is.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lastword::format::{DamageKind, LineShape, Record, Scanner, encode, read_head, read_session};
use lastword::limits::{LINE_BYTES_MAX, SIDECAR_BYTES_MAX};
use lastword::{
    After, Event, List, NewSession, Options, Outcome, ReadOptions, RunId, SessionId, SidecarError, Store, StoreError,
    UserTurn,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tempfile::TempDir;

const NO: i32 = 1;
const USAGE: i32 = 2;
const STORAGE: i32 = 4;

/// A data directory with one healthy session.
struct Data {
    temp: TempDir,
    root: PathBuf,
}

/// What a command answered.
#[derive(Debug)]
struct Answer {
    code: i32,
    out: String,
    err: String,
}

fn sid(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn rid(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

impl Data {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let data = Data { root: temp.path().join("data"), temp };
        let store = data.writer();
        store.create(NewSession::titled("Healthy").with_id(sid("good"))).unwrap();
        let run = store.begin_run(&sid("good"), UserTurn::text("hello")).unwrap();
        run.append(Event::token("healthy answer")).unwrap();
        run.finish(Outcome::Completed).unwrap();
        data
    }

    fn writer(&self) -> Store {
        Store::open(&self.root, Options::default()).unwrap()
    }

    fn reader(&self) -> Store {
        Store::open_read_only(&self.root, Options::default()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn run(&self, args: &[&str]) -> Answer {
        self.feed(args, b"")
    }

    /// Runs the real command. One that hangs fails the test, one that panics too.
    fn feed(&self, args: &[&str], input: &[u8]) -> Answer {
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
    fn assert_others_live(&self, why: &str) {
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
    fn with_journal(&self, events: &[Event]) -> Vec<u8> {
        let store = self.writer();
        store.create(NewSession::titled("Bad").with_id(sid("bad"))).unwrap();
        let run = store.begin_run(&sid("bad"), UserTurn::text("hi").with_run(rid("run-1"))).unwrap();
        events.iter().for_each(|event| drop(run.append(event.clone()).unwrap()));
        fs::read(self.journal()).unwrap()
    }

    fn journal(&self) -> PathBuf {
        self.path("_run_journal/bad/run-1.jsonl")
    }

    fn kept(&self) -> Vec<Vec<u8>> {
        let names = fs::read_dir(self.path("_kept/bad")).map(|names| names.collect::<Vec<_>>()).unwrap_or_default();
        names.into_iter().map(|name| fs::read(name.unwrap().path()).unwrap()).collect()
    }
}

fn answer_of(args: &[&str], output: &std::process::Output) -> Answer {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let answer =
        Answer { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) };
    assert!((0..=4).contains(&answer.code) && !answer.err.contains("panicked"), "{args:?}: {answer:?}");
    answer
}

/// Every file below a folder with its bytes.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
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

// ---- sidecars ----

fn unreadable_sidecars() -> Vec<(&'static str, Vec<u8>)> {
    let nested = "[".repeat(100_000);
    vec![
        ("empty", vec![]),
        ("white space", b" \n\t ".to_vec()),
        ("NUL bytes", vec![0; 9000]),
        ("NUL behind the object", b"{\"messages\":[]}\0".to_vec()),
        ("invalid UTF-8", b"{\"title\":\"\xff\",\"messages\":[]}".to_vec()),
        ("half a character", b"{\"title\":\"\xe2\x82".to_vec()),
        ("a list", b"[1, 2]".to_vec()),
        ("a number", b"12".to_vec()),
        ("a text", b"\"{}\"".to_vec()),
        ("null", b"null".to_vec()),
        ("two objects", b"{}{}".to_vec()),
        ("no quotes", b"{title: 1}".to_vec()),
        ("NaN", b"{\"updated_at\":NaN}".to_vec()),
        ("a raw control byte", b"{\"title\":\"a\x01b\"}".to_vec()),
        ("open brackets", nested.clone().into_bytes()),
        ("open brackets in a key", format!("{{\"messages\":{nested}").into_bytes()),
        ("a byte order mark", b"\xef\xbb\xbf{}".to_vec()),
    ]
}

#[test]
fn an_unreadable_sidecar_is_named_kept_and_stops_nobody_else() {
    let data = Data::new();
    for (why, bytes) in unreadable_sidecars() {
        fs::write(data.path("bad.json"), &bytes).unwrap();
        for args in [&["show", "bad"][..], &["show", "bad", "--metadata"], &["turn", "bad", "--message", "x"]] {
            let answer = data.run(args);
            assert_eq!(answer.code, NO, "{why}, {args:?}: {answer:?}");
            assert!(answer.err.contains("session bad is unreadable"), "{why}: {answer:?}");
        }
        let listed = data.run(&["ls"]);
        assert!(listed.code == 0 && listed.err.contains("bad"), "{why}: {listed:?}");
        assert!(fs::read(data.path("bad.json")).unwrap() == bytes, "{why}: it was changed");
    }
    data.assert_others_live("unreadable sidecars");
}

#[test]
fn an_id_whose_sidecar_is_unreadable_is_not_created_over_it() {
    let data = Data::new();
    fs::write(data.path("bad.json"), b"{").unwrap();
    let answer = data.run(&["new", "--id", "bad"]);
    assert_eq!(answer.code, NO, "{answer:?}");
    assert_eq!(fs::read(data.path("bad.json")).unwrap(), b"{");
}

#[test]
fn a_sidecar_cut_at_any_byte_is_unreadable_and_the_other_session_is_listed() {
    let data = Data::new();
    let store = data.writer();
    store.create(NewSession::titled("caf\u{e9}").with_id(sid("bad"))).unwrap();
    let whole = fs::read(data.path("bad.json")).unwrap();
    for cut in 0..whole.len() - 1 {
        fs::write(data.path("bad.json"), &whole[..cut]).unwrap();
        let found = store.get_session(&sid("bad"));
        let is_named = matches!(found, Err(StoreError::Sidecar(SidecarError::Unreadable { .. })));
        assert!(is_named, "cut at {cut}: {found:?}");
        let refused = store.begin_run(&sid("bad"), UserTurn::text("x"));
        assert!(refused.is_err(), "cut at {cut}");
        let listed = store.list().unwrap();
        assert_eq!(listed.iter().filter(|entry| entry.metadata.is_ok() && entry.id == sid("good")).count(), 1);
        assert!(fs::read(data.path("bad.json")).unwrap() == whole[..cut], "cut at {cut}: it was changed");
    }
}

#[test]
fn what_lies_in_the_place_of_a_sidecar_is_named_and_stops_nobody_else() {
    let data = Data::new();
    fs::create_dir(data.path("folder.json")).unwrap();
    symlink("nowhere", data.path("dangling.json")).unwrap();
    symlink("loop.json", data.path("loop.json")).unwrap();
    symlink("/dev/zero", data.path("device.json")).unwrap();
    assert!(Command::new("mkfifo").arg(data.path("pipe.json")).status().unwrap().success());
    fs::File::create(data.path("huge.json")).unwrap().set_len(SIDECAR_BYTES_MAX * 8).unwrap();
    let expected = [
        ("folder", STORAGE),
        ("dangling", NO),
        ("loop", STORAGE),
        ("device", STORAGE),
        ("pipe", STORAGE),
        ("huge", STORAGE),
    ];
    for (id, code) in expected {
        for args in [&["show", id][..], &["show", id, "--metadata"], &["turn", id, "--message", "x"]] {
            let answer = data.run(args);
            assert_eq!(answer.code, code, "{id}, {args:?}: {answer:?}");
            assert!(answer.err.contains(id), "{answer:?}");
        }
    }
    data.assert_others_live("things in the place of sidecars");
}

fn odd_sidecars() -> Vec<(&'static str, String)> {
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let digits = "9".repeat(1000);
    vec![
        ("nesting", format!("{{\"title\":\"t\",\"deep\":{nested},\"messages\":[{{\"role\":\"user\",\"content\":{nested}}}]}}")),
        ("huge numbers", format!("{{\"updated_at\":1e999,\"created_at\":-1e999,\"message_count\":{digits},\"n\":{digits}.{digits}e{digits},\"messages\":[{{\"timestamp\":1e308}},{{\"timestamp\":-{digits}}}]}}")),
        ("equal keys", "{\"title\":\"one\",\"title\":\"two\",\"messages\":[1],\"messages\":[{\"role\":\"user\",\"role\":\"x\"}]}".into()),
        ("no keys", "{}".into()),
        ("messages null", "{\"title\":\"t\",\"messages\":null}".into()),
        ("messages an object", "{\"title\":\"t\",\"messages\":{\"0\":{}}}".into()),
        ("messages a text", "{\"title\":\"t\",\"messages\":\"[]\"}".into()),
        ("rows that are no objects", "{\"messages\":[null,1,\"x\",[],true,{\"content\":null}],\"tool_calls\":[0],\"context_messages\":[false]}".into()),
        ("metadata of other kinds", "{\"session_id\":[],\"title\":{\"a\":1},\"updated_at\":\"x\",\"message_count\":-1,\"active_stream_id\":7,\"pending_user_message\":[],\"messages\":[]}".into()),
        ("lone surrogates", "{\"title\":\"\\ud800x\",\"k\\udfff\":\"\\ud83d\",\"messages\":[{\"role\":\"user\",\"content\":\"a\\udc00\",\"\\ud801\":1}]}".into()),
    ]
}

#[test]
fn an_odd_sidecar_is_shown_listed_and_keeps_every_value_over_a_turn() {
    let data = Data::new();
    for (why, text) in odd_sidecars() {
        fs::write(data.path("odd.json"), &text).unwrap();
        for args in [&["show", "odd"][..], &["show", "odd", "--json"], &["show", "odd", "--metadata", "--json"]] {
            let answer = data.run(args);
            assert_eq!(answer.code, 0, "{why}, {args:?}: {:.300}", answer.err);
        }
        let listed = data.run(&["ls", "--json"]);
        assert!(listed.out.contains("\"session_id\":\"odd\""), "{why}: {:.300}", listed.err);
        assert_eq!(fs::read_to_string(data.path("odd.json")).unwrap(), text, "{why}: reading changed it");
        assert_eq!(data.run(&["turn", "odd", "--message", "x"]).code, 0, "{why}");
        assert_values_kept(why, &text, &fs::read(data.path("odd.json")).unwrap());
    }
    data.assert_others_live("odd sidecars");
}

/// Every list item that was there is there, spelt as it was.
fn assert_values_kept(why: &str, before: &str, after: &[u8]) {
    let before = read_session(&sid("odd"), before.as_bytes().to_vec()).unwrap();
    let after = read_session(&sid("odd"), after.to_vec()).unwrap();
    for list in List::ALL {
        assert!(before.texts(list).eq(after.texts(list)), "{why}: {list:?}");
    }
    for key in ["title", "deep", "n", "k\\udfff", "created_at", "session_id"] {
        assert!(before.get(key) == after.get(key), "{why}: {key}");
    }
}

#[test]
fn an_answer_that_has_no_transcript_to_go_to_stays_in_its_journal() {
    let data = Data::new();
    fs::write(data.path("odd.json"), b"{\"title\":\"t\",\"messages\":\"not a list\"}").unwrap();
    assert_eq!(data.run(&["turn", "odd", "--message", "x", "--run", "run-1"]).code, 0);
    let input = b"{\"event\":\"token\",\"payload\":{\"text\":\"the words\"}}\n{\"event\":\"done\"}\n";
    let answer = data.feed(&["append", "odd", "run-1"], input);
    assert_eq!((answer.code, answer.out.as_str()), (NO, "{\"seq\":1}\n"), "{answer:?}");
    assert!(answer.err.contains("messages"), "{answer:?}");
    assert!(data.run(&["tail", "odd", "run-1"]).out.contains("the words"));
    assert!(fs::read_to_string(data.path("odd.json")).unwrap().contains("\"not a list\""));
}

#[test]
fn a_key_is_shown_as_it_is_meant() {
    let data = Data::new();
    let text = "{\"session_id\":\"k\",\"title\":\"t\",\"updated_at\":1,\"a\\\"b\\u00e9\":7,\"message_count\":0,\"messages\":[]}";
    fs::write(data.path("k.json"), text).unwrap();
    let shown = data.run(&["show", "k", "--metadata", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(object["a\"b\u{e9}"], 7, "{shown:?}");
}

// ---- ids ----

#[test]
fn a_bad_id_is_not_found_when_read_and_wrong_usage_when_made() {
    let data = Data::new();
    let before = snapshot(data.temp.path());
    let long = "x".repeat(300);
    let bad = ["", ".", "..", "../good", "a/b", "/etc/passwd", "a\\b", "a b", "caf\u{e9}", "\u{1f600}", "a\nb", &long];
    for id in bad.into_iter().chain(["_index", "_lock", "good.json", "good/"]) {
        for args in [&["show", id][..], &["turn", id, "--message", "x"], &["append", id, "r"], &["tail", id, "r"]] {
            assert_eq!(data.run(args).code, NO, "{args:?}");
        }
        assert_eq!(data.run(&["new", "--id", id]).code, USAGE, "new {id:?}");
    }
    for run in bad {
        assert_eq!(data.run(&["tail", "good", run]).code, NO, "tail {run:?}");
        assert_eq!(data.run(&["append", "good", run]).code, NO, "append {run:?}");
        assert_eq!(data.run(&["turn", "good", "--message", "x", "--run", run]).code, USAGE, "turn {run:?}");
    }
    assert!(SessionId::parse("a\0b").is_err() && RunId::parse("a\0b").is_err());
    let lock = data.path("_lock");
    let after = snapshot(data.temp.path());
    assert!(before.iter().all(|(path, bytes)| *path == lock || after.get(path) == Some(bytes)));
    assert_eq!(before.len(), after.len(), "something was created");
}

#[test]
fn a_run_id_that_occurs_within_a_text_is_free() {
    let data = Data::new();
    assert_eq!(data.run(&["turn", "good", "--message", "x", "--run", "ello"]).code, 0);
}

// ---- journals: reading ----

fn three_lines(data: &Data) -> Vec<Vec<u8>> {
    let events =
        [Event::token("one"), Event::token("zw\u{f6}lf \u{2028}\u{2029}\u{85} \u{1f600}"), Event::token("three")];
    let bytes = data.with_journal(&events);
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn without_line_feed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap()
}

type Case = (&'static str, Vec<u8>, Vec<u64>, Vec<DamageKind>);

fn bad_journals(lines: &[Vec<u8>]) -> Vec<Case> {
    use DamageKind::*;
    let (one, two, three) = (&lines[0][..], &lines[1][..], &lines[2][..]);
    let nuls = &[0; 5000][..];
    let crlf = |line| [without_line_feed(line), b"\r\n"].concat();
    let in_character = two.windows(2).position(|pair| pair == "\u{f6}".as_bytes()).unwrap() + 1;
    let mut changed = two.to_vec();
    changed[in_character - 3] ^= 1;
    let all = || vec![1, 2, 3];
    vec![
        ("empty", vec![], vec![], vec![]),
        ("NUL before", [nuls, one, two, three].concat(), all(), vec![NulRun]),
        ("NUL between", [one, nuls, two, nuls, b"\n", three].concat(), all(), vec![NulRun, NulRun]),
        ("NUL behind", [one, two, three, nuls].concat(), all(), vec![TornTail]),
        (
            "NUL instead of line feeds",
            [without_line_feed(one), b"\0", without_line_feed(two), b"\0", three].concat(),
            all(),
            vec![GluedRecords; 3],
        ),
        ("bad UTF-8", [one, b"\"\xff\xfe\"\n", two, three].concat(), all(), vec![BadUtf8]),
        (
            "bad UTF-8 within a line",
            [one, &two.iter().map(|b| if *b == 0xc3 { 0xff } else { *b }).collect::<Vec<_>>(), three].concat(),
            vec![1, 3],
            vec![BadUtf8],
        ),
        ("garbage", [one, b"garbage\n}{\n[]\n", two, three].concat(), all(), vec![BadJson; 3]),
        ("open brackets", [one, "[".repeat(100_000).as_bytes(), b"\n", two, three].concat(), all(), vec![BadJson]),
        ("glued", [without_line_feed(one), without_line_feed(two), three].concat(), all(), vec![GluedRecords]),
        ("glued to a torn one", [&one[..40], two, three].concat(), vec![2, 3], vec![GluedRecords]),
        ("CRLF", [crlf(one), crlf(two), crlf(three)].concat(), all(), vec![]),
        ("a byte order mark", [b"\xef\xbb\xbf", one, two, three].concat(), all(), vec![]),
        ("blank lines", [b"\n \n", one, b"\r\n", two, three, b"\n"].concat(), all(), vec![]),
        ("no final line feed", [one, two, without_line_feed(three)].concat(), all(), vec![]),
        ("torn in a character", [one, &two[..in_character]].concat(), vec![1], vec![TornTail]),
        ("one changed bit", [one, &changed, three].concat(), vec![1, 3], vec![ChecksumMismatch]),
        (
            "numbers out of range",
            [one, b"{\"seq\":18446744073709551615}\n{\"seq\":1e3}\n{\"seq\":-1}\n{\"seq\":0}\n", two].concat(),
            vec![1, 0, 0, 0, 0, 2],
            vec![],
        ),
        (
            "lone surrogates",
            [one, b"{\"seq\":2,\"event\":\"\\ud800\",\"payload\":{\"\\udfff\":\"\\ud83d\"}}\n"].concat(),
            vec![1, 2],
            vec![],
        ),
    ]
}

#[test]
fn a_bad_journal_gives_every_good_line_names_its_damage_and_stays_as_it_is() {
    let data = Data::new();
    let lines = three_lines(&data);
    for (why, bytes, seqs, damage) in bad_journals(&lines) {
        fs::write(data.journal(), &bytes).unwrap();
        let found = data.reader().read_events(&sid("bad"), &rid("run-1"), ReadOptions::default()).unwrap();
        assert_eq!(found.events.iter().map(|event| event.seq.unwrap_or(0)).collect::<Vec<_>>(), seqs, "{why}");
        assert_eq!(found.damage.iter().map(|damage| damage.kind).collect::<Vec<_>>(), damage, "{why}");
        let tail = data.run(&["tail", "bad", "run-1"]);
        assert_eq!((tail.code, tail.out.lines().count()), (0, seqs.len()), "{why}: {tail:?}");
        assert!(damage.iter().all(|damage| tail.err.contains(damage.code())), "{why}: {tail:?}");
        assert_eq!(data.run(&["show", "bad"]).code, 0, "{why}");
        assert!(fs::read(data.journal()).unwrap() == bytes, "{why}: it was changed");
    }
    data.assert_others_live("bad journals");
}

#[test]
fn a_line_of_100_megabytes_hides_no_neighbour() {
    let data = Data::new();
    let lines = three_lines(&data);
    let bytes = [&lines[0][..], &vec![b'x'; 100_000_000], b"\n", &lines[1]].concat();
    fs::write(data.journal(), &bytes).unwrap();
    let found = data.reader().read_events(&sid("bad"), &rid("run-1"), ReadOptions::default()).unwrap();
    assert_eq!(found.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!((found.damage[0].kind, found.damage[0].bytes), (DamageKind::LineTooLong, 100_000_000));
}

#[test]
fn whether_a_line_is_too_long_does_not_depend_on_how_it_is_read() {
    let mut line = b"{\"seq\":1,\"event\":\"token\",\"payload\":\"".to_vec();
    line.resize(LINE_BYTES_MAX + 10_000, b'x');
    line.extend_from_slice(b"\"}\n");
    for step in [4096, 256 * 1024, 64 * 1024 * 1024] {
        let found = scan(&line, &["s", "r"], step);
        assert_eq!(found, [Seen::Damage(DamageKind::LineTooLong)], "{step} bytes at a time");
    }
}

#[test]
fn lines_of_another_session_are_read_as_they_lie_and_folded_by_nobody() {
    let data = Data::new();
    let lines = three_lines(&data).concat();
    fs::create_dir_all(data.path("_run_journal/good")).unwrap();
    fs::write(data.path("_run_journal/good/run-1.jsonl"), &lines).unwrap();
    let tail = data.run(&["tail", "good", "run-1"]);
    assert_eq!((tail.code, tail.out.as_bytes()), (0, &lines[..]));
    let summary = data.reader().run_summary(&sid("good"), &rid("run-1")).unwrap().unwrap();
    assert_eq!((summary.events, summary.last_seq), (3, 3));
    assert!(!data.run(&["show", "good"]).out.contains("three"));
    data.assert_others_live("another session's lines");
}

#[test]
fn what_lies_in_the_place_of_a_journal_is_named_and_stops_nobody_else() {
    let data = Data::new();
    three_lines(&data);
    let place = |name: &str| data.path(&format!("_run_journal/bad/{name}.jsonl"));
    fs::create_dir(place("folder")).unwrap();
    symlink("loop.jsonl", place("loop")).unwrap();
    symlink("nowhere", place("dangling")).unwrap();
    assert!(Command::new("mkfifo").arg(place("pipe")).status().unwrap().success());
    for (run, code) in [("folder", STORAGE), ("loop", STORAGE), ("dangling", NO), ("pipe", STORAGE), ("missing", NO)] {
        for args in [&["tail", "bad", run][..], &["tail", "bad", run, "--follow"], &["append", "bad", run]] {
            let answer = data.feed(args, b"{\"event\":\"token\"}\n");
            assert_eq!((answer.code, answer.out.as_str()), (code, ""), "{args:?}: {answer:?}");
            assert!(answer.err.contains(run), "{args:?}: {answer:?}");
        }
    }
    assert_eq!(data.run(&["tail", "bad", "run-1"]).out.lines().count(), 3);
    data.assert_others_live("things in the place of journals");
}

#[test]
fn a_follower_does_not_mix_a_torn_line_with_the_one_written_in_its_place() {
    let data = Data::new();
    let lines = three_lines(&data);
    let torn = without_line_feed(&lines[2]).len() - 40;
    fs::write(data.journal(), [&lines[0][..], &lines[1], &lines[2][..torn]].concat()).unwrap();
    let mut follow = data.reader().follow(&sid("bad"), &rid("run-1"), After::Seq(2)).unwrap();
    assert!(follow.poll().unwrap().is_none());
    let run = data.writer().resume_run(&sid("bad"), &rid("run-1")).unwrap();
    run.append(Event::token("in its place")).unwrap();
    assert!(follow.poll().unwrap().unwrap().payload().contains("in its place"));
}

// ---- journals: appending ----

#[test]
fn an_append_behind_a_line_torn_at_any_byte_keeps_the_fragment_and_every_line_before() {
    let data = Data::new();
    let lines = three_lines(&data);
    let (before, torn) = (lines[..2].concat(), without_line_feed(&lines[2]));
    let store = data.writer();
    for cut in 1..torn.len() {
        let _ = fs::remove_dir_all(data.path("_kept"));
        fs::write(data.journal(), [&before[..], &torn[..cut]].concat()).unwrap();
        let run = store.resume_run(&sid("bad"), &rid("run-1")).unwrap();
        assert_eq!(run.append(Event::token("next")).unwrap().last_seq, 3, "cut at {cut}");
        let now = fs::read(data.journal()).unwrap();
        assert!(now.starts_with(&before) && now.ends_with(b"\n"), "cut at {cut}");
        assert_eq!(now.iter().filter(|byte| **byte == b'\n').count(), 3, "cut at {cut}");
        assert_eq!(data.kept(), [&torn[..cut]], "cut at {cut}");
    }
}

#[test]
fn an_append_behind_damage_changes_none_of_the_bytes_that_were_there() {
    let data = Data::new();
    let lines = three_lines(&data);
    for (why, bytes, ..) in bad_journals(&lines) {
        let _ = fs::remove_dir_all(data.path("_kept"));
        fs::write(data.journal(), &bytes).unwrap();
        let answer = data.feed(&["append", "bad", "run-1"], b"{\"event\":\"token\",\"payload\":{\"text\":\"next\"}}\n");
        assert_eq!(answer.code, 0, "{why}: {answer:?}");
        let now = fs::read(data.journal()).unwrap();
        let same = now.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
        let cut = &bytes[same..];
        let is_kept = |kept: &Vec<u8>| bytes.ends_with(kept) && kept.ends_with(cut);
        assert!(
            cut.iter().all(|byte| *byte == 0) || data.kept().iter().any(is_kept),
            "{why}: {} bytes are gone",
            cut.len()
        );
        let last = data.run(&["tail", "bad", "run-1"]).out.lines().last().unwrap_or_default().to_owned();
        assert!(last.contains("\"next\""), "{why}: {last}");
    }
}

#[test]
fn a_torn_tail_longer_than_any_line_is_kept_too() {
    let data = Data::new();
    let lines = three_lines(&data);
    let tail = [&vec![0; LINE_BYTES_MAX + 1][..], b"precious words"].concat();
    fs::write(data.journal(), [&lines[0][..], &tail].concat()).unwrap();
    let run = data.writer().resume_run(&sid("bad"), &rid("run-1")).unwrap();
    run.append(Event::token("next")).unwrap();
    assert!(data.kept().iter().any(|kept| kept.ends_with(b"precious words")));
}

#[test]
fn a_number_that_another_program_may_have_shown_is_left_out() {
    let data = Data::new();
    fs::create_dir_all(data.path("_run_journal/good")).unwrap();
    fs::write(data.path("_run_journal/good/f.jsonl"), b"{\"seq\":1,\"event\":\"token\"}\n{\"seq\":2,\"ev").unwrap();
    let answer = data.feed(&["append", "good", "f"], b"{\"event\":\"token\"}\n");
    assert_eq!((answer.code, answer.out.as_str()), (0, "{\"seq\":3}\n"), "{answer:?}");
}

#[test]
fn a_journal_whose_numbers_are_used_up_takes_no_more() {
    let data = Data::new();
    fs::create_dir_all(data.path("_run_journal/good")).unwrap();
    let path = data.path("_run_journal/good/f.jsonl");
    let line = b"{\"seq\":9007199254740991,\"event\":\"token\"}\n";
    fs::write(&path, line).unwrap();
    let answer = data.feed(&["append", "good", "f"], b"{\"event\":\"token\"}\n");
    assert_eq!((answer.code, answer.out.as_str()), (NO, ""), "{answer:?}");
    assert_eq!(fs::read(&path).unwrap(), line);
}

// ---- append's input ----

type Input = (&'static str, Vec<u8>, i32, usize);

fn inputs() -> Vec<Input> {
    let good = "{\"event\":\"token\",\"payload\":{\"text\":\"x\"}}";
    let named = |name: &str| format!("{{\"event\":\"{name}\"}}\n").into_bytes();
    vec![
        ("nothing", vec![], 0, 0),
        ("no JSON", b"token\n".to_vec(), USAGE, 0),
        ("half an object", b"{\"event\":\"token\"\n".to_vec(), USAGE, 0),
        ("a text", b"\"token\"\n".to_vec(), USAGE, 0),
        ("no event", b"{\"payload\":{}}\n".to_vec(), USAGE, 0),
        ("an event that is no text", b"{\"event\":7}\n".to_vec(), USAGE, 0),
        ("an event twice", b"{\"event\":\"a\",\"event\":\"b\"}\n".to_vec(), USAGE, 0),
        ("raw control bytes", b"{\"event\":\"token\",\"payload\":{\"text\":\"a\x01b\"}}\n".to_vec(), USAGE, 0),
        ("a NUL byte", b"{\"event\":\"token\"}\0\n".to_vec(), USAGE, 0),
        ("invalid UTF-8", b"{\"event\":\"token\",\"payload\":\"\xff\"}\n".to_vec(), USAGE, 0),
        ("an empty name", named(""), USAGE, 0),
        ("a blank name", named("  "), USAGE, 0),
        ("a long name", named(&"n".repeat(300)), USAGE, 0),
        ("a name with a line feed", named("a\\nb"), USAGE, 0),
        ("half a surrogate pair in the name", named("\\ud800"), USAGE, 0),
        (
            "half a surrogate pair in the payload",
            b"{\"event\":\"token\",\"payload\":{\"text\":\"\\ud83d\",\"\\udfff\":0}}\n".to_vec(),
            0,
            1,
        ),
        ("no payload", named("token"), 0, 1),
        ("a payload of null", b"{\"event\":\"token\",\"payload\":null}\n".to_vec(), 0, 1),
        ("no final line feed", good.as_bytes().to_vec(), 0, 1),
        ("CRLF", format!("{good}\r\n{good}\r\n").into_bytes(), 0, 2),
        ("blank lines", format!("\n\n  \n{good}\n\r\n{good}\n\n").into_bytes(), 0, 2),
        ("a bad line between good ones", format!("{good}\nbad\n{good}\n").into_bytes(), USAGE, 1),
        ("a line separator", "{\"event\":\"token\",\"payload\":{\"text\":\"a\u{2028}b\"}}\n".into(), 0, 1),
        ("open brackets", format!("{{\"event\":\"x\",\"payload\":{}\n", "[".repeat(100_000)).into_bytes(), USAGE, 0),
        ("more behind a done", format!("{{\"event\":\"done\"}}\n{good}\n").into_bytes(), NO, 1),
        (
            "an end, its end, and more",
            format!("{{\"event\":\"done\"}}\n{{\"event\":\"stream_end\"}}\n{good}\n").into_bytes(),
            NO,
            2,
        ),
        ("two ends", b"{\"event\":\"cancel\"}\n{\"event\":\"done\"}\n".to_vec(), NO, 1),
    ]
}

#[test]
fn each_line_of_input_is_acknowledged_or_refused_by_its_number() {
    let data = Data::new();
    for (at, (why, input, code, acknowledged)) in inputs().into_iter().enumerate() {
        let (id, run) = (format!("s{at}"), format!("run-{at}"));
        data.run(&["new", "--id", &id]);
        data.run(&["turn", &id, "--message", "x", "--run", &run]);
        let answer = data.feed(&["append", &id, &run], &input);
        let seqs: String = (1..=acknowledged).map(|seq| format!("{{\"seq\":{seq}}}\n")).collect();
        assert_eq!((answer.code, &answer.out), (code, &seqs), "{why}: {answer:?}");
        assert!(code != USAGE || answer.err.contains("line "), "{why}: {answer:?}");
        let tail = data.run(&["tail", &id, &run]);
        assert_eq!((tail.out.lines().count(), tail.err.as_str()), (acknowledged, ""), "{why}: {tail:?}");
    }
    data.assert_others_live("bad input");
}

#[test]
fn half_a_surrogate_pair_is_journalled_as_it_came() {
    let data = Data::new();
    three_lines(&data);
    data.feed(&["append", "bad", "run-1"], b"{\"event\":\"token\",\"payload\":{\"text\":\"\\ud83d\"}}\n");
    assert!(fs::read_to_string(data.journal()).unwrap().contains("\"payload\":{\"text\":\"\\ud83d\"}"));
}

#[test]
fn a_line_of_17_megabytes_is_refused_and_what_came_before_it_stands() {
    let data = Data::new();
    three_lines(&data);
    let long = format!("{{\"event\":\"token\"}}\n{{\"event\":\"token\",\"payload\":\"{}\"}}\n", "x".repeat(17_000_000));
    let answer = data.feed(&["append", "bad", "run-1"], long.as_bytes());
    assert_eq!((answer.code, answer.out.as_str()), (USAGE, "{\"seq\":4}\n"), "{:.300}", answer.err);
    assert!(answer.err.contains("line 2"), "{:.300}", answer.err);
    let again = data.feed(&["append", "bad", "run-1"], b"{\"event\":\"done\"}\n");
    assert_eq!((again.code, again.out.as_str()), (0, "{\"seq\":5}\n"), "{again:?}");
}

#[test]
fn a_sealed_run_refuses_events_of_a_later_command() {
    let data = Data::new();
    three_lines(&data);
    assert_eq!(data.feed(&["append", "bad", "run-1"], b"{\"event\":\"done\"}\n").code, 0);
    let before = fs::read(data.journal()).unwrap();
    let answer = data.feed(&["append", "bad", "run-1"], b"{\"event\":\"token\"}\n");
    assert_eq!((answer.code, answer.out.as_str()), (NO, ""), "{answer:?}");
    assert!(answer.err.contains("run-1 has ended"), "{answer:?}");
    assert_eq!(fs::read(data.journal()).unwrap(), before);
}

// ---- foreign files ----

fn foreign_names() -> Vec<Vec<u8>> {
    let plain =
        [".DS_Store", "._x.json", "_index.json", "x.json.bak", "a b.json", "Thumbs.db", ".json", "x.jsonl", "x.json~"];
    let odd: [&[u8]; 3] = [b"caf\xe9.json", b"\xff\xfe", b"_\xff.json"];
    plain.iter().map(|name| name.as_bytes().to_vec()).chain(odd.map(<[u8]>::to_vec)).collect()
}

#[test]
fn foreign_files_are_no_sessions_no_runs_and_stay_as_they_are() {
    let data = Data::new();
    three_lines(&data);
    let folders = [data.root.clone(), data.path("_run_journal"), data.path("_run_journal/bad"), data.path("_kept")];
    fs::create_dir_all(&folders[3]).unwrap();
    let all =
        folders.iter().flat_map(|folder| foreign_names().into_iter().map(|name| folder.join(OsStr::from_bytes(&name))));
    let all: Vec<PathBuf> = all.filter(|path| !path.ends_with("_run_journal/bad/x.jsonl")).collect();
    all.iter().for_each(|path| fs::write(path, b"\0garbage").unwrap());
    data.assert_others_live("foreign files");
    let listed = data.run(&["ls", "--json"]);
    assert_eq!((listed.out.lines().count(), listed.err.as_str()), (2, ""), "{listed:?}");
    assert_eq!(data.reader().runs(&sid("bad")).unwrap(), [rid("run-1")]);
    assert!(all.iter().all(|path| fs::read(path).unwrap() == b"\0garbage"));
}

#[test]
fn temp_files_of_whatever_name_keep_no_writer_out() {
    let data = Data::new();
    for name in [&b"_tmp-0123456789abcdef"[..], b"_tmp-\xff\xfe", b"_tmp-"] {
        fs::write(data.root.join(OsStr::from_bytes(name)), b"half").unwrap();
    }
    fs::create_dir(data.path("_tmp-folder")).unwrap();
    data.assert_others_live("stale temp files");
    assert!(!data.path("_tmp-0123456789abcdef").exists());
}

#[test]
fn a_damaged_tombstone_keeps_no_writer_out_and_revives_nobody() {
    let data = Data::new();
    let store = data.writer();
    store.create(NewSession::titled("Gone").with_id(sid("gone"))).unwrap();
    drop(store);
    fs::create_dir_all(data.path("_tombstones")).unwrap();
    fs::write(data.path("_tombstones/gone.json"), b"").unwrap();
    data.assert_others_live("a damaged tombstone");
    assert_eq!(data.run(&["show", "gone"]).code, NO);
    assert!(snapshot(&data.path("_trash")).keys().any(|path| path.ends_with("session.json")));
}

// ---- anything at all ----

/// What the scanner made of some bytes.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Event { text: String, checked: bool },
    Damage(DamageKind),
}

fn seen(record: &Record<'_>) -> Seen {
    match record {
        Record::Event(event) => Seen::Event { text: event.text.to_owned(), checked: event.checked },
        Record::Damage(damage) => Seen::Damage(damage.kind),
    }
}

fn scan(bytes: &[u8], ids: &[&str; 2], step: usize) -> Vec<Seen> {
    let mut scanner = Scanner::new(LineShape::new(&sid(ids[0]), &rid(ids[1])), 0);
    let mut found = Vec::new();
    for piece in bytes.chunks(step) {
        let fed = scanner.feed(piece.len(), |room| {
            room.copy_from_slice(piece);
            Ok::<_, ()>(piece.len())
        });
        assert_eq!(fed, Ok(piece.len()));
        while let Some(record) = scanner.next_record() {
            found.push(seen(&record));
        }
    }
    while let Some(record) = scanner.next_of_tail() {
        found.push(seen(&record));
    }
    found
}

/// One accident. Places are taken modulo the length.
#[derive(Debug, Clone)]
enum Accident {
    FlipBit(usize),
    Cut(usize),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Copy { from: usize, len: usize, to: usize },
    Zero(usize, usize),
}

fn accident() -> impl Strategy<Value = Accident> {
    let place = 0..1_000_000_usize;
    prop_oneof![
        place.clone().prop_map(Accident::FlipBit),
        place.clone().prop_map(Accident::Cut),
        (place.clone(), proptest::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(at, bytes)| Accident::Insert(at, bytes)),
        (place.clone(), 1..300_usize).prop_map(|(at, len)| Accident::Remove(at, len)),
        (place.clone(), 1..600_usize, place.clone()).prop_map(|(from, len, to)| Accident::Copy { from, len, to }),
        (place, 1..300_usize).prop_map(|(at, len)| Accident::Zero(at, len)),
    ]
}

fn befall(bytes: &mut Vec<u8>, accident: &Accident) {
    let len = bytes.len();
    if len == 0 {
        return;
    }
    let range = |at: usize, count: usize| at % len..(at % len + count).min(len);
    match accident {
        Accident::FlipBit(bit) => bytes[bit / 8 % len] ^= 1 << (bit % 8),
        Accident::Cut(at) => bytes.truncate(at % len),
        Accident::Insert(at, new) => drop(bytes.splice(at % len..at % len, new.iter().copied())),
        Accident::Remove(at, count) => drop(bytes.drain(range(*at, *count))),
        Accident::Copy { from, len: count, to } => {
            let copied = bytes[range(*from, *count)].to_vec();
            drop(bytes.splice(to % len..to % len, copied));
        }
        Accident::Zero(at, count) => bytes[range(*at, *count)].fill(0),
    }
}

fn valid_journal() -> Vec<u8> {
    use lastword::clock::Timestamp;
    let mut encoder = lastword::format::LineEncoder::new(&sid("s"), &rid("r"));
    let mut bytes = Vec::new();
    for seq in 1..=8 {
        let event = Event::token(&format!("w\u{f6}rter \u{1f600} \"{seq}\" {}", "\u{2028}x\n".repeat(seq as usize)));
        encoder.encode(seq, Timestamp::from_micros(seq as i64 * 1_000), &event, &mut bytes);
    }
    encoder.encode(9, Timestamp::from_micros(9_000), &Event::done(), &mut bytes);
    bytes
}

fn valid_sidecar() -> Vec<u8> {
    let text = "{\"session_id\":\"s\",\"title\":\"w\u{f6}rter\",\"updated_at\":1.5,\"message_count\":2,\"odd\\ud800\":[{}],\
        \"messages\":[{\"role\":\"user\",\"content\":\"hi \u{1f600}\"},{\"role\":\"assistant\",\"content\":\"\\ud83d\\ude00\"}],\
        \"tool_calls\":[{\"name\":\"t\",\"done\":true}],\"context_messages\":[]}";
    text.as_bytes().to_vec()
}

fn config(cases: u32) -> ProptestConfig {
    let seeds = FileFailurePersistence::Direct("fixtures/regressions/bad_input.txt");
    ProptestConfig { cases, failure_persistence: Some(Box::new(seeds)), ..ProptestConfig::default() }
}

/// A checked event is a line that was written, and every line that is still whole comes out.
fn assert_scan_is_honest(original: &[u8], damaged: &[u8], step: usize) -> Result<(), TestCaseError> {
    let lines: Vec<&[u8]> = original.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let found = scan(damaged, &["s", "r"], step);
    let texts = |wanted_checked: bool| {
        found.iter().filter_map(move |seen| match seen {
            Seen::Event { text, checked } if *checked || !wanted_checked => Some(text.as_bytes()),
            _ => None,
        })
    };
    for text in texts(true) {
        prop_assert!(lines.contains(&text), "taken for checked: {}", String::from_utf8_lossy(text));
    }
    for line in &lines {
        let whole = damaged.split(|byte| *byte == b'\n').filter(|found| found == line).count();
        prop_assert!(texts(true).filter(|text| text == line).count() >= whole, "a whole line was passed over");
    }
    prop_assert_eq!(&found, &scan(damaged, &["s", "r"], 1 << 20), "it depends on how the bytes arrive");
    Ok(())
}

fn look_at_everything(bytes: &[u8]) -> Result<(), TestCaseError> {
    let _ = read_head(&sid("s"), bytes);
    let Ok(session) = read_session(&sid("s"), bytes.to_vec()) else { return Ok(()) };
    session.messages().for_each(|row| assert!(row.content().len() <= bytes.len() * 8 || row.timestamp().is_some()));
    session.tool_cards().for_each(|card| assert!(card.name().len() <= bytes.len() * 8 || card.row_index().is_some()));
    let _ = (session.title().len(), session.pending_turn(), session.active_run().is_some());
    let written = encode(&session);
    let again = read_session(&sid("s"), written.bytes().to_vec());
    prop_assert!(again.is_ok(), "what was readable is not any more: {:?}", again.err());
    for list in List::ALL {
        prop_assert!(again.as_ref().unwrap().texts(list).eq(session.texts(list)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn a_mutated_journal_never_lies_and_never_hides_a_whole_line(
        accidents in proptest::collection::vec(accident(), 1..5),
        step in prop_oneof![Just(1_usize), 2..64_usize, Just(4096_usize)],
    ) {
        let original = valid_journal();
        let mut damaged = original.clone();
        accidents.iter().for_each(|accident| befall(&mut damaged, accident));
        assert_scan_is_honest(&original, &damaged, step)?;
    }

    #[test]
    fn random_bytes_are_no_checked_events(bytes in proptest::collection::vec(any::<u8>(), 0..2000), step in 1..300_usize) {
        assert_scan_is_honest(&valid_journal(), &bytes, step)?;
        look_at_everything(&bytes)?;
    }

    #[test]
    fn a_mutated_sidecar_is_unreadable_or_survives_a_save(accidents in proptest::collection::vec(accident(), 1..4)) {
        let mut damaged = valid_sidecar();
        accidents.iter().for_each(|accident| befall(&mut damaged, accident));
        look_at_everything(&damaged)?;
    }
}

proptest! {
    #![proptest_config(config(48))]

    #[test]
    fn a_store_with_a_mutated_journal_and_sidecar_serves_the_others_and_changes_neither_by_reading(
        in_journal in proptest::collection::vec(accident(), 1..5),
        in_sidecar in proptest::collection::vec(accident(), 0..3),
    ) {
        let data = Data::new();
        let mut journal = valid_journal();
        let mut sidecar = valid_sidecar();
        in_journal.iter().for_each(|accident| befall(&mut journal, accident));
        in_sidecar.iter().for_each(|accident| befall(&mut sidecar, accident));
        fs::create_dir_all(data.path("_run_journal/s")).unwrap();
        fs::write(data.path("_run_journal/s/r.jsonl"), &journal).unwrap();
        fs::write(data.path("s.json"), &sidecar).unwrap();
        let store = data.writer();
        let _ = (store.get_session(&sid("s")), store.metadata(&sid("s")), store.replay(&sid("s"), None));
        prop_assert!(store.read_events(&sid("s"), &rid("r"), ReadOptions::default()).is_ok());
        prop_assert!(store.run_summary(&sid("s"), &rid("r")).is_ok());
        prop_assert!(store.list().unwrap().iter().any(|entry| entry.id == sid("good") && entry.metadata.is_ok()));
        prop_assert!(fs::read(data.path("s.json")).unwrap() == sidecar);
        prop_assert!(fs::read(data.path("_run_journal/s/r.jsonl")).unwrap() == journal);
        let run = store.begin_run(&sid("good"), UserTurn::text("x")).unwrap();
        run.finish(Outcome::Completed).unwrap();
    }
}
