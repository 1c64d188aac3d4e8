//! What a store can be told when it is opened.

use std::path::PathBuf;
use std::sync::Arc;

use crate::cache::CacheOptions;
use crate::clock::{Clock, Steady, SystemClock, SystemSteady};
use crate::entropy::{Entropy, SystemEntropy};
use crate::limits::{OPEN_JOURNALS, SIDECAR_BYTES_MAX};
use crate::meter::Meter;
use crate::recovery::RecoveryOptions;
use crate::storage::{CommitOptions, Durability, OnFinding, OpenFileShares, open_files_max};

/// Whether a cached session is compared with its file before it is given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Freshness {
    /// Each time, which costs one look at the file. A change by another program is seen by the next read.
    #[default]
    Check,
    /// Never: the writer's lock is trusted to keep everybody else out.
    TrustLock,
}

/// How a store behaves. The defaults are meant for production.
#[derive(Debug, Clone)]
pub struct Options {
    /// How lasting an append is before it returns and is shown, unless it asks for more.
    pub durability: Durability,
    /// How appended events become durable.
    pub commit: CommitOptions,
    /// Accept a network file system, although its locks may not keep other machines out.
    pub allow_network_fs: bool,
    /// How long recovery hopes for an interrupted answer.
    pub recovery: RecoveryOptions,
    /// How much is kept in memory.
    pub cache: CacheOptions,
    /// Bytes that a session's document may have, at most 1 GiB. A turn is refused when document and prompt exceed 15/16 of
    /// it; of an answer that would pass it, the beginning is kept.
    pub document_bytes_max: u64,
    /// Journals whose files are open for appending at the same time: half of the files that the system lets this process
    /// open, unless said. Beyond them, whoever appends waits for another's file to be synced and closed, so let it be as
    /// many as there are runs at once (`ulimit -n`).
    pub open_journals_max: usize,
    /// Whether a session in memory is compared with its file.
    pub freshness: Freshness,
    /// The folder of the transcripts that the agent keeps itself (`session_<id>.json`), if there is one.
    pub core_dir: Option<PathBuf>,
    /// Whether this process serves outside producers, as `lastword serve` does. Then a lease counts the time in which this
    /// process was awake, whatever the clock is set to, and every unsealed run with a lease gets a whole lease when the store is
    /// opened, and again after a pause of the process (SIGSTOP, suspend, a stalled machine). If not, a lease lapses that long
    /// after the last event or renewal, by the clock.
    pub serves_producers: bool,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Tells how much time has passed, whatever the clock is set to. Used for leases if this process serves producers, and by
    /// the timer that ends dead runs for the readers that wait.
    pub steady: Arc<dyn Steady>,
    /// Gives ids and unique names.
    pub entropy: Arc<dyn Entropy>,
    /// Counts what the store does. Stores whose options are clones of the same ones share it.
    pub meter: Arc<Meter>,
    /// Called with findings that arise while the store is open.
    pub on_finding: Option<OnFinding>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Buffered,
            commit: CommitOptions::default(),
            allow_network_fs: false,
            recovery: RecoveryOptions::default(),
            cache: CacheOptions::default(),
            document_bytes_max: SIDECAR_BYTES_MAX,
            open_journals_max: open_journals_max(OpenFileShares::of_library(open_files_max())),
            freshness: Freshness::Check,
            core_dir: None,
            serves_producers: false,
            clock: Arc::new(SystemClock),
            steady: Arc::new(SystemSteady::default()),
            entropy: Arc::new(SystemEntropy),
            meter: Arc::default(),
            on_finding: None,
        }
    }
}

/// How many journals keep a file open, given their share of the open files.
fn open_journals_max(shares: OpenFileShares) -> usize {
    shares.journals.clamp(*OPEN_JOURNALS.start(), *OPEN_JOURNALS.end())
}

impl Options {
    /// The same for a program that shares out its files like this.
    pub fn with_shares(self, shares: OpenFileShares) -> Self {
        Options { open_journals_max: open_journals_max(shares), ..self }
    }
}
