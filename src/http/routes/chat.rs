//! The AI SDK's chat: a turn is begun and its answer streamed, and an answer that was cut is streamed again from its start.

use std::borrow::Cow;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::runs::{expect_runner, start};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::http::app::SharedApp;
use crate::http::chat::{ChatFeed, ChatRequest, InvalidChat};
use crate::http::describe::{ChatBody, InSession, StreamEvent};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{OfSession, expect_json, read_body};
use crate::http::stream::{Follower, FollowerCount, Waits, chunk_stream};
use crate::model::marker::{Retry, is_interrupted};
use crate::model::{RunId, Session, SessionId};
use crate::store::{NewSession, Replaces, Store, StoreError, UserTurn};

/// For how long an answer that was interrupted is streamed to whoever comes back for it.
const INTERRUPTED_SECONDS_MAX: i64 = 120;

/// Characters of a title that is made of the first message.
const TITLE_CHARS_MAX: usize = 60;

/// Answers the user's last message with a runner of the server, in the session that has the chat's id, which is created
/// if it is not there. Whoever leaves stops nothing.
#[utoipa::path(
    post, path = "/api/chat", operation_id = "chat", tag = "chat", request_body = ChatBody,
    responses(
        (status = 200, description = "The UI message stream.", content_type = "text/event-stream", body = StreamEvent),
        (status = 400, description = "It cannot be answered.", body = ErrorBody),
        (status = 409, description = "Another answer has not ended.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn begin(State(app): State<SharedApp>, request: Request) -> Result<Response, ApiError> {
    expect_json(request.headers())?;
    let body = read_body(request, &app).await?;
    let asked = app.desk.parse(body, parse).await??;
    let session = SessionId::parse(&asked.session).map_err(StoreError::from)?;
    if app.is_draining() {
        return Err(ApiError::draining());
    }
    expect_runner(&app, asked.runner.as_deref())?;
    // Before anything is begun that could not be streamed.
    let count = app.count_follower()?;
    let (store, id, message) = (app.store.clone(), session.clone(), asked.message.clone());
    app.desk.document(move || create_missing(&store, &id, &message)).await??;
    let replaces = asked.is_regenerate.then_some(Replaces::LastAnswer);
    let turn = UserTurn { attachments: asked.attachments, replaces, ..UserTurn::text(&asked.message) };
    let run = start(&app, &session, turn, asked.runner.as_deref()).await?;
    tracing::info!(%session, %run, "a run has begun for a chat");
    Ok(stream(&app, &session, &run, count))
}

fn parse(body: &[u8]) -> Result<ChatRequest, ApiError> {
    let text = std::str::from_utf8(body).map_err(|cause| ApiError::invalid(cause.to_string()))?;
    ChatRequest::parse(text).map_err(refusal)
}

fn refusal(error: InvalidChat) -> ApiError {
    match error.is_too_large() {
        true => ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string()),
        false => ApiError::invalid(error.to_string()),
    }
}

/// Streams the run that is answering in this session, from its first event. One that was interrupted is ended first.
#[utoipa::path(
    get, path = "/api/chat/{sid}/stream", operation_id = "resume_chat", tag = "chat", params(InSession),
    responses(
        (status = 200, description = "The UI message stream.", content_type = "text/event-stream", body = StreamEvent),
        (status = 204, description = "Nothing is being answered."),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn resume(State(app): State<SharedApp>, OfSession(session): OfSession) -> Result<Response, ApiError> {
    let (store, id) = (app.store.clone(), session.clone());
    let live = app.desk.document(move || live_run(&store, &id)).await??;
    Ok(match live {
        Some(run) => stream(&app, &session, &run, app.count_follower()?),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

/// The run that a session waits for, or one that was interrupted a moment ago. A chat that nobody has begun yet has none.
fn live_run(store: &Store, session: &SessionId) -> Result<Option<RunId>, ApiError> {
    let metadata = match store.metadata(session) {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        metadata => metadata?,
    };
    let run = match metadata.active_run() {
        Some(run) => RunId::parse(&run).ok(),
        None => just_interrupted(&*store.get_session(session)?, SystemClock.now()),
    };
    match run {
        Some(run) if store.has_run(session, &run)? => Ok(Some(run)),
        _ => Ok(None),
    }
}

/// The run whose interruption is the last thing that the transcript says, if that was a moment ago. Whoever else came
/// back first has had it resolved; this reader still has half of it.
fn just_interrupted(session: &Session, now: Timestamp) -> Option<RunId> {
    let last = session.messages().next_back().filter(is_interrupted)?;
    let is_stopped = last.fields().text("interruption_cause").as_deref() == Some("stopped_by_user");
    let age = now.whole_seconds() - last.timestamp()?;
    let run = Retry::of(&last).map(|retry| retry.run).or_else(|| last.run().map(Cow::into_owned))?;
    let is_recent = (0..=INTERRUPTED_SECONDS_MAX).contains(&age);
    RunId::parse(&run).ok().filter(|_| is_recent && !is_stopped)
}

fn stream(app: &SharedApp, session: &SessionId, run: &RunId, count: FollowerCount) -> Response {
    let follower = Follower::new(&app.hub, app.hub.tail(session, run), 0, Waits::ForMore);
    chunk_stream(ChatFeed::new(follower), &app.manners, count)
}

/// A chat that is new to the server is a new session.
fn create_missing(store: &Store, session: &SessionId, message: &str) -> Result<(), ApiError> {
    match store.metadata(session) {
        Ok(_) => Ok(()),
        Err(StoreError::NotFound { .. }) => {
            match store.create(NewSession::titled(&title_of(message)).with_id(session.clone())) {
                // Somebody else was faster.
                Ok(_) | Err(StoreError::Exists { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// The first words of a message, on one line.
fn title_of(message: &str) -> String {
    let words: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(TITLE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", words[..end].trim_end()),
        None => words,
    }
}
