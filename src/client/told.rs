//! What a follower is told: events, and what happened to the stream of them.

use crate::model::{Object, RunEnd, RunId, RunState};

/// One thing that a follower is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// An event. None is told twice, and none is left out.
    Event(SentEvent),
    /// The follower was too slow for what is live, and reads from the journal for a while. Nothing is missing.
    Gap {
        /// The run.
        run: Option<RunId>,
        /// The last event before that.
        after_seq: Option<u64>,
    },
    /// Forget what was told: the server knows no such place, and everything follows from the first event.
    Snapshot {
        /// Why: `unknown`, `foreign`, `ahead`.
        reason: String,
        /// The run that follows.
        run: Option<RunId>,
        /// Its last event now.
        last_seq: Option<u64>,
    },
    /// A run has ended.
    Ended(EndNotice),
    /// The session was deleted. Nothing follows.
    Deleted,
    /// The connection broke before there was any event to go on from, so what happened meanwhile is not told. Only
    /// followers who asked for what is live alone are told this.
    Missed,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentEvent {
    /// Its id, `<run>:<seq>`; empty if the journal gives it no number.
    pub id: String,
    /// Its run, if it has an id.
    pub run: Option<RunId>,
    /// Its number, if it has an id.
    pub seq: Option<u64>,
    /// Its name.
    pub name: String,
    /// Its line in the journal.
    pub line: String,
}

impl SentEvent {
    /// Its payload as JSON text, if the line has one.
    pub fn payload(&self) -> Option<String> {
        Object::parse(&self.line)?.get("payload").map(str::to_owned)
    }

    /// How the run ended with it; nothing if it did not.
    pub fn terminal_state(&self) -> Option<RunEnd> {
        RunEnd::of(&self.name, &self.payload().unwrap_or_default())
    }
}

/// The notice that a run has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndNotice {
    /// The run.
    pub run: RunId,
    /// Its last event.
    pub last_seq: Option<u64>,
    /// How it ended, in the server's word.
    pub state: String,
}

impl EndNotice {
    /// The state of the run; none for a word that this version does not know.
    pub fn run_state(&self) -> Option<RunState> {
        RunState::parse(&self.state)
    }

    /// Whether it ended by an event that is in its journal.
    pub(super) fn is_in_journal(&self) -> bool {
        !matches!(self.state.as_str(), "deleted" | "unknown")
    }
}
