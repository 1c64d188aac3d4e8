//! Payloads of the events that are understood, and the events that a producer appends.

use super::row::Usage;
use super::shape::{any, by_word, count, either, flag, lines_of, map, number, one, text, words};
use super::tool::AttachmentId;
use crate::model::RunEnd;

objects! {
    /// A piece of the answer.
    open TokenPayload {
        must "text": text(),
    }

    /// A piece of what the model thinks.
    open ReasoningPayload {
        must "text": text(),
    }

    /// A paragraph that ends its row.
    open InterimAssistantPayload {
        must "text": text(),
        /// It only ends the row: its words came as tokens.
        may "already_streamed": flag(),
    }

    /// A tool is called.
    open ToolPayload {
        must "tool_call_id": text(),
        must "name": text(),
        /// The arguments: any JSON.
        may "args": any(),
        /// The arguments, where there are no `args`.
        may "arguments": any(),
        /// What the call is about, for people.
        may "preview": text().or_null(),
        may "snippet": text().or_null(),
    }

    /// A tool has answered.
    open ToolCompletePayload {
        must "tool_call_id": text(),
        must "name": text(),
        /// The result: any JSON.
        may "result": any(),
        /// The result, where there is no `result`.
        may "output": any(),
        /// Why it failed, in the place of a result.
        may "error": any(),
        may "is_error": flag(),
        /// Seconds.
        may "duration": number().or_null(),
        /// The result, for people.
        may "preview": text().or_null(),
        may "snippet": text().or_null(),
    }

    /// A piece of the arguments of a call that is still being written.
    open ToolDeltaPayload {
        must "tool_call_id": text(),
        must "name": text(),
        must "arguments_delta": text(),
    }

    /// What a request to a model used. Several are added up.
    open UsagePayload {
        may "input_tokens": count().or_null(),
        may "output_tokens": count().or_null(),
        may "total_tokens": count().or_null(),
        may "model": text().or_null(),
    }

    /// A page, which has a `url`, or a document that the answer rests on.
    open SourcePayload {
        must "id": text(),
        may "url": text().or_null(),
        may "title": text().or_null(),
        may "media_type": text().or_null(),
        may "filename": text().or_null(),
    }

    /// A file that belongs to the answer: an attachment of this session, or one at a `url`.
    open FilePayload {
        must "media_type": text(),
        may "attachment": one::<AttachmentId>(),
        may "url": text(),
        may "filename": text().or_null(),
    }

    /// Data for the page. With an `id` it takes the place of the earlier one of this name and id.
    open DataPayload {
        must "name": super::shape::matching("^[A-Za-z0-9._-]{1,64}$"),
        may "id": text().or_null(),
        must "data": any(),
    }

    /// A message that the user sent while the run was answering.
    open UserMessagePayload {
        must "message_id": text(),
        must "message": text(),
    }

    /// A supervised run begins an attempt.
    open AttemptPayload {
        must "attempt": count(),
        /// How many attempts there are at most.
        must "of": count(),
        must "runner": text(),
    }

    /// An attempt failed, and another follows.
    open AttemptEndPayload {
        must "attempt": count(),
        must "type": text(),
        must "message": text(),
        must "close_reason": text(),
        must "retryable": flag(),
        must "retry_in_seconds": number(),
        /// Of a command: its exit code; null if a signal ended it.
        may "exit_code": number().or_null(),
        /// Of an endpoint: the HTTP status that it refused with.
        may "status": count(),
    }

    /// A command has ended.
    open ExitPayload {
        /// Null if a signal ended it.
        must "exit_code": number().or_null(),
        /// What ended it, where it has no exit code.
        may "ended_by": text(),
    }

    /// What the agent calls the conversation.
    open AgentSessionPayload {
        must "runner": text(),
        must "agent_session_id": text(),
    }

    /// The answer is complete.
    open DonePayload {
        may "terminal_state": one::<DoneState>(),
        /// Counts if no `usage` event came.
        may "usage": either([one::<Usage>(), one::<UsagePayload>()]),
        may "model": text().or_null(),
    }

    /// The user stopped the answer.
    open CancelPayload {
        may "close_reason": text(),
    }

    /// The answer failed.
    open ErrorPayload {
        /// What happened: `tool_limit_reached`, `cancelled` and `interrupted` say how the run ends, any other is an error.
        may "type": text().or_null(),
        /// What happened, where there is no `type`. It does not say how the run ends.
        may "code": text().or_null(),
        /// What people are shown.
        may "message": text().or_null(),
        /// What people are shown, where there is no `message`.
        may "error": any(),
        may "close_reason": text(),
        may "retryable": flag(),
        may "attempts": count(),
        /// Of a command: its exit code; null if a signal ended it.
        may "exit_code": number().or_null(),
        /// Of an endpoint: the HTTP status that it refused with.
        may "status": count(),
    }

    /// Nothing follows.
    open StreamEndPayload {
        may "terminal_state": one::<DoneState>(),
    }
}

named! {
    /// What the producer notes of the answer: any keys. Several are merged.
    MetadataPayload => map();

    /// How a run ended that was not interrupted.
    DoneState => words([RunEnd::Completed, RunEnd::ToolLimitReached].map(RunEnd::as_str));
}

/// An event that a producer appends: its name, and a payload of its own shape.
macro_rules! new_events {
    ($($(#[doc = $words:literal])+ $Name:ident = $event:literal $Payload:ident $presence:ident $openness:ident;)+) => {
        objects! {$(
            $(#[doc = $words])+
            $openness $Name {
                must "event": super::shape::word($event),
                $presence "payload": one::<$Payload>(),
            }
        )+}

        named! {
            /// An event of a name that is understood, with the payload that belongs to it.
            KnownNewEvent => by_word("event", vec![$(($event, one::<$Name>())),+]);
        }
    };
}

new_events! {
    /// A piece of the answer.
    NewToken = "token" TokenPayload must open;
    /// A piece of what the model thinks.
    NewReasoning = "reasoning" ReasoningPayload must open;
    /// A paragraph that ends its row.
    NewInterimAssistant = "interim_assistant" InterimAssistantPayload must open;
    /// A tool is called.
    NewTool = "tool" ToolPayload must open;
    /// A tool has answered.
    NewToolComplete = "tool_complete" ToolCompletePayload must open;
    /// A piece of a call's arguments.
    NewToolDelta = "tool_delta" ToolDeltaPayload must open;
    /// Tokens that were used.
    NewUsage = "usage" UsagePayload must open;
    /// What the answer rests on.
    NewSource = "source" SourcePayload must open;
    /// A file that belongs to the answer.
    NewFile = "file" FilePayload must open;
    /// Data for the page.
    NewData = "data" DataPayload must open;
    /// What is noted of the answer.
    NewMetadata = "metadata" MetadataPayload must open;
    /// A message of the user that comes while the run is answering.
    NewUserMessage = "user_message" UserMessagePayload must open;
    /// Ends the run: the answer is complete.
    NewDone = "done" DonePayload may closed;
    /// Ends the run: the user stopped it.
    NewCancel = "cancel" CancelPayload may closed;
    /// Ends the run: the answer failed.
    NewAppError = "apperror" ErrorPayload must open;
    /// Ends the run: the answer failed.
    NewError = "error" ErrorPayload must open;
    /// May follow `done`.
    NewStreamEnd = "stream_end" StreamEndPayload may closed;
}

objects! {
    /// An event of any name with any payload.
    open OtherNewEvent {
        /// Its name: up to 256 bytes, not blank, without control characters.
        must "event": super::shape::matching("^[^\\u0000-\\u001f\\u007f]{1,256}$"),
        /// Any JSON.
        must "payload": any(),
    }
}

named! {
    /// One event of those that are appended. Any name is journalled and sent to followers as it is; those of `KnownNewEvent` are
    /// understood.
    NewEvent => either([one::<KnownNewEvent>(), one::<OtherNewEvent>()]);

    /// JSON lines, each a `NewEvent`. An empty body is a sign of life.
    NewEventLines => lines_of(one::<NewEvent>());
}
