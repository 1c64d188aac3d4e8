//! The AI SDK's chat protocol: what its clients ask, a run's answer as the chunks that they understand, and the transcript
//! as their messages.

mod body;
mod call_id;
mod chunk;
mod feed;
mod history;
mod request;
mod value;

pub(super) use body::{BadBody, BodyScanner, ChatBody, ChatField};
pub(super) use chunk::ChunkWriter;
pub(super) use feed::ChatFeed;
pub(super) use history::{HistoryView, Pending, ui_messages};
pub(super) use request::{ChatRequest, InvalidChat};
