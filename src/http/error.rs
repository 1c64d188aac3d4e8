//! How the server says no: one place where what went wrong meets a status.

use std::borrow::Cow;
use std::error::Error;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::run::StartError;
use crate::storage::StorageError;
use crate::store::StoreError;

/// The body of every answer that says no.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErrorBody {
    error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErrorDetail {
    /// A word for programs, the same in every version.
    #[schema(example = "not_found")]
    code: Cow<'static, str>,
    /// A sentence for people: what was attempted, and what to do next.
    message: String,
    /// Where somebody gave numbers that do not fit: the number of the run's last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seq: Option<u64>,
}

/// A request that was refused, or failed.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: Cow<'static, str>,
    message: String,
    last_seq: Option<u64>,
    /// What only the log is told.
    detail: Option<String>,
}

/// The header that carries the code of an answer that is plain text.
const ERROR_CODE: HeaderName = HeaderName::from_static("lastword-error");

/// What a refusal said, beside its response, for [`as_plain_text`].
#[derive(Debug, Clone)]
struct Refusal {
    code: Cow<'static, str>,
    message: String,
}

/// The code of a stream for which there is no connection to spare.
const TOO_MANY_STREAMS: &str = "too_many_streams";
/// The code of a request whose body finds no room in memory.
const TOO_MANY_BODIES: &str = "too_many_bodies";
/// The code of a request whose body is encoded.
const UNSUPPORTED_ENCODING: &str = "unsupported_encoding";
/// The code of a connection, or of a request, whose client has as many as it may have.
const TOO_MANY_CONNECTIONS: &str = "too_many_connections";

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ApiError { status, code: Cow::Borrowed(code), message: message.into(), last_seq: None, detail: None }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_argument", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn no_session() -> Self {
        Self::not_found("there is no such session: GET /v1/sessions shows those that are there")
    }

    pub(super) fn no_run() -> Self {
        Self::not_found("there is no such run in this session: POST /v1/sessions/{sid}/runs begins one")
    }

    pub(super) fn no_branch() -> Self {
        Self::not_found(
            "there is no such branch in this session: GET /v1/sessions/{sid}/branches shows those that are there",
        )
    }

    pub(super) fn no_attachment() -> Self {
        let message = "there is no such attachment in this session: POST /v1/sessions/{sid}/attachments stores one";
        Self::not_found(message)
    }

    /// A message names an attachment that is not there.
    pub(super) fn unknown_attachment(id: &str) -> Self {
        let message =
            format!("there is no attachment {id} in this session: upload it before the message that names it");
        Self::new(StatusCode::BAD_REQUEST, "unknown_attachment", message)
    }

    /// A message names an attachment of another session.
    pub(super) fn foreign_attachment(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "unknown_attachment", message)
    }

    pub(super) fn no_revision() -> Self {
        let message = "say which revision is to be changed: send its ETag as If-Match, or * for any";
        Self::new(StatusCode::PRECONDITION_REQUIRED, "precondition_required", message)
    }

    pub(super) fn changed_meanwhile() -> Self {
        let message = "the session was changed since that revision: read it again and repeat the change";
        Self::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", message)
    }

    /// A body that would have to be decoded first.
    pub(super) fn unsupported_encoding() -> Self {
        let message = "the body is compressed or otherwise encoded: send it as it is, without Content-Encoding";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, UNSUPPORTED_ENCODING, message)
    }

    pub(super) fn draining() -> Self {
        let message = "the server is shutting down: try again when it is back";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "draining", message)
    }

    pub(super) fn too_many_streams() -> Self {
        let message = "the server has as many streams as its connections allow: try again in a moment";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_STREAMS, message)
    }

    /// The token of a request was removed while the request waited.
    pub(super) fn token_removed() -> Self {
        let message = "the token of this request was removed from the server's token file: use another one";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub(super) fn too_many_logins() -> Self {
        let message = "there were too many wrong logins in this second: try again in a moment";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_logins", message)
    }

    pub(super) fn too_many_answers() -> Self {
        let message = "the server has as many large answers on their way as its memory allows: try again in a moment, or ask \
                       for a part with `limit`";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_answers", message)
    }

    pub(super) fn too_many_messages() -> Self {
        let message = "too many messages to this chat wait for their turn: try again in a moment";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_messages", message)
    }

    /// One client has all of its places.
    pub(super) fn too_many_connections(who: &str) -> Self {
        let message = format!("{who}: end some of them, or try again in a moment");
        Self::new(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_CONNECTIONS, message)
    }

    /// All places of all clients are taken.
    pub(super) fn no_connection_left() -> Self {
        let message = "the server has as many connections as it may have: try again in a moment";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_CONNECTIONS, message)
    }

    pub(super) fn too_many_bodies() -> Self {
        let message = "the bodies of other requests take the memory that the server has for them: send it again in a \
                       moment, and large ones in parts";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_BODIES, message)
    }

    /// Events were expected to get numbers that others have, or that are not there to be gone on from.
    pub(super) fn seq_conflict(expected: u64, last_seq: u64) -> Self {
        let message = format!(
            "the first line was expected to become event {expected}, but the run's last event is {last_seq}, and \
             what lies between is not what was sent: read the run's events and go on behind them"
        );
        ApiError { last_seq: Some(last_seq), ..Self::new(StatusCode::CONFLICT, "seq_conflict", message) }
    }

    /// Somebody wants to go on behind an event that is not there.
    pub(super) fn ahead(after_seq: u64, last_seq: u64) -> Self {
        let message =
            format!("there is no event {after_seq} in this run, whose last is {last_seq}: begin again without `after`");
        Self::new(StatusCode::BAD_REQUEST, "ahead", message).behind(last_seq)
    }

    /// The same, with the number of the run's last event.
    pub(super) fn behind(self, last_seq: u64) -> Self {
        ApiError { last_seq: Some(last_seq), ..self }
    }

    /// Something broke that the caller can do nothing about.
    pub(super) fn broken(detail: impl Into<String>) -> Self {
        let message = "the server failed to do this: its log says why, under this answer's x-request-id";
        let detail = Some(detail.into());
        ApiError { detail, ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message) }
    }

    /// Its status, and its body as JSON, for an answer that is written by hand.
    pub(super) fn status_and_body(&self) -> (StatusCode, Vec<u8>) {
        let detail = ErrorDetail { code: self.code.clone(), message: self.message.clone(), last_seq: self.last_seq };
        (self.status, serde_json::to_vec(&ErrorBody { error: detail }).expect("texts and numbers are JSON"))
    }

    /// Whether this is its code.
    pub(super) fn is(&self, code: &str) -> bool {
        self.code == code
    }

    fn of_store(error: &StoreError) -> Self {
        let code = error.code();
        let status = status_of(code);
        let detail = Some(with_causes(error)).filter(|_| status.is_server_error());
        // Files have names that are nobody's business.
        let message = match error.storage() {
            Some(StorageError::Fenced { .. }) | None => with_causes(error),
            Some(cause) => said_of(code, cause),
        };
        ApiError { status, code: Cow::Borrowed(code), message, last_seq: None, detail }
    }
}

/// The status that goes with a code of the store.
fn status_of(code: &str) -> StatusCode {
    match code {
        "not_found" => StatusCode::NOT_FOUND,
        "too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        "invalid_argument" | "unknown_message" => StatusCode::BAD_REQUEST,
        "exists" | "run_in_progress" | "refused" | "sealed" | "conflict" | "deleted" | "fenced" | "wrong_shape" => {
            StatusCode::CONFLICT
        }
        "busy" | "read_only" | "stopped" | "too_many_open_files" | "withheld" => StatusCode::SERVICE_UNAVAILABLE,
        "no_space" => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What a caller is told of a disk that failed.
fn said_of(code: &str, cause: &StorageError) -> String {
    match code {
        "no_space" => "the server's disk is full: nothing was lost, try again when there is room".to_owned(),
        "stopped" => stopped_because(cause).to_owned(),
        "read_only" | "busy" => "the server may only read at the moment: try again later".to_owned(),
        "too_many_open_files" => "the server has too many files open: try again in a moment".to_owned(),
        "withheld" => {
            "the server cannot write this run's journal: its operator finds the reason in /v1/check".to_owned()
        }
        _ => "the server's disk failed: its log says why, under this answer's x-request-id".to_owned(),
    }
}

fn stopped_because(cause: &StorageError) -> &'static str {
    match cause {
        StorageError::Stopped { source } if matches!(**source, StorageError::LockLost { .. }) => {
            "the store writes nothing since its lock was lost: end the other process that writes there, then restart the server"
        }
        StorageError::Stopped { source } if matches!(**source, StorageError::Panicked { .. }) => {
            "the store writes nothing since a commit panicked: restart the server, which recovers"
        }
        _ => "the store writes nothing since a sync failed: restart the server, which recovers",
    }
}

pub(super) fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        message.push_str(&format!(": {next}"));
        cause = next.source();
    }
    message
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::of_store(&error)
    }
}

impl From<StorageError> for ApiError {
    fn from(error: StorageError) -> Self {
        Self::of_store(&StoreError::from(error))
    }
}

impl From<StartError> for ApiError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::UnknownRunner { .. } => Self::new(StatusCode::BAD_REQUEST, "unknown_runner", error.to_string()),
            StartError::Draining => Self::draining(),
            StartError::Store(error) => error.into(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if let Some(detail) = &self.detail {
            tracing::error!(code = %self.code, detail, "a request failed");
        }
        let is_crowded = [TOO_MANY_STREAMS, TOO_MANY_BODIES].iter().any(|code| self.is(code));
        let is_encoded = self.is(UNSUPPORTED_ENCODING);
        let refusal = Refusal { code: self.code.clone(), message: self.message.clone() };
        let body = ErrorBody { error: ErrorDetail { code: self.code, message: self.message, last_seq: self.last_seq } };
        let mut response = (self.status, axum::Json(body)).into_response();
        response.extensions_mut().insert(refusal);
        let headers = response.headers_mut();
        if is_crowded {
            // The connection makes room for another.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if is_encoded {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"lastword\""));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
            }
            _ => {}
        }
        response
    }
}

/// A refusal as the AI SDK shows it, whose clients take the body for the message: plain text, the code in a header. A client
/// that accepts JSON gets the object all the same. Other responses stay as they are.
pub(super) fn as_plain_text(mut response: Response, accepts_json: bool) -> Response {
    let Some(refusal) = response.extensions_mut().remove::<Refusal>() else { return response };
    if let Ok(code) = HeaderValue::from_str(&refusal.code) {
        response.headers_mut().insert(ERROR_CODE, code);
    }
    if accepts_json {
        return response;
    }
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Response::from_parts(parts, axum::body::Body::from(refusal.message))
}

/// Whether `Accept` names JSON. `*/*` does not.
pub(super) fn accepts_json(headers: &HeaderMap) -> bool {
    let ranges = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    ranges.flat_map(|ranges| ranges.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
        is_json && !parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}
