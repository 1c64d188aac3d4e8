//! Options of file storage: the mode and purpose of an opening, and what it needs from outside.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::entropy::{Entropy, SystemEntropy};
use crate::meter::Meter;
use crate::storage::commit::CommitOptions;
use crate::storage::contract::Durability;
use crate::storage::finding::OnFinding;

/// Whether a directory is opened to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As its one writer. Creates what is missing.
    Write,
    /// As one of any number of readers. Creates nothing, changes nothing.
    ReadOnly,
}

/// What a writer opens a directory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// To serve: what earlier writers had not finished writing is removed.
    #[default]
    Serve,
    /// To repair: that is left for the repair to keep.
    Repair,
}

/// What file storage needs from outside.
#[derive(Debug, Clone)]
pub struct FilesOptions {
    /// Writer or reader.
    pub mode: Mode,
    /// What a writer is here for.
    pub purpose: Purpose,
    /// Whether a network file system is accepted although its locks may not keep other machines out.
    pub allow_network_fs: bool,
    /// How durable an event is before a writer shows it. Readers in other processes find it in the lock's note.
    pub durability: Durability,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Gives unique names.
    pub entropy: Arc<dyn Entropy>,
    /// Where the agent keeps transcripts of its own, if anywhere.
    pub core_dir: Option<PathBuf>,
    /// How journals become durable.
    pub commit: CommitOptions,
    /// Counts what becomes durable.
    pub meter: Arc<Meter>,
    /// Called with findings that arise while the directory is open.
    pub on_finding: Option<OnFinding>,
}

impl FilesOptions {
    /// What suits most: the system's clock and entropy, and the defaults of everything else.
    pub fn in_mode(mode: Mode) -> Self {
        FilesOptions {
            mode,
            purpose: Purpose::Serve,
            allow_network_fs: false,
            durability: Durability::default(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            core_dir: None,
            commit: CommitOptions::default(),
            meter: Arc::default(),
            on_finding: None,
        }
    }
}
