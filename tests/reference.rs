//! The reference program's recorded behaviour, where this store already does the same job: small pure functions, the
//! reducer, journals read and continued, sidecars that it wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::format::{EventRef, LineShape, Record, Scanner};
use lastword::model::fold::{Folder, Provenance};
use lastword::model::{TerminalState, is_truthy, normal_form, python_text};
use lastword::{
    Cursor, Event, JournalEvent, NewSession, Options, ReadOptions, RunId, RunSummary, SaveIntent, SaveOptions,
    SessionId, Store, StoreError,
};
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

/// A store on a copy of what a scenario begins with.
fn store_of(scenario: &str) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    copy(&truth(scenario).join("before/sessions"), folder.path());
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0)));
    let store = Store::open(folder.path(), Options { clock, ..Options::default() }).unwrap();
    (folder, store)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).into_iter().flatten().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => fs::write(target, fs::read(entry.path()).unwrap()).unwrap(),
        }
    }
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
        let state = TerminalState::of(case["event"].as_str().unwrap(), &payload).map(TerminalState::as_str);
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
    scan(journal, |event| folder.push(&event.to_fold()));
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

fn append(store: &Store, event: &Value) -> Result<Value, StoreError> {
    let name = event["event"].as_str().unwrap();
    let made = Event::new(name, &event["payload"].to_string()).map_err(lastword::AppendError::from)?;
    let made = event["created_at"].as_f64().map_or(made.clone(), |at| made.at(Timestamp::from_seconds(at)));
    let seq = store.adopt_run(&session(), &run())?.append(made)?.last_seq;
    let options = ReadOptions { after_seq: seq - 1, max_seq: seq };
    let read: Vec<JournalEvent> = store.read_events(&session(), &run(), options)?.events;
    Ok(serde_json::from_str(&read[0].line).unwrap())
}

#[test]
fn appends_after_a_clean_restart_continue_as_recorded() {
    let steps = read_json(&truth("h004_reopen_clean").join("steps.json"));
    let (folder, store) = store_of("h004_reopen_clean");
    let mut store = Some(store);
    for step in steps["steps"].as_array().unwrap() {
        if step["op"] == "restart" {
            store = None;
            store = store.or_else(|| Some(Store::open(folder.path(), Options::default()).unwrap()));
            continue;
        }
        let line = append(store.as_ref().unwrap(), step).unwrap();
        assert!(covers(&line, &step["result"]), "{line}\nrecorded: {}", step["result"]);
    }
}

/// Recorded as a defect. Here: `done` may be followed by exactly one `stream_end`, anything else is refused.
#[test]
fn nothing_follows_the_end_of_a_run_but_one_stream_end() {
    let steps = read_json(&truth("h001_append_sequence").join("steps.json"));
    let (_folder, store) = store_of("h001_append_sequence");
    let mut taken = Vec::new();
    for step in steps["steps"].as_array().unwrap().iter().filter(|step| step["op"] == "append_run_event") {
        match append(&store, step) {
            Ok(line) => taken.push(line["event"].as_str().unwrap().to_owned()),
            Err(error) => assert!(matches!(error.code(), "sealed" | "invalid_argument"), "{error:?}"),
        }
    }
    assert_eq!(taken, ["token", "reasoning", "tool", "metering", "token", "done", "stream_end"]);
    let summary = store.run_summary(&session(), &run()).unwrap().unwrap();
    let terminal = summary.terminal.unwrap();
    assert_eq!((terminal.name.as_str(), terminal.state.as_str(), summary.last_seq), ("done", "completed", 7));
}

/// Recorded as a defect. Here: a torn tail is cut before the append, and the number that it may have had is left out.
#[test]
fn an_append_behind_a_torn_tail_of_another_program_loses_nothing_and_repeats_no_number() {
    let (folder, store) = store_of("h002_reopen_torn_tail");
    for text in ["after", "next"] {
        append(&store, &json!({"event": "token", "payload": {"text": text}})).unwrap();
    }
    let found = store.read_events(&session(), &run(), ReadOptions::default()).unwrap();
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    assert_eq!(found.events.iter().map(|event| event.seq.unwrap()).collect::<Vec<_>>(), [1, 3, 4]);
    let kept = fs::read_dir(folder.path().join("_kept").join(SESSION)).unwrap();
    assert_eq!(kept.count(), 1, "the torn bytes are kept");
}

/// Recorded as a defect. Here: the missing line feed is written first.
#[test]
fn a_whole_last_line_without_its_line_feed_is_completed_and_counts() {
    let (_folder, store) = store_of("h003_reopen_no_newline");
    append(&store, &json!({"event": "token", "payload": {"text": "after"}})).unwrap();
    let found = store.read_events(&session(), &run(), ReadOptions::default()).unwrap();
    assert!(found.damage.is_empty());
    assert_eq!(found.events.iter().map(|event| event.seq.unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn ranges_of_events_are_the_recorded_ones() {
    let steps = read_json(&truth("h006_read_windows").join("steps.json"));
    let (_folder, store) = store_of("h006_read_windows");
    for step in steps["steps"].as_array().unwrap() {
        let options = ReadOptions {
            after_seq: step["after_seq"].as_u64().unwrap_or(0),
            max_seq: step["max_seq"].as_u64().unwrap_or(u64::MAX),
        };
        let asked = RunId::parse(step["run_id"].as_str().unwrap()).unwrap();
        let found = store.read_events(&session(), &asked, options).unwrap();
        let lines: Vec<Value> = found.events.iter().map(|event| serde_json::from_str(&event.line).unwrap()).collect();
        assert!(found.damage.is_empty() && covers(&json!(lines), &step["result"]["events"]), "{step}");
    }
}

/// Recorded as a defect. Here: a deleted run's id is not taken again.
#[test]
fn a_deleted_run_id_is_refused_by_name() {
    let (_folder, store) = store_of("h009_delete_run_journal");
    let token = json!({"event": "token", "payload": {"t": 1}});
    append(&store, &token).unwrap();
    store.remove_run(&session(), &run()).unwrap();
    assert!(store.read_events(&session(), &run(), ReadOptions::default()).unwrap().events.is_empty());
    assert!(matches!(append(&store, &token), Err(StoreError::RunTaken { .. })));
    assert!(matches!(store.remove_run(&session(), &run()), Err(StoreError::RunNotFound { .. })));
}

#[test]
fn damaged_sidecars_are_named_as_recorded() {
    for scenario in ["g011_sidecar_truncated", "g012_sidecar_list"] {
        let steps = read_json(&truth(scenario).join("steps.json"));
        let (_folder, store) = store_of(scenario);
        for step in steps["steps"].as_array().unwrap().iter().filter(|step| step.get("error").is_some()) {
            let error = match step.get("metadata_only") {
                Some(_) => store.metadata(&session()).unwrap_err(),
                None => store.get_session(&session()).unwrap_err(),
            };
            assert_eq!(Some(error.code()), step["error"].as_str(), "{scenario}: {step}");
        }
    }
}

#[test]
fn odd_but_readable_sidecars_are_served() {
    for (scenario, rows) in [("g014_sidecar_null_messages", 0), ("g015_sidecar_messages_object", 0)] {
        let (_folder, store) = store_of(scenario);
        assert_eq!(store.get_session(&session()).unwrap().messages().len(), rows);
        assert_eq!(store.metadata(&session()).unwrap().title(), "t");
    }
}

#[test]
fn ids_that_cannot_be_sessions_are_refused() {
    let steps = read_json(&truth("g020_unsafe_ids").join("steps.json"));
    let (_folder, store) = store_of("g020_unsafe_ids");
    for step in steps["steps"].as_array().unwrap() {
        if let Ok(id) = SessionId::parse(step["sid"].as_str().unwrap()) {
            assert_eq!(store.get_session(&id).unwrap_err().code(), "not_found", "{step}");
        }
    }
}

/// Recorded as a defect. Here: refused with a name, never silently skipped.
#[test]
fn an_empty_snapshot_over_a_filled_sidecar_is_refused() {
    let (folder, store) = store_of("g021_save_guard_empty_snapshot");
    let path = folder.path().join(format!("{SESSION}.json"));
    let before = fs::read(&path).unwrap();
    let refused = store.update(&session(), SaveOptions::default(), |session| {
        session.truncate(lastword::List::Messages, 0).unwrap();
        session.set_text("pending_user_message", "x");
    });
    assert_eq!(refused.unwrap_err().code(), "refused");
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// Recorded as a defect: one backup generation. Here every longer version that a stated cut replaces is kept.
#[test]
fn every_version_that_a_stated_cut_replaces_is_kept() {
    let (folder, store) = store_of("g022_bak_rules");
    let cut = SaveOptions { intent: SaveIntent::Shrink, ..SaveOptions::default() };
    for rows in [4, 3, 0] {
        store.update(&session(), cut, |session| session.truncate(lastword::List::Messages, rows).unwrap()).unwrap();
    }
    let kept = fs::read_dir(folder.path().join("_kept").join(SESSION)).unwrap().map(|entry| entry.unwrap().path());
    let mut lengths: Vec<_> = kept.map(|path| read_json(&path)["messages"].as_array().unwrap().len()).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [3, 4, 6]);
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
