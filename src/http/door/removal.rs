//! What happens to open responses when the token that they were opened with is removed: they end.
//!
//! The guard does this for every response at once, so that no route has to think of it: server-sent events, JSON lines and
//! chat streams, opened by a bearer header, a cookie or a ticket.

use std::io;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt;
use tokio::sync::watch;

use super::handle::Door;
use crate::http::token::{Caller, Tokens};

type Watched = watch::Receiver<Arc<Tokens>>;

/// Waits until the token of a caller is removed.
pub(in crate::http) async fn removed(door: &Door, caller: Caller) {
    gone(&mut door.watch(), caller).await;
}

async fn gone(tokens: &mut Watched, caller: Caller) {
    if tokens.wait_for(|tokens| !tokens.still_has(caller)).await.is_err() {
        // The server is gone, and with it everything that could be removed.
        std::future::pending().await
    }
}

/// A response that ends when the token of its caller is removed. One whose length is known is sent as it is.
pub(in crate::http) fn ended_by_removal(door: &Door, caller: Caller, response: Response) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let breaks_off = !tells_its_end(response.headers());
    let (parts, body) = response.into_parts();
    let held = Held { body, tokens: door.watch(), caller, breaks_off };
    let pieces = stream::unfold(Some(held), |held| async move { held?.next().await });
    Response::from_parts(parts, Body::from_stream(pieces))
}

/// Whether a reader knows the end of this stream by a notice. In any other one, a part must not look like the whole.
fn tells_its_end(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    kind == Some(b"text/event-stream") && !headers.contains_key("x-vercel-ai-ui-message-stream")
}

struct Held {
    body: Body,
    tokens: Watched,
    caller: Caller,
    breaks_off: bool,
}

type Piece = Result<Bytes, axum::Error>;

impl Held {
    /// The next piece, and what comes after it.
    async fn next(mut self) -> Option<(Piece, Option<Self>)> {
        loop {
            let frame = tokio::select! {
                biased;
                () = gone(&mut self.tokens, self.caller) => return self.breaks_off.then(|| (broken_off(), None)),
                frame = self.body.frame() => frame?,
            };
            match frame.map(|frame| frame.into_data()) {
                Ok(Ok(bytes)) => return Some((Ok(bytes), Some(self))),
                // Our streams have no trailers.
                Ok(Err(_)) => {}
                Err(cause) => return Some((Err(cause), None)),
            }
        }
    }
}

fn broken_off() -> Piece {
    Err(axum::Error::new(io::Error::from(io::ErrorKind::ConnectionAborted)))
}
