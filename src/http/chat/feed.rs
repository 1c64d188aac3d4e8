//! A run as a stream of chunks, from its first event to its end, which is always a proper one.

use bytes::Bytes;

use super::{ChunkWriter, FileAddresses};
use crate::http::base_path::BasePath;
use crate::http::stream::{Feed, Follower, Frame, Next, Piece, broken_off};
use crate::model::{Fields, seconds_of};

/// A run's chunks, as a feed. The follower begins at the run's first event: chunks mean nothing without those before.
#[derive(Debug)]
pub(in crate::http) struct ChatFeed {
    follower: Follower,
    writer: ChunkWriter,
    has_begun: bool,
    is_over: bool,
}

impl ChatFeed {
    pub(in crate::http) fn new(follower: Follower, base: &BasePath) -> Self {
        let (session, run) = (&follower.tail().session, &follower.tail().run);
        let writer = ChunkWriter::new(FileAddresses::of(base, session), run);
        ChatFeed { follower, writer, has_begun: false, is_over: false }
    }

    /// Says when the turn began, in seconds, in the message's metadata.
    pub(in crate::http) fn with_began_at(mut self, seconds: Option<f64>) -> Self {
        self.writer.began_at(seconds);
        self
    }

    fn take(&mut self, frame: &Frame, chunks: &mut Vec<u8>) {
        if frame.terminal.is_some() {
            self.writer.ended_at(moment_of(frame));
        }
        self.writer.event(frame.name(), frame.payload(), chunks);
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
                    frames.iter().for_each(|frame| self.take(frame, &mut chunks));
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

/// When an event happened, in seconds.
fn moment_of(frame: &Frame) -> Option<f64> {
    let line = std::str::from_utf8(frame.line()).ok()?;
    seconds_of(Fields::parse(line)?.get("created_at")?.as_bytes())
}
