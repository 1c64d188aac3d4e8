//! Sessions: the document, what stands before its transcript, and what a list shows of it.

use utoipa::openapi::schema::Type;

use super::row::{Attachment, Row};
use super::shape::{Keys, Shape, count, either, flag, list, number, of_types, one, text, words};
use super::tool::ToolCard;
use crate::model::SessionState;

/// The keys that stand before a transcript. A session that Lastword creates has all of them but the pending ones.
fn metadata() -> Keys {
    let pending_since = of_types(&[Type::Number, Type::String, Type::Null]);
    Keys::new()
        .must("session_id", "", text())
        .may("title", "", text().or_null())
        .may("created_at", "Seconds.", number().or_null())
        .may("updated_at", "Seconds.", number().or_null())
        .may("pinned", "", flag().or_null())
        .may("archived", "", flag().or_null())
        .may("parent_session_id", "The session that it was forked from.", text().or_null())
        .may("active_stream_id", "The run that answers the pending message.", text().or_null())
        .may("pending_user_message", "The message that waits for its answer.", text().or_null())
        .may("pending_attachments", "Its attachments.", list(one::<Attachment>()).or_null())
        .may("pending_started_at", "When its turn began, in seconds.", pending_since)
        .may("pending_user_source", "Where it came from.", text().or_null())
        .may("message_count", "How many rows the transcript has.", count().or_null())
}

fn session() -> Shape {
    let context = "The rows as the model is shown them, where that is not the transcript.";
    metadata()
        .may("messages", "The transcript. Not there with `view=metadata`.", list(one::<Row>()).or_null())
        .may("tool_calls", "The tool cards of the rows.", list(one::<ToolCard>()).or_null())
        .may("context_messages", context, list(one::<Row>()).or_null())
        .may("page", "Which rows these are, where a page of them was asked for.", one::<RowPage>())
        .open()
}

named! {
    /// A session: what its file holds, every key that any program put there included.
    Session => session();

    /// A session without its transcript.
    SessionMetadata => metadata().open();

    /// One session of a list.
    ListItem => either([one::<ListedSession>(), one::<UnreadableSession>()]);

    /// What a session is doing: no turn waits, a run answers, or the run that was to answer is over and no read has resolved
    /// that yet.
    SessionActivity => words([SessionState::Idle, SessionState::Answering, SessionState::Interrupted].map(SessionState::as_str));
}

objects! {
    /// Which rows of the transcript a page has.
    known RowPage {
        /// The place of its first row.
        must "rows_from": count(),
        /// The place after its last row.
        must "rows_before": count(),
        /// How many rows the transcript has.
        must "rows_total": count(),
    }

    /// What a list shows of a session.
    open ListedSession {
        must "session_id": text(),
        must "title": text().or_null(),
        /// Seconds.
        must "created_at": number().or_null(),
        /// Seconds.
        must "updated_at": number().or_null(),
        must "pinned": flag().or_null(),
        must "archived": flag().or_null(),
        /// The run that answers the pending message.
        must "active_stream_id": text().or_null(),
        must "parent_session_id": text().or_null(),
        must "message_count": count(),
        must "has_pending_user_message": flag(),
        must "state": one::<SessionActivity>(),
    }

    /// A session of the list whose file cannot be read.
    open UnreadableSession {
        must "session_id": text(),
        must "error": one::<ListedError>(),
    }

    /// Why a session of the list cannot be read.
    open ListedError {
        /// A word for programs.
        must "code": text(),
        must "message": text(),
    }
}
