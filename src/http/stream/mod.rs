//! Streams: what a run, a session, or the list has to say, from where a reader left off, for as long as it stays.
//!
//! A follower that is behind reads the journal itself, at its own pace. One that has caught up shares a tail with all
//! others of its run: one reader, frames encoded once, a bounded ring of the last of them. Who is slower than the ring is
//! told so and reads from disk again. The writer knows nothing of any of them.

mod feed;
mod follower;
mod frame;
mod hub;
mod list;
mod run;
mod session;
mod state;
mod tail;

pub(super) use feed::{
    Feed, FollowerCount, Piece, StreamPolicy, broken_off, chunk_stream, closed, event_stream, plain_stream,
};
pub(super) use follower::{Follower, Next, Waits};
pub(super) use frame::Frame;
pub(super) use hub::Hub;
pub(super) use list::ListFeed;
pub(super) use run::{Cursor, LinesFeed, RunFeed, first_within};
pub(super) use session::{SessionFeed, StartAt};
pub(super) use state::state_beside;
