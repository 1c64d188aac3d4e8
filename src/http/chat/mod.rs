//! The AI SDK's chat protocol: what its clients request, a run's answer as the chunks that they understand, and the
//! transcript as their messages.

mod body;
mod call_id;
mod chunk;
mod data_url;
mod feed;
mod files;
mod history;
mod left_out;
mod request;
mod turn;
mod value;

pub(super) use body::{BadBody, BodyScanner, ChatBody};
pub(super) use chunk::ChunkWriter;
pub(super) use data_url::{UNKNOWN_TYPE, is_picture, media_type};
pub(super) use feed::ChatFeed;
pub(super) use files::{BadFile, FileAt, FilePart, attached, disposition, plain_name};
pub(super) use history::{HistoryView, Pending, ui_messages};
pub(super) use left_out::LeftOutRuns;
pub(super) use request::{ChatRequest, InvalidChat};
pub(super) use turn::{ChatTurn, Known, RefusedTurn};
pub(super) use value::FileAddresses;
