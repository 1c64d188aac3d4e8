//! The last chunk of a message: why it ended, in the packages' words.

use super::Frame;
use crate::http::chat::value::given;
use crate::model::{Fields, RunEnd, text_of, trim};

/// What an answer says that stopped without a word about why.
const NO_END: &str = "the answer was interrupted";

/// How the message ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClosingChunk {
    Finish(&'static str),
    Abort,
    Error(String),
}

impl ClosingChunk {
    pub(super) fn of(name: &str, payload: &str) -> Option<Self> {
        let is_failure = matches!(name, "apperror" | "error");
        Some(match RunEnd::of(name, payload)? {
            RunEnd::InterruptedByUser => ClosingChunk::Abort,
            _ if is_failure => ClosingChunk::Error(message_of(payload)),
            // The packages say this of an agent that was not allowed another step.
            RunEnd::ToolLimitReached => ClosingChunk::Finish("tool-calls"),
            _ => ClosingChunk::Finish(finish_reason(payload)),
        })
    }

    /// A run whose events did not say how it ended was interrupted.
    pub(super) fn unknown() -> Self {
        ClosingChunk::Error(NO_END.to_owned())
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
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
