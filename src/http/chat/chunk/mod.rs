//! A run's events as the chunks of the AI SDK's UI message stream (v1), one SSE frame each: which part is open, which tools
//! still owe a result, how it all ends. Knows no HTTP and no store.
//!
//! Whatever the events are, the chunks are balanced, and such that every release of the packages accepts them. The first
//! ones refuse keys that they do not know, so no chunk says more than it must.

mod about;
mod calls;
mod ending;
mod part;
#[cfg(test)]
pub(super) mod tests;

pub(super) use about::{OURS, Usage, producers_metadata};

use about::{About, write_metadata};
use calls::Calls;
use ending::ClosingChunk;
use part::{Kind, Part};

use super::value::{FileAddresses, given, part_for};
use crate::model::fold::ATTEMPT_EVENT;
use crate::model::{Fields, RunEnd, RunId, is_truthy, python_text, quote, trim, ui_part};

/// Writes the chunks of one run's answer, which is one message of the UI.
///
/// The same events give the same chunks, part ids and call ids included: a replay from the first event is the same message.
#[derive(Debug)]
pub(crate) struct ChunkWriter {
    files: FileAddresses,
    message_id: Box<str>,
    stage: Stage,
    part: Option<Part>,
    parts_begun: u64,
    calls: Calls,
    about: About,
    ending: Option<ClosingChunk>,
    state: Option<RunEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Before,
    Within,
    After,
}

impl ChunkWriter {
    /// The message of a run. It has the run's id, by which a client that has a part of it already knows it again.
    pub(crate) fn new(files: FileAddresses, run: &RunId) -> Self {
        ChunkWriter {
            files,
            message_id: run.as_str().into(),
            stage: Stage::Before,
            part: None,
            parts_begun: 0,
            calls: Calls::default(),
            about: About::new(run),
            ending: None,
            state: None,
        }
    }

    /// Notes when the turn began, in seconds.
    pub(crate) fn began_at(&mut self, seconds: Option<f64>) {
        self.about.began_at(seconds);
    }

    /// Notes when the run ended, in seconds.
    pub(crate) fn ended_at(&mut self, seconds: Option<f64>) {
        self.about.ended_at(seconds);
    }

    /// Begins the message, unless it has begun.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if self.stage == Stage::Before {
            self.stage = Stage::Within;
            Frame::open(out, "start").text("messageId", &self.message_id).close();
            Frame::open(out, "start-step").close();
        }
    }

    /// Takes the next event, and begins the message unless it has begun.
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
            "tool_delta" => self.calls.stream_arguments(&fields(), out),
            "tool_complete" => self.calls.complete(&fields(), out),
            "file" | "source" | "data" => self.add_ui_part(name, payload, out),
            "metadata" => write_metadata(payload, out),
            "usage" if self.about.add_usage(&fields()) => self.about.write(out),
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
        self.calls.give_up(out);
        let state = self.state.unwrap_or(RunEnd::InterruptedByCrash);
        self.about.write_end(state.as_str(), out);
        Frame::open(out, "finish-step").close();
        self.ending.take().unwrap_or_else(ClosingChunk::unknown).write(out);
        out.extend_from_slice(b"data: [DONE]\n\n");
        self.stage = Stage::After;
    }

    fn add(&mut self, kind: Kind, value: Option<&str>, out: &mut Vec<u8>) {
        let Some(value) = value.filter(|value| is_truthy(value)) else { return };
        if self.part.as_ref().is_some_and(|part| part.kind != kind) {
            // White space at the beginning of a part is not sent, and ends no other one.
            if trim(&python_text(value)).is_empty() {
                return;
            }
            self.close_part(out);
        }
        let part = self.part.get_or_insert_with(|| Part::new(kind));
        part.add(value, &mut self.parts_begun, out);
    }

    /// The last paragraph of a text, unless its words were said before: then it only ends them.
    fn add_paragraph(&mut self, fields: &Fields<'_>, out: &mut Vec<u8>) {
        let is_said = fields.get("already_streamed").is_some_and(is_truthy);
        let text = given(fields, &["text"]).unwrap_or_default();
        let text = trim(&text);
        if is_said {
            return self.close_part(out);
        }
        if text.is_empty() {
            return;
        }
        if self.part.as_ref().is_some_and(|part| part.kind == Kind::Reasoning) {
            self.close_part(out);
        }
        let mut part = self.part.take().unwrap_or_else(|| Part::new(Kind::Text));
        part.add_paragraph(text, &mut self.parts_begun, out);
        part.close(&mut self.parts_begun, out);
    }

    /// What an attempt that failed had thought stays, a paragraph of its own. Its calls get no result any more.
    fn begin_attempt(&mut self, out: &mut Vec<u8>) {
        self.calls.begin_attempt(out);
        let thought = self.part.as_mut().filter(|part| part.kind == Kind::Reasoning && !part.is_empty());
        if let Some(part) = thought {
            part.add("\"\\n\\n\"", &mut self.parts_begun, out);
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

    /// A file, a source or data. It neither ends nor divides a text, as in the transcript.
    fn add_ui_part(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        let Some(part) = ui_part(name, payload) else { return };
        let part = part_for(&self.files, &part);
        let Some(kind) = part.text("type") else { return };
        let mut frame = Frame::open(out, &kind);
        // The packages do not read a file's name from a chunk.
        let is_sent = |key: &str| key != "type" && !(key == "filename" && kind == "file");
        for (key, value) in part.iter().filter(|(key, _)| is_sent(key)) {
            frame = frame.json(key, value);
        }
        frame.close();
    }

    /// The last end that is not `stream_end` decides, as it does for the journal.
    fn note_end(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        self.close_part(out);
        if name == "done" {
            self.about.note_end(&Fields::parse(payload).unwrap_or(Fields(Vec::new())));
        }
        if name != "stream_end" || self.ending.is_none() {
            self.ending = ClosingChunk::of(name, payload).or(self.ending.take());
            self.state = RunEnd::of(name, payload).or(self.state);
        }
    }
}

/// The keys under which producers say what they think.
fn thought_of<'a>(fields: &Fields<'a>) -> Option<&'a str> {
    ["text", "reasoning", "thinking"].iter().filter_map(|key| fields.get(key)).find(|value| is_truthy(value))
}

/// One chunk as it is written, key by key.
struct Frame<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Frame<'a> {
    fn open(out: &'a mut Vec<u8>, chunk: &str) -> Self {
        out.extend_from_slice(b"data: {");
        Frame { out }.field("type", &quoted(chunk))
    }

    fn json(self, key: &str, value: &str) -> Self {
        self.out.push(b',');
        self.field(key, value)
    }

    fn text(self, key: &str, text: &str) -> Self {
        self.json(key, &quoted(text))
    }

    fn field(self, key: &str, value: &str) -> Self {
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out.extend_from_slice(value.as_bytes());
        self
    }

    fn close(self) {
        self.out.extend_from_slice(b"}\n\n");
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    quote(text, &mut out);
    out
}
