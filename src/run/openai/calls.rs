//! Tool calls, which arrive in parts: a name here, arguments there, several at once.

use super::chunk::{CallPart, text};
use crate::model::{Event, Object, text_of};

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
        let id = text(&part.id);
        if !id.is_empty() {
            call.id = id;
        }
        let function = part.function.unwrap_or_default();
        call.add_name(&text(&function.name));
        let arguments = function.arguments.as_ref().map(|value| argument(value.get())).unwrap_or_default();
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
        let id = text(&part.id);
        let by_id = |call: &Call| !id.is_empty() && id == call.id;
        let is_new = part.index.is_some() || !id.is_empty();
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
    /// A name comes whole, in parts, or whole with every part.
    fn add_name(&mut self, name: &str) {
        if self.name != name {
            self.name.push_str(name);
        }
    }

    fn known_id(&self, at: usize) -> String {
        if self.id.is_empty() { format!("call-{at}") } else { self.id.clone() }
    }

    /// The call, without its arguments if they are longer than a line: the parts of it are there before it.
    fn event(&self, at: usize) -> Option<Event> {
        self.event_with(at, &self.arguments).or_else(|| self.event_with(at, ""))
    }

    fn event_with(&self, at: usize, arguments: &str) -> Option<Event> {
        const PREVIEW_CHARS_MAX: usize = 120;
        let is_object = Object::parse(arguments).is_some();
        let mut payload = Object::default();
        payload.set_text("tool_call_id", &self.known_id(at));
        payload.set_text("name", if self.name.is_empty() { "tool" } else { &self.name });
        payload.set_text("preview", &self.arguments.chars().take(PREVIEW_CHARS_MAX).collect::<String>());
        payload.set("args", if is_object { arguments } else { "{}" });
        if !is_object && !arguments.is_empty() {
            payload.set_text("arguments", arguments);
        }
        Event::new("tool", &payload.to_json()).ok()
    }
}

/// Arguments come as a text that holds JSON, or as JSON.
fn argument(json: &str) -> String {
    match text_of(json) {
        Some(text) => text.into_owned(),
        None if json == "null" => String::new(),
        None => json.to_owned(),
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
    fn a_name_that_comes_with_every_part_is_one_name() {
        let part = r#"{"index":0,"id":"a","function":{"name":"search","arguments":""}}"#;
        assert!(calls_of(&[part, part])[0].contains(r#""name":"search""#));
        let parts = [r#"{"index":0,"function":{"name":"sea"}}"#, r#"{"index":0,"function":{"name":"rch"}}"#];
        assert!(calls_of(&parts)[0].contains(r#""name":"search""#));
    }

    #[test]
    fn a_call_that_is_too_long_to_tell_is_told_without_its_arguments() {
        let long = "x".repeat(crate::limits::LINE_BYTES_MAX);
        let found = calls_of(&[&format!(r#"{{"index":0,"function":{{"name":"f","arguments":"{long}"}}}}"#)]);
        assert!(found.len() == 1 && found[0].contains(r#""name":"f""#) && found[0].len() < 1_000);
    }

    #[test]
    fn arguments_that_are_cut_are_kept_as_text() {
        let found = calls_of(&[r#"{"index":0,"function":{"name":"f","arguments":"{\"x\":"}}"#]);
        assert!(found[0].contains(r#""args":{},"arguments":"{\"x\":""#), "{found:?}");
        assert!(found[0].contains(r#""tool_call_id":"call-0""#));
    }
}
