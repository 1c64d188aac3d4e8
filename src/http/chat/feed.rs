//! A run as a stream of chunks, from its first event to its end, which is always a proper one.

use bytes::Bytes;

use super::ChunkWriter;
use crate::http::stream::{Feed, Follower, Next, Piece, broken_off};

/// A run's chunks, as a feed. The follower begins at the run's first event: chunks mean nothing without those before.
#[derive(Debug)]
pub(in crate::http) struct ChatFeed {
    follower: Follower,
    writer: ChunkWriter,
    has_begun: bool,
    is_over: bool,
}

impl ChatFeed {
    pub(in crate::http) fn new(follower: Follower) -> Self {
        let writer = ChunkWriter::new(&follower.tail().run);
        ChatFeed { follower, writer, has_begun: false, is_over: false }
    }
}

impl Feed for ChatFeed {
    async fn next(&mut self) -> Option<Piece> {
        let mut chunks = Vec::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.writer.begin(&mut chunks);
            return Some(Ok(Bytes::from(chunks)));
        }
        while chunks.is_empty() && !self.is_over {
            match self.follower.next().await {
                Next::Frames(frames) => {
                    frames.iter().for_each(|frame| self.writer.event(frame.name(), frame.payload(), &mut chunks));
                }
                Next::Gap { .. } => {}
                Next::Ahead { .. } | Next::CaughtUp | Next::End(_) => {
                    self.is_over = true;
                    self.writer.end(&mut chunks);
                }
                // What is not the end must not look like one: the client comes back for it.
                Next::Failed => return Some(broken_off()),
            }
        }
        (!chunks.is_empty()).then(|| Ok(Bytes::from(chunks)))
    }
}
