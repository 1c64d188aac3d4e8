//! Events of a producer outside: taken once, in order, all of them or none, as lasting as was asked for.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::{IntoParams, ToSchema};

use crate::clock::Stopwatch;
use crate::http::app::SharedApp;
use crate::http::describe::{InRun, NewEventLines};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::producers::Turn;
use crate::http::request::{Asked, OfRun, SentLines};
use crate::journal::{AppendError, Appended};
use crate::model::Event;
use crate::storage::Durability;
use crate::store::{Outcome, Run, Store, StoreError};

/// Events of one request.
const EVENTS_MAX: usize = 100_000;

/// Events that were taken.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EventsAppended)]
pub(super) struct Taken {
    /// The number of the last of them; of the run's last event if there was none.
    last_seq: u64,
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

/// Appends events, all of them or none; without any, says that the producer is alive.
#[utoipa::path(
    post, path = "/v1/sessions/{sid}/runs/{rid}/events", operation_id = "append_events", tag = "runs",
    request_body(content = NewEventLines, content_type = "application/x-ndjson",
                 description = "JSON lines, each an event."),
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
    // However long the disk takes, the producer waits for it and is alive.
    let alive = app.store.keep_alive(&session, &run);
    let durability = match asked.durability {
        None => app.store.durability(),
        Some(Lasting::Buffered) => Durability::Buffered,
        Some(Lasting::Durable) => Durability::Durable,
    };
    let events = app.blocking.parse(body, parse_lines).await??;
    // It is held by the thread that does the work: a caller that leaves meanwhile comes back with the same lines.
    let turn = app.producers.turn(&session, &run).await;
    let producer = app.producer(&session, &run).await?;
    let work = Work { events, durability, expect_seq: asked.expect_seq };
    let at_work = app.clone();
    // An end is saved into the document, and may wait for the lock of the session.
    let share = match work.events.iter().any(|event| event.terminal_state().is_some()) {
        true => Some(app.blocking.share(&session).await),
        false => None,
    };
    let taken = app.blocking.line(move || (work.done(&at_work, producer, turn), share).0).await?;
    if taken.as_ref().is_err_and(|error| error.is("fenced")) {
        // Perhaps because there is nothing left to append to.
        app.producer(&session, &run).await?;
    }
    let last_seq = settled(taken?).await?;
    alive.end_with_sign_of_life();
    app.metrics.appended(watch.elapsed());
    Ok(Json(Taken { last_seq }))
}

/// What is to be appended.
struct Work {
    events: Vec<Event>,
    durability: Durability,
    expect_seq: Option<u64>,
}

impl Work {
    /// Appends, while nobody else does. A run that takes no more, or has to be opened again, is let go.
    fn done(&self, app: &SharedApp, run: Run, turn: Turn) -> Result<Accepted, ApiError> {
        let taken = self.take(app, &run);
        if taken.is_ok() && self.has_end() {
            app.producers.note_ended(run.session(), run.id());
        }
        if taken.is_err() || run.is_sealed() {
            app.producers.forget(run.session(), run.id());
        }
        drop(turn);
        taken
    }

    /// Appends what is not there yet.
    fn take(&self, app: &SharedApp, run: &Run) -> Result<Accepted, ApiError> {
        let Work { events, durability, expect_seq } = self;
        let there = match expect_seq {
            Some(expected) => already_there(&app.store, run, events, (*expected).max(1), *durability)?,
            None => 0,
        };
        let rest = &events[there..];
        if !rest.is_empty() {
            let appended = run.append_all(rest, *durability).map_err(ApiError::from);
            return appended
                .map(Accepted::Now)
                .map_err(|error| if error.is("sealed") { error.behind(run.last_seq()) } else { error });
        }
        if events.is_empty() {
            return renew(run);
        }
        if self.has_end() && !app.producers.has_ended(run.session(), run.id()) {
            settle_end(run)?;
        }
        Ok(Accepted::Before(expect_seq.unwrap_or(1).max(1) + events.len() as u64 - 1))
    }

    /// Whether one of its events ends the run.
    fn has_end(&self) -> bool {
        self.events.iter().any(|event| event.terminal_state().is_some())
    }
}

/// A sign of life. Whoever gives one for a run that has ended is told so, and need not go on.
fn renew(run: &Run) -> Result<Accepted, ApiError> {
    if run.is_sealed() {
        return Err(
            StoreError::from(AppendError::Sealed { run: run.id().clone(), event: "sign of life".into() }).into()
        );
    }
    run.renew_lease();
    Ok(Accepted::Before(run.last_seq()))
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
        if !ends_well(&events) {
            return Err(bad(at, "it stands behind an event that ends the run"));
        }
        if events.len() > EVENTS_MAX {
            return Err(bad(at, &format!("there are more than {EVENTS_MAX} events: send them in parts")));
        }
    }
    Ok(events)
}

/// Whether nothing but a `stream_end` behind a `done` follows an event that ends the run.
fn ends_well(events: &[Event]) -> bool {
    let is_end = |event: &Event| event.terminal_state().is_some();
    match events {
        [.., before, _, _] if is_end(before) => false,
        [.., done, last] if is_end(done) => done.name() == "done" && last.name() == "stream_end",
        _ => true,
    }
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
    // A producer that repeats does not know how durable the first try was.
    if durability == Durability::Durable || store.durability() == Durability::Durable {
        store.commit()?;
    }
    let max_seq = expected + events.len() as u64 - 1;
    let there = run.own_events(expected..=max_seq.min(last_seq))?;
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
fn settle_end(run: &Run) -> Result<(), ApiError> {
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

#[cfg(test)]
mod tests;
