//! What a row adds to an answer, and what is said about the answer as a whole.

use serde_json::value::RawValue;

use super::foreign::{self, Block};
use super::message::Part;
use crate::http::chat::chunk::{OURS, Usage, producers_metadata};
use crate::http::chat::value::{FileAddresses, part_for};
use crate::model::{Fields, Object, PARTS, Row, RunEnd, marker, quoted, text_of, trim};

/// The parts that stand before the row's tool calls, and those after them.
pub(super) fn parts_of(files: &FileAddresses, row: &Row) -> (Vec<Part>, Vec<Part>) {
    let mut words = Vec::new();
    if let Some(thought) = row.reasoning().filter(|thought| !trim(thought).is_empty()) {
        words.push(Part::Reasoning(thought.into_owned()));
    }
    for block in foreign::blocks(files, row) {
        match block {
            Block::Text(text) => words.push(Part::Text(text)),
            Block::Reasoning(text) => words.push(Part::Reasoning(text)),
            Block::File(json) => words.push(Part::Json(json)),
        }
    }
    let list = row.fields().get(PARTS).and_then(|list| serde_json::from_str::<Vec<&RawValue>>(list).ok());
    let parts = list.unwrap_or_default().into_iter().filter_map(|part| Object::parse(part.get()));
    let is_part = |part: &Object| part.text("type").is_some_and(|kind| !kind.is_empty());
    let after = parts.filter(is_part).map(|part| Part::Json(part_for(files, &part).to_json()));
    (words, after.collect())
}

/// The metadata of an answer: its producer's, and what we know about its run.
pub(super) fn about(run: &str, note: Option<&Object>, marker: Option<RunEnd>) -> String {
    let noted = |key: &str| note.and_then(|note| note.get(key)).filter(|value| *value != "null");
    let mut metadata = noted("metadata").and_then(producers_metadata).unwrap_or_default();
    let number = |key: &str| noted(key).filter(|value| value.parse::<f64>().is_ok()).unwrap_or("null");
    let noted_state = noted("state").and_then(text_of);
    let state = noted_state.as_deref().unwrap_or(marker.unwrap_or(RunEnd::Completed).as_str());
    // What a run used that did not end by itself is not known. Earlier versions noted what it had used so far.
    let is_known = RunEnd::parse(state).is_some_and(RunEnd::is_by_itself);
    let usage = noted("usage").filter(|_| is_known).and_then(Fields::parse).and_then(|fields| Usage::of(&fields));
    let mut ours = Object::default();
    ours.set_text("run_id", run);
    ours.set("model", noted("model").and_then(text_of).map_or_else(|| "null".into(), |model| quoted(&model)));
    ours.set("usage", usage.map_or_else(|| "null".to_owned(), Usage::to_json));
    ours.set("began_at", number("began_at"));
    ours.set("ended_at", number("ended_at"));
    ours.set_text("state", state);
    metadata.set(OURS, ours.to_json());
    metadata.to_json()
}

/// How the answer above a marker ended, by what the marker says.
pub(super) fn state_of_marker(row: &Row) -> RunEnd {
    let cause = row.fields().text("interruption_cause");
    match cause.as_deref() {
        Some("stopped_by_user") => RunEnd::InterruptedByUser,
        _ if marker::is_interrupted(row) => RunEnd::InterruptedByCrash,
        _ => RunEnd::Errored,
    }
}
