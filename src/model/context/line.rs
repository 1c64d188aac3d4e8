//! One row of any program, read for the conversation: who speaks, the words, the tools called and what they answered.
//!
//! Knows the shapes in which rows lie about: plain text, lists of parts, OpenAI's tool calls, Anthropic's tool blocks.

use serde_json::value::RawValue;

use super::ToolResult;
use super::tools::{Answer, Call};
use crate::model::json::{Fields, text_of};
use crate::model::text::{is_truthy, trim};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    System,
    User,
    Assistant,
    Tool,
}

impl Speaker {
    fn of(role: &str) -> Option<Self> {
        match role {
            "system" | "developer" => Some(Speaker::System),
            "user" => Some(Speaker::User),
            "assistant" => Some(Speaker::Assistant),
            "tool" => Some(Speaker::Tool),
            _ => None,
        }
    }
}

/// What a row says.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) speaker: Speaker,
    pub(super) text: String,
    pub(super) attachments: Vec<Box<str>>,
    pub(super) calls: Vec<Call>,
    pub(super) answers: Vec<Answer>,
}

impl Line {
    fn new(speaker: Speaker) -> Self {
        Line { speaker, text: String::new(), attachments: Vec::new(), calls: Vec::new(), answers: Vec::new() }
    }

    /// What the user said, with a list of attachments as JSON.
    pub(super) fn of_user(text: String, attachments: &str) -> Self {
        Line { text, attachments: boxed(items(attachments)), ..Line::new(Speaker::User) }
    }

    /// Reads a row; nothing if it is no part of the conversation.
    pub(super) fn parse(json: &str) -> Option<Self> {
        let row = Fields::parse(json).filter(|row| !is_marker(row))?;
        let mut line = Line::new(Speaker::of(&text_of(row.get("role")?)?)?);
        line.add_content(row.get("content").unwrap_or("null"));
        match line.speaker {
            Speaker::System => {}
            Speaker::User => line.attachments.extend(boxed(items(row.get("attachments").unwrap_or("null")))),
            Speaker::Assistant => line.calls.extend(calls_of(row.get("tool_calls").unwrap_or("null"))),
            Speaker::Tool => line.becomes_answer(&row),
        }
        Some(line)
    }

    /// Whether it adds nothing to what was said.
    pub(super) fn is_blank(&self) -> bool {
        trim(&self.text).is_empty() && self.attachments.is_empty() && self.calls.is_empty()
    }

    /// Whether two lists hold the same row here.
    pub(super) fn is_same(&self, other: &Line) -> bool {
        self.speaker == other.speaker && self.text == other.text
    }

    fn becomes_answer(&mut self, row: &Fields<'_>) {
        let text = std::mem::take(&mut self.text);
        self.answers = vec![Answer { id: word(row, "tool_call_id"), result: result_of(text, row) }];
    }

    fn add_content(&mut self, content: &str) {
        match content.as_bytes().first() {
            Some(b'"') => self.add_text(&text_of(content).unwrap_or_default()),
            Some(b'[') => items(content).into_iter().for_each(|part| self.add_part(part)),
            Some(b'{') => self.add_part(content),
            // A tool may answer with any value; a person and a model speak in words.
            Some(b'0'..=b'9' | b'-' | b't' | b'f') if self.speaker == Speaker::Tool => self.add_text(content),
            _ => {}
        }
    }

    fn add_text(&mut self, text: &str) {
        if !trim(text).is_empty() {
            join(&mut self.text, text);
        }
    }

    fn add_part(&mut self, part: &str) {
        if let Some(text) = text_of(part) {
            return self.add_text(&text);
        }
        let Some(fields) = Fields::parse(part) else { return };
        // Reasoning of a provider that marks it instead of naming it.
        if fields.get("thought").is_some_and(is_truthy) {
            return;
        }
        let text = fields.get("text").and_then(text_of);
        match (&*word(&fields, "type"), self.speaker) {
            ("thinking" | "redacted_thinking" | "reasoning", _) => {}
            ("", Speaker::Tool) if text.is_none() => self.add_text(part),
            ("" | "text" | "input_text" | "output_text", _) => self.add_text(&text.unwrap_or_default()),
            ("tool_use", Speaker::Assistant) => self.calls.push(Call::from_fields(&fields, "input")),
            // Never inside another result, so that hostile nesting cannot exhaust the stack.
            ("tool_result", Speaker::User) => self.answers.push(answer_of(&fields)),
            (_, Speaker::User) => self.attachments.push(part.into()),
            _ => {}
        }
    }
}

/// Rows that speak to the user about the conversation. Other programs spell `_error` in more ways than we do.
fn is_marker(row: &Fields<'_>) -> bool {
    let is_set = |key| row.get(key).is_some_and(is_truthy);
    is_set("_error") || is_set("_pending_journal_recovery") || is_set("interruption_cause")
}

/// Adds a paragraph.
pub(super) fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

/// The items of a JSON list, without those that are nothing. A value that is no list is its only item.
fn items(json: &str) -> Vec<&str> {
    let mut items: Vec<&str> = match serde_json::from_str::<Vec<&RawValue>>(json) {
        Ok(list) => list.into_iter().map(RawValue::get).collect(),
        Err(_) => vec![json],
    };
    items.retain(|item| is_truthy(item));
    items
}

fn boxed(items: Vec<&str>) -> Vec<Box<str>> {
    items.into_iter().map(Box::from).collect()
}

/// The text of a key; of any other value its JSON.
pub(super) fn word(fields: &Fields<'_>, key: &str) -> String {
    let value = fields.get(key).filter(|value| is_truthy(value)).unwrap_or("\"\"");
    text_of(value).map_or_else(|| value.to_owned(), |text| text.into_owned())
}

fn calls_of(json: &str) -> Vec<Call> {
    items(json).into_iter().filter_map(|call| Some(Call::native(&Fields::parse(call)?))).collect()
}

fn answer_of(part: &Fields<'_>) -> Answer {
    let mut inside = Line::new(Speaker::Tool);
    inside.add_content(part.get("content").unwrap_or("null"));
    Answer { id: word(part, "tool_use_id"), result: result_of(inside.text, part) }
}

fn result_of(text: String, fields: &Fields<'_>) -> ToolResult {
    ToolResult::answered(text, fields.get("is_error").is_some_and(is_truthy))
}
