//! One row of a transcript. Typed where we look, plain JSON text where we do not.

use std::borrow::Cow;

use super::json::Object;
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
