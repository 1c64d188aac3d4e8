//! Compression of answers: gzip for JSON and text of a known size, never for streams, attachments and what is small.
//!
//! An attacker who sees the length of an encrypted answer and chooses a part of it could guess the rest (BREACH). No answer
//! that is compressed holds a token, and pages of other sites can ask for none.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::Body as _;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::answer_budget::AnswerBudget;
use super::app::SharedApp;
use super::blocking_pool::at;
use super::peers::keeping;
use crate::sync::processors;

/// Bytes of an answer that compression pays for.
const COMPRESSED_BYTES: std::ops::RangeInclusive<u64> = 1024..=64 * 1024 * 1024;

/// Answers that are compressed at the same time, at the most; further ones are sent as they are.
const AT_ONCE_MAX: usize = 4;

/// One for each processor, up to [`AT_ONCE_MAX`].
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(processors().min(AT_ONCE_MAX))));

/// Compresses the answer of a client that takes gzip. The ETag stays: it names the revision, which `If-Match` sends back.
pub(super) async fn compress(State(app): State<SharedApp>, request: Request, next: Next) -> Response {
    let is_wanted = request.method() != Method::HEAD && accepts_gzip(request.headers());
    let mut response = next.run(request).await;
    let is_unchanged = response.status() == StatusCode::NOT_MODIFIED;
    let is_compressible = is_compressible(&response);
    if is_compressible || is_unchanged {
        response.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if is_compressible && is_wanted { compressed(response, &app.answers).await } else { response }
}

/// Whether an answer is text of a known size that is worth compressing.
fn is_compressible(response: &Response) -> bool {
    let size = response.body().size_hint().exact();
    let headers = response.headers();
    let is_kept_as_it_is = [header::CONTENT_ENCODING, header::CONTENT_DISPOSITION, header::CONTENT_RANGE];
    size.is_some_and(|size| COMPRESSED_BYTES.contains(&size))
        && !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::PARTIAL_CONTENT)
        && !is_kept_as_it_is.iter().any(|name| headers.contains_key(name))
        && !headers.get(header::CACHE_CONTROL).is_some_and(|value| value.as_bytes().ends_with(b"no-transform"))
        && headers.get(header::CONTENT_TYPE).is_some_and(is_text)
}

/// JSON and text. Events and JSON lines come piece by piece.
fn is_text(content_type: &HeaderValue) -> bool {
    let kind = content_type.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    matches!(kind, "application/json" | "image/svg+xml") || (kind.starts_with("text/") && kind != "text/event-stream")
}

/// The answer in gzip; as it is if all places are taken, if it does not become smaller, or if memory has no room for both.
async fn compressed(response: Response, answers: &Arc<AnswerBudget>) -> Response {
    if PLACES.available_permits() == 0 {
        return response;
    }
    let (mut parts, mut body) = response.into_parts();
    // It is there as a whole, so nothing is waited for.
    let Ok(whole) = (&mut body).collect().await.map(|body| body.to_bytes()) else {
        return Response::from_parts(parts, body);
    };
    let source = whole.clone();
    let small = at(&PLACES, move || gzip(&source)).await.ok().flatten();
    match small.and_then(|small| answers.counted(small)) {
        Some(small) => {
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts.headers.remove(header::CONTENT_LENGTH);
            // The places that the request takes are kept by its first body.
            Response::from_parts(parts, keeping(Body::from(small), Mutex::new(body)))
        }
        None => Response::from_parts(parts, keeping(Body::from(whole), Mutex::new(body))),
    }
}

/// The bytes in gzip, if that has fewer.
fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).ok()?;
    let small = encoder.finish().ok()?;
    (small.len() < bytes.len()).then(|| Bytes::from(small))
}

/// Whether `Accept-Encoding` takes gzip: by its name, else by `*`, with a weight above 0, and not liked less than the answer
/// as it is. Without the header nothing is compressed.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let (coding, weight) = weighted(range);
        match coding.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => gzip = gzip.max(Some(weight)),
            "identity" => identity = identity.max(Some(weight)),
            "*" => any = any.max(Some(weight)),
            _ => {}
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && identity.is_none_or(|identity| identity <= gzip)
}

/// A coding, and its weight in thousandths. A weight that cannot be read is 0.
fn weighted(range: &str) -> (&str, u16) {
    let mut parts = range.split(';').map(str::trim);
    let coding = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    (coding, weight.map_or(1000, thousandths))
}

fn thousandths(weight: &str) -> u16 {
    let weight: f32 = weight.trim().parse().unwrap_or(0.0);
    if (0.0..=1.0).contains(&weight) { (weight * 1000.0).round() as u16 } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn gzip_is_sent_to_clients_that_take_it() {
        for (accepts, is_taken) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5, br", true),
            ("x-gzip", true),
            ("*", true),
            ("*;q=0.1", true),
            ("gzip, identity", true),
            ("gzip;q=0.001", true),
            ("br, gzip ; q=1.000", true),
            ("", false),
            ("br", false),
            ("identity", false),
            ("gzip;q=0", false),
            ("gzip;q=0.000, *", false),
            ("*;q=0", false),
            ("gzip;q=0.5, identity;q=0.8", false),
            ("gzip;q=nonsense", false),
            ("gzip;q=7", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(accepts))]);
            assert_eq!(accepts_gzip(&headers), is_taken, "{accepts}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn what_does_not_become_smaller_is_left_as_it_is() {
        let steps = std::iter::successors(Some(1_u64), |last| Some(last.wrapping_mul(6_364_136_223_846_793_005) + 1));
        let noise: Vec<u8> = steps.map(|number| (number >> 56) as u8).take(2_000).collect();
        assert_eq!(gzip(&noise), None);
        let text = "To the sea. ".repeat(1_000).into_bytes();
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(&gzip(&text).unwrap()[..]).read_to_end(&mut read).unwrap();
        assert_eq!(read, text);
    }

    fn answer(content_type: &'static str, bytes: usize) -> Response {
        let response = Response::builder().header(header::CONTENT_TYPE, content_type);
        response.body(Body::from(vec![b'x'; bytes])).unwrap()
    }

    #[test]
    fn only_text_of_a_known_size_is_compressed() {
        for (content_type, bytes, is_compressed) in [
            ("application/json", 1024, true),
            ("application/json", 1023, false),
            ("text/plain; charset=utf-8", 5_000, true),
            ("text/event-stream", 5_000, false),
            ("application/x-ndjson", 5_000, false),
            ("image/png", 5_000, false),
        ] {
            assert_eq!(is_compressible(&answer(content_type, bytes)), is_compressed, "{content_type} {bytes}");
        }
        for (name, value) in [
            (header::CONTENT_DISPOSITION, "attachment"),
            (header::CONTENT_ENCODING, "br"),
            (header::CACHE_CONTROL, "no-cache, no-transform"),
        ] {
            let mut response = answer("text/plain", 5_000);
            response.headers_mut().insert(name, HeaderValue::from_static(value));
            assert!(!is_compressible(&response), "{value}");
        }
        let stream = Body::from_stream(futures_util::stream::empty::<Result<Bytes, std::io::Error>>());
        assert!(!is_compressible(&answer("text/plain", 5_000).map(|_| stream)));
        let mut unchanged = answer("application/json", 5_000);
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        assert!(!is_compressible(&unchanged));
    }
}
