//! Everything that a store may answer instead of what was asked for.

use crate::journal::AppendError;
use crate::model::{InvalidId, NotAList, RunId, SessionId};
use crate::sidecar::SidecarError;
use crate::storage::StorageError;

/// A refusal or a failure of the store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is no such session.
    #[error("there is no session {session:?}: `ls` shows those that are there")]
    NotFound {
        /// What was asked for.
        session: String,
    },
    /// A session of this id is there already.
    #[error("session {session} is there already: choose another id")]
    Exists {
        /// The session.
        session: SessionId,
    },
    /// An id does not follow the rules.
    #[error(transparent)]
    InvalidId(#[from] InvalidId),
    /// A text is longer than the bound.
    #[error("the {what} has {bytes} bytes, and at most {max} are taken: shorten it")]
    TooLong {
        /// Which text.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The user's message shows nothing, and nothing is attached.
    #[error("the message is blank: say something, or attach a file")]
    EmptyMessage,
    /// The attachments are no list.
    #[error("the attachments are not a JSON list: give a list, or none")]
    BadAttachments,
    /// An attachment has more bytes than the bound.
    #[error("the attachment has {bytes} bytes, and at most {max} are stored: make it smaller")]
    AttachmentTooLarge {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// What is said of an attachment cannot be stored.
    #[error("{given:?} cannot be the {what} of an attachment: {rule}")]
    BadAttachment {
        /// What it is.
        what: &'static str,
        /// What was given, cut to a length that fits a message.
        given: String,
        /// What it looks like.
        rule: &'static str,
    },
    /// The lease is no number of seconds that can be granted.
    #[error("the lease is not a number of seconds from 0 to {max}: choose another, or none")]
    BadLease {
        /// The longest.
        max: f64,
    },
    /// A run's journal may hold what no session has yet.
    #[error(
        "run {run} of session {session} may hold an answer that was not found yet: remove it when its marker is resolved"
    )]
    RunNotFolded {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
    },
    /// The turn to be replaced is named by an id that the session does not know.
    #[error("session {session} has no message {message:?} that could be answered again or edited: read it again")]
    UnknownMessage {
        /// The session.
        session: SessionId,
        /// What was named.
        message: String,
    },
    /// The last question is to be answered again, and the session has none.
    #[error("session {session} has no question yet that could be answered again: ask one first")]
    NoQuestion {
        /// The session.
        session: SessionId,
    },
    /// The client's id of a message cannot be kept.
    #[error("the id of a message is not 1 to {max} characters without control characters: choose another, or none")]
    BadMessageId {
        /// The longest, in characters.
        max: usize,
    },
    /// The client's metadata of a message cannot be kept.
    #[error("the metadata of a message is not a JSON object of at most {max} bytes: shorten it, or leave it out")]
    BadMetadata {
        /// The longest, in bytes.
        max: usize,
    },
    /// There is no such branch.
    #[error("session {session} has no branch {branch:?} that can be read: list its branches")]
    UnknownBranch {
        /// The session.
        session: SessionId,
        /// What was named.
        branch: String,
    },
    /// A branch belongs after another conversation than the session has now.
    #[error(
        "branch {branch:?} of session {session} belongs after other messages than those that are there now: restore the branch that has them first"
    )]
    BranchConflict {
        /// The session.
        session: SessionId,
        /// The branch.
        branch: String,
    },
    /// Another run of this session has not ended.
    #[error("session {session} is busy with run {run}: wait until it ends, or end it")]
    RunInProgress {
        /// The session.
        session: SessionId,
        /// The run.
        run: String,
    },
    /// The session's document is damaged, was changed, or could not be stored.
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
    /// A list of the session is no list.
    #[error("session {session} has a shape that cannot be added to")]
    WrongShape {
        /// The session.
        session: SessionId,
        /// What is wrong.
        source: NotAList,
    },
    /// An event was not taken.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A run has no such journal.
    #[error("session {session} has no run {run:?}: begin it with a turn")]
    RunNotFound {
        /// The session.
        session: SessionId,
        /// What was asked for.
        run: String,
    },
    /// A run id was used before.
    #[error("run id {run} was used before in session {session}: choose another")]
    RunTaken {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
    },
    /// The thread that ends runs whose producer died could not be started.
    #[error("could not start the timer that ends dead runs: {reason}: end other processes or raise `ulimit -u`")]
    NoTimer {
        /// What the system said.
        reason: String,
    },
    /// The disk failed, or the directory is not to be had.
    #[error(transparent)]
    Storage(StorageError),
}

impl From<StorageError> for StoreError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::RunNotFound { session, run } => StoreError::RunNotFound { session, run: run.to_string() },
            StorageError::RunTaken { session, run } => StoreError::RunTaken { session, run },
            other => StoreError::Storage(other),
        }
    }
}

impl StoreError {
    /// The failure of the disk behind this error, if it is one.
    pub fn storage(&self) -> Option<&StorageError> {
        match self {
            StoreError::Storage(error) => Some(error),
            StoreError::Sidecar(SidecarError::Storage(error)) => Some(error),
            StoreError::Append(AppendError::Failed { source, .. }) => Some(source),
            _ => None,
        }
    }

    /// A word for programs, the same in every version.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::NotFound { .. } | StoreError::RunNotFound { .. } | StoreError::UnknownBranch { .. } => {
                "not_found"
            }
            StoreError::UnknownMessage { .. } | StoreError::NoQuestion { .. } => "unknown_message",
            StoreError::Exists { .. } | StoreError::RunTaken { .. } => "exists",
            StoreError::InvalidId(_)
            | StoreError::TooLong { .. }
            | StoreError::EmptyMessage
            | StoreError::BadAttachments
            | StoreError::BadAttachment { .. }
            | StoreError::BadLease { .. }
            | StoreError::BadMessageId { .. }
            | StoreError::BadMetadata { .. }
            | StoreError::Append(AppendError::Invalid(_)) => "invalid_argument",
            StoreError::AttachmentTooLarge { .. } => "too_large",
            StoreError::RunInProgress { .. } => "run_in_progress",
            StoreError::RunNotFolded { .. } => "refused",
            StoreError::WrongShape { .. } => "wrong_shape",
            StoreError::NoTimer { .. } => "too_many_threads",
            StoreError::Append(AppendError::Sealed { .. }) => "sealed",
            StoreError::Append(AppendError::Left { .. }) | StoreError::BranchConflict { .. } => "conflict",
            StoreError::Sidecar(error) => sidecar_code(error),
            StoreError::Append(AppendError::Failed { source, .. }) => storage_code(source),
            StoreError::Storage(error) => storage_code(error),
        }
    }
}

fn sidecar_code(error: &SidecarError) -> &'static str {
    use crate::format::Unreadable;
    match error {
        SidecarError::Unreadable { source: Unreadable::Utf8 { .. }, .. } => "corrupt_utf8",
        SidecarError::Unreadable { source: Unreadable::Json { .. }, .. } => "corrupt_json",
        SidecarError::Unreadable { source: Unreadable::Shape, .. } => "wrong_shape",
        SidecarError::WouldShrink { .. } => "refused",
        SidecarError::NotJson { .. } => "invalid_argument",
        SidecarError::TooLarge { .. } => "too_large",
        SidecarError::Conflict { .. } => "conflict",
        SidecarError::Deleted { .. } => "deleted",
        SidecarError::Storage(error) => storage_code(error),
    }
}

fn storage_code(error: &StorageError) -> &'static str {
    match error {
        StorageError::Busy { .. } => "busy",
        StorageError::ReadOnly => "read_only",
        StorageError::Stopped { .. } => "stopped",
        StorageError::NewerFormat { .. } => "newer_format",
        StorageError::NoDirectory { .. } | StorageError::RunNotFound { .. } => "not_found",
        StorageError::RunTaken { .. } => "exists",
        StorageError::BadKey { .. } => "invalid_argument",
        StorageError::Fenced { .. } => "fenced",
        StorageError::Withheld { .. } => "withheld",
        error if error.is_no_space() => "no_space",
        error if error.is_no_descriptor() => "too_many_open_files",
        _ => "io_error",
    }
}
