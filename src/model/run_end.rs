//! How a run ended, and the state that lists and streams report of a run.

use std::fmt;

use super::json::{Fields, text_of};
use super::text::trim;

/// How a run ended, by the event that ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunEnd {
    /// The answer is complete.
    Completed,
    /// It ran into the agent's limit of tool calls.
    ToolLimitReached,
    /// The user stopped it. What arrived is kept.
    InterruptedByUser,
    /// Its producer died. What arrived is kept.
    InterruptedByCrash,
    /// It failed. What arrived is kept.
    Errored,
}

impl RunEnd {
    /// All of them.
    pub const ALL: [RunEnd; 5] = [
        RunEnd::Completed,
        RunEnd::ToolLimitReached,
        RunEnd::InterruptedByUser,
        RunEnd::InterruptedByCrash,
        RunEnd::Errored,
    ];

    /// The word that journals and streams use.
    pub fn as_str(self) -> &'static str {
        match self {
            RunEnd::Completed => "completed",
            RunEnd::ToolLimitReached => "tool_limit_reached",
            RunEnd::InterruptedByUser => "interrupted-by-user",
            RunEnd::InterruptedByCrash => "interrupted-by-crash",
            RunEnd::Errored => "errored",
        }
    }

    /// Whether the run ended by itself: with its answer, or at its limit of tool calls.
    pub fn is_by_itself(self) -> bool {
        matches!(self, RunEnd::Completed | RunEnd::ToolLimitReached)
    }

    /// The end that a word of journals and streams stands for.
    pub fn parse(word: &str) -> Option<Self> {
        RunEnd::ALL.into_iter().find(|known| known.as_str() == word)
    }

    /// How a run ended that closed with this event; nothing if the event closes nothing.
    pub fn of(name: &str, payload: &str) -> Option<Self> {
        match name {
            "done" | "stream_end" => Some(match word(payload, "terminal_state").as_deref() {
                Some("tool_limit_reached") => RunEnd::ToolLimitReached,
                _ => RunEnd::Completed,
            }),
            "cancel" => Some(RunEnd::InterruptedByUser),
            "apperror" | "error" => Some(match word(payload, "type").as_deref() {
                Some("tool_limit_reached") => RunEnd::ToolLimitReached,
                Some("cancelled" | "canceled") => RunEnd::InterruptedByUser,
                Some("interrupted") => RunEnd::InterruptedByCrash,
                _ => RunEnd::Errored,
            }),
            _ => None,
        }
    }
}

fn word(payload: &str, key: &str) -> Option<String> {
    let text = text_of(Fields::parse(payload)?.get(key)?)?;
    Some(trim(&text).to_lowercase())
}

/// The state of a run, in the words that clients are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    /// It has no events yet.
    Unknown,
    /// It has events, and its producer is alive.
    Running,
    /// It has ended.
    Ended(RunEnd),
    /// Its producer is dead, and its journal is not sealed. A late append is still taken.
    Orphaned,
    /// Another program wrote it, and no turn waits for it any more.
    Foreign,
    /// Its journal or its session is not there.
    Gone,
}

impl RunState {
    /// The word that clients are given.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Unknown => "unknown",
            RunState::Running => "running",
            RunState::Ended(end) => end.as_str(),
            RunState::Orphaned => "orphaned",
            RunState::Foreign => "foreign",
            RunState::Gone => "gone",
        }
    }

    /// The state that a word stands for.
    pub fn parse(word: &str) -> Option<Self> {
        let unsealed =
            [RunState::Unknown, RunState::Running, RunState::Orphaned, RunState::Foreign, RunState::Gone].into_iter();
        unsealed.chain(RunEnd::ALL.map(RunState::Ended)).find(|state| state.as_str() == word)
    }

    /// How the run ended, if an event ended it.
    pub fn end(self) -> Option<RunEnd> {
        if let RunState::Ended(end) = self { Some(end) } else { None }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_for_its_state() {
        for word in [
            "unknown",
            "running",
            "completed",
            "tool_limit_reached",
            "interrupted-by-user",
            "interrupted-by-crash",
            "errored",
            "orphaned",
            "foreign",
            "gone",
        ] {
            assert_eq!(RunState::parse(word).map(RunState::as_str), Some(word));
        }
        assert_eq!(RunState::parse("deleted"), None);
    }
}
