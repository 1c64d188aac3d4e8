//! Runs: begun with a runner of the server or by a producer outside, appended to, stopped.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use utoipa::{IntoParams, ToSchema};

use super::sessions::missing;
use crate::clock::Stopwatch;
use crate::http::app::{App, SharedApp};
use crate::http::describe::{InRun, InSession, NewEvent};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{Asked, OfRun, OfSession, Sent, SentLines};
use crate::journal::{AppendError, Appended, ReadOptions};
use crate::limits::LEASE_SECONDS_MAX;
use crate::model::{Event, RunId, SessionId};
use crate::run::StartError;
use crate::storage::Durability;
use crate::store::{Outcome, Run, Store, StoreError, UserTurn};

/// What the runner is called that the server is configured to ask where nobody is named.
const USUAL_RUNNER: &str = "default";

/// What the user says, and who is to answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Turn {
    /// The message.
    #[schema(min_length = 1)]
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
    /// What was attached to the message.
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    attachments: Option<Box<RawValue>>,
}

/// A run that has begun.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Begun {
    run_id: String,
}

/// Events that were taken.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Taken {
    /// The number of the last of them; of the run's last event if there was none.
    last_seq: u64,
}

/// A run that has ended.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Stopped {
    run_id: String,
    /// Whether this ended it; it had ended before if not.
    stopped: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AppendAsked {
    /// How lasting the events are before this answers; as the server is configured if it is not said.
    #[param(inline)]
    durability: Option<Lasting>,
    /// The number that the first line is to get. The same lines with the same number are taken once.
    #[param(minimum = 0)]
    expect_seq: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Lasting {
    /// They survive the death of the server.
    Buffered,
    /// They survive a power cut.
    Durable,
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
    let turn = turn.into_turn(&app)?;
    let asked = (turn.run.clone(), turn.message.clone());
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

/// The run that was begun before with the same id and the same message, by somebody who did not hear of it.
async fn repeated(
    app: &App,
    session: &SessionId,
    (run, message): (Option<RunId>, String),
) -> Result<Option<RunId>, ApiError> {
    let (store, session) = (app.store.clone(), session.clone());
    let metadata = app.desk.document(move || store.metadata(&session)).await?.map_err(missing)?;
    let is_same = |run: &RunId| {
        metadata.active_run().as_deref() == Some(run.as_str())
            && metadata.pending_turn().is_some_and(|pending| pending.message == message)
    };
    Ok(run.filter(is_same))
}

/// Lets a runner of the server answer.
pub(super) async fn start(
    app: &App,
    session: &SessionId,
    turn: UserTurn,
    runner: Option<&str>,
) -> Result<RunId, ApiError> {
    // A caller who cannot know the names of this server's runners asks for whoever usually answers.
    let is_usual = |name: &&str| *name == USUAL_RUNNER && !app.supervisor.runners().names().any(|known| known == *name);
    let runner = runner.filter(|name| !is_usual(name));
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
    let (store, session) = (app.store.clone(), session.clone());
    let run = app.desk.document(move || store.begin_run(&session, turn)).await?.map_err(missing)?;
    app.producers.add(&run);
    Ok(run.id().clone())
}

/// Appends events, all of them or none; without any, says that the producer is alive.
#[utoipa::path(
    post, path = "/v1/sessions/{sid}/runs/{rid}/events", operation_id = "append_events", tag = "runs",
    request_body(content = Vec<NewEvent>, content_type = "application/x-ndjson",
                 description = "JSON lines: each item of the array is a line of its own."),
    params(InRun, AppendAsked),
    responses(
        (status = 200, description = "They were taken, as lasting as asked for.", body = Taken,
         links(
            ("read" = (operation_id = "read_events", parameters(("sid" = "$request.path.sid"), ("rid" = "$request.path.rid")))),
            ("append" = (operation_id = "append_events", parameters(("sid" = "$request.path.sid"), ("rid" = "$request.path.rid")))),
            ("stop" = (operation_id = "stop_run", parameters(("sid" = "$request.path.sid"), ("rid" = "$request.path.rid")))),
         )),
        (status = 400, description = "A line is no event.", body = ErrorBody),
        (status = 404, description = "There is no such run.", body = ErrorBody),
        (status = 409, description = "The run has ended, or has other events at these numbers.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn append(
    State(app): State<SharedApp>,
    OfRun(session, run): OfRun,
    Asked(asked): Asked<AppendAsked>,
    SentLines(body): SentLines,
) -> Result<Json<Taken>, ApiError> {
    let watch = Stopwatch::start();
    let durability = match asked.durability {
        None => app.store.durability(),
        Some(Lasting::Buffered) => Durability::Buffered,
        Some(Lasting::Durable) => Durability::Durable,
    };
    let events = parse_lines(&body)?;
    // It is held by whoever does the work: a caller who leaves meanwhile comes back with the same lines.
    let turn = app.producers.turn(&session, &run).await;
    let producer = app.producer(&session, &run).await?;
    let (store, handle) = (app.store.clone(), producer.clone());
    let taken = app.desk.line(move || {
        let taken = take(&store, &handle, &events, durability, asked.expect_seq);
        drop(turn);
        taken
    });
    let taken = taken.await?;
    if producer.is_sealed() || taken.is_err() {
        app.producers.forget(&session, &run);
    }
    if taken.as_ref().is_err_and(|error| error.is("fenced")) {
        // Perhaps because there is nothing left to append to.
        app.producer(&session, &run).await?;
    }
    app.hub.ring(&session, &run);
    let last_seq = settled(taken?).await?;
    app.metrics.appended(watch.elapsed());
    Ok(Json(Taken { last_seq }))
}

/// Events that are appended, and perhaps not yet as lasting as they should be.
enum Accepted {
    Now(Appended),
    /// They were there before.
    Before(u64),
}

fn parse_lines(body: &[u8]) -> Result<Vec<Event>, ApiError> {
    let bad = |at: usize, reason: &str| {
        ApiError::invalid(format!("line {} was not appended, and neither were the others: {reason}", at + 1))
    };
    let mut events = Vec::new();
    for (at, line) in body.split(|byte| *byte == b'\n').enumerate() {
        let text = std::str::from_utf8(line).map_err(|cause| bad(at, &cause.to_string()))?;
        if !text.trim().is_empty() {
            events.push(Event::parse(text).map_err(|cause| bad(at, &cause.to_string()))?);
        }
    }
    Ok(events)
}

/// Appends what is not there yet. Nobody else appends to the run meanwhile.
fn take(
    store: &Store,
    run: &Run,
    events: &[Event],
    durability: Durability,
    expect_seq: Option<u64>,
) -> Result<Accepted, ApiError> {
    run.renew_lease();
    let there = match expect_seq {
        Some(expected) => already_there(store, run, events, expected.max(1), durability)?,
        None => 0,
    };
    let rest = &events[there..];
    if rest.is_empty() {
        let last_seq = match expect_seq.filter(|_| !events.is_empty()) {
            Some(expected) => expected.max(1) + events.len() as u64 - 1,
            None => run.last_seq(),
        };
        return settle_end(run, events).map(|()| Accepted::Before(last_seq));
    }
    Ok(Accepted::Now(run.append_all(rest, durability)?))
}

/// How many of these events are in the run already, at the numbers where they are expected. A conflict if others are.
fn already_there(
    store: &Store,
    run: &Run,
    events: &[Event],
    expected: u64,
    durability: Durability,
) -> Result<usize, ApiError> {
    let last_seq = run.last_seq();
    if expected > last_seq {
        return if expected == last_seq + 1 { Ok(0) } else { Err(conflict(run, events, expected, last_seq)) };
    }
    if events.is_empty() {
        return Ok(0);
    }
    // Whoever repeats does not know how lasting the first try was, and what is not durable yet may not be shown.
    if durability == Durability::Durable || store.durability() == Durability::Durable {
        store.commit()?;
    }
    let max_seq = expected + events.len() as u64 - 1;
    let there = store.read_events(run.session(), run.id(), ReadOptions { after_seq: expected - 1, max_seq })?.events;
    let is_same = there.len() as u64 == (last_seq.min(max_seq) + 1 - expected)
        && there
            .iter()
            .zip(events)
            .all(|(there, event)| there.name == event.name() && there.payload() == event.payload());
    if is_same { Ok(there.len()) } else { Err(conflict(run, events, expected, last_seq)) }
}

/// Events cannot get the numbers that they are expected to get. In a run that has ended they can get none.
fn conflict(run: &Run, events: &[Event], expected: u64, last_seq: u64) -> ApiError {
    if !run.is_sealed() {
        return ApiError::seq_conflict(expected, last_seq);
    }
    let event = events.first().map_or("event", Event::name);
    let sealed = AppendError::Sealed { run: run.id().clone(), event: event.into() };
    ApiError::from(StoreError::Append(sealed)).behind(last_seq)
}

/// A repeat of the end makes sure that the answer is saved, too.
fn settle_end(run: &Run, events: &[Event]) -> Result<(), ApiError> {
    if !events.iter().any(|event| event.terminal_state().is_some()) {
        return Ok(());
    }
    match run.finish(Outcome::Completed) {
        Err(StoreError::Append(AppendError::Sealed { .. })) => Ok(()),
        settled => Ok(settled.map(drop)?),
    }
}

/// Waits until what was appended is as lasting as it should be, without keeping a thread.
async fn settled(accepted: Accepted) -> Result<u64, ApiError> {
    let appended = match accepted {
        Accepted::Before(last_seq) => return Ok(last_seq),
        Accepted::Now(appended) => appended,
    };
    let last_seq = appended.last_seq;
    let (tell, told) = oneshot::channel();
    appended.on_durable(move |outcome| drop(tell.send(outcome)));
    match told.await {
        Ok(outcome) => Ok(outcome.map(|_| last_seq)?),
        Err(_) => Err(ApiError::broken("nobody said whether an append became durable")),
    }
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
    let (store, id) = (app.store.clone(), session.clone());
    app.desk.document(move || store.metadata(&id)).await?.map_err(missing)?;
    let stopped = match app.supervisor.stop(&session, &run).await {
        Err(StoreError::RunNotFound { .. }) => return Err(ApiError::no_run()),
        stopped => stopped?,
    };
    app.producers.forget(&session, &run);
    app.hub.ring(&session, &run);
    tracing::info!(%session, %run, stopped, "a run was asked to stop");
    Ok(Json(Stopped { run_id: run.to_string(), stopped }))
}
