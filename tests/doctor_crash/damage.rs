//! The sessions of the damaged directory, and what was done to their files: the same on a simulated disk and a real one.

use std::collections::BTreeMap;

use lastword::{Event, NewSession, Outcome, Run, RunId, SessionId, Store, UserTurn};

/// The files of a data directory: from its root on, with slashes.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// What an earlier program did not finish writing.
pub(crate) const STALE_TEMP: &str = "_tmp-0123456789abcdef0123456789abcdef";

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

pub(crate) fn run(name: &str) -> RunId {
    RunId::parse(name).unwrap()
}

fn journal(session: &str, run: &str) -> String {
    format!("_run_journal/{session}/{run}.jsonl")
}

/// Fills an empty store with the sessions that are damaged later.
pub(crate) fn populate(store: &Store) {
    for name in
        ["healthy", "wreck", "dead", "garbled", "salvaged", "orphan", "gave-up", "foreign", "gone", "behind", "clash"]
    {
        store.create(NewSession::titled(&format!("About {name}")).with_id(session(name))).unwrap();
    }
    for name in ["healthy", "wreck", "garbled", "salvaged", "orphan", "gave-up", "gone", "behind"] {
        begin(store, name, "r1", 12).finish(Outcome::Completed).unwrap();
    }
    begin(store, "garbled", "r2", 3).finish(Outcome::Completed).unwrap();
    begin(store, "wreck", "r2", 6);
    begin(store, "dead", "r1", 4);
    store.list().unwrap();
}

/// Begins a turn and sends part of its answer.
pub(crate) fn begin(store: &Store, name: &str, run_name: &str, tokens: usize) -> Run {
    let turn = UserTurn::text(&format!("What of {name}, {run_name}?")).with_run(run(run_name));
    let begun = store.begin_run(&session(name), turn).unwrap();
    for number in 1..=tokens {
        begun.append(Event::token(&format!("{run_name} é{number} "))).unwrap();
    }
    begun
}

/// Does everything to the files that a repair is there for, but for what needs a commit log.
pub(crate) fn damage(files: &mut Files) {
    wreck_journals(files);
    lose_sidecars(files);
    give_up(files);
    leave_deleted(files);
    leave_temps(files);
    let list = r#"[{"session_id":"healthy","title":"Something else","message_count":77}]"#;
    files.insert("_index.json".to_owned(), list.into());
}

fn lines_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn without_line_feed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap()
}

/// The line with one letter of its text changed.
fn flipped(line: &[u8]) -> Vec<u8> {
    let at = line.windows(8).position(|part| part == b"\"text\":\"").unwrap() + 8;
    let mut line = line.to_vec();
    line[at] ^= 1;
    line
}

/// A sealed journal with damage in the middle, and an unsealed one with damage at its end.
fn wreck_journals(files: &mut Files) {
    let sealed = files.get_mut(&journal("wreck", "r1")).unwrap();
    let lines = lines_of(sealed);
    let torn = &lines[4][..lines[4].len() / 2];
    let mut wreck = [&lines[0], &flipped(&lines[1])[..], without_line_feed(&lines[2]), &lines[3]].concat();
    wreck.extend([torn, &lines[5], &[0; 96], &lines[6], &lines[7], &lines[7]].concat());
    wreck.extend(lines[8..].concat());
    *sealed = wreck;
    let unsealed = files.get_mut(&journal("wreck", "r2")).unwrap();
    let lines = lines_of(unsealed);
    *unsealed = [&lines[..3].concat()[..], &flipped(&lines[3]), &flipped(&lines[4]), &lines[5][..40]].concat();
    // Another program's run: no note of ours beside it, and the number of its torn line may have been shown.
    let foreign = "{\"seq\":1,\"event\":\"token\",\"payload\":{\"text\":\"one\"}}\n{\"seq\":2,\"event\":\"tok";
    files.insert(journal("foreign", "f1"), foreign.into());
}

/// Sessions whose file cannot be read, or is gone.
fn lose_sidecars(files: &mut Files) {
    let sidecar = files["garbled.json"].clone();
    files.insert("garbled.json.bak".to_owned(), files["orphan.json"].clone());
    files.insert("_kept/garbled/1700000000000000-0123abcd-session.json".to_owned(), sidecar.clone());
    files.insert("garbled.json".to_owned(), [&sidecar[..sidecar.len() / 3], &[0; 50]].concat());
    let cut = files["salvaged.json"].len() - 60;
    files.get_mut("salvaged.json").unwrap().truncate(cut);
    files.remove("orphan.json");
}

/// A marker that gave up, although the run that it names has the answer.
fn give_up(files: &mut Files) {
    let sidecar: serde_json::Value = serde_json::from_slice(&files["gave-up.json"]).unwrap();
    let prompt = &sidecar["messages"][0];
    let marker = serde_json::json!({
        "role": "assistant", "content": "This answer was interrupted, and no agent output was recovered.",
        "timestamp": prompt["timestamp"], "_error": true, "type": "interrupted",
        "interruption_cause": "process_restart", "_run_id": "r1",
    });
    let mut given_up = sidecar.clone();
    given_up["messages"] = serde_json::json!([prompt, marker]);
    files.insert("gave-up.json".to_owned(), given_up.to_string().into_bytes());
}

/// A session whose deletion was interrupted when it was only noted.
fn leave_deleted(files: &mut Files) {
    let tombstone = "{\"session_id\":\"gone\",\"deleted_at\":1799999000.0,\"generation\":\"0a1b\"}\n";
    files.insert("_tombstones/gone.json".to_owned(), tombstone.into());
    files.insert("gone.json.bak".to_owned(), files["gone.json"][..100].to_vec());
}

/// Files that somebody did not finish writing: this program, an earlier repair, the reference program.
fn leave_temps(files: &mut Files) {
    for (name, bytes) in [
        (STALE_TEMP, "half a sess"),
        ("_run_journal/dead/_tmp-fedcba9876543210fedcba9876543210", "half a rec"),
        ("healthy.json.tmp.4711", "{\"session_id\":"),
        ("_tmp-repair-00000000000000000000000000000001", "half a repair"),
        ("_kept/garbled/_tmp-repair-00000000000000000000000000000002", "half a copy"),
        ("_run_journal/wreck/_tmp-repair-00000000000000000000000000000003", "half a journal"),
    ] {
        files.insert(name.to_owned(), bytes.into());
    }
}

/// An index in which the line of one session says something else than its file, with a right checksum.
pub(crate) fn lying(index: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(index).unwrap();
    let line = text.lines().rfind(|line| line.contains(" healthy ")).unwrap();
    let body = line.splitn(3, ' ').nth(2).unwrap().replace("About healthy", "About a lie");
    let crc = crc32c::crc32c(body.as_bytes());
    [index, format!("\n1 {crc:08x} {body}\n").as_bytes()].concat()
}

/// The files that a repair has no reason to touch.
pub(crate) const SOUND: &[&str] = &[
    "_lastword.json",
    "healthy.json",
    "_run_journal/healthy/r1.jsonl",
    "_run_journal/healthy/_r1.run",
    "_run_journal/wreck/_r1.run",
    "_run_journal/dead/r1.jsonl",
    "_run_journal/dead/_r1.run",
    "_run_journal/garbled/r1.jsonl",
    "_run_journal/garbled/r2.jsonl",
    "_run_journal/orphan/r1.jsonl",
    "_run_journal/gave-up/r1.jsonl",
    "garbled.json.bak",
    "_kept/garbled/1700000000000000-0123abcd-session.json",
    "_tombstones/gone.json",
];
