//! Runs: begun with a runner of the server or by a producer outside, and stopped.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::attachments::Attached;
use super::sessions::missing;
use crate::http::app::{App, SharedApp};
use crate::http::describe::{Attachment, InRun, InSession};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{OfRun, OfSession, Sent};
use crate::limits::LEASE_SECONDS_MAX;
use crate::model::{RunId, SessionId};
use crate::run::StartError;
use crate::store::{StoreError, UserTurn};

/// What the runner is called that the server is configured to ask where nobody is named.
const USUAL_RUNNER: &str = "default";

/// What the user says, and who is to answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRun)]
pub(super) struct Turn {
    /// The message. Only one with attachments may be blank.
    #[schema(min_length = 1, pattern = "\\S")]
    message: String,
    /// The run's id; a fresh one if none is given.
    #[schema(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")]
    run_id: Option<String>,
    /// The runner of the server that answers, or `default`; one that it does not know is refused. Without one the caller
    /// appends the events.
    runner: Option<String>,
    /// For how long the caller counts as alive after its last append; 30 unless said. Refused with a runner.
    #[schema(minimum = 1, maximum = 86400)]
    lease_seconds: Option<f64>,
    /// What was attached to the message. The bytes of a `data:` URL are stored beside the session, and what an upload
    /// answered can be given as it is.
    #[schema(value_type = Option<Vec<Attachment>>)]
    attachments: Option<Box<RawValue>>,
}

/// A run that has begun.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunBegun)]
pub(super) struct Begun {
    run_id: String,
}

/// A run that has ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunStopped)]
pub(super) struct Stopped {
    run_id: String,
    /// Whether this ended it; it had ended before if not.
    stopped: bool,
}

/// Begins a turn. The message is durable when this answers.
#[utoipa::path(
    post, path = "/v1/sessions/{sid}/runs", operation_id = "begin_run", tag = "runs", request_body = Turn,
    params(InSession),
    responses(
        (status = 202, description = "It has begun.", body = Begun,
         headers(("location" = String, description = "The path of its events.")),
         links(
            ("append" = (operation_id = "append_events", parameters(("sid" = "$request.path.sid"), ("rid" = "$response.body#/run_id")))),
            ("read" = (operation_id = "read_events", parameters(("sid" = "$request.path.sid"), ("rid" = "$response.body#/run_id")))),
            ("stop" = (operation_id = "stop_run", parameters(("sid" = "$request.path.sid"), ("rid" = "$response.body#/run_id")))),
            ("follow" = (operation_id = "follow_session", parameters(("sid" = "$request.path.sid")))),
            ("resume" = (operation_id = "resume_chat", parameters(("sid" = "$request.path.sid")))),
         )),
        (status = 400, description = "It cannot be begun like this.", body = ErrorBody),
        (status = 404, description = "There is no such session.", body = ErrorBody),
        (status = 409, description = "Another run has not ended, or the id was used before.", body = ErrorBody),
        (status = 503, description = "The server is shutting down.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn begin(
    State(app): State<SharedApp>,
    OfSession(session): OfSession,
    Sent(turn): Sent<Turn>,
) -> Result<Response, ApiError> {
    let runner = turn.runner.clone();
    expect_runner(&app, runner.as_deref())?;
    let turn = attach(&app, &session, turn.into_turn(&app)?).await?;
    let asked = (turn.run.clone(), turn.words()?.to_owned());
    let begun = match &runner {
        Some(runner) => start(&app, &session, turn, Some(runner)).await,
        None => begin_outside(&app, &session, turn).await,
    };
    let run = match begun {
        Err(refusal) if refusal.is("run_in_progress") => repeated(&app, &session, asked).await?.ok_or(refusal)?,
        begun => begun?,
    };
    tracing::info!(%session, %run, runner = runner.as_deref().unwrap_or("outside"), "a run has begun");
    let location = format!("/v1/sessions/{session}/runs/{run}/events");
    let location = HeaderValue::from_str(&location).map_err(|cause| ApiError::broken(cause.to_string()))?;
    let begun = Json(Begun { run_id: run.to_string() });
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], begun).into_response())
}

impl Turn {
    fn into_turn(self, app: &App) -> Result<UserTurn, ApiError> {
        let run = self.run_id.as_deref().map(RunId::parse).transpose().map_err(StoreError::from)?;
        let attachments = self.attachments.map(|list| list.get().to_owned()).unwrap_or_default();
        let lease_seconds = match (&self.runner, self.lease_seconds) {
            (Some(_), Some(_)) => {
                return Err(ApiError::invalid("a runner needs no lease_seconds: leave one of them out"));
            }
            (Some(_), None) => None,
            (None, Some(seconds)) if (1.0..=LEASE_SECONDS_MAX).contains(&seconds) => Some(seconds),
            (None, Some(_)) => {
                return Err(ApiError::invalid(format!("lease_seconds is a number from 1 to {LEASE_SECONDS_MAX}")));
            }
            (None, None) => Some(app.options.lease.as_secs_f64()),
        };
        Ok(UserTurn { message: self.message, run, attachments, lease_seconds, ..UserTurn::default() })
    }
}

/// Stores what is attached to a turn, which names it by reference then.
async fn attach(app: &App, session: &SessionId, turn: UserTurn) -> Result<UserTurn, ApiError> {
    if turn.attachments.is_empty() {
        return Ok(turn);
    }
    let attached = app.document(session, move |store, session| {
        store.metadata(session).map_err(missing)?;
        let attached = Attached::parse(&turn.attachments, session)?.check(store, session)?;
        let attachments = attached.json().to_owned();
        attached.store(store, session)?;
        Ok(UserTurn { attachments, ..turn })
    });
    attached.await?
}

/// The run that was begun before with the same id and the same message, by somebody who did not hear of it.
async fn repeated(
    app: &App,
    session: &SessionId,
    (run, message): (Option<RunId>, String),
) -> Result<Option<RunId>, ApiError> {
    let metadata = app.document(session, |store, session| store.metadata(session)).await?.map_err(missing)?;
    let is_same = |run: &RunId| {
        metadata.active_run().as_deref() == Some(run.as_str())
            && metadata.pending_turn().is_some_and(|pending| pending.message == message)
    };
    Ok(run.filter(is_same))
}

fn is_configured(app: &App, runner: &str) -> bool {
    app.supervisor.runners().names().any(|known| known == runner)
}

/// Refuses a name that no runner has. A caller who cannot know the names asks for whoever usually answers.
pub(super) fn expect_runner(app: &App, runner: Option<&str>) -> Result<(), ApiError> {
    match runner.filter(|name| *name != USUAL_RUNNER && !is_configured(app, name)) {
        None => Ok(()),
        Some(name) => {
            let known = app.supervisor.runners().names().collect::<Vec<_>>().join(", ");
            Err(StartError::UnknownRunner { name: name.to_owned(), known }.into())
        }
    }
}

/// Lets a runner of the server answer.
pub(super) async fn start(
    app: &App,
    session: &SessionId,
    turn: UserTurn,
    runner: Option<&str>,
) -> Result<RunId, ApiError> {
    let runner = runner.filter(|name| *name != USUAL_RUNNER || is_configured(app, name));
    match app.supervisor.start(session, turn, runner).await {
        Ok(started) => Ok(started.run().clone()),
        Err(StartError::Store(error)) => Err(missing(error)),
        Err(error) => Err(error.into()),
    }
}

async fn begin_outside(app: &App, session: &SessionId, turn: UserTurn) -> Result<RunId, ApiError> {
    if app.is_draining() {
        return Err(ApiError::draining());
    }
    let run = app.document(session, move |store, session| store.begin_run(session, turn)).await?.map_err(missing)?;
    app.producers.add(&run);
    Ok(run.id().clone())
}

/// Stops a run, whoever produces it. What had arrived is kept.
#[utoipa::path(
    post, path = "/v1/sessions/{sid}/runs/{rid}/stop", operation_id = "stop_run", tag = "runs",
    params(InRun),
    responses(
        (status = 200, description = "It has ended.", body = Stopped),
        (status = 404, description = "There is no such run.", body = ErrorBody),
        (status = 409, description = "It can no longer be ended.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn stop(State(app): State<SharedApp>, OfRun(session, run): OfRun) -> Result<Json<Stopped>, ApiError> {
    app.document(&session, |store, id| store.metadata(id)).await?.map_err(missing)?;
    let stopped = match app.supervisor.stop(&session, &run).await {
        Err(StoreError::RunNotFound { .. }) => return Err(ApiError::no_run()),
        stopped => stopped?,
    };
    app.producers.forget(&session, &run);
    tracing::info!(%session, %run, stopped, "a run was asked to stop");
    Ok(Json(Stopped { run_id: run.to_string(), stopped }))
}
