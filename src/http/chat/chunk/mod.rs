//! A run's events as the chunks of the AI SDK's UI message stream (v1), one SSE frame each: which part is open, which tools
//! still owe a result, how it all ends. Knows no HTTP and no store.
//!
//! Whatever the events are, the chunks are balanced, and such that every release of the packages accepts them. The first
//! ones refuse keys that they do not know, so no chunk says more than it must.

mod calls;
#[cfg(test)]
pub(super) mod tests;

use std::borrow::Cow;

use calls::Calls;

use crate::model::fold::ATTEMPT_EVENT;
use crate::model::{Fields, RunEnd, RunId, TextBuffer, is_truthy, python_text, quote, text_of, trim};

/// What an answer says that stopped without a word about why.
const NO_END: &str = "the answer was interrupted";

/// Writes the chunks of one run's answer, which is one message of the UI.
///
/// The same events give the same chunks, part ids and call ids included: a replay from the first event is the same message.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    message_id: Box<str>,
    stage: Stage,
    part: Option<Part>,
    parts_begun: u64,
    calls: Calls,
    ending: Option<ClosingChunk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Before,
    Within,
    After,
}

impl ChunkWriter {
    /// The message of a run. It has the run's id, by which a client that has a part of it already knows it again.
    pub(crate) fn new(run: &RunId) -> Self {
        ChunkWriter {
            message_id: run.as_str().into(),
            stage: Stage::Before,
            part: None,
            parts_begun: 0,
            calls: Calls::default(),
            ending: None,
        }
    }

    /// Begins the message, unless it has begun.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if self.stage == Stage::Before {
            self.stage = Stage::Within;
            Frame::open(out, "start").text("messageId", &self.message_id).close();
            Frame::open(out, "start-step").close();
        }
    }

    /// Takes the next event, and begins the message if nobody has.
    pub(crate) fn event(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        if self.stage == Stage::After {
            return;
        }
        self.begin(out);
        let fields = || Fields::parse(payload).unwrap_or(Fields(Vec::new()));
        match name {
            "token" => self.add(Kind::Text, fields().get("text"), out),
            "reasoning" => self.add(Kind::Reasoning, thought_of(&fields()), out),
            "interim_assistant" => self.add_paragraph(&fields(), out),
            "tool" => self.begin_call(&fields(), out),
            "tool_complete" => self.calls.complete(&fields(), out),
            ATTEMPT_EVENT => self.begin_attempt(out),
            "done" | "stream_end" | "cancel" | "apperror" | "error" => self.note_end(name, payload, out),
            _ => {}
        }
    }

    /// Ends the message as the events said, and the stream. What is open is closed; a run whose events did not say how it
    /// ended was interrupted.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) {
        if self.stage == Stage::After {
            return;
        }
        self.begin(out);
        self.close_part(out);
        let ending = self.ending.take().unwrap_or_else(|| ClosingChunk::Error(NO_END.to_owned()));
        self.calls.give_up(ending.owed_result(), out);
        Frame::open(out, "finish-step").close();
        ending.write(out);
        out.extend_from_slice(b"data: [DONE]\n\n");
        self.stage = Stage::After;
    }

    fn add(&mut self, kind: Kind, value: Option<&str>, out: &mut Vec<u8>) {
        let Some(value) = value.filter(|value| is_truthy(value)) else { return };
        if self.part.as_ref().is_some_and(|part| part.kind != kind) {
            self.close_part(out);
        }
        let part = self.part.get_or_insert_with(|| Part::new(kind));
        match value.starts_with('"') {
            true => part.text.push_literal(value),
            false => part.text.push(&python_text(value)),
        }
        let words = part.text.take_whole();
        part.write(&words, &mut self.parts_begun, out);
    }

    /// A paragraph of its own, unless its words were said before: then it only ends them.
    fn add_paragraph(&mut self, fields: &Fields<'_>, out: &mut Vec<u8>) {
        let is_said = fields.get("already_streamed").is_some_and(is_truthy);
        let text = given(fields, &["text"]).unwrap_or_default();
        let text = trim(&text);
        if is_said || !text.is_empty() {
            self.close_part(out);
        }
        if !is_said && !text.is_empty() {
            let mut part = Part::new(Kind::Text);
            part.write(text, &mut self.parts_begun, out);
            part.close(&mut self.parts_begun, out);
        }
    }

    /// What an attempt that failed had thought stays, a paragraph of its own.
    fn begin_attempt(&mut self, out: &mut Vec<u8>) {
        if self.part.as_ref().is_some_and(|part| part.kind == Kind::Reasoning) {
            self.close_part(out);
        }
    }

    fn close_part(&mut self, out: &mut Vec<u8>) {
        if let Some(part) = self.part.take() {
            part.close(&mut self.parts_begun, out);
        }
    }

    fn begin_call(&mut self, fields: &Fields<'_>, out: &mut Vec<u8>) {
        self.close_part(out);
        self.calls.begin(fields, out);
    }

    /// The last end that is not `stream_end` decides, as it does for the journal.
    fn note_end(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        self.close_part(out);
        if name != "stream_end" || self.ending.is_none() {
            self.ending = ClosingChunk::of(name, payload).or(self.ending.take());
        }
    }
}

/// The keys under which producers say what they think.
fn thought_of<'a>(fields: &Fields<'a>) -> Option<&'a str> {
    ["text", "reasoning", "thinking"].iter().filter_map(|key| fields.get(key)).find(|value| is_truthy(value))
}

/// The text of the first of these keys that says anything.
fn given<'a>(fields: &Fields<'a>, keys: &[&str]) -> Option<Cow<'a, str>> {
    keys.iter().filter_map(|key| fields.get(key)).find(|value| is_truthy(value)).map(python_text)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

/// A text or a thought that is being written. It begins with its first whole character.
#[derive(Debug)]
struct Part {
    kind: Kind,
    id: Option<String>,
    text: TextBuffer,
}

impl Part {
    fn new(kind: Kind) -> Self {
        Part { kind, id: None, text: TextBuffer::default() }
    }

    /// What the start, a piece and the end of such a part are called.
    fn chunks(&self) -> [&'static str; 3] {
        match self.kind {
            Kind::Text => ["text-start", "text-delta", "text-end"],
            Kind::Reasoning => ["reasoning-start", "reasoning-delta", "reasoning-end"],
        }
    }

    fn write(&mut self, words: &str, parts_begun: &mut u64, out: &mut Vec<u8>) {
        if words.is_empty() {
            return;
        }
        let [start, delta, _] = self.chunks();
        let id = self.id.get_or_insert_with(|| {
            *parts_begun += 1;
            let id = parts_begun.to_string();
            Frame::open(out, start).text("id", &id).close();
            id
        });
        Frame::open(out, delta).text("id", id).text("delta", words).close();
    }

    fn close(mut self, parts_begun: &mut u64, out: &mut Vec<u8>) {
        let rest = self.text.take();
        self.write(&rest, parts_begun, out);
        if let Some(id) = &self.id {
            Frame::open(out, self.chunks()[2]).text("id", id).close();
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    quote(text, &mut out);
    out
}

/// How the message ends.
#[derive(Debug, PartialEq, Eq)]
enum ClosingChunk {
    Finish(&'static str),
    Abort,
    Error(String),
}

impl ClosingChunk {
    fn of(name: &str, payload: &str) -> Option<Self> {
        let is_failure = matches!(name, "apperror" | "error");
        Some(match RunEnd::of(name, payload)? {
            RunEnd::InterruptedByUser => ClosingChunk::Abort,
            _ if is_failure => ClosingChunk::Error(message_of(payload)),
            // The packages say this of an agent that was not allowed another step.
            RunEnd::ToolLimitReached => ClosingChunk::Finish("tool-calls"),
            _ => ClosingChunk::Finish(finish_reason(payload)),
        })
    }

    /// What becomes of the tools that have not answered.
    fn owed_result(&self) -> &'static str {
        match self {
            ClosingChunk::Finish(_) => "no result",
            ClosingChunk::Abort | ClosingChunk::Error(_) => "interrupted",
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            ClosingChunk::Finish(reason) => Frame::open(out, "finish").text("finishReason", reason).close(),
            ClosingChunk::Abort => Frame::open(out, "abort").close(),
            ClosingChunk::Error(text) => Frame::open(out, "error").text("errorText", text).close(),
        }
    }
}

/// Why an endpoint says that it finished, in the words that all releases of the packages know.
fn finish_reason(payload: &str) -> &'static str {
    let said = Fields::parse(payload).and_then(|fields| fields.get("finish_reason").and_then(text_of));
    match said.as_deref().map(trim) {
        None | Some("" | "stop" | "end_turn" | "stop_sequence") => "stop",
        Some("length" | "max_tokens") => "length",
        Some("content_filter" | "content-filter") => "content-filter",
        Some("tool_calls" | "tool-calls" | "function_call" | "tool_use") => "tool-calls",
        Some(_) => "other",
    }
}

fn message_of(payload: &str) -> String {
    let fields = Fields::parse(payload).unwrap_or(Fields(Vec::new()));
    let said = given(&fields, &["message", "error", "text", "type"]).unwrap_or_default();
    match trim(&said) {
        "" => "the run failed".to_owned(),
        said => said.to_owned(),
    }
}

/// One chunk as it is written, key by key.
struct Frame<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Frame<'a> {
    fn open(out: &'a mut Vec<u8>, chunk: &'static str) -> Self {
        out.extend_from_slice(b"data: {\"type\":\"");
        out.extend_from_slice(chunk.as_bytes());
        out.push(b'"');
        Frame { out }
    }

    fn json(self, key: &'static str, value: &str) -> Self {
        self.out.extend_from_slice(b",\"");
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out.extend_from_slice(value.as_bytes());
        self
    }

    fn text(self, key: &'static str, text: &str) -> Self {
        self.json(key, &quoted(text))
    }

    fn close(self) {
        self.out.extend_from_slice(b"}\n\n");
    }
}
