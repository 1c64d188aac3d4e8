//! The reference program's recorded behaviour, piece by piece: small pure functions, the reducer, and what its sidecars
//! keep when we save them. Whole scenarios are replayed in `tests/truth`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::format::{EventRef, LineShape, Record, Scanner};
use lastword::model::fold::{Folder, Provenance};
use lastword::model::{RunEnd, is_truthy, normal_form, python_text};
use lastword::{Cursor, NewSession, Options, RunId, RunSummary, SaveIntent, SaveOptions, SessionId, Store};
use serde_json::{Value, json};

const SESSION: &str = "5e55a0c0ffee";
const RUN: &str = "a1b2c3d4e5f60718293a4b5c6d7e8f90";

fn session() -> SessionId {
    SessionId::parse(SESSION).unwrap()
}

fn run() -> RunId {
    RunId::parse(RUN).unwrap()
}

fn truth(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/truth").join(name)
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn vectors(name: &str) -> Vec<Value> {
    read_json(&truth("_vectors").join(name))["cases"].as_array().unwrap().clone()
}

/// A store on a copy of the sidecar that a scenario begins with.
fn store_of(scenario: &str) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = format!("{SESSION}.json");
    fs::copy(truth(scenario).join("before/sessions").join(&sidecar), folder.path().join(&sidecar)).unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0)));
    let store = Store::open(folder.path(), Options { clock, ..Options::default() }).unwrap();
    (folder, store)
}

/// Gives every record of a journal's bytes to `each`.
fn scan(bytes: &[u8], mut each: impl FnMut(&EventRef<'_>)) {
    let mut scanner = Scanner::new(LineShape::new(&session(), &run()), 0);
    scanner
        .feed(bytes.len(), |room| {
            room.copy_from_slice(bytes);
            Ok::<_, ()>(bytes.len())
        })
        .unwrap();
    while let Some(record) = scanner.next_record() {
        if let Record::Event(event) = record {
            each(&event);
        }
    }
    while let Some(record) = scanner.next_of_tail() {
        if let Record::Event(event) = record {
            each(&event);
        }
    }
}

/// What is expected is there and equal; more may be there.
fn covers(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| found.get(key).is_some_and(|found| covers(found, value)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(found, value)| covers(found, value))
        }
        (Value::Number(found), Value::Number(expected)) => found.as_f64() == expected.as_f64(),
        _ => found == expected,
    }
}

#[test]
fn terminal_states_are_the_recorded_ones() {
    for case in vectors("terminal_state.json") {
        let payload = case["payload"].to_string();
        let state = RunEnd::of(case["event"].as_str().unwrap(), &payload).map(RunEnd::as_str);
        assert_eq!(state, case["state"].as_str(), "{case}");
    }
}

#[test]
fn cursors_are_read_as_recorded() {
    for case in vectors("event_id.json") {
        let cursor = Cursor::parse(case["raw"].as_str().unwrap_or_default());
        assert_eq!(cursor.run.as_deref(), case["run_id"].as_str(), "{case}");
        assert_eq!(cursor.seq, case["seq"].as_u64(), "{case}");
    }
}

#[test]
fn texts_are_compared_in_the_recorded_form() {
    for case in vectors("normalize_text.json") {
        let raw = case["value"].to_string();
        let text = if is_truthy(&raw) { normal_form(&python_text(&raw)) } else { String::new() };
        assert_eq!(text, case["normal"].as_str().unwrap(), "{case}");
    }
}

#[test]
fn the_recorded_event_decides_how_a_run_ended() {
    for case in vectors("authoritative_terminal.json") {
        let mut summary = RunSummary::default();
        let lines: String = case["events"].as_array().unwrap().iter().map(|event| format!("{event}\n")).collect();
        scan(lines.as_bytes(), |event| summary.add(event));
        let chosen = summary.terminal.map(|terminal| terminal.name);
        assert_eq!(chosen.as_deref(), case["chosen"]["event"].as_str(), "{case}");
    }
}

/// The rows and cards that a journal folds to are those that the reference program recovered from it.
#[test]
fn journals_fold_to_the_recorded_rows() {
    let mut scenarios = 0;
    for entry in fs::read_dir(truth("")).unwrap().map(|entry| entry.unwrap()) {
        let name = entry.file_name().into_string().unwrap();
        let journal = entry.path().join(format!("before/sessions/_run_journal/{SESSION}/{RUN}.jsonl"));
        if !name.starts_with("a0") || !journal.exists() {
            continue;
        }
        let steps = read_json(&entry.path().join("steps.json"));
        if steps.get("better").is_some() {
            continue;
        }
        let recorded = &steps["steps"][0]["result"]["session"];
        let rows = recorded["messages"].as_array().unwrap();
        let first = rows.iter().position(|row| row["_recovered_from_run_journal"] == true).unwrap_or(rows.len() - 1);
        check_fold(&name, &fs::read(&journal).unwrap(), first, &rows[first..rows.len() - 1], &recorded["tool_calls"]);
        scenarios += 1;
    }
    assert!(scenarios >= 15, "only {scenarios} scenarios were found");
}

fn check_fold(name: &str, journal: &[u8], first: usize, rows: &[Value], cards: &Value) {
    let mut folder = Folder::default();
    scan(journal, |event| _ = folder.push(&event.to_fold()));
    let folded = folder.finish();
    let parse = |json: String| serde_json::from_str::<Value>(&json).unwrap();
    let found: Vec<Value> = folded
        .rows
        .iter()
        .map(|row| parse(row.to_row(Provenance::Recovered(RUN), 1_800_000_000).fields().to_json()))
        .collect();
    assert!(covers(&json!(found), &json!(rows)), "{name}: {found:#?}\nrecorded: {rows:#?}");
    let found: Vec<Value> = folded
        .cards
        .iter()
        .map(|card| parse(card.to_card(Provenance::Recovered(RUN), first + card.row).fields().to_json()))
        .collect();
    assert!(covers(&json!(found), cards), "{name}: {found:#?}\nrecorded: {cards:#?}");
}

#[test]
fn a_cut_beside_the_reference_programs_backup_is_marked_as_meant() {
    let (folder, store) = store_of("g022_bak_rules");
    let sidecar = folder.path().join(format!("{SESSION}.json"));
    fs::copy(&sidecar, folder.path().join(format!("{SESSION}.json.bak"))).unwrap();
    let cut = SaveOptions { intent: SaveIntent::Shrink, ..SaveOptions::default() };
    store.update(&session(), cut, |session| session.truncate(lastword::List::Messages, 1).unwrap()).unwrap();
    let generation = read_json(&sidecar)["intentional_shrink_generation"].as_str().unwrap().to_owned();
    assert!(generation.len() == 32 && generation.bytes().all(|byte| byte.is_ascii_hexdigit()), "{generation}");
}

/// All keys of a sidecar of that program, in their order, survive a save of ours with only what was set changed.
#[test]
fn a_sidecar_of_the_reference_program_keeps_its_keys_and_their_order() {
    let (folder, store) = store_of("g022_bak_rules");
    let path = folder.path().join(format!("{SESSION}.json"));
    let before = fs::read_to_string(&path).unwrap();
    let options = SaveOptions { touch_updated_at: false, ..SaveOptions::default() };
    store.update(&session(), options, |session| session.set_text("title", "renamed")).unwrap();
    let after = fs::read_to_string(&path).unwrap();
    let keys = |text: &str| -> Vec<String> {
        let line_keys = text.lines().filter(|line| line.starts_with("  \""));
        line_keys.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&before), keys(&after));
    let (mut before, after): (Value, Value) =
        (serde_json::from_str(&before).unwrap(), serde_json::from_str(&after).unwrap());
    before["title"] = json!("renamed");
    assert_eq!(before, after);
}

#[test]
fn a_legacy_sidecar_with_its_messages_first_has_metadata_too() {
    let (_folder, store) = store_of("g001_legacy_sidecar");
    let metadata = store.metadata(&session()).unwrap();
    assert_eq!((metadata.title().as_ref(), metadata.message_count()), ("Old", 2));
    store.create(NewSession::titled("new beside it")).unwrap();
    assert_eq!(store.list().unwrap().len(), 2);
}
