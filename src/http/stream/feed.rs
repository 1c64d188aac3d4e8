//! A feed as the body of an answer: pieces as they come, a sign of life when none do, an end when the server ends.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::http::metrics::Metrics;
use crate::http::time::within;

/// Something that comes in pieces.
pub(in crate::http) trait Feed: Send + 'static {
    /// The next piece; none at the end, a failure where an end would look like one. Whoever stops waiting for it loses
    /// nothing.
    fn next(&mut self) -> impl Future<Output = Option<Piece>> + Send;
}

/// A piece of a feed, or why there is none.
pub(in crate::http) type Piece = io::Result<Bytes>;

/// What breaks a stream off, so that nobody takes the part for the whole.
pub(in crate::http) fn broken_off() -> Piece {
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// A follower, counted for as long as this lives, and its place among the streams.
#[derive(Debug)]
pub(in crate::http) struct FollowerCount {
    metrics: Arc<Metrics>,
    _place: Option<OwnedSemaphorePermit>,
}

impl FollowerCount {
    pub(in crate::http) fn new(metrics: &Arc<Metrics>, place: Option<OwnedSemaphorePermit>) -> Self {
        metrics.followers.add(1);
        FollowerCount { metrics: metrics.clone(), _place: place }
    }
}

impl Drop for FollowerCount {
    fn drop(&mut self) {
        self.metrics.followers.sub(1);
    }
}

/// How long a feed may be silent when the server closes before it is cut off: runs that just ended say so.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(300);

/// What a comment says: that somebody is there.
const HEARTBEAT: Bytes = Bytes::from_static(b": \n\n");

struct Stream<F> {
    feed: F,
    /// Sent before anything else.
    opening: Option<Bytes>,
    heartbeat: Option<Duration>,
    closing: watch::Receiver<bool>,
    /// Whether an end that is none must not look like one.
    breaks_off: bool,
    _count: FollowerCount,
}

impl<F: Feed> Stream<F> {
    async fn next(&mut self) -> Option<Piece> {
        if let Some(opening) = self.opening.take() {
            return Some(Ok(opening));
        }
        tokio::select! {
            biased;
            () = closed(&mut self.closing) => match within(LAST_WORDS, self.feed.next()).await {
                Some(piece) => piece,
                None => self.breaks_off.then(broken_off),
            },
            piece = next_or_heartbeat(&mut self.feed, self.heartbeat) => piece,
        }
    }
}

/// Waits until the server closes.
pub(in crate::http) async fn closed(closing: &mut watch::Receiver<bool>) {
    // Nobody is left to say so if the server is gone.
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}

async fn next_or_heartbeat<F: Feed>(feed: &mut F, heartbeat: Option<Duration>) -> Option<Piece> {
    match heartbeat {
        Some(limit) => within(limit, feed.next()).await.unwrap_or(Some(Ok(HEARTBEAT))),
        None => feed.next().await,
    }
}

fn body<F: Feed>(stream: Stream<F>) -> Body {
    let pieces = stream::unfold(stream, |mut stream| async move {
        let piece = stream.next().await?;
        Some((piece, stream))
    });
    Body::from_stream(pieces)
}

/// How streams behave.
#[derive(Debug, Clone)]
pub(in crate::http) struct StreamPolicy {
    pub(in crate::http) heartbeat: Duration,
    pub(in crate::http) retry: Duration,
    pub(in crate::http) closing: watch::Receiver<bool>,
}

/// Server-sent events. The opening tells the reader when to come again.
pub(in crate::http) fn event_stream<F: Feed>(feed: F, policy: &StreamPolicy, count: FollowerCount) -> Response {
    let retry = Bytes::from(format!("retry: {}\n\n", policy.retry.as_millis()));
    let body = body(Stream {
        feed,
        opening: Some(retry),
        heartbeat: Some(policy.heartbeat),
        closing: policy.closing.clone(),
        breaks_off: false,
        _count: count,
    });
    streamed("text/event-stream", body)
}

/// Anything else that comes in pieces.
pub(in crate::http) fn plain_stream<F: Feed>(
    feed: F,
    policy: &StreamPolicy,
    count: FollowerCount,
    content_type: &'static str,
) -> Response {
    let closing = policy.closing.clone();
    let body = body(Stream { feed, opening: None, heartbeat: None, closing, breaks_off: true, _count: count });
    streamed(content_type, body)
}

/// The same with a sign of life, for readers that pass over comments.
pub(in crate::http) fn chunk_stream<F: Feed>(feed: F, policy: &StreamPolicy, count: FollowerCount) -> Response {
    let (heartbeat, closing) = (Some(policy.heartbeat), policy.closing.clone());
    let body = body(Stream { feed, opening: None, heartbeat, closing, breaks_off: true, _count: count });
    let mut response = streamed("text/event-stream", body);
    response.headers_mut().insert("x-vercel-ai-ui-message-stream", HeaderValue::from_static("v1"));
    response
}

fn streamed(content_type: &'static str, body: Body) -> Response {
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Pieces of one answer in one.
pub(in crate::http) fn joined<'a>(pieces: impl ExactSizeIterator<Item = &'a Bytes> + Clone) -> Bytes {
    let mut first = pieces.clone();
    match (first.next(), first.len()) {
        (Some(only), 0) => only.clone(),
        _ => {
            let mut all = Vec::with_capacity(pieces.clone().map(Bytes::len).sum());
            pieces.for_each(|piece| all.extend_from_slice(piece));
            Bytes::from(all)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http_body_util::BodyExt;

    use super::*;
    use crate::http::time::sleep;

    /// Pieces, each after this time; then silence, or the end.
    struct Slow {
        pieces: u64,
        time: Duration,
        ends: bool,
    }

    impl Feed for Slow {
        async fn next(&mut self) -> Option<Piece> {
            if self.pieces == 0 && !self.ends {
                pending::<()>().await;
            }
            self.pieces = self.pieces.checked_sub(1)?;
            sleep(self.time).await;
            Some(Ok(Bytes::from_static(b"x")))
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Kind {
        Events,
        Lines,
        Chunks,
    }

    /// What a reader gets of a feed of a server that closes: an error if it is broken off.
    async fn read(kind: Kind, feed: Slow) -> Result<String, axum::Error> {
        let closing = watch::Sender::new(true);
        let (heartbeat, retry) = (Duration::from_secs(15), Duration::from_secs(2));
        let policy = StreamPolicy { heartbeat, retry, closing: closing.subscribe() };
        let count = FollowerCount::new(&Arc::default(), None);
        let response = match kind {
            Kind::Events => event_stream(feed, &policy, count),
            Kind::Lines => plain_stream(feed, &policy, count, "text/plain"),
            Kind::Chunks => chunk_stream(feed, &policy, count),
        };
        let body = response.into_body().collect().await?;
        Ok(String::from_utf8(body.to_bytes().to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_stream_without_notices_a_part_is_not_taken_for_the_whole_when_the_server_closes() {
        for pieces in [0, 2] {
            for kind in [Kind::Lines, Kind::Chunks] {
                let cut = read(kind, Slow { pieces, time: LAST_WORDS / 2, ends: false }).await;
                assert!(cut.is_err(), "{kind:?} {cut:?}");
            }
            // Its reader knows the end by a notice, and comes back without one.
            let cut = read(Kind::Events, Slow { pieces, time: LAST_WORDS / 2, ends: false }).await.unwrap();
            assert_eq!(cut, format!("retry: 2000\n\n{}", "x".repeat(pieces as usize)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_while_the_server_closes_is_sent_to_its_end() {
        for (kind, whole) in [(Kind::Lines, "xxx"), (Kind::Chunks, "xxx"), (Kind::Events, "retry: 2000\n\nxxx")] {
            let feed = Slow { pieces: 3, time: LAST_WORDS / 2, ends: true };
            assert_eq!(read(kind, feed).await.unwrap(), whole, "{kind:?}");
        }
    }
}
