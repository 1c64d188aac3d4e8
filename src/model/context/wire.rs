//! The conversation as JSON, in the shape of OpenAI's chat endpoint, which the others take as well.

use serde_json::Value;

use super::{Context, ContextCall, ContextMessage};
use crate::model::json::quote;
use crate::model::text::trim;

/// What a user's message says that is nothing but attachments which a provider would not understand.
const ONLY_ATTACHMENTS: &str = "(attachments)";

impl Context {
    /// The `messages` of a chat request: a JSON list on one line, with no key that a provider does not know.
    ///
    /// Of a user's attachments it holds those that are content parts of such a request (`image_url`, `input_audio`,
    /// `file`). What an application attached in a form of its own, it has to translate itself.
    pub fn to_json(&self) -> String {
        let mut out = Joined::new("[");
        for message in &self.messages {
            match message {
                ContextMessage::System { text } => write_said(&mut out, "system", text),
                ContextMessage::User { text, attachments } => write_user(&mut out, text, attachments),
                ContextMessage::Assistant { text, calls } => write_assistant(&mut out, text, calls),
            }
        }
        out.close("]")
    }
}

/// JSON with commas between its items.
struct Joined {
    text: String,
    begin: usize,
}

impl Joined {
    fn new(begin: &str) -> Self {
        Joined { text: begin.to_owned(), begin: begin.len() }
    }

    /// Begins an item, which is then written to the text.
    fn item(&mut self) -> &mut String {
        if self.text.len() > self.begin {
            self.text.push(',');
        }
        &mut self.text
    }

    fn close(mut self, end: &str) -> String {
        self.text.push_str(end);
        self.text
    }
}

fn write_said(out: &mut Joined, role: &str, text: &str) {
    let out = out.item();
    out.push_str("{\"role\":\"");
    out.push_str(role);
    out.push_str("\",\"content\":");
    quote(text, out);
    out.push('}');
}

fn write_user(out: &mut Joined, text: &str, attachments: &[Box<str>]) {
    let mut parts = attachments.iter().filter(|part| is_content_part(part)).peekable();
    if parts.peek().is_none() {
        return write_said(out, "user", if text.is_empty() { ONLY_ATTACHMENTS } else { text });
    }
    let mut content = Joined::new("{\"role\":\"user\",\"content\":[");
    if !text.is_empty() {
        write_text_part(content.item(), text);
    }
    // In valid JSON a control character stands only between tokens.
    parts.for_each(|part| content.item().extend(part.chars().filter(|c| *c >= ' ')));
    out.item().push_str(&content.close("]}"));
}

fn write_text_part(out: &mut String, text: &str) {
    out.push_str("{\"type\":\"text\",\"text\":");
    quote(text, out);
    out.push('}');
}

/// Whether an attachment is a part of content as the endpoint defines it, whole and readable by every JSON reader.
pub(super) fn is_content_part(json: &str) -> bool {
    let Ok(part) = serde_json::from_str::<Value>(json) else { return false };
    let has_text = |pointer| part.pointer(pointer).and_then(Value::as_str).is_some_and(|text| !trim(text).is_empty());
    match part["type"].as_str() {
        Some("image_url") => has_text("/image_url/url"),
        Some("input_audio") => has_text("/input_audio/data") && has_text("/input_audio/format"),
        Some("file") => has_text("/file/file_id") || has_text("/file/file_data"),
        _ => false,
    }
}

/// The words and the calls, and right behind them each call's result.
fn write_assistant(out: &mut Joined, text: &str, calls: &[ContextCall]) {
    if calls.is_empty() {
        return write_said(out, "assistant", text);
    }
    let message = out.item();
    message.push_str("{\"role\":\"assistant\",\"content\":");
    match text.is_empty() {
        true => message.push_str("null"),
        false => quote(text, message),
    }
    let mut listed = Joined::new(",\"tool_calls\":[");
    calls.iter().for_each(|call| write_call(listed.item(), call));
    message.push_str(&listed.close("]}"));
    calls.iter().for_each(|call| write_result(out.item(), call));
}

fn write_call(out: &mut String, call: &ContextCall) {
    out.push_str("{\"id\":");
    quote(&call.id, out);
    out.push_str(",\"type\":\"function\",\"function\":{\"name\":");
    quote(&call.name, out);
    out.push_str(",\"arguments\":");
    quote(&call.arguments, out);
    out.push_str("}}");
}

fn write_result(out: &mut String, call: &ContextCall) {
    out.push_str("{\"role\":\"tool\",\"tool_call_id\":");
    quote(&call.id, out);
    out.push_str(",\"content\":");
    quote(&call.result.text, out);
    out.push('}');
}
