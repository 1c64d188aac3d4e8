//! The tool calls of a message: each has an id of its own, and gets one result. What of a call and of its result can be shown.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::{Frame, given, quoted};
use crate::model::fold::tool_id;
use crate::model::{Fields, is_truthy};

/// Bytes of a tool call's id that is passed on. A longer one is replaced.
const CALL_ID_BYTES_MAX: usize = 256;

/// The tool calls of the message. Each gets an id that no other has, whatever the events call it.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Vec<Call>,
    ids: HashSet<String>,
}

/// A call that has no result yet.
#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    /// What the events call it.
    given_id: Option<String>,
}

impl Calls {
    /// The server has the tool called, or somebody behind it, never the client: `providerExecuted` says so, and keeps a
    /// client that answers calls by itself from asking again when the message has ended.
    pub(super) fn begin(&mut self, fields: &Fields<'_>, out: &mut Vec<u8>) {
        let given_id = tool_id(fields);
        let call = Call {
            id: self.fresh_id(given_id.as_deref()),
            name: given(fields, &["name"]).unwrap_or(Cow::Borrowed("tool")).into_owned(),
            given_id,
        };
        Frame::open(out, "tool-input-available")
            .text("toolCallId", &call.id)
            .text("toolName", &call.name)
            .json("input", &input_of(fields))
            .json("providerExecuted", "true")
            .json("dynamic", "true")
            .close();
        self.open.push(call);
    }

    fn fresh_id(&mut self, given: Option<&str>) -> String {
        let nth = self.ids.len() + 1;
        let given = given.filter(|id| id.len() <= CALL_ID_BYTES_MAX);
        let mut id = given.map_or_else(|| format!("call-{nth}"), str::to_owned);
        while !self.ids.insert(id.clone()) {
            id.push_str(&format!("#{nth}"));
        }
        id
    }

    /// Gives a call its result. One that belongs to no open call is not shown, as in the transcript.
    pub(super) fn complete(&mut self, fields: &Fields<'_>, out: &mut Vec<u8>) {
        let Some(nth) = self.find(fields) else { return };
        let call = self.open.remove(nth);
        match fields.get("is_error").is_some_and(is_truthy) {
            true => call.fail(&failure_of(fields), out),
            false => call.answer(&output_of(fields), out),
        }
    }

    /// The call that a result is for: the last one with its id, else the last that it may be meant for.
    fn find(&self, fields: &Fields<'_>) -> Option<usize> {
        let id = tool_id(fields);
        let name = given(fields, &["name"]);
        let has_id = |call: &Call| id.is_some() && call.given_id == id;
        let is_named = |call: &Call| name.as_ref().is_none_or(|name| call.name == **name);
        let is_meant = |call: &Call| (id.is_none() || call.given_id.is_none()) && is_named(call);
        self.open.iter().rposition(has_id).or_else(|| self.open.iter().rposition(is_meant))
    }

    pub(super) fn give_up(&mut self, why: &str, out: &mut Vec<u8>) {
        self.open.drain(..).for_each(|call| call.fail(why, out));
    }
}

impl Call {
    fn answer(&self, output: &str, out: &mut Vec<u8>) {
        let frame = Frame::open(out, "tool-output-available").text("toolCallId", &self.id).json("output", output);
        frame.json("providerExecuted", "true").json("dynamic", "true").close();
    }

    fn fail(&self, why: &str, out: &mut Vec<u8>) {
        let frame = Frame::open(out, "tool-output-error").text("toolCallId", &self.id).text("errorText", why);
        frame.json("providerExecuted", "true").json("dynamic", "true").close();
    }
}

/// What a tool was called with; of a call that does not tell, what the transcript shows of it.
fn input_of(fields: &Fields<'_>) -> String {
    let told = ["args", "arguments", "input"].iter().filter_map(|key| fields.get(key)).find(|value| is_truthy(value));
    match (told, given(fields, &["preview", "snippet"])) {
        (Some(input), _) => shown(input),
        (None, Some(preview)) => format!("{{\"preview\":{}}}", quoted(&preview)),
        (None, None) => "{}".to_owned(),
    }
}

fn output_of(fields: &Fields<'_>) -> String {
    let says = |value: &&str| !matches!(*value, "null" | "\"\"");
    let keys = ["output", "result", "snippet", "preview"];
    keys.iter().filter_map(|key| fields.get(key)).find(says).map_or_else(|| "null".to_owned(), shown)
}

fn failure_of(fields: &Fields<'_>) -> String {
    let keys = ["error", "output", "result", "snippet", "preview"];
    given(fields, &keys).map_or_else(|| "the tool failed".to_owned(), Cow::into_owned)
}

/// A value on one line if every reader takes it, else its text: the packages refuse a whole stream for one key that could
/// change a prototype, strict readers half a surrogate pair, and none of them has to go into any depth.
fn shown(json: &str) -> String {
    let value = serde_json::from_str::<Value>(json);
    match value.is_ok_and(|value| !is_refused(&value)) {
        // In valid JSON a control character stands only between tokens.
        true => json.chars().filter(|c| *c >= ' ').collect(),
        false => quoted(json),
    }
}

fn is_refused(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.contains_key("__proto__")
                || fields.get("constructor").is_some_and(|value| value.get("prototype").is_some())
                || fields.values().any(is_refused)
        }
        Value::Array(items) => items.iter().any(is_refused),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_a_reader_refuses_are_sent_as_texts() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for value in
            [r#"{"a":[{"__proto__":1}]}"#, r#"{"constructor":{"prototype":1}}"#, r#"["\ud800"]"#, "1e999", &deep]
        {
            assert_eq!(shown(value), quoted(value));
        }
        assert_eq!(shown("{\"constructor\":\r\n\t1}"), "{\"constructor\":1}");
    }

    #[test]
    fn a_call_of_a_long_name_or_none_is_given_one() {
        let mut calls = Calls::default();
        let mut fresh = |id: Option<&str>| calls.fresh_id(id);
        let long = "x".repeat(CALL_ID_BYTES_MAX + 1);
        assert_eq!(fresh(Some("call-2")), "call-2");
        assert_eq!(fresh(Some(&long)), "call-2#2");
        assert_eq!(fresh(None), "call-3");
    }
}
