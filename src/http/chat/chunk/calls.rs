//! The tool calls of a message as chunks: arguments as they arrive, the call, and one result for each.

use super::Frame;
use crate::http::chat::call_id::CallIds;
use crate::http::chat::value::{NO_ANSWER, failure, given, input, output};
use crate::model::fold::{tool_arguments, tool_id, tool_result};
use crate::model::{Fields, OpenCalls, TextBuffer, is_truthy};

/// What a tool is called of which the events do not give the name.
const NO_NAME: &str = "tool";

/// The tool calls of the message. Each gets an id that no other has, whatever the events call it.
#[derive(Debug, Default)]
pub(super) struct Calls {
    ids: CallIds,
    streaming: Vec<Streaming>,
    open: OpenCalls,
    begun: Vec<Call>,
}

/// A call whose arguments are arriving. It has not begun.
#[derive(Debug)]
struct Streaming {
    id: String,
    name: String,
    arguments: TextBuffer,
    /// Whether the client knows that arguments are arriving.
    is_started: bool,
}

#[derive(Debug)]
struct Call {
    id: String,
    is_answered: bool,
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
            let arguments = TextBuffer::default();
            self.streaming.push(Streaming { id: id.clone(), name: name_of(fields), arguments, is_started: false });
        }
        let call = self.streaming.iter_mut().find(|call| call.id == id).expect("it was found or has just been added");
        if !std::mem::replace(&mut call.is_started, true) {
            let frame = Frame::open(out, "tool-input-start").text("toolCallId", &id).text("toolName", &call.name);
            frame.json("providerExecuted", "true").json("dynamic", "true").close();
        }
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
        let (given_id, name) = (tool_id(fields), name_of(fields));
        let id = self.ids.begin(given_id.as_deref());
        self.streaming.retain(|call| call.id != id);
        Frame::open(out, "tool-input-available")
            .text("toolCallId", &id)
            .text("toolName", &name)
            .json("input", &input(tool_arguments(fields)))
            .json("providerExecuted", "true")
            .json("dynamic", "true")
            .close();
        self.open.begin(given_id, &name);
        self.begun.push(Call { id, is_answered: false });
    }

    /// Gives a call its result. One that belongs to no open call is not shown, as in the transcript.
    pub(super) fn complete(&mut self, fields: &Fields<'_>, out: &mut Vec<u8>) {
        let name = given(fields, &["name"]).unwrap_or_default();
        let Some(nth) = self.open.complete(tool_id(fields).as_deref(), &name) else { return };
        let call = &mut self.begun[nth];
        call.is_answered = true;
        let result = tool_result(fields);
        let is_error = result.map_or_else(|| fields.get("is_error").is_some_and(is_truthy), |(_, is_error)| is_error);
        let result = result.map(|(value, _)| value);
        let preview = given(fields, &["snippet"]).or_else(|| given(fields, &["preview"])).unwrap_or_default();
        match is_error {
            true => fail(&call.id, &failure(result, &preview), out),
            false => answer(&call.id, &output(result, &preview), out),
        }
    }

    /// The producer begins anew. What it called before gets no result any more; arguments begin with their first piece.
    pub(super) fn begin_attempt(&mut self, out: &mut Vec<u8>) {
        self.give_up_open(out);
        for call in &mut self.streaming {
            call.arguments = TextBuffer::default();
            call.is_started = false;
        }
    }

    fn give_up_open(&mut self, out: &mut Vec<u8>) {
        self.open.give_up();
        for call in self.begun.iter_mut().filter(|call| !call.is_answered) {
            call.is_answered = true;
            fail(&call.id, NO_ANSWER, out);
        }
    }

    /// Ends the calls that have no result, and those whose arguments never were complete.
    pub(super) fn give_up(&mut self, out: &mut Vec<u8>) {
        self.give_up_open(out);
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

fn name_of(fields: &Fields<'_>) -> String {
    given(fields, &["name"]).map_or_else(|| NO_NAME.to_owned(), |name| name.into_owned())
}
