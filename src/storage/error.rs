//! What can go wrong on a disk, with the path and the attempt in every message.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::contract::ObjectKind;
use super::lock::Holder;
use crate::model::{RunId, SessionId};

/// A failure of storage. Clones share their cause, because a journal that failed tells every later caller why.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StorageError {
    /// The operating system refused.
    #[error("could not {attempt} {}{}", path.display(), advice(source))]
    Io {
        /// What was tried.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: Arc<io::Error>,
    },
    /// An fsync failed, of a file or of a directory: it is unknown what the medium holds of what was written.
    #[error("could not sync {}{}", path.display(), advice(source))]
    SyncFailed {
        /// What was to become durable.
        path: PathBuf,
        /// Why it failed.
        source: Arc<io::Error>,
    },
    /// A file is larger than we load.
    #[error("{} has {bytes} bytes, and at most {max} are loaded: look at it with `less`, then make it smaller", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The bound.
        max: u64,
    },
    /// A small file of ours cannot be read.
    #[error("{} is damaged ({reason}): move it away after a look", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process writes this directory.
    #[error("{} is in use{}: stop that process, or only read", path.display(), held_by(holder))]
    Busy {
        /// The data directory.
        path: PathBuf,
        /// Who holds it, if the lock tells.
        holder: Option<Holder>,
    },
    /// The directory lies on a file system whose locks cannot be trusted.
    #[error("{} lies on {kind}, where a lock may not keep other machines out: use a local disk, or allow it if only this machine writes there", path.display())]
    NetworkFileSystem {
        /// The data directory.
        path: PathBuf,
        /// The file system.
        kind: &'static str,
    },
    /// There is no such directory.
    #[error("{} is not there: create a session first, or name another directory", path.display())]
    NoDirectory {
        /// The data directory.
        path: PathBuf,
    },
    /// A newer program wrote this directory.
    #[error("{} has format version {version}, and this program writes up to {known}: use a newer lastword, or only read", path.display())]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// What it says.
        version: u32,
        /// What we know.
        known: u32,
    },
    /// The store was opened to be read only.
    #[error("the store is open for reading only: open it as a writer")]
    ReadOnly,
    /// The run's id was used before in this session.
    #[error("run {run} of session {session} was begun before: choose another run id")]
    RunTaken {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
    },
    /// There is no such run.
    #[error("session {session} has no run {run}: begin it first")]
    RunNotFound {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
    },
    /// A key does not follow the rule of its kind of object.
    #[error("could not store the {kind} {key:?} of session {session}: it is not a key of that kind, choose another")]
    BadKey {
        /// The session.
        session: SessionId,
        /// The kind of object.
        kind: ObjectKind,
        /// What was given, cut to a length that fits a message.
        key: String,
    },
    /// The run takes no more events, ever.
    #[error("run {run} takes no more events, because {why}: begin another run")]
    Fenced {
        /// The run.
        run: RunId,
        /// Why.
        why: &'static str,
    },
    /// The lock file was removed or replaced while this store held it.
    #[error(
        "{} was removed or replaced, so that another process may write this directory: end that process, then open the store again",
        path.display()
    )]
    LockLost {
        /// The lock file.
        path: PathBuf,
    },
    /// Another process, which shows only what is durable, has stopped because an fsync failed.
    #[error(
        "the durable writer of {} has stopped, and what it wrote last may not be durable: open the directory as a writer, which recovers",
        path.display()
    )]
    WriterStopped {
        /// The data directory.
        path: PathBuf,
    },
    /// A commit panicked: what it left in memory is not trusted.
    #[error("a commit panicked ({what}): report this, and open the store again, which recovers")]
    Panicked {
        /// What the panic said.
        what: String,
    },
    /// Nothing is written any more: after a failed fsync a later one that succeeds would prove nothing, after the loss of
    /// the lock another process may be writing.
    #[error("{}", stopped_since(source))]
    Stopped {
        /// The failure.
        source: Box<StorageError>,
    },
    /// Acknowledged events of the run could not be put into its journal.
    #[error(
        "run {run} takes no events until acknowledged ones are put into {}, which is tried each time",
        path.display()
    )]
    Withheld {
        /// The run.
        run: RunId,
        /// Its journal.
        path: PathBuf,
        /// What prevented it.
        source: Box<StorageError>,
    },
    /// The store was closed.
    #[error("the store was closed: open it again")]
    Closed,
    /// The journal failed before and is closed; its caller is told the first failure.
    #[error(
        "the journal of run {run} is closed since an earlier failure: reopen the run, and send again what was not acknowledged"
    )]
    Latched {
        /// The run.
        run: RunId,
        /// The failure.
        source: Box<StorageError>,
    },
}

impl StorageError {
    pub(crate) fn io(attempt: &'static str, path: &Path, source: io::Error) -> Self {
        StorageError::Io { attempt, path: path.to_owned(), source: Arc::new(source) }
    }

    /// Whether the disk is full.
    pub fn is_no_space(&self) -> bool {
        match self {
            StorageError::Io { source, .. } | StorageError::SyncFailed { source, .. } => is_full(source),
            StorageError::Latched { source, .. } | StorageError::Stopped { source } => source.is_no_space(),
            _ => false,
        }
    }

    /// Whether no more files can be opened at the moment. Nothing was touched then.
    pub fn is_no_descriptor(&self) -> bool {
        matches!(self, StorageError::Io { source, .. } if is_no_descriptor(source))
    }

    /// Whether it concerns one file alone: it cannot be read, written or moved, and everything else can. A full disk, a
    /// lack of descriptors and a failed fsync concern all of them.
    pub(crate) fn is_of_one_object(&self) -> bool {
        match self {
            StorageError::Io { .. } => !self.is_no_space() && !self.is_no_descriptor(),
            StorageError::Damaged { .. } | StorageError::TooLarge { .. } => true,
            _ => false,
        }
    }
}

/// What operating systems call an input or output error.
const EIO: i32 = 5;

/// What they call it if the system, or a process, has too many files open.
const TOO_MANY_OPEN: [i32; 2] = [23, 24];

/// Whether no more files can be opened at the moment.
pub(crate) fn is_no_descriptor(cause: &io::Error) -> bool {
    cfg!(unix) && cause.raw_os_error().is_some_and(|code| TOO_MANY_OPEN.contains(&code))
}

fn is_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        _ if is_full(cause) => " (make room on the disk, then try again)",
        io::ErrorKind::PermissionDenied => " (give this user access to it)",
        _ if cause.raw_os_error() == Some(EIO) => " (the device fails: look at the system's log)",
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => " (something else lies in its place)",
        io::ErrorKind::CrossesDevices => " (_trash and _kept must lie on the file system of the data directory)",
        _ if is_no_descriptor(cause) => " (too many files are open: raise `ulimit -n`, or try again)",
        _ => "",
    }
}

fn stopped_since(cause: &StorageError) -> &'static str {
    match cause {
        StorageError::LockLost { .. } => {
            "the store writes nothing since its lock was lost: end the other process that writes there, then open the store again"
        }
        StorageError::Panicked { .. } => "the store writes nothing since a commit panicked: open the store again",
        _ => "the store writes nothing since a sync failed: look at the device, then open the store again",
    }
}

fn held_by(holder: &Option<Holder>) -> String {
    holder.as_ref().map(|holder| format!(" by process {}", holder.pid)).unwrap_or_default()
}

/// Adds the attempt and the path to an operating system's error.
pub(crate) trait Attempt<T> {
    fn attempt(self, attempt: &'static str, path: &Path) -> Result<T, StorageError>;
    /// The same for an fsync.
    fn synced(self, path: &Path) -> Result<T, StorageError>;
}

impl<T> Attempt<T> for io::Result<T> {
    fn attempt(self, attempt: &'static str, path: &Path) -> Result<T, StorageError> {
        self.map_err(|cause| StorageError::io(attempt, path, cause))
    }

    fn synced(self, path: &Path) -> Result<T, StorageError> {
        self.map_err(|cause| StorageError::SyncFailed { path: path.to_owned(), source: Arc::new(cause) })
    }
}

/// An error and its cause, for people.
pub(crate) fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// A missing file is an answer, not a failure.
pub(crate) fn optional<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound) => Ok(None),
        Err(cause) => Err(cause),
    }
}
