//! The schemas of the API's description that no type of the server gives: documents, events and messages that are kept as
//! JSON text and served as they lie. Nothing is read into them.
//!
//! Other programs write these values, too. So a schema says of a key what its writers put there, null included, and every
//! object of theirs may have more keys. A union of forms that are known by a word (`event`, `type`) has an open form beside
//! it, which takes any other word and any other shape.

#[macro_use]
mod shape;

mod asked;
mod chat;
mod chunk;
mod event;
mod line;
mod refusals;
mod report;
mod row;
mod session;
mod stream;
mod tool;

pub(super) use asked::{FileBytes, InAttachment, InBranch, InRun, InSession, Knowing, Meaning, Resuming};
pub(super) use chat::{ChatRequestBody, UiMessage};
pub(super) use event::NewEventLines;
pub(super) use line::EventLines;
pub(super) use refusals::describe_refusals;
pub(super) use report::CheckReport;
pub(super) use row::Attachment;
pub(super) use session::{ListItem, Session, SessionMetadata};
pub(super) use stream::{ChatStream, ListStream, RunStateWord, RunStream, SessionStream};
