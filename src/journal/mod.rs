//! Run journals: events get their numbers and become lines here, and lines become events again.
//!
//! append, then durable, then sealed. Reading never repairs. Knows nothing of sessions' documents, of folding, or of
//! files.

mod checksums;
mod event;
mod open_file_budget;
mod own_events;
mod progress;
mod reader;
mod replay;
mod seek;
mod segments;
mod summary;
mod writer;

pub use event::JournalEvent;
pub use open_file_budget::OpenFileBudget;
pub(crate) use own_events::own_events;
pub(crate) use progress::{AppendWaker, Attached};
pub use reader::{Found, JournalReader, ReadOptions, RunEvents, RunReader, count_lines, read_events};
pub use replay::{Replay, ReplayLimits, ReplayStatus, replay_session};
pub use segments::{Segment, runs_as_begun, segments};
pub use summary::{RunSummary, TerminalEvent, TerminalScan, summarize};
pub(crate) use summary::{end_of, read_within, summarize_end, summarize_within};
pub use writer::{AppendError, Appended, RunJournal};
