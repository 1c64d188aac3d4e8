//! Rows of a transcript, what they note of their run, and the files that were attached to them.

use utoipa::openapi::schema::Type;

use super::event::MetadataPayload;
use super::shape::{any, count, either, flag, list, map, number, of_types, one, text, words};
use super::tool::AttachmentId;
use crate::model::RunEnd;

objects! {
    /// A row of a transcript: what the user said, a part of an answer, or a marker that says how an answer was cut off. A
    /// row has the keys that its writers gave it.
    open Row {
        /// `user`, `assistant`, `tool`, `system`, or what another program put there.
        may "role": text().or_null(),
        /// The words, or a list of blocks.
        may "content": either([text(), list(either([one::<ContentBlock>(), text()]))]).or_null(),
        /// When it was said, in seconds.
        may "timestamp": number().or_null(),
        /// What the model thought. Never chat text.
        may "reasoning": text().or_null(),
        /// The files of a user's message.
        may "attachments": list(one::<Attachment>()).or_null(),
        /// Of a marker: `interrupted`, or the kind of an error.
        may "type": text().or_null(),
        /// True for a marker or an error, which is not a part of the conversation.
        may "_error": flag().or_null(),
        /// Of a marker: why the answer was cut off.
        may "interruption_cause": text().or_null(),
        /// Of a tool's row: the call that it answers.
        may "tool_call_id": text().or_null(),
        /// The run that the row belongs to.
        may "_run_id": text().or_null(),
        /// Of a user's row: what is noted of the run that answered.
        may "_run": one::<RunNote>(),
        /// Of an answer's row: what the agent calls the conversation.
        may "_agent_session": one::<super::event::AgentSessionPayload>().or_null(),
        /// Of a user's row: the id that the client gave the message.
        may "_message_id": text().or_null(),
        /// Of a user's row: the client's metadata of the message.
        may "_metadata": one::<ClientMetadata>().or_null(),
        /// Files, sources and data of an answer, as the AI SDK's parts.
        may "_parts": list(one::<super::chat::UiPart>()).or_null(),
        /// True for a user's row that a repair put there.
        may "_recovered": flag().or_null(),
        /// True for a row that was recovered from a journal.
        may "_recovered_from_run_journal": flag().or_null(),
        /// The run from whose journal it was recovered.
        may "_recovered_stream_id": text().or_null(),
        /// Where the message came from.
        may "_source": text().or_null(),
        /// Of an armed marker: a later read looks for the answer again.
        may "_pending_journal_recovery": flag().or_null(),
        /// Of an armed marker: the run that is looked for.
        may "_journal_retry_stream_id": of_types(&[Type::String, Type::Integer, Type::Null]),
        /// Of an armed marker: how often it was looked for.
        may "_journal_retry_attempts": of_types(&[Type::Number, Type::String, Type::Null]),
        /// Of an armed marker: since when it is looked for, in seconds.
        may "_journal_retry_first_seen_ts": of_types(&[Type::Number, Type::String, Type::Null]),
    }

    /// A block of a row's content, in the words of its provider: a text, an image, a tool call, a tool's result.
    open ContentBlock {
        /// What it is: `text`, `image`, `tool_use`, `tool_result`..
        may "type": text().or_null(),
        may "text": text().or_null(),
    }

    /// A file that belongs to a message.
    open FileAttachment {
        may "type": super::shape::word("file"),
        /// What its bytes are: `image/png`.
        may "mediaType": text(),
        may "filename": text(),
        /// `lastword:sha256-..` or `/v1/sessions/{sid}/attachments/..` for one that is stored, else where it is. A `data:`
        /// URL in a request is stored.
        must "url": text(),
    }

    /// A file that was uploaded, as the answer to the upload names it.
    open UploadedAttachment {
        must "attachment": one::<AttachmentId>(),
        may "media_type": text(),
        may "filename": text().or_null(),
        may "bytes": count(),
    }

    /// What is noted of the run that answered a turn.
    open RunNote {
        /// How it ended.
        must "state": one::<RunEndState>(),
        must "model": text().or_null(),
        /// Null if the run reported nothing, or did not end by itself.
        must "usage": one::<Usage>().or_null(),
        /// What was reported of a run that did not end by itself.
        may "usage_at_least": one::<Usage>(),
        /// Seconds.
        must "began_at": number().or_null(),
        /// Seconds.
        must "ended_at": number().or_null(),
        /// When its first event happened, in seconds.
        may "first_event_at": number().or_null(),
        /// The runner of its last attempt; null if its producer makes none.
        may "runner": text().or_null(),
        /// How many attempts were made; null if its producer makes none.
        may "attempts": count().or_null(),
        /// Why it ended; null if nothing says so.
        may "close_reason": text().or_null(),
        /// The number of its last event.
        may "last_seq": count(),
        /// What its `metadata` events said, merged.
        may "metadata": one::<MetadataPayload>(),
    }

    /// Tokens; null where they are not known.
    open Usage {
        must "input_tokens": count().or_null(),
        must "output_tokens": count().or_null(),
        must "total_tokens": count().or_null(),
    }
}

named! {
    /// Something that belongs to a message: a file, or any other JSON, which stays as it is.
    Attachment => either([one::<FileAttachment>(), one::<UploadedAttachment>(), any()]);

    /// The client's metadata of a message.
    ClientMetadata => map();

    /// How a run ended.
    RunEndState => words(RunEnd::ALL.map(RunEnd::as_str));
}
