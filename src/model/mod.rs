//! What is thought about: sessions, rows, tool cards, events, ids, and the one reducer from events to rows.
//!
//! Knows no files and no clock. Values that nobody touches stay JSON text, so that unknown keys survive as they are.

mod agent;
mod attachment;
mod branch;
mod context;
mod cursor;
mod depth;
mod event;
pub mod fold;
mod fold_limit;
mod id;
mod json;
pub mod marker;
pub mod message_id;
mod moment;
mod open_calls;
mod row;
mod run_end;
mod seqs;
mod session;
mod summary;
mod text;
mod title;
mod tool;
mod turn_note;
mod ui_part;

pub use agent::{AGENT_SESSION_EVENT, AgentSession};
pub use attachment::{Attachment, AttachmentId, ONLY_ATTACHMENTS};
pub(crate) use branch::fingerprint;
pub use branch::{Branch, BranchSummary, Cut, TurnPlaces};
pub use context::{Context, ContextCall, ContextMessage, LeftOut, ToolOutcome, ToolResult};
pub(crate) use context::{Objects, StoredFile};
pub use cursor::Cursor;
pub use depth::nested_deeper_at;
pub use event::{Event, InvalidEvent, Truth};
pub use fold_limit::FoldLimit;
pub use id::{InvalidId, RunId, SessionId};
pub(crate) use json::{Fields, quoted};
pub use json::{Object, TextBuffer, quote, text_of};
pub(crate) use moment::seconds_of;
#[cfg(feature = "server")]
pub(crate) use open_calls::OpenCalls;
pub use row::Row;
pub use run_end::{RunEnd, RunState};
pub use seqs::SeenSeqs;
pub(crate) use session::{Entry, Piece, Slot};
pub use session::{List, Metadata, NotAList, PendingTurn, Revision, Session};
pub use summary::{SessionState, Summary};
pub use text::{is_blank, is_truthy, normal_form, python_text, shows_nothing, trim};
pub use title::{UNTITLED, title_of};
pub use tool::ToolCard;
pub(crate) use tool::{ANSWERED, STORED_KEYS, TOLD_KEYS};
pub use turn_note::{BranchReason, ReplacedTurn, TurnNote};
pub(crate) use ui_part::PARTS;
#[cfg(feature = "server")]
pub(crate) use ui_part::{is_file_address, ui_part};
