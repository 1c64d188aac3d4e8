//! Tool calls, which arrive in parts: a name here, arguments there, several at once.

use super::chunk::CallPart;
use crate::model::{Event, Object};
use serde_json::Value;

/// Calls of one answer.
const CALLS_MAX: usize = 1024;

/// The calls of an answer as far as they have arrived.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<usize>,
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
    /// Adds a part, and gives the event that shows that something arrived.
    pub(super) fn add(&mut self, part: CallPart) -> Option<Event> {
        let at = self.place(&part)?;
        let call = &mut self.calls[at];
        if let Some(id) = part.id.filter(|id| !id.is_empty()) {
            call.id = id;
        }
        let function = part.function.unwrap_or_default();
        call.name.push_str(&function.name.unwrap_or_default());
        let arguments = function.arguments.as_ref().map(text).unwrap_or_default();
        call.arguments.push_str(&arguments);
        let mut payload = Object::default();
        payload.set_text("tool_call_id", &call.known_id(at));
        payload.set_text("name", &call.name);
        payload.set_text("arguments_delta", &arguments);
        Event::new("tool_delta", &payload.to_json()).ok()
    }

    /// The call that a part belongs to: by its index, else by its id, else the last.
    fn place(&mut self, part: &CallPart) -> Option<usize> {
        let by_index = |call: &Call| part.index.is_some() && call.index == part.index;
        let by_id = |call: &Call| part.id.as_ref().is_some_and(|id| !id.is_empty() && *id == call.id);
        let is_new = part.index.is_some() || part.id.as_ref().is_some_and(|id| !id.is_empty());
        let found = self.calls.iter().position(by_index).or_else(|| {
            let same = self.calls.iter().position(by_id).filter(|_| part.index.is_none());
            same.or_else(|| self.calls.len().checked_sub(1).filter(|_| !is_new))
        });
        if found.is_none() {
            if self.calls.len() >= CALLS_MAX {
                return None;
            }
            self.calls.push(Call { index: part.index, ..Call::default() });
        }
        Some(found.unwrap_or(self.calls.len() - 1))
    }

    /// The events of the calls, when the answer has ended. Nobody here calls the tools.
    pub(super) fn finish(self) -> Vec<Event> {
        self.calls.iter().enumerate().filter_map(|(at, call)| call.event(at)).collect()
    }
}

impl Call {
    fn known_id(&self, at: usize) -> String {
        if self.id.is_empty() { format!("call-{at}") } else { self.id.clone() }
    }

    fn event(&self, at: usize) -> Option<Event> {
        const PREVIEW_CHARS_MAX: usize = 120;
        let is_object = serde_json::from_str::<Value>(&self.arguments).is_ok_and(|value| value.is_object());
        let mut payload = Object::default();
        payload.set_text("tool_call_id", &self.known_id(at));
        payload.set_text("name", if self.name.is_empty() { "tool" } else { &self.name });
        payload.set_text("preview", &self.arguments.chars().take(PREVIEW_CHARS_MAX).collect::<String>());
        payload.set("args", if is_object { self.arguments.as_str() } else { "{}" });
        if !is_object && !self.arguments.is_empty() {
            payload.set_text("arguments", &self.arguments);
        }
        Event::new("tool", &payload.to_json()).ok()
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls_of(parts: &[&str]) -> Vec<String> {
        let mut calls = Calls::default();
        parts.iter().for_each(|part| drop(calls.add(serde_json::from_str(part).unwrap())));
        calls.finish().iter().map(|event| event.payload().to_owned()).collect()
    }

    #[test]
    fn parts_find_their_call_by_index_even_interleaved() {
        let found = calls_of(&[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":""}}"#,
            r#"{"index":1,"id":"b","function":{"name":"g","arguments":"{\"y\":"}}"#,
            r#"{"index":0,"function":{"arguments":"{\"x\":1}"}}"#,
            r#"{"index":1,"function":{"arguments":"2}"}}"#,
        ]);
        assert_eq!(found.len(), 2);
        assert!(
            found[0].contains(r#""tool_call_id":"a","name":"f""#) && found[0].contains(r#""args":{"x":1}"#),
            "{found:?}"
        );
        assert!(found[1].contains(r#""args":{"y":2}"#), "{found:?}");
    }

    #[test]
    fn without_an_index_a_new_id_is_a_new_call() {
        let found = calls_of(&[
            r#"{"id":"a","function":{"name":"f","arguments":"{"}}"#,
            r#"{"function":{"arguments":"}"}}"#,
            r#"{"id":"b","function":{"name":"g","arguments":{"z":1}}}"#,
        ]);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains(r#""args":{}"#) && found[1].contains(r#""args":{"z":1}"#), "{found:?}");
    }

    #[test]
    fn arguments_that_are_cut_are_kept_as_text() {
        let found = calls_of(&[r#"{"index":0,"function":{"name":"f","arguments":"{\"x\":"}}"#]);
        assert!(found[0].contains(r#""args":{},"arguments":"{\"x\":""#), "{found:?}");
        assert!(found[0].contains(r#""tool_call_id":"call-0""#));
    }
}
