//! What the doctor can be told, and what it tells while it works.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::finding::Code;
use crate::clock::{Clock, SystemClock};
use crate::entropy::{Entropy, SystemEntropy};
use crate::model::SessionId;
use crate::recovery::RecoveryOptions;
use crate::storage::{FilesOptions, Mode, Purpose};

/// How far an examination has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Sessions that are done.
    pub sessions: u64,
    /// Sessions in all.
    pub sessions_total: u64,
    /// Bytes of journals that were read.
    pub bytes: u64,
}

/// Somebody who wants to know how far it has come. Called from several threads.
pub type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// How the doctor works. The defaults are meant for everybody.
#[derive(Clone)]
pub struct DoctorOptions {
    /// Only these sessions, and nothing else of the directory. Empty: everything.
    pub sessions: Vec<SessionId>,
    /// Only findings with these codes are treated. Empty: all.
    pub only: Vec<Code>,
    /// How many threads look at sessions; 0 for as many as the machine has cores.
    pub threads: usize,
    /// How long recovery hopes for an interrupted answer.
    pub recovery: RecoveryOptions,
    /// The folder of the transcripts that the agent keeps itself, if there is one.
    pub core_dir: Option<PathBuf>,
    /// Repair on a network file system, although its locks may not keep other machines out.
    pub allow_network_fs: bool,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Gives unique names.
    pub entropy: Arc<dyn Entropy>,
    /// Who is told how far it has come.
    pub on_progress: Option<OnProgress>,
}

impl Default for DoctorOptions {
    fn default() -> Self {
        DoctorOptions {
            sessions: Vec::new(),
            only: Vec::new(),
            threads: 0,
            recovery: RecoveryOptions::default(),
            core_dir: None,
            allow_network_fs: false,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            on_progress: None,
        }
    }
}

impl fmt::Debug for DoctorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoctorOptions")
            .field("sessions", &self.sessions)
            .field("only", &self.only)
            .finish_non_exhaustive()
    }
}

impl DoctorOptions {
    pub(super) fn files(&self, mode: Mode) -> FilesOptions {
        FilesOptions {
            purpose: Purpose::Repair,
            allow_network_fs: self.allow_network_fs,
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            core_dir: self.core_dir.clone(),
            ..FilesOptions::in_mode(mode)
        }
    }
}
