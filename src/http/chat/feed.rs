//! A run as a stream of chunks, from its first event to its end, which is always a proper one.

use bytes::Bytes;

use super::ChunkWriter;
use crate::http::stream::{Feed, Follower, Next};

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
    async fn next(&mut self) -> Option<Bytes> {
        let mut chunks = Vec::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.writer.begin(&mut chunks);
            return Some(Bytes::from(chunks));
        }
        while chunks.is_empty() && !self.is_over {
            match self.follower.next().await {
                Next::Frames(frames) => {
                    frames.iter().for_each(|frame| self.writer.event(frame.name(), frame.payload(), &mut chunks));
                }
                Next::Gap { .. } => {}
                // A reader that is left without an end would wait for ever, or take the part for the whole.
                Next::Ahead { .. } | Next::CaughtUp | Next::End(_) | Next::Failed => {
                    self.is_over = true;
                    self.writer.end(&mut chunks);
                }
            }
        }
        (!chunks.is_empty()).then(|| Bytes::from(chunks))
    }
}
