//! The AI SDK's chat protocol: what its clients ask, and a run's answer as the chunks that they understand.

mod body;
mod chunk;
mod feed;
mod request;

pub(super) use body::{BadBody, BodyScanner, ChatBody, ChatField};
pub(super) use chunk::ChunkWriter;
pub(super) use feed::ChatFeed;
pub(super) use request::{ChatRequest, InvalidChat};
