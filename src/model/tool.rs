//! One tool card: what the user sees of a tool call, tied to the row that made it.

use std::borrow::Cow;

use super::json::Object;
use super::text::{is_truthy, normal_form, python_text};

/// What the events call the call.
pub(crate) const CALL_ID: &str = "_call_id";
/// The arguments, verbatim JSON or a reference to it.
pub(crate) const ARGS: &str = "_args";
/// The result, verbatim JSON or a reference to it.
pub(crate) const RESULT: &str = "_result";
/// `true` if the tool answered that it failed.
pub(crate) const RESULT_IS_ERROR: &str = "_result_is_error";
/// What the event that answered shows of a result that it does not carry.
pub(crate) const RESULT_PREVIEW: &str = "_result_preview";
/// Whether the tool has answered, where `done` says something else.
pub(crate) const ANSWERED: &str = "_answered";

/// Those of them that may hold a reference to a stored value.
pub(crate) const STORED_KEYS: [&str; 2] = [ARGS, RESULT];

/// The keys of a card that say what really happened, beside those that the reference program shows.
pub(crate) const TOLD_KEYS: [&str; 6] = [CALL_ID, ARGS, RESULT, RESULT_IS_ERROR, RESULT_PREVIEW, ANSWERED];

/// A tool call as the transcript shows it, with every key that anyone put into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCard {
    fields: Object,
}

impl ToolCard {
    /// Reads a card. A value that is no object gives a card without keys.
    pub fn parse(text: &str) -> Self {
        ToolCard { fields: Object::parse(text).unwrap_or_default() }
    }

    /// The tool's name.
    pub fn name(&self) -> Cow<'_, str> {
        self.fields.get("name").map(python_text).unwrap_or_default()
    }

    /// The card's own id.
    pub fn tid(&self) -> Cow<'_, str> {
        self.fields.get("tid").map(python_text).unwrap_or_default()
    }

    /// What it shows, in the form in which two cards are compared: its preview, else its snippet.
    pub fn shown(&self) -> String {
        let text =
            |key| self.fields.get(key).filter(|value| is_truthy(value)).map(|value| normal_form(&python_text(value)));
        text("preview").filter(|text| !text.is_empty()).or_else(|| text("snippet")).unwrap_or_default()
    }

    /// The row that the card belongs to.
    pub fn row_index(&self) -> Option<usize> {
        let noted = self.fields.get("assistant_msg_idx")?;
        let as_float =
            || noted.parse().ok().filter(|index: &f64| *index >= 0.0 && index.fract() == 0.0 && *index < 1e15);
        noted.parse().ok().or_else(|| as_float().map(|index| index as usize))
    }

    /// Ties the card to a row.
    pub fn set_row_index(&mut self, index: usize) {
        self.fields.set("assistant_msg_idx", index.to_string());
    }

    /// Whether the tool has answered.
    pub fn is_done(&self) -> bool {
        self.fields.is_true("done")
    }

    /// The run that it came from, if it says so.
    pub fn run(&self) -> Option<Cow<'_, str>> {
        self.fields.text("_recovered_stream_id").or_else(|| self.fields.text("_run_id"))
    }

    /// All of its keys.
    pub fn fields(&self) -> &Object {
        &self.fields
    }

    /// All of its keys, to be changed.
    pub fn fields_mut(&mut self) -> &mut Object {
        &mut self.fields
    }
}
