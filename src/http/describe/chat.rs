//! The AI SDK's messages and their parts, and what a chat sends.

use super::row::{RunEndState, Usage};
use super::shape::{any, by_word, either, flag, list, matching, number, one, text, word, words};

objects! {
    /// One of the AI SDK's messages.
    open UiMessage {
        /// Of the user: the client's, else `<run>-user`. Of the assistant: the run that answered.
        must "id": text(),
        must "role": one::<UiRole>(),
        /// In order.
        must "parts": list(one::<UiPart>()),
        may "metadata": one::<UiMessageMetadata>(),
    }

    /// The client's keys, and what is known of the run.
    open UiMessageMetadata {
        may "lastword": one::<RunAbout>(),
    }

    /// What is known of the run that answered.
    known RunAbout {
        must "run_id": text(),
        must "model": text().or_null(),
        must "usage": one::<Usage>().or_null(),
        /// Seconds.
        may "began_at": number().or_null(),
        /// Seconds.
        may "ended_at": number().or_null(),
        may "state": one::<RunEndState>(),
    }

    /// Words.
    known TextUiPart {
        must "type": word("text"),
        must "text": text(),
        /// Of an answer.
        may "state": one::<UiPartState>(),
    }

    /// What the model thought.
    known ReasoningUiPart {
        must "type": word("reasoning"),
        may "id": text(),
        must "text": text(),
        may "state": one::<UiPartState>(),
    }

    /// A tool call and what came of it.
    known DynamicToolUiPart {
        must "type": word("dynamic-tool"),
        must "toolName": text(),
        must "toolCallId": text(),
        must "state": one::<UiToolState>(),
        /// Any JSON.
        must "input": any(),
        /// Any JSON. Not there if the tool failed.
        may "output": any(),
        /// Why the tool failed.
        may "errorText": text(),
        may "providerExecuted": flag(),
    }

    /// A file.
    open FileUiPart {
        must "type": word("file"),
        must "mediaType": text(),
        /// `/v1/sessions/{sid}/attachments/..` for one that is stored.
        must "url": text(),
        may "filename": text(),
    }

    /// A page that the answer rests on.
    open SourceUrlUiPart {
        must "type": word("source-url"),
        must "sourceId": text(),
        must "url": text(),
        may "title": text(),
    }

    /// A document that the answer rests on.
    open SourceDocumentUiPart {
        must "type": word("source-document"),
        must "sourceId": text(),
        must "mediaType": text(),
        must "title": text(),
        may "filename": text(),
    }

    /// Data of the producer: `data-<name>`.
    open DataUiPart {
        must "type": matching("^data-"),
        may "id": text(),
        /// Any JSON.
        must "data": any(),
    }

    /// A part that another program wrote.
    open OtherUiPart {
        must "type": text(),
    }

    /// What `DefaultChatTransport` sends, or the short form with one `message`. What else is in it is the client's business.
    open ChatRequestBody {
        /// The chat, which is a session. It is created if it is not there.
        must "id": matching("^[A-Za-z0-9_-]{1,128}$"),
        /// The conversation. Only the last one counts, which is the user's and has `parts`: the transcript has the others.
        may "messages": list(one::<ChatMessage>()).or_null(),
        /// Only the last message, where there are no `messages`.
        may "message": one::<ChatMessage>(),
        /// Whether the message is new or an edit, or whether a message that was sent before gets another answer.
        may "trigger": one::<ChatTrigger>().or_null(),
        /// The message that is edited. Of another answer: the message that gets it, or the run that answered before; the
        /// last one if it is not given.
        may "messageId": text().or_null(),
        /// The runner of the server that answers; the usual one if none is named. One that it does not know is refused.
        may "runner": text().or_null(),
    }
}

named! {
    /// A part of a message whose `type` is one of the AI SDK's.
    KnownUiPart => by_word("type", vec![
        ("text", one::<TextUiPart>()),
        ("reasoning", one::<ReasoningUiPart>()),
        ("dynamic-tool", one::<DynamicToolUiPart>()),
        ("file", one::<FileUiPart>()),
        ("source-url", one::<SourceUrlUiPart>()),
        ("source-document", one::<SourceDocumentUiPart>()),
    ]);

    /// A part of a message: one of `KnownUiPart`, data, or what another program wrote.
    UiPart => either([one::<KnownUiPart>(), one::<DataUiPart>(), one::<OtherUiPart>()]);

    /// A message as a client has it. Only the last one is read.
    ChatMessage => either([one::<UiMessage>(), any()]);

    /// Who speaks.
    UiRole => words(["user", "assistant"]);

    /// Whether a part is complete.
    UiPartState => words(["streaming", "done"]);

    /// Whether a tool has answered, or failed.
    UiToolState => words(["output-available", "output-error"]);

    /// What the client wants: an answer to a message, or another answer.
    ChatTrigger => words(["submit-message", "regenerate-message"]);
}
