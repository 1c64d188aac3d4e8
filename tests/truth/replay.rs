//! Plays a scenario from its first step to its last, and compares what came out with what was recorded.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::better::{self, Told};
use crate::compare::key_difference;
use crate::compare::{file_differences, is_same, list_differences, object_differences, session_differences};
use crate::files::Snapshot;
use crate::ops::{Answer, Refusal, perform};
use crate::scenario::{Scenario, Step};
use crate::stage::Stage;

/// A step that was done: its answer, the files that it touched, and the files as they are behind it.
pub(crate) struct Outcome {
    pub(crate) answer: Answer,
    pub(crate) touched: Value,
    pub(crate) files: Snapshot,
}

pub(crate) enum Ending {
    /// The reference program did badly here, and nobody wrote what is better.
    Skipped,
    /// The differences, if there are any.
    Compared(Vec<String>),
}

const SCENARIO_SECONDS_MAX: u64 = 60;

/// Plays a scenario on a thread of its own: one that never ends, or panics, is a difference like any other.
pub(crate) fn ending_of(scenario: Scenario) -> Ending {
    if scenario.better.is_some() && better::check_of(&scenario.name).is_none() {
        return Ending::Skipped;
    }
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(differences_of(scenario)));
    Ending::Compared(match told.recv_timeout(Duration::from_secs(SCENARIO_SECONDS_MAX)) {
        Ok(differences) => differences,
        Err(RecvTimeoutError::Timeout) => vec![format!("it has not ended after {SCENARIO_SECONDS_MAX} seconds")],
        Err(RecvTimeoutError::Disconnected) => vec!["it panicked".to_owned()],
    })
}

fn differences_of(scenario: Scenario) -> Vec<String> {
    let mut stage = Stage::set(&scenario);
    let outcomes: Vec<Outcome> = scenario.steps.iter().map(|step| play(&mut stage, step)).collect();
    match better::check_of(&scenario.name) {
        Some(check) => {
            let mut told = Told::new(scenario, outcomes, stage);
            check(&mut told);
            told.into_differences()
        }
        None => {
            let steps = scenario.steps.iter().zip(&outcomes).enumerate();
            steps.flat_map(|(at, (step, outcome))| compare_step(at, step, outcome)).collect()
        }
    }
}

fn play(stage: &mut Stage, step: &Step) -> Outcome {
    stage.set_clock(step.now());
    let before = stage.snapshot();
    let answer = perform(stage, step);
    stage.set_clock(step.now());
    let files = stage.snapshot();
    Outcome { answer, touched: files.changes_since(&before), files }
}

fn compare_step(at: usize, step: &Step, outcome: &Outcome) -> Vec<String> {
    let mut differences = match (&outcome.answer, step.recorded_error()) {
        (Err(Refusal::UnknownOp), _) => vec![format!("no such operation: {}", step.op())],
        (Err(refusal), Some(error)) if is_named(refusal, error) => Vec::new(),
        (Err(refusal), expected) => vec![format!("refused with {refusal:?}, expected {expected:?}")],
        (Ok(_), Some(error)) => vec![format!("is done, expected the error {error}")],
        (Ok(found), None) => {
            step.recorded_result().map_or_else(Vec::new, |expected| compare_result(step, found, expected))
        }
    };
    if let Some(files) = step.recorded_files() {
        differences.extend(file_differences(&outcome.touched, files));
    }
    differences.iter().map(|difference| format!("step {at} {}: {difference}", step.op())).collect()
}

/// Whether a refusal is the recorded error. We have more words than the record; an id that cannot be is either not
/// found or a bad argument, as its user likes.
fn is_named(refusal: &Refusal, error: &str) -> bool {
    match refusal {
        Refusal::BadId => matches!(error, "not_found" | "invalid_argument"),
        Refusal::Store("sealed" | "exists" | "conflict" | "deleted" | "run_in_progress" | "fenced") => {
            error == "refused"
        }
        Refusal::Store("no_space") => error == "io_error",
        Refusal::Store(code) => *code == error,
        Refusal::UnknownOp => false,
    }
}

fn compare_result(step: &Step, found: &Value, expected: &Value) -> Vec<String> {
    let keys = expected.as_object();
    match step.op() {
        "get_session" | "get_session_for_scan" | "load_set_save" | "read_run_events" => {
            let keys = keys.into_iter().flatten();
            keys.flat_map(|(key, value)| compare_key(step, key, &found[key], value)).collect()
        }
        "latest_run_summary" if found.is_null() => {
            key_difference("summary", Some(found), expected).into_iter().collect()
        }
        // What both know of a run; the record does not say what else there is to know.
        "latest_run_summary" => {
            let keys = keys.into_iter().flatten().filter(|(key, _)| found.get(*key).is_some());
            keys.filter_map(|(key, value)| key_difference(key, found.get(key), value)).collect()
        }
        "append_run_event" => object_differences("event", found, expected),
        "delete_run_journal" if expected.is_boolean() => {
            key_difference("result", Some(found), expected).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn compare_key(step: &Step, key: &str, found: &Value, expected: &Value) -> Vec<String> {
    match key {
        "session" if step.is_set("metadata_only") => session_differences(found, &without_lists(expected)),
        "session" => session_differences(found, expected),
        "events" => list_differences(key, found, expected),
        "index" => compare_listing(found, expected),
        // Each program reports damage in its own words.
        "malformed" => {
            let places = |list: &Value| list.as_array().map_or(0, Vec::len);
            let (found, expected) = (places(found), places(expected));
            (found != expected).then(|| format!("{found} damaged places, expected {expected}")).into_iter().collect()
        }
        // Whether the program answered from its cache is its own affair; where it did not count, we do.
        "is_stub" => Vec::new(),
        "metadata_message_count" if expected.is_null() => Vec::new(),
        _ if is_same(found, expected) => Vec::new(),
        _ => vec![format!("{key} is {found}, expected {expected}")],
    }
}

fn without_lists(session: &Value) -> Value {
    let mut metadata = session.clone();
    if let Some(keys) = metadata.as_object_mut() {
        keys.retain(|key, _| !crate::compare::LISTS.contains(&key.as_str()));
    }
    metadata
}

/// The same sessions are listed, in whatever order.
fn compare_listing(found: &Value, expected: &Value) -> Vec<String> {
    let sorted = |list: &Value| {
        let mut entries = list.as_array().cloned().unwrap_or_default();
        entries.sort_by_key(|entry| entry["session_id"].to_string());
        Value::Array(entries)
    };
    match expected.is_array() {
        true => list_differences("index", &sorted(found), &sorted(expected)),
        false => Vec::new(),
    }
}
