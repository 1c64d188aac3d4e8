//! One message of the UI and its parts, and their JSON.

use super::Large;
use crate::http::chat::value::{NO_ANSWER, failure, input, output};
use crate::model::{Object, quoted};

/// A message. Its parts are whole when it is written.
#[derive(Debug)]
pub(super) struct UiMessage {
    pub(super) id: String,
    pub(super) role: &'static str,
    /// A JSON object.
    pub(super) metadata: Option<String>,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    Reasoning(String),
    Call(Call),
    /// A part that is JSON already.
    Json(String),
}

/// A tool call and what came of it.
#[derive(Debug)]
pub(super) struct Call {
    /// Its id in the UI.
    pub(super) id: String,
    pub(super) name: String,
    /// JSON, or a reference to it.
    pub(super) input: Option<String>,
    pub(super) answer: Option<Answer>,
}

/// What a tool answered.
#[derive(Debug)]
pub(super) struct Answer {
    /// JSON, or a reference to it; none if only a preview of it was kept.
    pub(super) result: Option<String>,
    pub(super) preview: String,
    pub(super) is_error: bool,
}

impl UiMessage {
    pub(super) fn to_json(&self, large: &Large<'_>) -> String {
        let mut json = Object::default();
        json.set_text("id", &self.id);
        json.set_text("role", self.role);
        if let Some(metadata) = &self.metadata {
            json.set("metadata", metadata.as_str());
        }
        // The chat stream counts texts and thoughts together; its readers keep the number of a thought.
        let counted = self.parts.iter().scan(0, |count, part| {
            *count += u64::from(matches!(part, Part::Text(_) | Part::Reasoning(_)));
            Some((part, *count))
        });
        let parts: Vec<String> = counted.map(|(part, count)| part.to_json(self.role, count, large)).collect();
        json.set("parts", format!("[{}]", parts.join(",")));
        json.to_json()
    }
}

impl Part {
    fn to_json(&self, role: &str, count: u64, large: &Large<'_>) -> String {
        // What the packages note of a part that they have streamed.
        let state = if role == "assistant" { ",\"state\":\"done\"" } else { "" };
        match self {
            Part::Text(text) => format!("{{\"type\":\"text\",\"text\":{}{state}}}", quoted(text)),
            Part::Reasoning(text) => {
                format!("{{\"type\":\"reasoning\",\"id\":\"{count}\",\"text\":{}{state}}}", quoted(text))
            }
            Part::Call(call) => call.to_json(large),
            Part::Json(json) => json.clone(),
        }
    }
}

impl Call {
    fn to_json(&self, large: &Large<'_>) -> String {
        let mut json = Object::default();
        json.set_text("type", "dynamic-tool");
        json.set_text("toolName", &self.name);
        json.set_text("toolCallId", &self.id);
        let answer = self.answer.as_ref();
        let result = answer.and_then(|answer| answer.result.as_deref()).map(|result| large.whole(result));
        let (state, key, value) = match answer {
            None => ("output-error", "errorText", quoted(NO_ANSWER).into()),
            Some(answer) if answer.is_error => {
                ("output-error", "errorText", quoted(&failure(result.as_deref(), &answer.preview)).into())
            }
            Some(answer) => ("output-available", "output", output(result.as_deref(), &answer.preview)),
        };
        json.set_text("state", state);
        json.set("input", input(self.input.as_deref().map(|input| large.whole(input)).as_deref()));
        json.set(key, value);
        json.set("providerExecuted", "true");
        json.to_json()
    }
}
