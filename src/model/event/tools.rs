//! Constructors of the events about tool calls: what a tool was called with, what it answered, and what people see of that.

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Event, on_one_line};
use crate::limits::PREVIEW_CHARS_MAX;
use crate::model::json::{Object, quoted, text_of};
use crate::model::text::{is_truthy, trim};

impl Event {
    /// A tool is called with these arguments. The result that carries the same `id` completes the call.
    ///
    /// What people see of the call is the beginning of the arguments; [`Event::with_preview`] gives better words.
    pub fn tool(id: &str, name: &str, arguments: &Value) -> Self {
        Self::tool_json(id, name, &arguments.to_string())
    }

    /// The same with arguments as the model wrote them: JSON text, kept as it is spelt. Text that is not JSON is kept as a
    /// text, which a model is shown as the field `input`.
    pub fn tool_json(id: &str, name: &str, arguments: &str) -> Self {
        let arguments = json_of(arguments);
        let mut payload = call(id, name);
        payload.set_text("preview", &preview_of(&arguments));
        payload.set("args", arguments);
        Self::of_payload("tool", payload.to_json())
    }

    /// A tool has answered with this result, or failed with it.
    ///
    /// What people see of it is its beginning; [`Event::with_preview`] gives better words.
    pub fn tool_complete(id: &str, name: &str, result: &Value, is_error: bool) -> Self {
        Self::tool_complete_json(id, name, &result.to_string(), is_error)
    }

    /// The same with a result that is JSON text already, kept as it is spelt. Text that is not JSON is kept as a text.
    pub fn tool_complete_json(id: &str, name: &str, result: &str, is_error: bool) -> Self {
        let result = json_of(result);
        let mut payload = call(id, name);
        payload.set_text("preview", &preview_of(&result));
        payload.set("result", result);
        payload.set("is_error", is_error.to_string());
        Self::of_payload("tool_complete", payload.to_json())
    }

    /// A piece of the arguments of a call that the model is still writing, for those who follow. The call itself comes with
    /// [`Event::tool`].
    pub fn tool_delta(id: &str, name: &str, arguments_delta: &str) -> Self {
        let mut payload = call(id, name);
        payload.set_text("arguments_delta", arguments_delta);
        Self::of_payload("tool_delta", payload.to_json())
    }

    /// The same event with other words for people: what the call is about, or how its result reads in a line.
    pub fn with_preview(self, preview: &str) -> Self {
        let Some(mut payload) = Object::parse(&self.payload) else { return self };
        payload.set_text("preview", preview);
        Event { payload: payload.to_json().into(), ..self }
    }
}

fn call(id: &str, name: &str) -> Object {
    let mut payload = Object::default();
    payload.set_text("tool_call_id", id);
    payload.set_text("name", name);
    payload
}

/// JSON text as it is, on one line; any other text as a JSON text.
fn json_of(text: &str) -> Box<str> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(json) => on_one_line(json.get()),
        Err(_) => quoted(text),
    }
}

/// The beginning of a value, on one line. Nothing for a value that says nothing.
fn preview_of(json: &str) -> String {
    if !is_truthy(json) {
        return String::new();
    }
    let text = text_of(json).unwrap_or(json.into());
    let line = trim(&text).chars().map(|c| if c.is_control() { ' ' } else { c });
    line.take(PREVIEW_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_carries_all_of_its_arguments_and_shows_their_beginning() {
        let event = Event::tool("c1", "search", &json!({"q": "sea", "n": 3}));
        assert_eq!(
            event.payload(),
            r#"{"tool_call_id":"c1","name":"search","preview":"{\"n\":3,\"q\":\"sea\"}","args":{"n":3,"q":"sea"}}"#
        );
        let long = json!({"q": "\u{e9}".repeat(10_000)});
        let payload = Object::parse(Event::tool("c1", "search", &long).payload()).unwrap();
        assert_eq!(payload.get("args"), Some(&*long.to_string()));
        assert_eq!(payload.text("preview").unwrap().chars().count(), PREVIEW_CHARS_MAX);
        assert_eq!(Object::parse(Event::tool("c1", "t", &json!({})).payload()).unwrap().text("preview").unwrap(), "");
    }

    #[test]
    fn json_text_is_kept_as_it_is_spelt_and_other_text_as_a_text() {
        let kept = |text: &str| {
            Object::parse(Event::tool_json("", "t", text).payload()).unwrap().get("args").unwrap().to_owned()
        };
        assert_eq!(kept(r#"{"b": 1.50, "a": 2e3}"#), r#"{"b": 1.50, "a": 2e3}"#);
        assert_eq!(kept("{\n\"a\":1}"), r#"{ "a":1}"#);
        assert_eq!(kept(r#"{"cut": "he"#), r#""{\"cut\": \"he""#);
    }

    #[test]
    fn a_result_is_any_value_with_words_of_its_own_for_people() {
        let event = Event::tool_complete("c1", "ls", &json!(["a", 1, null]), true).with_preview("2 files");
        assert_eq!(
            event.payload(),
            r#"{"tool_call_id":"c1","name":"ls","preview":"2 files","result":["a",1,null],"is_error":true}"#
        );
        let text = Event::tool_complete("c1", "ls", &json!(" two\nlines "), false);
        assert_eq!(Object::parse(text.payload()).unwrap().text("preview").unwrap(), "two lines");
        assert_eq!(Event::done().with_preview("x").terminal_state(), Event::done().terminal_state());
    }

    #[test]
    fn a_piece_of_arguments_is_a_text() {
        let event = Event::tool_delta("c1", "ls", "{\"p\":");
        assert_eq!(event.payload(), r#"{"tool_call_id":"c1","name":"ls","arguments_delta":"{\"p\":"}"#);
    }
}
