//! An answer that is no answer: which status means what, and when to ask again.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use super::chunk::ErrorWords;
use super::key::Secrets;
use crate::clock::{Clock, SystemClock};
use crate::run::runner::{Failure, Retry};
use crate::run::sleep::within;

/// How much of a refusal is read.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// How long its words are waited for. What the status says is known without them.
const BODY_PATIENCE: Duration = Duration::from_secs(2);

/// How much of its words is passed on.
const MESSAGE_CHARS_MAX: usize = 500;

/// Words by which a server says that waiting will not help, whatever the status says.
const NO_USE: [&str; 3] = ["insufficient_quota", "billing_hard_limit_reached", "invalid_api_key"];

/// An answer that refuses a request.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    asked: Option<Duration>,
    body: String,
}

impl Refusal {
    /// Reads what a refusal says.
    pub(super) async fn read(mut response: Response) -> Self {
        let (status, asked) = (response.status(), asked_pause(response.headers(), SystemClock.now().seconds()));
        let mut body = Vec::new();
        within(BODY_PATIENCE, read_words(&mut response, &mut body)).await;
        Refusal { status, asked, body: String::from_utf8_lossy(&body).into_owned() }
    }

    /// Whether it refuses the request as such, and names this key of it.
    pub(super) fn is_about(&self, key: &str) -> bool {
        matches!(self.status.as_u16(), 400 | 422) && self.body.contains(key)
    }

    pub(super) fn failure(&self, secrets: &Secrets) -> Failure {
        refused(self.status, self.asked, &ErrorWords::of_body(&self.body).without(secrets))
    }
}

async fn read_words(response: &mut Response, body: &mut Vec<u8>) {
    while let Ok(Some(piece)) = response.chunk().await {
        let room = BODY_BYTES_MAX - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if body.len() == BODY_BYTES_MAX {
            break;
        }
    }
}

fn refused(status: StatusCode, asked: Option<Duration>, words: &ErrorWords) -> Failure {
    let (kind, hint) = match status.as_u16() {
        401 | 403 => ("unauthorized", "Look at the runner's key."),
        404 => ("not_found", "Look at the runner's address and model."),
        429 => ("rate_limited", "Please try again later."),
        500.. => ("backend_error", "Please try again."),
        _ => ("rejected", "Look at the runner's configuration, or try another message."),
    };
    let why: String = words.message.chars().take(MESSAGE_CHARS_MAX).collect();
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let pause = asked
        .filter(|asked| !asked.is_zero())
        .map(|asked| format!(" It asks for a pause of {} s.", asked.as_secs_f64()));
    let pause = pause.unwrap_or_default();
    let failure =
        Failure::new(kind, format!("The backend refused with status {}{why}.{pause} {hint}", status.as_u16()));
    let retry = match is_passing(status) && !NO_USE.contains(&words.code.as_str()) {
        true => Retry::After(asked),
        false => Retry::No,
    };
    Failure { retry, ..failure }.closed_by("refused").noting("status", status.as_u16().to_string())
}

/// An error in the middle of a stream.
pub(super) fn streamed_error(words: &ErrorWords) -> Failure {
    let why: String = words.message.chars().take(MESSAGE_CHARS_MAX).collect();
    let message =
        format!("The backend failed in the middle of its answer: {why} What had arrived is kept; please try again.");
    let failure = Failure::new("backend_error", message).closed_by("backend_error");
    if NO_USE.contains(&words.code.as_str()) { failure } else { failure.retryable() }
}

/// Whether a status says that the same request may be answered later.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 409 | 425 | 429 | 500 | 502 | 503 | 504 | 520..=529)
}

/// How long the server asks to wait: in milliseconds, in seconds, or until a date.
fn asked_pause(headers: &HeaderMap, now_seconds: f64) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok();
    if let Some(millis) = text("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(millis / 1_000.0).ok();
    }
    let asked = text(RETRY_AFTER.as_str())?;
    let seconds = number(asked).or_else(|| {
        let date = httpdate::parse_http_date(asked).ok()?;
        let date = date.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some((date.as_secs_f64() - now_seconds).max(0.0))
    });
    Duration::try_from_secs_f64(seconds?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn a_pause_is_asked_for_in_three_ways() {
        let asked = |name, value| asked_pause(&headers(name, value), 784_111_777.0);
        assert_eq!(asked("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(asked("retry-after-ms", "250"), Some(Duration::from_millis(250)));
        assert_eq!(asked("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(
            asked("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"),
            Some(Duration::ZERO),
            "a date that has passed"
        );
        for nonsense in ["soon", "-5", "NaN", "1e300"] {
            assert_eq!(asked("retry-after", nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_refusal_is_passing_or_final() {
        let retry = |status: u16, code: &str| {
            let words = ErrorWords { code: code.to_owned(), message: String::new() };
            refused(StatusCode::from_u16(status).unwrap(), None, &words).retry
        };
        for status in [408, 429, 500, 502, 503, 504, 529] {
            assert_eq!(retry(status, ""), Retry::After(None), "{status}");
        }
        for status in [300, 400, 401, 403, 404, 422, 501] {
            assert_eq!(retry(status, ""), Retry::No, "{status}");
        }
        assert_eq!(retry(429, "insufficient_quota"), Retry::No);
    }
}
