//! Server-sent events: the messages of each stream, whose `data` is JSON text, and the notices among them.

use utoipa::openapi::schema::Type;

use super::chunk::{DataChunk, UiMessageChunk};
use super::line::EventLine;
use super::session::ListedSession;
use super::shape::{Keys, Shape, count, either, json_text, of_types, one, stream_of, text, word, words};
use crate::model::{RunEnd, RunState};

/// A message without an id: a reader does not resume from it.
fn notice(event: &str, data: Shape) -> Shape {
    message(Keys::new().must("event", "", word(event)), data)
}

fn message(keys: Keys, data: Shape) -> Shape {
    let retry = "Milliseconds to wait before connecting again.";
    keys.must("data", "JSON text.", json_text(data)).may("retry", retry, count()).known()
}

fn numbered(id: &str, event: Shape, data: Shape) -> Shape {
    message(Keys::new().must("id", id, text()).must("event", "Its name.", event), data)
}

/// The states in which a stream may leave a run.
fn states() -> Vec<&'static str> {
    let ended = RunEnd::ALL.map(RunState::Ended).into_iter();
    ended.chain([RunState::Orphaned, RunState::Foreign, RunState::Gone]).map(RunState::as_str).collect()
}

objects! {
    /// A run is over.
    known EndNotice {
        must "run_id": text(),
        /// The number of its last event; 0 if there is none.
        must "last_seq": count(),
        must "state": one::<EndState>(),
    }

    /// A session is gone, and so is its stream.
    known SessionEndNotice {
        must "run_id": of_types(&[Type::Null]),
        must "last_seq": of_types(&[Type::Null]),
        must "state": word("deleted"),
    }

    /// The reader was too slow for what is kept in memory. What follows comes from disk, and nothing is missing.
    known GapNotice {
        must "run_id": text(),
        /// The last event that was sent.
        must "after_seq": count(),
    }

    /// The reader's cursor means nothing here: forget what is there of the run or of the session, everything follows.
    known SnapshotNotice {
        must "reason": one::<SnapshotReason>(),
        must "run_id": text().or_null(),
        must "last_seq": count().or_null(),
    }

    /// The list is to be loaded: at the beginning, and after too many changes to remember.
    known ListSnapshotNotice {
        must "reason": word("load_the_list"),
    }

    /// A session was deleted.
    known SessionDeleted {
        must "session_id": text(),
    }
}

named! {
    /// Why a cursor means nothing: it is none, of another run, or beyond the run's last event.
    SnapshotReason => words(["unknown", "foreign", "ahead"]);

    /// The state of a run: how it ended, or that it has no events yet, that it goes on, or how a stream leaves it.
    RunStateWord => words([RunState::Unknown, RunState::Running].map(RunState::as_str).into_iter().chain(states()));

    /// How a run ended; or that its producer is dead, that another program left it, or that it is not there.
    EndState => words(states());

    /// An event of a run.
    EventMessage => numbered("What to send as Last-Event-ID to go on after it: `<run>:<seq>`.", text(), one::<EventLine>());

    /// An event of a run whose number cannot be used. A reader does not resume from it.
    UnnumberedEventMessage => message(Keys::new().must("event", "Its name.", text()), one::<EventLine>());

    /// `event: end`
    EndMessage => notice("end", one::<EndNotice>());

    /// `event: end`
    SessionEndMessage => notice("end", one::<SessionEndNotice>());

    /// `event: gap`
    GapMessage => notice("gap", one::<GapNotice>());

    /// `event: snapshot`
    SnapshotMessage => notice("snapshot", one::<SnapshotNotice>());

    /// `event: snapshot`
    ListSnapshotMessage => notice("snapshot", one::<ListSnapshotNotice>());

    /// `event: changed`
    SessionChangedMessage =>
        numbered("What to send as Last-Event-ID to go on after it.", word("changed"), one::<ListedSession>());

    /// `event: deleted`
    SessionDeletedMessage =>
        numbered("What to send as Last-Event-ID to go on after it.", word("deleted"), one::<SessionDeleted>());

    /// A chunk of the AI SDK's UI message stream.
    ChunkMessage => message(Keys::new(), either([one::<UiMessageChunk>(), one::<DataChunk>()]));

    /// The stream is complete.
    DoneMessage => Keys::new().must("data", "", word("[DONE]")).may("retry", "", count()).known();

    /// A message of a run's stream.
    RunStreamMessage => either([
        one::<EventMessage>(),
        one::<EndMessage>(),
        one::<GapMessage>(),
        one::<SnapshotMessage>(),
        one::<UnnumberedEventMessage>(),
    ]);

    /// A message of a session's stream.
    SessionStreamMessage => either([
        one::<EventMessage>(),
        one::<EndMessage>(),
        one::<SessionEndMessage>(),
        one::<GapMessage>(),
        one::<SnapshotMessage>(),
        one::<UnnumberedEventMessage>(),
    ]);

    /// A message of the list's stream.
    ListStreamMessage =>
        either([one::<SessionChangedMessage>(), one::<SessionDeletedMessage>(), one::<ListSnapshotMessage>()]);

    /// A message of a chat's stream.
    ChatStreamMessage => either([one::<DoneMessage>(), one::<ChunkMessage>()]);

    /// Server-sent events, each a `RunStreamMessage`. Comments (`: `) say that the connection lives.
    RunStream => stream_of(one::<RunStreamMessage>());

    /// Server-sent events, each a `SessionStreamMessage`. Comments (`: `) say that the connection lives.
    SessionStream => stream_of(one::<SessionStreamMessage>());

    /// Server-sent events, each a `ListStreamMessage`. Comments (`: `) say that the connection lives.
    ListStream => stream_of(one::<ListStreamMessage>());

    /// Server-sent events, each a `ChatStreamMessage`. Comments (`: `) say that the connection lives.
    ChatStream => stream_of(one::<ChatStreamMessage>());
}
