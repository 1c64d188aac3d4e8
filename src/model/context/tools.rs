//! Tool calls and their results, from rows and from cards, and which result belongs to which call.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::line::{Line, word};
use super::{ToolOutcome, ToolResult};
use crate::model::fold::StoredValue;
use crate::model::json::{Fields, quoted, text_of};
use crate::model::text::{is_truthy, trim};
use crate::model::tool::{ANSWERED, ARGS, CALL_ID, RESULT, RESULT_IS_ERROR, RESULT_PREVIEW, TOLD_KEYS};

const INTERRUPTED: &str = "The tool was interrupted before it answered.";
const NO_OUTPUT: &str = "The tool gave no output.";
const ONLY_PREVIEW: &str = "The tool answered; only a preview of its result was kept: ";

impl ToolResult {
    pub(super) fn answered(text: String, is_error: bool) -> Self {
        let text = if trim(&text).is_empty() { NO_OUTPUT.to_owned() } else { text };
        ToolResult { text, outcome: if is_error { ToolOutcome::Failed } else { ToolOutcome::Answered } }
    }

    /// What is said of a result of which only a preview is known.
    fn previewed(preview: &str, is_error: bool) -> Self {
        let preview = trim(preview);
        Self::answered(if preview.is_empty() { String::new() } else { format!("{ONLY_PREVIEW}{preview}") }, is_error)
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
    /// Where the arguments really are, if the session only refers to them.
    pub(super) stored_arguments: Option<StoredValue>,
    /// The same for the result.
    pub(super) stored_result: Option<StoredValue>,
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
        let (id, name) = (word(fields, "id"), word(fields, "name"));
        Call { id, name, arguments, result: None, stored_arguments: None, stored_result: None }
    }

    /// An item of a row's `tool_calls`.
    pub(super) fn native(call: &Fields<'_>) -> Self {
        let inside = call.get("function").and_then(Fields::parse);
        let described = Call::from_fields(inside.as_ref().unwrap_or(call), "arguments");
        Call { id: word(call, "id"), ..described }
    }

    /// A tool card. What an unfinished one shows is the call and not its result.
    pub(super) fn of_card(card: &Fields<'_>) -> Self {
        let id = Some(word(card, CALL_ID)).filter(|id| !id.is_empty()).unwrap_or_else(|| word(card, "tid"));
        let mut call = Call { id, ..Call::from_fields(card, "args") };
        if let Some(args) = card.get(ARGS) {
            call.set_arguments(args);
            call.stored_arguments = StoredValue::parse(args);
        }
        match card.get(RESULT) {
            Some(result) => {
                call.result = Some(ToolResult::answered(String::new(), is_failed(card)));
                call.set_result(result);
                call.stored_result = StoredValue::parse(result);
            }
            None => call.result = previewed_result(card),
        }
        call.note_stored();
        call
    }

    /// A call that a row holds takes its result from the card of the same call, unless it has one.
    pub(super) fn take_result_of(&mut self, card: Call) {
        if self.result.is_none() {
            (self.result, self.stored_result) = (card.result, card.stored_result);
        }
    }

    /// Gives it its arguments, JSON.
    pub(super) fn set_arguments(&mut self, json: &str) {
        self.arguments = object_text(Some(json));
    }

    /// Gives it its result, JSON. Whether the tool failed is known already.
    pub(super) fn set_result(&mut self, json: &str) {
        let is_error = self.result.as_ref().is_some_and(|result| result.outcome == ToolOutcome::Failed);
        let text = text_of(json).map_or_else(|| json.to_owned(), |text| text.into_owned());
        self.result = Some(ToolResult::answered(text, is_error));
    }

    /// What stands in the place of values that are left out.
    fn note_stored(&mut self) {
        if let Some(stored) = &self.stored_arguments {
            self.arguments = format!("{{\"left_out\":\"{} bytes of arguments\"}}", stored.bytes);
        }
        if let (Some(stored), Some(result)) = (&self.stored_result, &mut self.result) {
            result.text = format!("The tool answered with {} bytes, which are left out here.", stored.bytes);
        }
    }
}

/// Whether a card says that its tool failed: where it tells what really happened, only there.
fn is_failed(card: &Fields<'_>) -> bool {
    let key = if tells(card) { RESULT_IS_ERROR } else { "is_error" };
    card.get(key).is_some_and(is_truthy)
}

/// Whether a card tells what really happened, and not only what the reference program shows.
fn tells(card: &Fields<'_>) -> bool {
    TOLD_KEYS.iter().any(|key| card.get(key).is_some())
}

/// The result of a card that holds none: nothing before the tool has answered, else at most a preview.
fn previewed_result(card: &Fields<'_>) -> Option<ToolResult> {
    let shown = |key| Some(word(card, key)).filter(|text| !trim(text).is_empty());
    let preview = match tells(card) {
        true => shown(RESULT_PREVIEW),
        false => shown("snippet").or_else(|| shown("preview")),
    };
    // Cards that another program made of finished calls do not say that they are done.
    let is_done = card.get(ANSWERED).or(card.get("done")).map_or(preview.is_some(), is_truthy);
    is_done.then(|| ToolResult::previewed(&preview.unwrap_or_default(), is_failed(card)))
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
