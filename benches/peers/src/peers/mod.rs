//! Everybody who is measured, one file each, behind one small trait: [`Log`](crate::drive::Log).

mod fjall;
mod okaywal;
mod ours;
mod raft_engine;
mod raw;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;

use crate::drive::Way;
use crate::workload::{Case, Outcome};

/// Somebody who is measured.
pub struct Peer {
    /// What `--only` asks for.
    pub name: &'static str,
    /// What the durable rows show, if it is in them.
    pub durable: Option<&'static str>,
    /// What the buffered rows show, if it is in them.
    pub buffered: Option<&'static str>,
    /// With how many durable streams ours is to be at least how many times as fast.
    pub wanted: &'static [(usize, f64)],
    /// Makes it ready in the folder of the case.
    pub open: fn(&Case) -> Outcome<Way>,
}

/// Ours first.
pub const ALL: &[Peer] = &[
    ours::LASTWORD,
    raw::ONE_THREAD,
    raw::OWN_THREADS,
    raw::SHARED_FILE,
    sqlite::SQLITE,
    redb::REDB,
    fjall::FJALL,
    okaywal::GROUP_COMMIT,
    okaywal::COMMITTER,
    raft_engine::RAFT_ENGINE,
    #[cfg(feature = "rocksdb")]
    rocksdb::ROCKSDB,
];
