//! Ids of sessions and runs. A run id that exists as a value is safe in a file name; how the id of a session is spelt in one,
//! only the layout of a data directory knows.

use std::fmt;
use std::sync::Arc;

use crate::entropy::{Entropy, uuid4};
use crate::limits::ID_CHARS_MAX;

/// An id that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no {kind} id: {rule}")]
pub struct InvalidId {
    /// `session`, `run` or `attachment`.
    pub kind: &'static str,
    /// What was given, cut to a length that fits a message.
    pub given: String,
    /// What such an id looks like.
    pub rule: &'static str,
}

impl InvalidId {
    pub(super) fn new(kind: &'static str, rule: &'static str, given: &str) -> Self {
        InvalidId { kind, rule, given: given.chars().take(40).collect() }
    }
}

const SESSION_RULE: &str = "use 1 to 128 of the characters A-Z a-z 0-9 _ -";
const RUN_RULE: &str = "use 1 to 128 of the characters A-Z a-z 0-9 _ - and dots, but not . or .. alone";

fn is_short_enough(text: &str) -> bool {
    (1..=ID_CHARS_MAX).contains(&text.len())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// The id of a session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Takes a text that follows the rules of session ids.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let fits = is_short_enough(text) && text.bytes().all(is_plain);
        if fits { Ok(SessionId(text.into())) } else { Err(InvalidId::new("session", SESSION_RULE, text)) }
    }

    /// A new id that nobody has used.
    pub fn fresh(entropy: &dyn Entropy) -> Self {
        SessionId(uuid4(entropy).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The id of a run, which is also the id of its stream.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Arc<str>);

impl RunId {
    /// Takes a text that follows the rules of run ids.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let fits = is_short_enough(text)
            && text.bytes().all(|byte| is_plain(byte) || byte == b'.')
            && !matches!(text, "." | "..");
        if fits { Ok(RunId(text.into())) } else { Err(InvalidId::new("run", RUN_RULE, text)) }
    }

    /// A new id that nobody has used.
    pub fn fresh(entropy: &dyn Entropy) -> Self {
        RunId(uuid4(entropy).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_could_leave_their_folder_are_refused() {
        let long = "x".repeat(129);
        for bad in ["", ".", "..", "a/b", "a\\b", "a b", "caf\u{e9}", "a\n", "a\0", &long] {
            assert!(SessionId::parse(bad).is_err(), "session {bad:?}");
            assert!(RunId::parse(bad).is_err(), "run {bad:?}");
        }
    }

    #[test]
    fn ids_use_the_whole_alphabet_of_nanoid_and_dots_are_for_runs_alone() {
        for id in ["_index", "_", "__", "-x", "-", "_-", "x_", "V1StGXR8_Z5jdHi6B-myT"] {
            assert_eq!(SessionId::parse(id).unwrap().as_str(), id);
            assert_eq!(RunId::parse(id).unwrap().as_str(), id);
        }
        assert!(SessionId::parse("a.b").is_err() && SessionId::parse("%5Fa").is_err());
        assert!(RunId::parse("a.b").is_ok());
        assert!(SessionId::parse(&"x".repeat(128)).is_ok());
    }
}
