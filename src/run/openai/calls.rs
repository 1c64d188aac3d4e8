//! Tool calls of one answer, joined from the parts in which servers stream them.
//!
//! Servers disagree on how a part names its call. An id that is new is a new call, even at an index that another call has:
//! adapters give every call index 0. A part without an id belongs to the last call at its index, or without an index to
//! the last call, unless that call is complete and the part names a function: then it begins the next call.

use super::chunk::{Any, CallPart, number, text};
use crate::limits::JSON_DEPTH_MAX;
use crate::model::{Event, Object, TextBuffer, nested_deeper_at, quoted, text_of};

/// Calls of one answer.
const CALLS_MAX: usize = 1024;

/// The calls of an answer as far as they have arrived.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// How many lists of parts have arrived.
    lists: u64,
}

#[derive(Debug)]
struct Call {
    index: Option<u64>,
    /// The id that the server gave; empty if it gave none so far.
    given_id: String,
    /// The id in events: the server's, or ours if the first part had none. It never changes.
    id: String,
    name: String,
    arguments: String,
    /// Half a character that waits for the part with its other half.
    half: TextBuffer,
    /// The list that held its last part.
    last_list: u64,
}

/// A part whose values are texts.
struct Part {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// The arguments as a JSON string literal, which may begin or end with half a character.
    literal: Box<str>,
}

impl From<CallPart> for Part {
    fn from(part: CallPart) -> Self {
        let function = part.function.unwrap_or_default();
        let json = function.arguments.as_ref().map_or("null", |value| value.get());
        let arguments = argument(json);
        let literal = if json.starts_with('"') { json.into() } else { quoted(&arguments) };
        Part { index: number(&part.index), id: id_of(&part.id), name: text(&function.name), arguments, literal }
    }
}

impl Calls {
    /// Adds the parts of one list, and gives the events that show what arrived.
    pub(super) fn add(&mut self, parts: Vec<CallPart>) -> Vec<Event> {
        self.lists += 1;
        parts.into_iter().filter_map(|part| self.add_part(part.into())).collect()
    }

    fn add_part(&mut self, part: Part) -> Option<Event> {
        let at = self.find(&part).or_else(|| self.begin(&part))?;
        let call = &mut self.calls[at];
        call.last_list = self.lists;
        if call.is_repeated_by(&part) {
            return None;
        }
        if !part.id.is_empty() && call.given_id.is_empty() {
            call.given_id = part.id;
        }
        call.add_name(&part.name);
        call.half.push_literal(&part.literal);
        call.arguments.push_str(&call.half.take_whole());
        let mut payload = Object::default();
        payload.set_text("tool_call_id", &call.id);
        payload.set_text("name", &call.name);
        payload.set("arguments_delta", part.literal);
        Event::new("tool_delta", &payload.to_json()).ok()
    }

    /// The call that a part belongs to; none if the part begins one.
    fn find(&self, part: &Part) -> Option<usize> {
        if part.id.is_empty() {
            let last = match part.index {
                Some(_) => self.calls.iter().rposition(|call| call.index == part.index),
                None => self.calls.len().checked_sub(1),
            };
            return last.filter(|at| !self.calls[*at].is_followed_by(part, self.lists));
        }
        let same = self.calls.iter().rposition(|call| call.given_id == part.id && call.may_have_index(part.index));
        same.or_else(|| {
            let at = self.calls.iter().rposition(|call| part.index.is_some() && call.index == part.index)?;
            self.calls[at].may_get_id_of(part, self.lists).then_some(at)
        })
    }

    fn begin(&mut self, part: &Part) -> Option<usize> {
        let at = self.calls.len();
        let id = if part.id.is_empty() { self.fresh_id() } else { part.id.clone() };
        let call = Call {
            index: part.index,
            given_id: part.id.clone(),
            id,
            name: String::new(),
            arguments: String::new(),
            half: TextBuffer::default(),
            last_list: 0,
        };
        (at < CALLS_MAX).then(|| self.calls.push(call)).map(|()| at)
    }

    /// An id that no call of this answer has so far.
    fn fresh_id(&self) -> String {
        let mut ids = (self.calls.len()..).map(|number| format!("call-{number}"));
        ids.find(|id| self.calls.iter().all(|call| call.id != *id)).expect("numbers do not end before calls do")
    }

    /// The events of the calls, when the answer has ended. The runner itself calls no tool.
    pub(super) fn finish(self) -> Vec<Event> {
        self.calls.into_iter().filter_map(Call::event).collect()
    }
}

impl Call {
    /// A name comes whole, in parts, or whole with every part.
    fn add_name(&mut self, name: &str) {
        if self.name != name {
            self.name.push_str(name);
        }
    }

    fn may_have_index(&self, index: Option<u64>) -> bool {
        index.is_none() || self.index.is_none() || self.index == index
    }

    /// Whether its arguments are complete.
    fn is_complete(&self) -> bool {
        self.arguments.trim_end().ends_with('}') && Object::parse(&self.arguments).is_some()
    }

    /// Whether a part without an id begins the next call: it names a function, and this call has all it needs or has got a
    /// part from the same list already.
    fn is_followed_by(&self, part: &Part, list: u64) -> bool {
        let says_more = !part.arguments.trim().is_empty() || part.name != self.name;
        !part.name.is_empty() && (self.last_list == list || (self.is_complete() && says_more))
    }

    /// Whether a part at its index with an id that is new goes on with it: its own id comes late, or the server makes up
    /// another id for every part. A part that begins a call names a function.
    fn may_get_id_of(&self, part: &Part, list: u64) -> bool {
        match self.given_id.is_empty() {
            true => (part.name.is_empty() || part.name == self.name) && !self.is_followed_by(part, list),
            false => part.name.is_empty() && !self.is_complete(),
        }
    }

    /// Whether a part says again what is complete: some servers end a stream with the whole call.
    fn is_repeated_by(&self, part: &Part) -> bool {
        !part.id.is_empty() && part.arguments == self.arguments && self.is_complete()
    }

    /// The call, without its arguments if they are longer than a line: the parts of it are there before it.
    fn event(mut self) -> Option<Event> {
        self.arguments.push_str(&self.half.take());
        self.event_with(&self.arguments).or_else(|| self.event_with(""))
    }

    fn event_with(&self, arguments: &str) -> Option<Event> {
        const PREVIEW_CHARS_MAX: usize = 120;
        // The line and the payload are levels, too. What is deeper stays as the model has written it.
        let is_deep = nested_deeper_at(arguments.as_bytes(), JSON_DEPTH_MAX - 2).is_some();
        let is_object = !is_deep && Object::parse(arguments).is_some();
        let mut payload = Object::default();
        payload.set_text("tool_call_id", &self.id);
        payload.set_text("name", if self.name.is_empty() { "tool" } else { &self.name });
        payload.set_text("preview", &self.arguments.chars().take(PREVIEW_CHARS_MAX).collect::<String>());
        payload.set("args", if is_object { arguments } else { "{}" });
        if !is_object && !arguments.is_empty() {
            payload.set_text("arguments", arguments);
        }
        Event::new("tool", &payload.to_json()).ok()
    }
}

/// Some servers count their calls and give the number as the id.
fn id_of(value: &Any) -> String {
    match value.as_ref().map(|value| value.get()) {
        Some(json) if json.starts_with(|c: char| c.is_ascii_digit()) => json.to_owned(),
        _ => text(value),
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

    /// Id, name and arguments of each call, after these lists of parts arrived.
    fn calls_of_lists(lists: &[&str]) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        let said: Vec<Event> =
            lists.iter().flat_map(|list| calls.add(serde_json::from_str(list).expect("a list of parts"))).collect();
        let ids: Vec<String> = said.iter().map(|event| field(event, "tool_call_id")).collect();
        let events = calls.finish();
        for id in &ids {
            assert!(events.iter().any(|event| field(event, "tool_call_id") == *id), "{id} is in no call: {events:?}");
        }
        events.iter().map(|event| (field(event, "tool_call_id"), field(event, "name"), arguments(event))).collect()
    }

    fn field(event: &Event, key: &str) -> String {
        Object::parse(event.payload()).unwrap().text(key).unwrap().into_owned()
    }

    fn arguments(event: &Event) -> String {
        let payload = Object::parse(event.payload()).unwrap();
        payload.text("arguments").map_or_else(|| payload.get("args").unwrap().to_owned(), |text| text.into_owned())
    }

    /// Each part in a list of its own.
    #[track_caller]
    fn check(parts: &[&str], expected: &[(&str, &str, &str)]) {
        let lists: Vec<String> = parts.iter().map(|part| format!("[{part}]")).collect();
        check_lists(&lists.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[track_caller]
    fn check_lists(lists: &[&str], expected: &[(&str, &str, &str)]) {
        let own =
            |(id, name, arguments): &(&str, &str, &str)| (id.to_string(), name.to_string(), arguments.to_string());
        assert_eq!(calls_of_lists(lists), expected.iter().map(own).collect::<Vec<_>>());
    }

    #[test]
    fn parts_find_their_call_by_index_even_interleaved() {
        let parts = [
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":""}}"#,
            r#"{"index":1,"id":"b","function":{"name":"g","arguments":"{\"y\":"}}"#,
            r#"{"index":0,"function":{"arguments":"{\"x\":1}"}}"#,
            r#"{"index":1,"function":{"arguments":"2}"}}"#,
        ];
        check(&parts, &[("a", "f", r#"{"x":1}"#), ("b", "g", r#"{"y":2}"#)]);
    }

    #[test]
    fn without_an_index_a_new_id_is_a_new_call() {
        let parts = [
            r#"{"id":"a","function":{"name":"f","arguments":"{"}}"#,
            r#"{"function":{"arguments":"}"}}"#,
            r#"{"id":"b","function":{"name":"g","arguments":{"z":1}}}"#,
        ];
        check(&parts, &[("a", "f", "{}"), ("b", "g", r#"{"z":1}"#)]);
    }

    #[test]
    fn calls_that_share_an_index_and_have_different_ids_are_separate() {
        let parts = [
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}"#,
            r#"{"index":0,"id":"b","function":{"name":"f","arguments":"{\"x\":2}"}}"#,
            r#"{"index":0,"id":"c","function":{"name":"g","arguments":""}}"#,
        ];
        let expected = [("a", "f", r#"{"x":1}"#), ("b", "f", r#"{"x":2}"#), ("c", "g", "{}")];
        check(&parts, &expected);
        check_lists(&[&format!("[{}]", parts.join(","))], &expected);
    }

    #[test]
    fn calls_that_share_an_index_may_come_in_parts_one_after_the_other() {
        let parts = [
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}"#,
            r#"{"index":0,"id":"a","function":{"arguments":":1}"}}"#,
            r#"{"index":0,"id":"b","function":{"name":"f","arguments":""}}"#,
            r#"{"index":0,"function":{"arguments":"{\"x\":"}}"#,
            r#"{"index":0,"function":{"arguments":"2}"}}"#,
        ];
        check(&parts, &[("a", "f", r#"{"x":1}"#), ("b", "f", r#"{"x":2}"#)]);
    }

    #[test]
    fn an_id_that_comes_with_every_part_is_one_call() {
        for index in ["\"index\":0,", "\"index\":\"0\",", ""] {
            let part = |rest: &str| format!(r#"{{{index}"id":"a","function":{rest}}}"#);
            let parts = [
                part(r#"{"name":"f","arguments":"{\"x\":"}"#),
                part(r#"{"arguments":"1"}"#),
                part(r#"{"name":"f","arguments":"}"}"#),
            ];
            check(&parts.each_ref().map(String::as_str), &[("a", "f", r#"{"x":1}"#)]);
        }
    }

    #[test]
    fn an_id_may_be_a_number_and_stays_as_it_is_spelt() {
        let part = |id: &str| format!(r#"{{"index":0,"id":{id},"function":{{"name":"f","arguments":"{{}}"}}}}"#);
        let parts = [part("7"), part("\"007\""), part("null")];
        check(&parts.each_ref().map(String::as_str), &[("7", "f", "{}"), ("007", "f", "{}"), ("call-2", "f", "{}")]);
    }

    #[test]
    fn an_id_that_is_made_up_for_every_part_does_not_tear_a_call() {
        let parts = [
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}"#,
            r#"{"index":0,"id":"b","function":{"arguments":"1}"}}"#,
        ];
        check(&parts, &[("a", "f", r#"{"x":1}"#)]);
    }

    #[test]
    fn whole_calls_without_ids_are_separate_and_in_order() {
        let calls = [
            r#"{"function":{"name":"f","arguments":"{\"x\":1}"}}"#,
            r#"{"function":{"name":"f","arguments":"{\"x\":1}"}}"#,
            r#"{"function":{"name":"g","arguments":"{}"}}"#,
            r#"{"function":{"name":"h","arguments":""}}"#,
        ];
        let same = r#"{"x":1}"#;
        let expected = [("call-0", "f", same), ("call-1", "f", same), ("call-2", "g", "{}"), ("call-3", "h", "{}")];
        check(&calls, &expected);
        check_lists(&[&format!("[{}]", calls.join(","))], &expected);
        let at_zero = calls.map(|call| call.replacen('{', "{\"index\":0,", 1));
        check(&at_zero.each_ref().map(String::as_str), &expected);
        check_lists(&[&format!("[{}]", at_zero.join(","))], &expected);
    }

    #[test]
    fn calls_without_arguments_and_ids_in_one_list_are_separate() {
        let list = r#"[{"index":0,"function":{"name":"f"}},{"index":0,"function":{"name":"g"}}]"#;
        check_lists(&[list], &[("call-0", "f", "{}"), ("call-1", "g", "{}")]);
        let parts_in_one_list = r#"[{"index":0,"function":{"name":"f"}},{"index":0,"function":{"arguments":"{}"}}]"#;
        check_lists(&[parts_in_one_list], &[("call-0", "f", "{}")]);
    }

    #[test]
    fn an_id_of_ours_is_none_that_the_server_gave_and_stays_when_another_comes_late() {
        let parts = [
            r#"{"index":0,"id":"call-1","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"index":1,"function":{"name":"g","arguments":"{"}}"#,
            r#"{"index":1,"id":"late","function":{"arguments":"}"}}"#,
        ];
        check(&parts, &[("call-1", "f", "{}"), ("call-2", "g", "{}")]);
    }

    #[test]
    fn a_call_that_is_said_again_at_the_end_is_one_call() {
        let parts = [
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}"#,
            r#"{"index":0,"function":{"arguments":"1}"}}"#,
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}"#,
        ];
        check(&parts, &[("a", "f", r#"{"x":1}"#)]);
    }

    #[test]
    fn a_name_that_comes_with_every_part_is_one_name() {
        let part = r#"{"index":0,"id":"a","function":{"name":"search","arguments":""}}"#;
        check(&[part, part], &[("a", "search", "{}")]);
        let parts = [r#"{"index":0,"function":{"name":"sea"}}"#, r#"{"index":0,"function":{"name":"rch"}}"#];
        check(&parts, &[("call-0", "search", "{}")]);
    }

    #[test]
    fn arguments_stay_as_the_server_spelt_them() {
        let spelt = r#"{ "b" : [1.0, {"deep":{"er":"\u00e9\ud83d\ude00"}}],  "a":1e2 }"#;
        let part = format!(r#"{{"index":0,"id":"a","function":{{"name":"f","arguments":{}}}}}"#, quoted(spelt));
        check(&[&part], &[("a", "f", spelt)]);
    }

    #[test]
    fn a_character_that_was_cut_between_two_parts_is_whole_again() {
        let parts = [
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"\ud83d"}}"#,
            r#"{"index":0,"function":{"arguments":"\ude00\"}"}}"#,
        ];
        check(&parts, &[("a", "f", "{\"x\":\"\u{1f600}\"}")]);
    }

    #[test]
    fn a_call_that_is_too_long_to_tell_is_told_without_its_arguments() {
        let long = "x".repeat(crate::limits::LINE_BYTES_MAX);
        let mut calls = Calls::default();
        let list = format!(r#"[{{"index":0,"function":{{"name":"f","arguments":"{long}"}}}}]"#);
        calls.add(serde_json::from_str(&list).unwrap());
        let found = calls.finish();
        assert!(found.len() == 1 && field(&found[0], "name") == "f" && found[0].payload().len() < 1_000);
    }

    #[test]
    fn arguments_that_are_cut_are_kept_as_text() {
        let mut calls = Calls::default();
        calls.add(serde_json::from_str(r#"[{"index":0,"function":{"name":"f","arguments":"{\"x\":"}}]"#).unwrap());
        let found = calls.finish();
        assert!(found[0].payload().contains(r#""args":{},"arguments":"{\"x\":""#), "{found:?}");
    }
}
