//! What was found wrong with a directory, for people and for programs.

use std::path::PathBuf;

use crate::model::{RunId, SessionId};

/// Something that was not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A word for programs, the same in every version.
    pub code: &'static str,
    /// The session that it is about.
    pub session: Option<SessionId>,
    /// The run that it is about.
    pub run: Option<RunId>,
    /// The file, relative to the data directory.
    pub file: PathBuf,
    /// Where in the file.
    pub offset: Option<u64>,
    /// A sentence for people: what was found, and what was done about it.
    pub message: String,
}
