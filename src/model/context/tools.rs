//! Tool calls and their results, from rows and from cards, and which result belongs to which call.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::line::{Line, word};
use super::{ToolOutcome, ToolResult};
use crate::model::json::{Fields, quoted, text_of};
use crate::model::text::{is_truthy, trim};

const INTERRUPTED: &str = "The tool was interrupted before it answered.";
const NO_OUTPUT: &str = "The tool gave no output.";

impl ToolResult {
    pub(super) fn answered(text: String, is_error: bool) -> Self {
        let text = if trim(&text).is_empty() { NO_OUTPUT.to_owned() } else { text };
        ToolResult { text, outcome: if is_error { ToolOutcome::Failed } else { ToolOutcome::Answered } }
    }

    pub(super) fn interrupted() -> Self {
        ToolResult { text: INTERRUPTED.to_owned(), outcome: ToolOutcome::Interrupted }
    }
}

/// A tool call as it was found. Its id may be missing or somebody else's too.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) result: Option<ToolResult>,
}

/// A result as it was found, and the id that it names.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) result: ToolResult,
}

impl Call {
    pub(super) fn from_fields(fields: &Fields<'_>, arguments: &str) -> Self {
        let arguments = object_text(fields.get(arguments));
        Call { id: word(fields, "id"), name: word(fields, "name"), arguments, result: None }
    }

    /// An item of a row's `tool_calls`.
    pub(super) fn native(call: &Fields<'_>) -> Self {
        let inside = call.get("function").and_then(Fields::parse);
        let described = Call::from_fields(inside.as_ref().unwrap_or(call), "arguments");
        Call { id: word(call, "id"), ..described }
    }

    /// A tool card. What an unfinished one shows is the call and not its result.
    pub(super) fn of_card(card: &Fields<'_>) -> Self {
        let shown = |key| Some(word(card, key)).filter(|text| !trim(text).is_empty());
        let text = shown("snippet").or_else(|| shown("preview"));
        // Cards that another program made of finished calls do not say that they are done.
        let is_done = card.get("done").map_or(text.is_some(), is_truthy);
        let is_error = card.get("is_error").is_some_and(is_truthy);
        let result = is_done.then(|| ToolResult::answered(text.unwrap_or_default(), is_error));
        Call { id: word(card, "tid"), result, ..Call::from_fields(card, "args") }
    }
}

/// Arguments as the text of a JSON object. What is none, such as arguments cut in the middle, becomes its only field.
fn object_text(raw: Option<&str>) -> String {
    let raw = raw.filter(|raw| is_truthy(raw)).unwrap_or("{}");
    let text = text_of(raw).unwrap_or(raw.into());
    match serde_json::from_str(&text) {
        Ok(Value::Object(_)) => text.into_owned(),
        _ if trim(&text).is_empty() => "{}".to_owned(),
        _ => format!("{{\"input\":{}}}", quoted(&text)),
    }
}

/// The line and the call in it.
pub(super) type Place = (usize, usize);

/// Gives the calls that rows make themselves the results that later rows hold, and says where each id was used last.
///
/// Ids come back: a result belongs to the latest row that used its id, and there to the first call still open. A result
/// that comes late, behind other rows, still counts; the conversation shows it where it belongs.
pub(super) fn answer_calls(lines: &mut [Option<Line>]) -> HashMap<String, Place> {
    let mut last: HashMap<String, Place> = HashMap::new();
    let mut open: HashMap<String, VecDeque<Place>> = HashMap::new();
    for at in 0..lines.len() {
        let Some(line) = &mut lines[at] else { continue };
        for (nth, call) in line.calls.iter().enumerate() {
            let waiting = open.entry(call.id.clone()).or_default();
            if waiting.back().is_some_and(|place| place.0 != at) {
                waiting.clear();
            }
            waiting.push_back((at, nth));
            last.insert(call.id.clone(), (at, nth));
        }
        for answer in std::mem::take(&mut line.answers) {
            let Some(place) = open.get_mut(&answer.id).and_then(VecDeque::pop_front) else { continue };
            call_at(lines, place).result = Some(answer.result);
        }
    }
    last
}

pub(super) fn call_at(lines: &mut [Option<Line>], place: Place) -> &mut Call {
    &mut lines[place.0].as_mut().expect("calls are noted of lines only").calls[place.1]
}
