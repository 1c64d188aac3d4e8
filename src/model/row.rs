//! One row of a transcript. Typed where we look, plain JSON text where we do not.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json::{Fields, Object, text_of};
use super::text::{is_truthy, python_text};

/// A message of the conversation, with every key that anyone put into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    fields: Object,
}

impl Row {
    /// Reads a row. A value that is no object gives a row without keys.
    pub fn parse(text: &str) -> Self {
        Row { fields: Object::parse(text).unwrap_or_default() }
    }

    fn new(role: &str, content: &str, timestamp: i64) -> Self {
        let mut row = Row::default();
        row.fields.set_text("role", role);
        row.fields.set_text("content", content);
        row.fields.set("timestamp", timestamp.to_string());
        row
    }

    /// What a user said.
    pub fn user(content: &str, timestamp: i64) -> Self {
        Self::new("user", content, timestamp)
    }

    /// What an assistant answered.
    pub fn assistant(content: &str, timestamp: i64) -> Self {
        Self::new("assistant", content, timestamp)
    }

    /// `user`, `assistant`, or what else stands there.
    pub fn role(&self) -> Cow<'_, str> {
        self.fields.text("role").unwrap_or_default()
    }

    /// The text of its content. Content that is no text is given as the reference program would print it, and nothing
    /// for what it takes for none.
    pub fn content(&self) -> Cow<'_, str> {
        self.fields.get("content").filter(|value| is_truthy(value)).map(python_text).unwrap_or_default()
    }

    /// When it was said, in whole seconds.
    pub fn timestamp(&self) -> Option<i64> {
        self.fields.get("timestamp")?.parse::<f64>().ok().map(|seconds| seconds as i64)
    }

    /// The model's reasoning, if the row has any.
    pub fn reasoning(&self) -> Option<Cow<'_, str>> {
        self.fields.text("reasoning")
    }

    /// Whether it is a marker or an error and no part of the conversation.
    pub fn is_error(&self) -> bool {
        self.fields.is_true("_error")
    }

    /// Whether the user asks something here. Some programs put the results of tools into rows of the user, which ask nothing.
    pub fn is_question(&self) -> bool {
        self.role() == "user" && !self.fields.get("content").is_some_and(is_results_alone)
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

/// Whether content is a list of tool results and of nothing else.
fn is_results_alone(content: &str) -> bool {
    let Ok(blocks) = serde_json::from_str::<Vec<&RawValue>>(content) else { return false };
    let kind =
        |block: &RawValue| Fields::parse(block.get())?.get("type").and_then(text_of).map(|kind| kind.into_owned());
    !blocks.is_empty() && blocks.iter().all(|block| kind(block).as_deref() == Some("tool_result"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_tools_are_no_question_although_the_user_seems_to_say_them() {
        for (row, expected) in [
            (r#"{"role":"user","content":"hi"}"#, true),
            (r#"{"role":"user","content":[]}"#, true),
            (r#"{"role":"user"}"#, true),
            (r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}"#, false),
            (r#"{"role":"user","content":[{"type":"tool_result"},{"type":"text","text":"and now?"}]}"#, true),
            (r#"{"role":"assistant","content":"ho"}"#, false),
        ] {
            assert_eq!(Row::parse(row).is_question(), expected, "{row}");
        }
    }
}
