//! Tool cards of a transcript.

use super::shape::{any, count, either, flag, map, one, text};

objects! {
    /// A tool call as the transcript shows it, tied to the row that made it. Keys that begin with `_` say what really
    /// happened, beside what people are shown.
    open ToolCard {
        /// The tool.
        may "name": text().or_null(),
        /// The card's own id.
        may "tid": text().or_null(),
        /// The place of the row that made the call, in `messages`.
        may "assistant_msg_idx": count().or_null(),
        /// The first arguments, each as a short text.
        may "args": one::<ShownArguments>().or_null(),
        /// What the call is about, for people.
        may "preview": text().or_null(),
        /// What it answered, for people.
        may "snippet": text().or_null(),
        /// Whether the card shows an answer.
        may "done": flag().or_null(),
        /// Whether it shows that the tool failed.
        may "is_error": flag().or_null(),
        /// How long it took, as its producer says: seconds.
        may "duration": any(),
        /// The call's id in the events.
        may "_call_id": text(),
        /// The arguments, any JSON, or a `StoredValue` where they are large.
        may "_args": either([one::<StoredValue>(), any()]),
        /// The result, any JSON, or a `StoredValue` where it is large.
        may "_result": either([one::<StoredValue>(), any()]),
        /// There if the tool answered that it failed.
        may "_result_is_error": flag(),
        /// What is shown of a result that the event did not carry.
        may "_result_preview": text(),
        /// Whether the tool has answered, where `done` says something else.
        may "_answered": flag(),
        /// The run that made the call.
        may "_run_id": text().or_null(),
        /// The run from whose journal the card was recovered.
        may "_recovered_stream_id": text().or_null(),
    }

    /// What stands in the place of a value that is too large for the document: `GET
    /// /v1/sessions/{sid}/attachments/{attachment}` has its JSON text.
    closed StoredValue {
        must "attachment": one::<AttachmentId>(),
        /// The length of its JSON text.
        must "bytes": count(),
    }
}

named! {
    /// The first arguments of a call, by name.
    ShownArguments => map();

    /// The id of an attachment: the SHA-256 hash of its bytes.
    AttachmentId => super::shape::matching("^sha256-[0-9a-f]{64}$");
}
