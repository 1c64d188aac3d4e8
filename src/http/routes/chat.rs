//! The AI SDK's chat: a message begins a turn, replaces one, or is the repeat of one, and its answer is streamed.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use tracing::Instrument;

use super::attachments::Attached;
use super::history::stream;
use super::runs::{expect_runner, start};
use super::sessions::missing;
use crate::http::app::SharedApp;
use crate::http::body_budget::{BodyPermit, with_permit};
use crate::http::chat::{BadFile, ChatRequest, ChatTurn, InvalidChat, Known, RefusedTurn};
use crate::http::describe::{ChatRequestBody, ChatStream};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{expect_json, read_chat};
use crate::http::session_shares::Share;
use crate::model::{Row, RunId, Session, SessionId, title_of};
use crate::store::{NewSession, Replaces, Store, StoreError, UserTurn};

/// Answers the user's last message with a runner of the server, in the session that has the chat's id, which is created
/// if it is not there. A client that leaves stops nothing.
///
/// A message whose id the session knows is a repeat: its answer is streamed again from its start. With `messageId` it is an edit
/// that replaces the message of this id and what follows; `regenerate-message` gives a message another answer. What is
/// replaced stays until the new answer is complete, and is a branch then.
#[utoipa::path(
    post, path = "/api/chat", operation_id = "chat", tag = "chat", request_body = ChatRequestBody,
    responses(
        (status = 200, description = "The UI message stream.", content_type = "text/event-stream", body = ChatStream,
         headers(("lastword-run" = String, description = "The run that answers."))),
        (status = 400, description = "It cannot be answered.", content((String = "text/plain"), (ErrorBody = "application/json"))),
        (status = 409, description = "Another answer has not ended, or the message was sent before with other words.",
         content((String = "text/plain"), (ErrorBody = "application/json"))),
        (status = "4XX", description = "Refused.", content((String = "text/plain"), (ErrorBody = "application/json"))),
        (status = "5XX", description = "Failed.", content((String = "text/plain"), (ErrorBody = "application/json"))),
    )
)]
pub(super) async fn begin(State(app): State<SharedApp>, request: Request) -> Result<Response, ApiError> {
    expect_json(request.headers())?;
    let body = read_chat(request, &app).await?;
    let asked = app.blocking.sized(body.len(), move || ChatRequest::read(&body)).await?.map_err(refused_body)?;
    let session = SessionId::parse(&asked.session).map_err(StoreError::from)?;
    if app.is_draining() {
        return Err(ApiError::draining());
    }
    expect_runner(&app, asked.runner.as_deref())?;
    // Before anything is begun that could not be streamed.
    let count = app.count_follower()?;
    // To its end, also if the client leaves meanwhile: a repeat of the request sees all of it or nothing.
    let alone = app.chat_turn(&session).await?;
    let beginning = begin_or_repeat(app.clone(), session.clone(), asked, alone).in_current_span();
    let beginning = tokio::spawn(with_permit(beginning, BodyPermit::of_request()));
    let run = beginning.await.map_err(|broken| ApiError::broken(format!("a task broke: {broken}")))??;
    stream(&app, &session, &run, count).await
}

/// Gives the run that answers: a fresh one, or that of the turn that was begun before.
async fn begin_or_repeat(
    app: SharedApp,
    session: SessionId,
    asked: ChatRequest,
    _alone: Share,
) -> Result<RunId, ApiError> {
    let runner = asked.runner.clone();
    match app.document(&session, move |store, id| prepare(store, id, asked)).await?? {
        Prepared::Repeated(run) => Ok(run),
        Prepared::Turn(turn) => {
            let run = start(&app, &session, turn, runner.as_deref()).await?;
            tracing::info!(%session, %run, "a run has begun for a chat");
            Ok(run)
        }
    }
}

fn refused_body(error: InvalidChat) -> ApiError {
    match &error {
        error if error.is_too_large() => ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string()),
        InvalidChat::BadFile { why: BadFile::OtherSession, .. } => ApiError::foreign_attachment(error.to_string()),
        error => ApiError::invalid(error.to_string()),
    }
}

fn refused_turn(error: RefusedTurn) -> ApiError {
    match error {
        RefusedTurn::UnknownMessage { .. } => {
            ApiError::new(StatusCode::BAD_REQUEST, "unknown_message", error.to_string())
        }
        RefusedTurn::Conflict { .. } | RefusedTurn::NoRun { .. } => {
            ApiError::new(StatusCode::CONFLICT, "conflict", error.to_string())
        }
    }
}

/// What is left to be done: nothing but stream, or begin this turn.
enum Prepared {
    Repeated(RunId),
    Turn(UserTurn),
}

/// Compares a request with the session, and stores what came with it. A request that is refused here stores nothing; the
/// files of one that the session refuses, because another run has not ended, stay stored.
fn prepare(store: &Store, session: &SessionId, mut asked: ChatRequest) -> Result<Prepared, ApiError> {
    let known = known(store, session, &asked)?;
    let files = asked.message.as_mut().map(|message| std::mem::take(&mut message.files)).unwrap_or_default();
    let attached = Attached::files(files).check(store, session)?;
    refuse_id_of_run(store, session, &asked, &known)?;
    let turn = match asked.turn(&known, attached.json()).map_err(refused_turn)? {
        ChatTurn::Repeated(run) if store.has_run(session, &run)? => return Ok(Prepared::Repeated(run)),
        ChatTurn::Repeated(_) => {
            let id = asked.named().unwrap_or_default().to_owned();
            return Err(refused_turn(RefusedTurn::NoRun { id }));
        }
        ChatTurn::Begun { replaces, message_id } => {
            let (message, metadata) = asked.message.map(|message| (message.text, message.metadata)).unwrap_or_default();
            UserTurn {
                message,
                attachments: attached.json().to_owned(),
                message_id,
                metadata,
                replaces,
                ..UserTurn::default()
            }
        }
    };
    turn.check()?;
    if turn.replaces.is_none() {
        create_missing(store, session, &turn.message)?;
    }
    // An answer that is given again is one to the stored message, with the files of that.
    if !matches!(turn.replaces, Some(Replaces::Answer(_) | Replaces::LastAnswer)) {
        attached.store(store, session)?;
    }
    Ok(Prepared::Turn(turn))
}

/// A new message may not have the id of an answer, which is its run's.
fn refuse_id_of_run(store: &Store, session: &SessionId, asked: &ChatRequest, known: &Known) -> Result<(), ApiError> {
    let is_new = asked.message_id.is_none() && known.named.is_none();
    let id = asked.message.as_ref().and_then(|message| message.id.as_deref());
    let Some(run) = id.filter(|_| is_new).and_then(|id| RunId::parse(id).ok()) else { return Ok(()) };
    match store.has_run(session, &run)? {
        true => {
            let message = format!("{run} is the id of an answer of this chat: send the message with an id of its own");
            Err(ApiError::new(StatusCode::CONFLICT, "conflict", message))
        }
        false => Ok(()),
    }
}

/// What a session knows of what a request names. One that is not there knows nothing.
fn known(store: &Store, session: &SessionId, asked: &ChatRequest) -> Result<Known, ApiError> {
    let named = asked.named().map(|id| store.run_of_message(session, id)).transpose();
    let named = match named {
        Err(StoreError::NotFound { .. }) => return Ok(Known::default()),
        named => named.map_err(missing)?.flatten(),
    };
    let last_question = match (&named, &asked.message_id) {
        (None, None) => last_question(store, session)?,
        _ => None,
    };
    Ok(Known { named, last_question })
}

fn last_question(store: &Store, session: &SessionId) -> Result<Option<String>, ApiError> {
    let of = |session: &Session| {
        let question = session.messages().rev().find(Row::is_question);
        question.map(|row| row.content().into_owned())
    };
    match store.get_session(session) {
        Err(StoreError::NotFound { .. }) => Ok(None),
        session => Ok(of(&*session?)),
    }
}

/// A chat that is new to the server is a new session.
fn create_missing(store: &Store, session: &SessionId, message: &str) -> Result<(), ApiError> {
    match store.metadata(session) {
        Ok(_) => Ok(()),
        Err(StoreError::NotFound { .. }) => {
            match store.create(NewSession::titled(&title_of(message)).with_id(session.clone())) {
                // Another request was faster.
                Ok(_) | Err(StoreError::Exists { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}
