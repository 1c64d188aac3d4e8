//! Chunks of the AI SDK's UI message stream (v1).

use super::chat::UiMessageMetadata;
use super::shape::{any, by_word, flag, matching, one, text, word, words};

macro_rules! chunks {
    ($($(#[doc = $words:literal])+ $Name:ident = $type:literal { $($presence:ident $key:literal: $shape:expr,)* })+) => {
        objects! {$(
            $(#[doc = $words])+
            known $Name {
                must "type": word($type),
                $($presence $key: $shape,)*
            }
        )+}

        named! {
            /// A chunk whose `type` is one of the AI SDK's.
            UiMessageChunk => by_word("type", vec![$(($type, one::<$Name>())),+]);
        }
    };
}

chunks! {
    /// The message begins. Its id is the run's.
    StartChunk = "start" { must "messageId": text(), }
    /// A step begins.
    StartStepChunk = "start-step" {}
    /// A text begins.
    TextStartChunk = "text-start" { must "id": text(), }
    /// A piece of a text.
    TextDeltaChunk = "text-delta" { must "id": text(), must "delta": text(), }
    /// A text ends.
    TextEndChunk = "text-end" { must "id": text(), }
    /// A thought begins.
    ReasoningStartChunk = "reasoning-start" { must "id": text(), }
    /// A piece of a thought.
    ReasoningDeltaChunk = "reasoning-delta" { must "id": text(), must "delta": text(), }
    /// A thought ends.
    ReasoningEndChunk = "reasoning-end" { must "id": text(), }
    /// A call's arguments begin.
    ToolInputStartChunk = "tool-input-start" {
        must "toolCallId": text(), must "toolName": text(), must "providerExecuted": flag(), must "dynamic": flag(),
    }
    /// A piece of a call's arguments.
    ToolInputDeltaChunk = "tool-input-delta" { must "toolCallId": text(), must "inputTextDelta": text(), }
    /// A tool is called.
    ToolInputAvailableChunk = "tool-input-available" {
        must "toolCallId": text(), must "toolName": text(), must "input": any(),
        must "providerExecuted": flag(), must "dynamic": flag(),
    }
    /// A call whose arguments never were complete.
    ToolInputErrorChunk = "tool-input-error" {
        must "toolCallId": text(), must "toolName": text(), must "input": any(), must "errorText": text(),
        must "providerExecuted": flag(), must "dynamic": flag(),
    }
    /// A tool has answered.
    ToolOutputAvailableChunk = "tool-output-available" {
        must "toolCallId": text(), must "output": any(), must "providerExecuted": flag(), must "dynamic": flag(),
    }
    /// A tool has failed.
    ToolOutputErrorChunk = "tool-output-error" {
        must "toolCallId": text(), must "errorText": text(), must "providerExecuted": flag(), must "dynamic": flag(),
    }
    /// A file.
    FileChunk = "file" { must "mediaType": text(), must "url": text(), }
    /// A page that the answer rests on.
    SourceUrlChunk = "source-url" { must "sourceId": text(), must "url": text(), may "title": text(), }
    /// A document that the answer rests on.
    SourceDocumentChunk = "source-document" {
        must "sourceId": text(), must "mediaType": text(), must "title": text(), may "filename": text(),
    }
    /// What is noted of the message.
    MessageMetadataChunk = "message-metadata" { must "messageMetadata": one::<UiMessageMetadata>(), }
    /// A step ends.
    FinishStepChunk = "finish-step" {}
    /// The message is complete.
    FinishChunk = "finish" { may "finishReason": one::<FinishReason>(), }
    /// The message was stopped.
    AbortChunk = "abort" {}
    /// The message failed.
    ErrorChunk = "error" { must "errorText": text(), }
}

objects! {
    /// Data of the producer: `data-<name>`.
    known DataChunk {
        must "type": matching("^data-"),
        may "id": text(),
        /// Any JSON.
        must "data": any(),
    }
}

named! {
    /// Why an answer ended.
    FinishReason => words(["stop", "length", "content-filter", "tool-calls", "error", "other", "unknown"]);
}
