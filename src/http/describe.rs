//! Shapes that only the API's description shows: ids in paths, headers of those who resume, events of a stream, what a
//! chat sends. Nothing is read into them.

#![allow(dead_code, reason = "a description is made of their fields, and nothing else")]

use utoipa::{IntoParams, ToSchema};

/// The session that a path names.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct InSession {
    /// The session.
    #[param(pattern = "^[A-Za-z0-9_-]{1,128}$")]
    sid: String,
}

/// The run that a path names.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct InRun {
    /// The session.
    #[param(pattern = "^[A-Za-z0-9_-]{1,128}$")]
    sid: String,
    /// The run.
    #[param(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")]
    rid: String,
}

/// The attachment that a path names.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct InAttachment {
    /// The session.
    #[param(pattern = "^[A-Za-z0-9_-]{1,128}$")]
    sid: String,
    /// The attachment.
    #[param(pattern = "^sha256-[0-9a-f]{64}$")]
    attachment: String,
}

/// The branch that a path names.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct InBranch {
    /// The session.
    #[param(pattern = "^[A-Za-z0-9_-]{1,128}$")]
    sid: String,
    /// The branch.
    #[param(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")]
    bid: String,
}

/// The bytes of a file.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub(super) struct FileBytes(Vec<u8>);

/// One of the AI SDK's messages.
#[derive(Debug, ToSchema)]
pub(super) struct UiMessage {
    /// Of the user: the client's, else `<run>-user`. Of the assistant: the run that answered.
    id: String,
    role: UiRole,
    /// Texts, reasoning, files, sources, data, and calls of tools with their results, in order.
    parts: Vec<serde_json::Value>,
    /// The client's keys, and `lastword`: the run, its model, usage, times and state.
    #[schema(nullable = false)]
    metadata: Option<serde_json::Value>,
}

#[derive(Debug, ToSchema)]
#[schema(rename_all = "lowercase")]
enum UiRole {
    User,
    Assistant,
}

/// Somebody who was here before.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct Resuming {
    /// The id of the last event that was seen. It wins over `after`. One that means nothing here is answered with a
    /// `snapshot` notice where there are server-sent events.
    #[param(rename = "last-event-id", nullable = false)]
    last_event_id: Option<String>,
}

/// Somebody who has a revision already.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct Knowing {
    /// A revision that is there already.
    #[param(rename = "if-none-match", nullable = false)]
    if_none_match: Option<String>,
}

/// Somebody who means one revision and no other.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct Meaning {
    /// The revision that is meant; any if none is given.
    #[param(rename = "if-match", nullable = false)]
    if_match: Option<String>,
}

/// One server-sent event of a stream, which may have any number of them. Comments (`: `) say that somebody is there.
#[derive(Debug, ToSchema)]
pub(super) struct StreamEvent {
    /// What to send as Last-Event-ID to go on behind it. Notices (`gap`, `snapshot`, `end`) have none.
    #[schema(nullable = false)]
    id: Option<String>,
    /// Its name.
    #[schema(nullable = false)]
    event: Option<String>,
    /// JSON text.
    #[schema(content_media_type = "application/json")]
    data: String,
    /// Milliseconds to wait before connecting again.
    #[schema(nullable = false)]
    retry: Option<u64>,
}

/// The state of a run.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(super) enum RunStateWord {
    /// It has no events yet.
    Unknown,
    Running,
    Completed,
    #[schema(rename = "tool_limit_reached")]
    ToolLimitReached,
    InterruptedByUser,
    InterruptedByCrash,
    Errored,
    /// Its producer is dead, and it is not sealed.
    Orphaned,
    /// Another program wrote it, and no turn waits for it any more.
    Foreign,
    /// Its journal or its session is not there.
    Gone,
}

/// One line of a journal. Lines that another program wrote may lack some of it.
#[derive(Debug, ToSchema)]
pub(super) struct EventLine {
    /// Its id: `run:seq`.
    #[schema(nullable = false)]
    event_id: Option<String>,
    /// Its number in the run, from 1.
    #[schema(nullable = false)]
    seq: Option<u64>,
    /// Its name.
    event: String,
    /// What it carries: any JSON.
    #[schema(nullable = false)]
    payload: Option<serde_json::Value>,
    /// Whether the run ends with it.
    #[schema(nullable = false)]
    terminal: Option<bool>,
    /// How the run ends with it.
    terminal_state: Option<String>,
}

/// One line of those that are appended.
#[derive(Debug, ToSchema)]
pub(super) struct NewEvent {
    /// Its name: up to 256 bytes, not blank, without control characters.
    #[schema(min_length = 1, max_length = 256, example = "token")]
    event: String,
    /// What it carries: any JSON. Only an event that is nothing but its name may do without.
    #[schema(example = json!({ "text": "To the sea" }))]
    payload: serde_json::Value,
}

/// What `DefaultChatTransport` sends, or the short form with one `message`. What else is in it is the client's business.
#[derive(Debug, ToSchema)]
pub(super) struct ChatBody {
    /// The chat, which is a session. It is created if it is not there.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,128}$")]
    id: String,
    /// The conversation. Only the last one counts, which is the user's and has `parts`: the transcript has the others.
    #[schema(min_items = 1)]
    messages: Option<Vec<serde_json::Value>>,
    /// Only the last message, where there are no `messages`.
    message: Option<serde_json::Value>,
    /// Whether the message is new or an edit, or whether a message that was sent before gets another answer.
    trigger: Option<Trigger>,
    /// The message that is edited. Of another answer: the message that gets it, or the run that answered before; the last
    /// one if it is not given.
    #[schema(rename = "messageId")]
    message_id: Option<String>,
    /// The runner of the server that answers; the usual one if none is named. One that it does not know is refused.
    runner: Option<String>,
}

#[derive(Debug, ToSchema)]
#[schema(rename_all = "kebab-case")]
enum Trigger {
    SubmitMessage,
    RegenerateMessage,
}
