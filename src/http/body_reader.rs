//! Reading of request bodies in pieces, within the budget of [`super::body_budget`].

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt;

use super::body_budget::{BodyPermit, NoRoom};
use super::time::{Sleep, sleep};

/// While large bodies take more than half of their room, each of them must bring [`PACE_BYTES`] in this time, or it is
/// refused: a client that sends most of a body and stops holds its room for 10 s at most.
const PACE_TIME: Duration = Duration::from_secs(5);
/// Bytes that a large body must bring in [`PACE_TIME`] while room is scarce.
const PACE_BYTES: usize = 64 * 1024;

/// Why a body was not read.
#[derive(Debug)]
pub(super) enum Unread {
    TooLarge,
    NoRoom,
    Broken(axum::Error),
}

impl From<NoRoom> for Unread {
    fn from(_: NoRoom) -> Self {
        Unread::NoRoom
    }
}

/// A body that is read piece by piece.
pub(super) struct BodyReader {
    body: Body,
    permit: Arc<BodyPermit>,
    /// Runs while the body is large: by its end another piece of the body must have come.
    pace: Option<Pin<Box<Sleep>>>,
    came: usize,
}

impl BodyReader {
    pub(super) fn new(body: Body, permit: Arc<BodyPermit>) -> Self {
        BodyReader { body, permit, pace: None, came: 0 }
    }

    /// The whole body, if it has at most this number of bytes. A body that arrives in one piece is not copied.
    pub(super) async fn whole(mut self, limit: usize) -> Result<Bytes, Unread> {
        let announced = self.announced(limit)?;
        self.permit.expect_room(announced.unwrap_or(0))?;
        let Some(first) = self.piece().await? else { return Ok(Bytes::new()) };
        if first.len() > limit {
            return Err(Unread::TooLarge);
        }
        self.permit.hold(first.len())?;
        match self.body.is_end_stream() {
            true => Ok(first),
            false => self.joined(first, announced.unwrap_or(limit)).await,
        }
    }

    async fn joined(mut self, first: Bytes, ceiling: usize) -> Result<Bytes, Unread> {
        let mut kept = Vec::new();
        let mut piece = Some(first);
        while let Some(bytes) = piece {
            self.make_room(&mut kept, bytes.len(), ceiling)?;
            kept.extend_from_slice(&bytes);
            drop(bytes);
            piece = self.piece().await?;
        }
        Ok(Bytes::from(kept))
    }

    /// Makes room for more bytes: for as many again as have arrived if the budget has them, never for more than `ceiling`.
    fn make_room(&self, kept: &mut Vec<u8>, more: usize, ceiling: usize) -> Result<(), Unread> {
        let needed = kept.len() + more;
        if needed > ceiling {
            return Err(Unread::TooLarge);
        }
        if needed > kept.capacity() {
            let ahead = needed.saturating_mul(2).min(ceiling);
            let room = match self.permit.hold(ahead) {
                Ok(()) => ahead,
                Err(NoRoom) => self.permit.hold(needed).map(|()| needed)?,
            };
            kept.reserve_exact(room - kept.len());
        }
        Ok(())
    }

    /// Bytes that the request says its body has; none if it does not say.
    fn announced(&self, limit: usize) -> Result<Option<usize>, Unread> {
        let hint = self.body.size_hint();
        match hint.lower() > limit as u64 {
            true => Err(Unread::TooLarge),
            false => Ok(hint.exact().map(|bytes| bytes as usize)),
        }
    }

    /// The next piece, none at the end of the body. A caller that stops waiting loses nothing.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Unread> {
        loop {
            let Some(frame) = self.frame().await? else { return Ok(None) };
            if let Ok(bytes) = frame.map_err(Unread::Broken)?.into_data() {
                self.came += bytes.len();
                return Ok(Some(bytes));
            }
        }
    }

    async fn frame(&mut self) -> Result<Option<Result<http_body::Frame<Bytes>, axum::Error>>, Unread> {
        loop {
            if !self.permit.is_large() {
                return Ok(self.body.frame().await);
            }
            let pace = self.pace.get_or_insert_with(|| Box::pin(sleep(PACE_TIME)));
            tokio::select! {
                biased;
                () = pace.as_mut() => self.judge_pace()?,
                frame = self.body.frame() => return Ok(frame),
            }
        }
    }

    fn judge_pace(&mut self) -> Result<(), Unread> {
        if self.came < PACE_BYTES && self.permit.is_in_the_way() {
            return Err(Unread::NoRoom);
        }
        (self.came, self.pace) = (0, None);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{self, StreamExt};

    use super::*;
    use crate::http::body_budget::{BodyBudget, SMALL_BODY_BYTES_MAX};

    /// A body of these pieces, the rest of which never comes.
    fn stuck(pieces: Vec<Vec<u8>>) -> Body {
        let pieces = stream::iter(pieces).map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
        Body::from_stream(pieces.chain(stream::pending()))
    }

    fn pieces(pieces: Vec<Vec<u8>>) -> Body {
        Body::from_stream(stream::iter(pieces).map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece))))
    }

    #[tokio::test]
    async fn a_body_is_read_as_it_was_sent_and_held_for_at_most_twice_its_bytes() {
        for sizes in [vec![], vec![1], vec![1, 0, 2], vec![100_000, 1], vec![1; 300], vec![70_000; 7]] {
            let budget = BodyBudget::new(1 << 24, 1 << 20);
            let permit = BodyPermit::new(&budget);
            let sent: Vec<Vec<u8>> = (0..=u8::MAX).cycle().zip(sizes).map(|(nth, size)| vec![nth; size]).collect();
            let read = BodyReader::new(pieces(sent.clone()), permit.clone()).whole(1 << 20).await.unwrap();
            assert_eq!(read, sent.concat());
            assert!(budget.bytes() >= read.len() && budget.bytes() <= 2 * read.len(), "{}", budget.bytes());
            drop(permit);
            assert_eq!(budget.bytes(), 0);
        }
    }

    #[tokio::test]
    async fn a_body_is_refused_at_its_bound_and_where_the_budget_ends() {
        let budget = BodyBudget::new(300_000, 200_000);
        let read = |sent, limit| BodyReader::new(pieces(sent), BodyPermit::new(&budget)).whole(limit);
        assert!(matches!(read(vec![vec![0; 101]], 100).await, Err(Unread::TooLarge)));
        assert!(matches!(read(vec![vec![0; 60], vec![0; 41]], 100).await, Err(Unread::TooLarge)));
        assert_eq!(read(vec![vec![0; 60], vec![0; 40]], 100).await.unwrap().len(), 100);
        let other = BodyPermit::new(&budget);
        other.hold(150_000).unwrap();
        assert!(matches!(read(vec![vec![0; 80_000], vec![0; 80_000]], 200_000).await, Err(Unread::NoRoom)));
        // Its own bytes fit, twice as many would not.
        assert_eq!(read(vec![vec![0; 60_000], vec![0; 20_000]], 200_000).await.unwrap().len(), 80_000);
        assert_eq!(budget.bytes(), 150_000);
        let announced = BodyReader::new(Body::from(vec![0; 160_000]), BodyPermit::new(&budget)).whole(200_000);
        assert!(matches!(announced.await, Err(Unread::NoRoom)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_that_stands_still_gives_its_room_back_when_room_is_scarce() {
        let budget = BodyBudget::new(1_000_000, 800_000);
        let read = |sent| tokio::spawn(BodyReader::new(stuck(sent), BodyPermit::new(&budget)).whole(800_000));
        let small = read(vec![vec![0; SMALL_BODY_BYTES_MAX / 2]]);
        let patient = read(vec![vec![0; 100_000], vec![0; 1]]);
        sleep(PACE_TIME * 10).await;
        assert!(!patient.is_finished() && !small.is_finished(), "there is room for more");
        let other = BodyPermit::new(&budget);
        other.hold(500_000).unwrap();
        sleep(PACE_TIME * 2).await;
        assert!(matches!(patient.await.unwrap(), Err(Unread::NoRoom)));
        assert!(!small.is_finished(), "a small body was blamed");
        small.abort();
        assert!(small.await.is_err());
        assert_eq!(budget.bytes(), 500_000);
    }
}
