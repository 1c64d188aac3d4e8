//! The tool calls of a message as chunks: arguments as they arrive, the call, and one result for each.

use super::Frame;
use crate::http::chat::call_id::CallIds;
use crate::http::chat::value::{NO_ANSWER, failure, given, input, output};
use crate::model::fold::tool_id;
use crate::model::{Fields, TextBuffer, is_truthy};

/// What a tool is called of which the events do not give the name.
const NO_NAME: &str = "tool";

/// The tool calls of the message. Each gets an id that no other has, whatever the events call it.
#[derive(Debug, Default)]
pub(super) struct Calls {
    ids: CallIds,
    streaming: Vec<Streaming>,
    open: Vec<Call>,
}

/// A call whose arguments are arriving. It has not begun.
#[derive(Debug)]
struct Streaming {
    id: String,
    name: String,
    arguments: TextBuffer,
}

/// A call that has no result yet.
#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    /// What the events call it.
    given_id: Option<String>,
    /// What its card shows.
    preview: String,
}

impl Calls {
    /// A piece of the arguments of a call that will begin. Pieces without an id, or with one that the call might not get,
    /// are not sent: the call has all of its arguments when it begins.
    pub(super) fn stream_arguments(&mut self, fields: &Fields<'_>, out: &mut Vec<u8>) {
        let Some(id) = tool_id(fields) else { return };
        if !self.streaming.iter().any(|call| call.id == id) {
            if !self.ids.reserve(&id) {
                return;
            }
            let name = given(fields, &["name"]).map_or_else(|| NO_NAME.to_owned(), |name| name.into_owned());
            let frame = Frame::open(out, "tool-input-start").text("toolCallId", &id).text("toolName", &name);
            frame.json("providerExecuted", "true").json("dynamic", "true").close();
            self.streaming.push(Streaming { id: id.clone(), name, arguments: TextBuffer::default() });
        }
        let call = self.streaming.iter_mut().find(|call| call.id == id).expect("it was found or has just been added");
        let piece = fields.get("arguments_delta").filter(|piece| piece.starts_with('"'));
        piece.iter().for_each(|piece| call.arguments.push_literal(piece));
        let whole = call.arguments.take_whole();
        if !whole.is_empty() {
            Frame::open(out, "tool-input-delta").text("toolCallId", &id).text("inputTextDelta", &whole).close();
        }
    }

    /// The server or its runner executes the tool, never the client: `providerExecuted` says so, and keeps a client that
    /// answers calls by itself from sending another request when the message has ended.
    pub(super) fn begin(&mut self, fields: &Fields<'_>, out: &mut Vec<u8>) {
        let given_id = tool_id(fields);
        let id = self.ids.begin(given_id.as_deref());
        self.streaming.retain(|call| call.id != id);
        let call = Call {
            id,
            name: given(fields, &["name"]).map_or_else(|| NO_NAME.to_owned(), |name| name.into_owned()),
            given_id,
            preview: given(fields, &["snippet", "preview"]).unwrap_or_default().into_owned(),
        };
        Frame::open(out, "tool-input-available")
            .text("toolCallId", &call.id)
            .text("toolName", &call.name)
            .json("input", &input(arguments_of(fields)))
            .json("providerExecuted", "true")
            .json("dynamic", "true")
            .close();
        self.open.push(call);
    }

    /// Gives a call its result. One that belongs to no open call is not shown, as in the transcript.
    pub(super) fn complete(&mut self, fields: &Fields<'_>, out: &mut Vec<u8>) {
        let Some(nth) = self.find(fields) else { return };
        let call = self.open.remove(nth);
        let result = result_of(fields);
        let preview = given(fields, &["snippet", "preview"]).unwrap_or(call.preview.as_str().into());
        match fields.get("is_error").is_some_and(is_truthy) {
            true => fail(&call.id, &failure(result, &preview), out),
            false => answer(&call.id, &output(result, &preview), out),
        }
    }

    /// The call that a result is for: the first one with its id, else the first that it may be meant for.
    fn find(&self, fields: &Fields<'_>) -> Option<usize> {
        let id = tool_id(fields);
        let name = given(fields, &["name"]);
        let has_id = |call: &Call| id.is_some() && call.given_id == id;
        let is_named = |call: &Call| name.as_ref().is_none_or(|name| call.name == **name);
        let is_meant = |call: &Call| (id.is_none() || call.given_id.is_none()) && is_named(call);
        self.open.iter().position(has_id).or_else(|| self.open.iter().position(is_meant))
    }

    /// Ends the calls that have no result, and those whose arguments never were complete.
    pub(super) fn give_up(&mut self, out: &mut Vec<u8>) {
        self.open.drain(..).for_each(|call| fail(&call.id, NO_ANSWER, out));
        for call in self.streaming.drain(..) {
            let frame = Frame::open(out, "tool-input-error").text("toolCallId", &call.id).text("toolName", &call.name);
            let frame = frame.json("input", "null").json("providerExecuted", "true").json("dynamic", "true");
            frame.text("errorText", NO_ANSWER).close();
        }
    }
}

fn answer(call: &str, output: &str, out: &mut Vec<u8>) {
    let frame = Frame::open(out, "tool-output-available").text("toolCallId", call).json("output", output);
    frame.json("providerExecuted", "true").json("dynamic", "true").close();
}

fn fail(call: &str, why: &str, out: &mut Vec<u8>) {
    let frame = Frame::open(out, "tool-output-error").text("toolCallId", call).text("errorText", why);
    frame.json("providerExecuted", "true").json("dynamic", "true").close();
}

/// What a tool was called with.
fn arguments_of<'a>(fields: &Fields<'a>) -> Option<&'a str> {
    ["args", "arguments", "input"].iter().filter_map(|key| fields.get(key)).find(|value| is_truthy(value))
}

/// What a tool answered, whatever it is: the first key that is there, one with a value before one with `null`.
fn result_of<'a>(fields: &Fields<'a>) -> Option<&'a str> {
    let there = ["result", "output", "error"].iter().filter_map(|key| fields.get(key));
    there.clone().find(|value| *value != "null").or_else(|| there.clone().next())
}
