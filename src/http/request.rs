//! What requests carry, checked at the door: ids, queries, bodies. Whatever does not fit is told what would.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::app::SharedApp;
use super::body_budget::BodyPermit;
use super::body_reader::{BodyReader, Unread};
use super::chat::{BadBody, BodyScanner, ChatBody};
use super::error::ApiError;
use super::time::within;
use super::token::Caller;
use crate::limits::{CHAT_BODY_BYTES_MAX, CHAT_BODY_PACE_BYTES, JSON_DEPTH_MAX};
use crate::model::{AttachmentId, RunId, SessionId, nested_deeper_at};

/// The session that a path names. An id that breaks the rules names none.
#[derive(Debug)]
pub(super) struct OfSession(pub(super) SessionId);

/// The run that a path names, and its session.
#[derive(Debug)]
pub(super) struct OfRun(pub(super) SessionId, pub(super) RunId);

/// The attachment that a path names, and its session.
#[derive(Debug)]
pub(super) struct OfAttachment(pub(super) SessionId, pub(super) AttachmentId);

/// The branch that a path names, and its session.
#[derive(Debug)]
pub(super) struct OfBranch(pub(super) SessionId, pub(super) String);

impl FromRequestParts<SharedApp> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &SharedApp) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>().copied();
        caller.ok_or_else(|| ApiError::broken("a request came past the guard"))
    }
}

fn unreadable_path(_: PathRejection) -> ApiError {
    ApiError::not_found("there is nothing under this path: its ids cannot be read")
}

fn session_id(text: &str) -> Result<SessionId, ApiError> {
    SessionId::parse(text).map_err(|_| ApiError::no_session())
}

impl FromRequestParts<SharedApp> for OfSession {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self, ApiError> {
        let Path(id) = Path::<String>::from_request_parts(parts, app).await.map_err(unreadable_path)?;
        session_id(&id).map(OfSession)
    }
}

/// The session that a path names, and the id of something in it.
async fn in_session(parts: &mut Parts, app: &SharedApp) -> Result<(SessionId, String), ApiError> {
    let path = Path::<(String, String)>::from_request_parts(parts, app).await;
    let Path((session, id)) = path.map_err(unreadable_path)?;
    Ok((session_id(&session)?, id))
}

impl FromRequestParts<SharedApp> for OfRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self, ApiError> {
        let (session, run) = in_session(parts, app).await?;
        let run = RunId::parse(&run).map_err(|_| ApiError::no_run())?;
        Ok(OfRun(session, run))
    }
}

impl FromRequestParts<SharedApp> for OfAttachment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self, ApiError> {
        let (session, attachment) = in_session(parts, app).await?;
        let attachment = AttachmentId::parse(&attachment).map_err(|_| ApiError::no_attachment())?;
        Ok(OfAttachment(session, attachment))
    }
}

impl FromRequestParts<SharedApp> for OfBranch {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self, ApiError> {
        let (session, branch) = in_session(parts, app).await?;
        // A branch has the form of a run's id.
        RunId::parse(&branch).map_err(|_| ApiError::no_branch())?;
        Ok(OfBranch(session, branch))
    }
}

/// What stands behind the question mark.
#[derive(Debug)]
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<SharedApp> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &SharedApp) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, app).await {
            Ok(Query(asked)) => Ok(Asked(asked)),
            Err(rejection) => Err(ApiError::invalid(format!("the query cannot be used: {}", rejection.body_text()))),
        }
    }
}

/// A body that is JSON.
#[derive(Debug)]
pub(super) struct Sent<T>(pub(super) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<SharedApp> for Sent<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &SharedApp) -> Result<Self, ApiError> {
        expect_json(request.headers())?;
        let body = read_body(request, app).await?;
        app.blocking.parse(body, parse_json).await?.map(Sent)
    }
}

/// Reads JSON of bounded depth: values that are kept as text are not bounded by the parser.
pub(super) fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    if let Some(at) = nested_deeper_at(body, JSON_DEPTH_MAX) {
        let line = memchr::memchr_iter(b'\n', &body[..at]).count() + 1;
        return Err(ApiError::invalid(format!(
            "line {line} of the body is nested deeper than {JSON_DEPTH_MAX} levels: flatten it, or send the inner part as a text"
        )));
    }
    serde_json::from_slice(body).map_err(|cause| ApiError::invalid(format!("the body cannot be used: {cause}")))
}

/// A body of JSON lines.
#[derive(Debug)]
pub(super) struct SentLines(pub(super) Bytes);

impl FromRequest<SharedApp> for SentLines {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &SharedApp) -> Result<Self, ApiError> {
        expect_type(request.headers(), &["application/x-ndjson", "application/jsonl", "application/json"])?;
        read_body(request, app).await.map(SentLines)
    }
}

/// A body that is JSON, or does not say what it is.
pub(super) fn expect_json(headers: &HeaderMap) -> Result<(), ApiError> {
    expect_type(headers, &["application/json"])
}

/// A body that is a form, or does not say what it is.
pub(super) fn expect_form(headers: &HeaderMap) -> Result<(), ApiError> {
    expect_type(headers, &["application/x-www-form-urlencoded"])
}

/// The media type that a request gives its body; nothing if it is none, or none is given.
pub(super) fn media_type_of(headers: &HeaderMap) -> Option<String> {
    text_of(headers, &header::CONTENT_TYPE).and_then(super::chat::media_type)
}

/// A body of this type, or one that does not say what it is. A page of another site cannot send these without asking.
fn expect_type(headers: &HeaderMap, known: &[&str]) -> Result<(), ApiError> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let given = given.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match known.iter().any(|known| given.eq_ignore_ascii_case(known)) {
        true => Ok(()),
        false => {
            let message = format!("the body is not of a type that is taken here: send it as {}", known[0]);
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_type", message))
        }
    }
}

/// Reads a body, up to a bound in bytes and in time.
pub(super) async fn read_body(request: Request, app: &SharedApp) -> Result<Bytes, ApiError> {
    read_body_up_to(request, app, app.options.body_bytes_max).await
}

/// Reads a body of at most so many bytes, up to the same bound in time. Its bytes count in the budget of bodies until the
/// request and the work that it started are done.
pub(super) async fn read_body_up_to(request: Request, app: &SharedApp, limit: usize) -> Result<Bytes, ApiError> {
    let (patience, permit) = (app.options.body_timeout, permit_of_request(app));
    let body = BodyReader::new(request.into_body(), permit.clone());
    match within(patience, body.whole(limit)).await {
        Some(read) => read.map_err(|why| unread(why, &permit, limit)),
        None => Err(too_slow(patience)),
    }
}

/// Reads the body of a chat request as it arrives, and keeps its last message alone: up to the bound on bodies for that
/// message, and up to another bound for all of it.
pub(super) async fn read_chat(request: Request, app: &SharedApp) -> Result<ChatBody, ApiError> {
    let permit = permit_of_request(app);
    let mut body = BodyReader::new(request.into_body(), permit.clone());
    let mut scanner = BodyScanner::new(app.options.body_bytes_max);
    let mut left = CHAT_BODY_BYTES_MAX;
    while let Some(read) =
        within(app.options.body_timeout, read_piece(&mut body, &permit, &mut scanner, &mut left)).await
    {
        if read? {
            return scanner.finish().map_err(bad_body);
        }
    }
    Err(too_slow(app.options.body_timeout))
}

/// Reads as much of a body as must arrive within the time that a body may take. `true` at its end.
async fn read_piece(
    body: &mut BodyReader,
    permit: &BodyPermit,
    scanner: &mut BodyScanner,
    left: &mut u64,
) -> Result<bool, ApiError> {
    let refused = |why| unread(why, permit, CHAT_BODY_BYTES_MAX as usize);
    let mut read = 0;
    while read < CHAT_BODY_PACE_BYTES {
        let Some(bytes) = body.piece().await.map_err(refused)? else { return Ok(true) };
        read += bytes.len() as u64;
        *left = left.checked_sub(bytes.len() as u64).ok_or_else(|| refused(Unread::TooLarge))?;
        scanner.feed(&bytes).map_err(bad_body)?;
        permit.hold(scanner.held_bytes()).map_err(|full| refused(full.into()))?;
    }
    Ok(false)
}

/// The permit that the request's body grows in. A handler that is called without its router has one of its own.
fn permit_of_request(app: &SharedApp) -> Arc<BodyPermit> {
    BodyPermit::of_request().unwrap_or_else(|| BodyPermit::new(&app.bodies))
}

fn unread(why: Unread, permit: &BodyPermit, limit: usize) -> ApiError {
    match why {
        Unread::TooLarge => too_large(limit),
        Unread::Broken(cause) => ApiError::invalid(format!("the body did not arrive: {cause}")),
        Unread::NoRoom => {
            permit.note_refusal();
            ApiError::too_many_bodies()
        }
    }
}

fn bad_body(why: BadBody) -> ApiError {
    match why {
        BadBody::TooLarge { .. } => ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why.to_string()),
        _ => ApiError::invalid(why.to_string()),
    }
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("the body has more than {limit} bytes: send it in parts");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

fn too_slow(patience: Duration) -> ApiError {
    let message = format!("the body did not arrive within {} s: send it again", patience.as_secs_f64());
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
}

/// The text of a header, if it is there and is text.
pub(super) fn text_of<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
