//! What is logged of a request: when it began to be answered, under which id, and how. Never what was said in it.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use tracing::Instrument;

use super::app::SharedApp;
use crate::clock::Stopwatch;
use crate::entropy::{SystemEntropy, uuid4};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Characters of a request's id that somebody else gave it.
const REQUEST_ID_CHARS_MAX: usize = 64;

/// Gives a request its id and takes note of its answer.
pub(super) async fn log(State(app): State<SharedApp>, request: Request, next: Next) -> Response {
    let watch = Stopwatch::start();
    let id = request_id(&request);
    let method = request.method().clone();
    // The template and not the path: who looks for a run finds it in the run's own log line.
    let route = request.extensions().get::<MatchedPath>().map_or("-", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", id = %id, %method, route);
    let mut response = next.run(request).instrument(span.clone()).await;
    let (status, took) = (response.status(), watch.elapsed());
    app.metrics.answered(status, took);
    span.in_scope(|| tracing::info!(status = status.as_u16(), took_ms = took.as_secs_f64() * 1e3, "answered"));
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    if status == StatusCode::NO_CONTENT {
        // A body of a known length would be announced to HEAD, which this status forbids.
        *response.body_mut() = Body::from_stream(futures_util::stream::empty::<Result<Bytes, Infallible>>());
    }
    response
}

/// The id that the request has, if it is a plain one; else a fresh one.
fn request_id(request: &Request) -> String {
    let is_plain = |id: &&str| {
        (1..=REQUEST_ID_CHARS_MAX).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    let given = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(is_plain);
    given.map_or_else(|| uuid4(&SystemEntropy), str::to_owned)
}
