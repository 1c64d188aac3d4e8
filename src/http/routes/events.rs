//! Events that are read: of one run, and of the list of sessions.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::sessions::missing;
use crate::http::app::{App, SharedApp};
use crate::http::describe::{EventLines, InRun, ListStream, Resuming, RunStateWord, RunStream};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{Asked, OfRun, text_of};
use crate::http::stream::{
    Cursor, Follower, FollowerCount, LinesFeed, ListFeed, Next, RunFeed, Waits, event_stream, first_within,
    plain_stream, state_beside,
};
use crate::model::{RunId, RunState, SessionId};
use crate::store::StoreError;

/// The state of a run, beside its lines: whether more may come.
const RUN_STATE: HeaderName = HeaderName::from_static("lastword-run-state");

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsAsked {
    /// The last event that was seen: its number, or its id.
    after: Option<String>,
    /// For lines: go on until the run has ended.
    follow: Option<bool>,
    /// For lines: if there is nothing and the run goes on, wait a while for something.
    wait: Option<bool>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListFollowAsked {
    /// The last change that was seen.
    after: Option<String>,
}

/// The events of a run. With `Accept: text/event-stream` as server-sent events: replayed, then live, until the run has
/// ended. Else as the journal's lines that are there now.
#[utoipa::path(
    get, path = "/v1/sessions/{sid}/runs/{rid}/events", operation_id = "read_events", tag = "streams",
    params(InRun, EventsAsked, Resuming),
    responses(
        (status = 200, description = "The events. Of lines none if there is nothing after `after`, and with `wait` none if the run has \
ended as well.", content(
            (EventLines = "application/x-ndjson"), (RunStream = "text/event-stream")),
         headers(("Lastword-Run-State" = RunStateWord, description = "With lines: the state of the run as it was when they were \
looked for. `unknown` and `running`: more may come."))),
        (status = 204, description = "With `wait`: nothing came in time, and the run goes on. Ask again.",
         headers(("Lastword-Run-State" = RunStateWord, description = "`running`, or `unknown` while the run has no events."))),
        (status = 400, description = "They cannot be read like this.", body = ErrorBody),
        (status = 404, description = "There is no such run.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn read(
    State(app): State<SharedApp>,
    OfRun(session, run): OfRun,
    Asked(asked): Asked<EventsAsked>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    expect_run(&app, &session, &run).await?;
    // A browser that connects again repeats the query of the first time, and says here how far it came since.
    let seen = headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?")).or(asked.after.as_deref());
    let cursor = seen.map_or(Cursor::After(0), |seen| Cursor::of_run(seen, &run));
    match wants_stream(&headers) {
        true => stream(&app, &session, &run, cursor),
        false => lines(&app, &session, &run, cursor, LineWishes::of(&asked, &method, app.options.long_poll)).await,
    }
}

fn wants_stream(headers: &HeaderMap) -> bool {
    text_of(headers, &header::ACCEPT).is_some_and(|accept| accept.to_ascii_lowercase().contains("text/event-stream"))
}

/// A run that is not there is said so before anything is streamed.
async fn expect_run(app: &App, session: &SessionId, run: &RunId) -> Result<(), ApiError> {
    let (store, session, run) = (app.store.clone(), session.clone(), run.clone());
    let found = app.blocking.read(move || {
        store.metadata(&session)?;
        store.has_run(&session, &run)
    });
    match found.await.map_err(|broken| ApiError::broken(broken.to_string()))?? {
        Ok(true) => Ok(()),
        Ok(false) | Err(StoreError::RunNotFound { .. }) => Err(ApiError::no_run()),
        Err(error) => Err(missing(error)),
    }
}

fn stream(app: &SharedApp, session: &SessionId, run: &RunId, cursor: Cursor) -> Result<Response, ApiError> {
    let count = app.count_follower()?;
    let after_seq = if let Cursor::After(seq) = cursor { seq } else { 0 };
    let follower = Follower::new(&app.hub, app.hub.tail(session, run), after_seq, Waits::ForMore);
    Ok(event_stream(RunFeed::new(follower, cursor), &app.policy, count))
}

/// What a reader of lines does when it has everything that is there.
#[derive(Debug, Clone, Copy)]
enum LineWishes {
    /// It is done.
    Now,
    /// It waits for something for at most this long, if there was nothing.
    Wait(Duration),
    /// It goes on until the run is over.
    Follow,
}

impl LineWishes {
    /// A HEAD request waits for nothing.
    fn of(asked: &EventsAsked, method: &Method, long_poll: Duration) -> Self {
        let is_head = method == Method::HEAD;
        match (asked.follow.unwrap_or(false), asked.wait.unwrap_or(false)) {
            (true, _) => LineWishes::Follow,
            (false, true) => LineWishes::Wait(if is_head { Duration::ZERO } else { long_poll }),
            (false, false) => LineWishes::Now,
        }
    }
}

async fn lines(
    app: &SharedApp,
    session: &SessionId,
    run: &RunId,
    cursor: Cursor,
    wishes: LineWishes,
) -> Result<Response, ApiError> {
    let Cursor::After(after_seq) = cursor else {
        return Err(ApiError::invalid("after is the number or the id of an event of this run"));
    };
    let begin = |waits| Follower::new(&app.hub, app.hub.tail(session, run), after_seq, waits);
    let is_waited_for = !matches!(wishes, LineWishes::Now);
    let mut follower = begin(if let LineWishes::Wait(_) = wishes { Waits::ForMore } else { Waits::No });
    // Readers that wait leave room for requests, as streams do.
    let count = if is_waited_for { app.count_follower()? } else { app.count_reader() };
    let first = match wishes {
        LineWishes::Wait(limit) => first_within(&mut follower, limit, &mut app.policy.closing.clone()).await,
        LineWishes::Now | LineWishes::Follow => follower.next().await,
    };
    let first = refuse_ahead(first, after_seq)?;
    let mut state = state_beside(&first, &follower, is_waited_for).await?;
    let response = match (wishes, &first) {
        (LineWishes::Wait(_), Next::CaughtUp) => {
            // To a reader that waited it goes on, also before its first event.
            state = if state == RunState::Unknown { RunState::Running } else { state };
            StatusCode::NO_CONTENT.into_response()
        }
        (LineWishes::Follow, _) => lines_answer(app, None, begin(Waits::ForMore), count),
        _ => lines_answer(app, Some(first), follower, count),
    };
    Ok(with_state(response, state))
}

fn with_state(mut response: Response, state: RunState) -> Response {
    response.headers_mut().insert(RUN_STATE, HeaderValue::from_static(state.as_str()));
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, no-transform"));
    response
}

fn refuse_ahead(first: Next, after_seq: u64) -> Result<Next, ApiError> {
    match first {
        Next::Ahead { last_seq } => Err(ApiError::ahead(after_seq, last_seq)),
        Next::Failed => Err(ApiError::broken("a journal could not be read")),
        first => Ok(first),
    }
}

fn lines_answer(app: &SharedApp, first: Option<Next>, follower: Follower, count: FollowerCount) -> Response {
    plain_stream(LinesFeed::new(first, follower), &app.policy, count, "application/x-ndjson")
}

/// Follows the list: which sessions change and which go.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "follow_list", tag = "streams", params(ListFollowAsked, Resuming),
    responses(
        (status = 200, description = "Server-sent events.", content_type = "text/event-stream", body = ListStream),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn list(
    State(app): State<SharedApp>,
    Asked(asked): Asked<ListFollowAsked>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()).or(asked.after.as_deref());
    let count = app.count_follower()?;
    Ok(event_stream(ListFeed::new(&app.hub.list, seen), &app.policy, count))
}
