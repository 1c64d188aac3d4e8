//! Lines of a run's journal, as they are read and followed.

use utoipa::openapi::schema::Type;

use super::event::{
    AgentSessionPayload, AttemptEndPayload, AttemptPayload, CancelPayload, DataPayload, DonePayload, ErrorPayload,
    ExitPayload, FilePayload, InterimAssistantPayload, MetadataPayload, ReasoningPayload, SourcePayload,
    StreamEndPayload, TokenPayload, ToolCompletePayload, ToolDeltaPayload, ToolPayload, UsagePayload,
    UserMessagePayload,
};
use super::row::RunEndState;
use super::shape::{Keys, Shape, any, by_word, count, either, flag, lines_of, number, of_types, one, text, word};

/// A line as Lastword and the reference program write it.
fn line(event: &str, payload: Shape) -> Shape {
    Keys::new()
        .may("version", "Of the line's format.", count())
        .must("event_id", "Its id: `<run>:<seq>`.", text())
        .must("seq", "Its number in the run, from 1.", count())
        .must("run_id", "", text())
        .must("session_id", "", text())
        .must("event", "Its name.", word(event))
        .may("type", "Its name again.", text().or_null())
        .must("created_at", "When it happened, in seconds.", number())
        .must("terminal", "Whether the run ends with it.", flag())
        .may("terminal_state", "How the run ends with it.", one::<RunEndState>().or_null())
        .must("payload", "What it carries.", payload)
        .may("crc", "The CRC32C of the line before this key, in hex.", text())
        .open()
}

macro_rules! lines {
    ($($(#[doc = $words:literal])+ $Name:ident = $event:literal $Payload:ident;)+) => {
        named! {
            $($(#[doc = $words])+ $Name => line($event, one::<$Payload>());)+

            /// A line of an event that is understood, with the payload that belongs to it.
            KnownEventLine => by_word("event", vec![$(($event, one::<$Name>())),+]);
        }
    };
}

lines! {
    /// A piece of the answer.
    TokenLine = "token" TokenPayload;
    /// A piece of what the model thinks.
    ReasoningLine = "reasoning" ReasoningPayload;
    /// A paragraph that ended its row.
    InterimAssistantLine = "interim_assistant" InterimAssistantPayload;
    /// A tool was called.
    ToolLine = "tool" ToolPayload;
    /// A tool answered.
    ToolCompleteLine = "tool_complete" ToolCompletePayload;
    /// A piece of a call's arguments.
    ToolDeltaLine = "tool_delta" ToolDeltaPayload;
    /// Tokens that were used.
    UsageLine = "usage" UsagePayload;
    /// What the answer rests on.
    SourceLine = "source" SourcePayload;
    /// A file that belongs to the answer.
    FileLine = "file" FilePayload;
    /// Data for the page.
    DataLine = "data" DataPayload;
    /// What is noted of the answer.
    MetadataLine = "metadata" MetadataPayload;
    /// A message of the user that came while the run was answering.
    UserMessageLine = "user_message" UserMessagePayload;
    /// A supervised run began an attempt.
    AttemptLine = "attempt" AttemptPayload;
    /// An attempt failed, and another followed.
    AttemptEndLine = "attempt_end" AttemptEndPayload;
    /// A command ended.
    ExitLine = "exit" ExitPayload;
    /// What the agent calls the conversation.
    AgentSessionLine = "agent_session" AgentSessionPayload;
    /// The end: the answer is complete.
    DoneLine = "done" DonePayload;
    /// The end: the user stopped it.
    CancelLine = "cancel" CancelPayload;
    /// The end: the answer failed.
    AppErrorLine = "apperror" ErrorPayload;
    /// The end: the answer failed.
    ErrorLine = "error" ErrorPayload;
    /// Nothing follows.
    StreamEndLine = "stream_end" StreamEndPayload;
}

objects! {
    /// A line of any other event, or of one whose payload has another shape, or that another program wrote in another way.
    open OtherEventLine {
        /// Of the line's format.
        may "version": any(),
        may "event_id": text().or_null(),
        may "seq": of_types(&[Type::Integer, Type::String, Type::Null]),
        may "run_id": text().or_null(),
        may "session_id": text().or_null(),
        /// Its name; `type` where there is none.
        may "event": text().or_null(),
        may "type": text().or_null(),
        may "created_at": number().or_null(),
        may "terminal": of_types(&[Type::Boolean, Type::Integer, Type::Null]),
        may "terminal_state": text().or_null(),
        /// Any JSON.
        may "payload": any(),
        /// The CRC32C of a line of ours before this key, in hex.
        may "crc": any(),
    }
}

named! {
    /// One line of a journal: one of `KnownEventLine`, or of the open form. A reader looks at `event` and at the payload.
    EventLine => either([one::<KnownEventLine>(), one::<OtherEventLine>()]);

    /// JSON lines, each an `EventLine`.
    EventLines => lines_of(one::<EventLine>());
}
