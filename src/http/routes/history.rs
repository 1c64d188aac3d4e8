//! What a chat UI loads: the transcript as messages, and the stream of the one answer that the transcript leaves out. A run
//! is in exactly one of the two.

use std::borrow::Cow;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::sessions::missing;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::http::app::SharedApp;
use crate::http::chat::{ChatFeed, FileAddresses, HistoryView, Pending, ui_messages};
use crate::http::describe::{ChatStream, InSession, UiMessage};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{Asked, OfSession};
use crate::http::stream::{Follower, FollowerCount, Waits, chunk_stream};
use crate::model::marker::{Retry, is_interrupted};
use crate::model::{AttachmentId, RunId, Session, SessionId};
use crate::store::{Store, StoreError};

/// For how long an answer that was interrupted is streamed to a client that comes back for it.
const INTERRUPTED_SECONDS_MAX: i64 = 120;

/// Messages of one page.
const MESSAGES_MAX: u32 = 10_000;

/// The run whose answer is streamed.
const RUN: HeaderName = HeaderName::from_static("lastword-run");
/// The run whose answer a history leaves out.
const LIVE_RUN: HeaderName = HeaderName::from_static("lastword-live-run");

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryAsked {
    /// Only messages before the one with this id.
    before: Option<String>,
    /// Only this number of messages, the last ones.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u32>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ResumeAsked {
    /// The run to stream, whatever its state. Without it, the one that the history leaves out.
    run: Option<String>,
}

/// The conversation as the AI SDK's messages. The answer that `GET /api/chat/{sid}/stream` streams is left out; the header
/// `Lastword-Live-Run` names its run. A chat that has not begun yet has no messages.
#[utoipa::path(
    get, path = "/api/chat/{sid}/messages", operation_id = "chat_messages", tag = "chat", params(InSession, HistoryAsked),
    responses(
        (status = 200, description = "The messages, the oldest first.", body = Vec<UiMessage>,
         headers(("lastword-live-run" = String, description = "The run whose answer is streamed instead, if there is one."))),
        (status = "4XX", description = "Refused.", content((String = "text/plain"), (ErrorBody = "application/json"))),
        (status = "5XX", description = "Failed.", content((String = "text/plain"), (ErrorBody = "application/json"))),
    )
)]
pub(super) async fn messages(
    State(app): State<SharedApp>,
    OfSession(session): OfSession,
    Asked(asked): Asked<HistoryAsked>,
) -> Result<Response, ApiError> {
    if asked.limit.is_some_and(|limit| !(1..=MESSAGES_MAX).contains(&limit)) {
        return Err(ApiError::invalid(format!("limit is a number from 1 to {MESSAGES_MAX}")));
    }
    let is_newest = asked.before.is_none();
    let files = FileAddresses::of(&app.options.base_path, &session);
    let history = app.document(&session, move |store, id| read_history(store, id, files, &asked)).await??;
    if let Some(run) = history.live.as_ref().filter(|_| is_newest) {
        app.left_out.note(&session, run);
    }
    let mut response = app.answers.body(history.json.into())?.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let live = history.live.and_then(|run| HeaderValue::from_str(run.as_str()).ok());
    live.into_iter().for_each(|run| drop(headers.insert(LIVE_RUN, run)));
    Ok(response)
}

/// A page of the conversation, and the run whose answer is not in it.
struct History {
    json: String,
    live: Option<RunId>,
}

fn read_history(
    store: &Store,
    session: &SessionId,
    files: FileAddresses,
    asked: &HistoryAsked,
) -> Result<History, ApiError> {
    let session = match store.get_session(session) {
        Err(StoreError::NotFound { .. }) => return Ok(History { json: "[]".to_owned(), live: None }),
        session => session.map_err(missing)?,
    };
    let turn = session.pending_turn();
    let active = session.active_run().and_then(|run| RunId::parse(&run).ok());
    let note = active.as_ref().map(|run| store.turn_note(session.id(), run)).transpose()?.flatten();
    let pending = turn.as_ref().zip(active.as_ref());
    let pending = pending.map(|(turn, run)| Pending { run, turn, note: note.as_ref() });
    let live = streamed(store, session.id(), active.as_ref(), || just_interrupted(&session, SystemClock.now()))?;
    let large = |id: &AttachmentId| store.attachment_bytes(session.id(), id).ok().flatten();
    let view = HistoryView { session: &session, files: &files, pending, left_out: live.as_ref(), large: &large };
    let messages = ui_messages(&view, asked.before.as_deref(), asked.limit.map(|limit| limit as usize));
    Ok(History { json: format!("[{}]", messages.join(",")), live })
}

/// Streams the answer that the history leaves out, from its first event: the one that is live, or was interrupted at most
/// 120 s ago, or has ended since a history left it out at most 10 s ago. With `run`, the answer of that run.
#[utoipa::path(
    get, path = "/api/chat/{sid}/stream", operation_id = "resume_chat", tag = "chat", params(InSession, ResumeAsked),
    responses(
        (status = 200, description = "The UI message stream.", content_type = "text/event-stream", body = ChatStream,
         headers(("lastword-run" = String, description = "The run that is streamed."))),
        (status = 204, description = "The history has all of it."),
        (status = 404, description = "There is no such run.", content((String = "text/plain"), (ErrorBody = "application/json"))),
        (status = "4XX", description = "Refused.", content((String = "text/plain"), (ErrorBody = "application/json"))),
        (status = "5XX", description = "Failed.", content((String = "text/plain"), (ErrorBody = "application/json"))),
    )
)]
pub(super) async fn resume(
    State(app): State<SharedApp>,
    OfSession(session): OfSession,
    Asked(asked): Asked<ResumeAsked>,
) -> Result<Response, ApiError> {
    let run = match asked.run {
        Some(run) => Some(app.document(&session, move |store, id| known_run(store, id, &run)).await??),
        None => {
            let live = app.document(&session, live_run).await??;
            live.iter().for_each(|run| app.left_out.forget(&session, run));
            live.or_else(|| app.left_out.take(&session))
        }
    };
    match run {
        Some(run) => stream(&app, &session, &run, app.count_follower()?).await,
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// Streams the answer of a run from its first event.
pub(super) async fn stream(
    app: &SharedApp,
    session: &SessionId,
    run: &RunId,
    count: FollowerCount,
) -> Result<Response, ApiError> {
    let of = run.clone();
    let began_at = app.document(session, move |store, id| store.run_began_at(id, &of)).await??;
    let follower = Follower::new(&app.hub, app.hub.tail(session, run), 0, Waits::ForMore);
    let mut response =
        chunk_stream(ChatFeed::new(follower, &app.options.base_path).with_began_at(began_at), &app.policy, count);
    let run = HeaderValue::from_str(run.as_str()).ok();
    run.into_iter().for_each(|run| drop(response.headers_mut().insert(RUN, run)));
    Ok(response)
}

fn known_run(store: &Store, session: &SessionId, run: &str) -> Result<RunId, ApiError> {
    let run = RunId::parse(run).map_err(|_| ApiError::no_run())?;
    match store.has_run(session, &run)? {
        true => Ok(run),
        false => Err(ApiError::no_run()),
    }
}

/// The run that is streamed. A chat that has not begun yet has none.
fn live_run(store: &Store, session: &SessionId) -> Result<Option<RunId>, ApiError> {
    let metadata = match store.metadata(session) {
        Err(StoreError::NotFound { .. }) => return Ok(None),
        metadata => metadata.map_err(missing)?,
    };
    match metadata.active_run() {
        Some(run) => streamed(store, session, RunId::parse(&run).ok().as_ref(), || None),
        None => {
            let read = store.get_session(session)?;
            streamed(store, session, None, || just_interrupted(&read, SystemClock.now()))
        }
    }
}

/// The one rule of what is streamed and not in the history: the run that the session waits for, else one that was just
/// interrupted, if its journal is there.
fn streamed(
    store: &Store,
    session: &SessionId,
    active: Option<&RunId>,
    interrupted: impl FnOnce() -> Option<RunId>,
) -> Result<Option<RunId>, ApiError> {
    match active.cloned().or_else(interrupted) {
        Some(run) if store.has_run(session, &run)? => Ok(Some(run)),
        _ => Ok(None),
    }
}

/// The run whose interruption is the last thing that the transcript says, if that was a moment ago. Another reader has had
/// it resolved; this one still has half of it.
fn just_interrupted(session: &Session, now: Timestamp) -> Option<RunId> {
    let last = session.messages().next_back().filter(is_interrupted)?;
    let is_stopped = last.fields().text("interruption_cause").as_deref() == Some("stopped_by_user");
    let age = now.whole_seconds() - last.timestamp()?;
    let run = Retry::of(&last).map(|retry| retry.run).or_else(|| last.run().map(Cow::into_owned))?;
    let is_recent = (0..=INTERRUPTED_SECONDS_MAX).contains(&age);
    RunId::parse(&run).ok().filter(|_| is_recent && !is_stopped)
}
