//! Lastword is the crash-proof session store behind a chat UI for AI agents: the last word is never lost.
//!
//! Sessions are JSON files, every streamed answer has an append-only journal, and what was acknowledged is there after
//! `kill -9`. Start with [`Store`]; `docs/architecture.md` shows the house, `docs/format.md` every byte on disk.

mod awake;
pub mod cache;
#[cfg(feature = "client")]
pub mod client;
pub mod clock;
pub mod doctor;
pub mod entropy;
pub mod format;
#[cfg(feature = "server")]
pub mod http;
pub mod index;
pub mod journal;
pub mod limits;
pub mod meter;
pub mod model;
pub mod recovery;
#[cfg(feature = "run")]
pub mod run;
#[cfg(test)]
#[path = "../tests/shared/seeds.rs"]
mod seeds;
pub mod sidecar;
pub mod storage;
mod store;
mod sync;

pub use cache::CacheOptions;
pub use index::{InvalidPosition, ListFilter, Position};
pub use journal::{
    AppendError, Appended, Found, JournalEvent, ReadOptions, Replay, ReplayStatus, RunEvents, RunReader, RunSummary,
};
pub use model::{
    Attachment, AttachmentId, BranchReason, BranchSummary, Context, ContextCall, ContextMessage, Cursor, Event,
    LeftOut, List, Metadata, ReplacedTurn, Revision, Row, RunEnd, RunId, RunState, Session, SessionId, Summary,
    ToolCard, ToolOutcome, ToolResult, TurnNote,
};
pub use recovery::{RecoveryOptions, Usage, UsageSum};
pub use sidecar::{SaveIntent, SaveOptions, SidecarError};
pub use storage::{CommitOptions, Durability, Durable, Finding, StorageError, Ticket};
pub use store::{
    After, AskedBefore, Change, Follow, Freshness, KeptAlive, Listed, Liveness, NewSession, Options, Outcome, Page,
    Replaces, Run, RunInfo, RunList, Store, StoreError, UserTurn,
};
