//! Events that are read: of one run, and of the list of sessions.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::sessions::missing;
use crate::http::app::{App, SharedApp};
use crate::http::describe::{EventLines, InRun, ListStream, Resuming, RunStream};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{Asked, OfRun, text_of};
use crate::http::stream::{
    Cursor, Follower, FollowerCount, LinesFeed, ListFeed, Next, RunFeed, Waits, event_stream, first_within,
    plain_stream,
};
use crate::model::{RunId, SessionId};
use crate::store::StoreError;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsAsked {
    /// The last event that was seen: its number, or its id.
    after: Option<String>,
    /// For lines: go on until the run has ended.
    follow: Option<bool>,
    /// For lines: if there is nothing, wait a while for something.
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
        (status = 200, description = "The events.", content(
            (EventLines = "application/x-ndjson"), (RunStream = "text/event-stream"))),
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
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    expect_run(&app, &session, &run).await?;
    // A browser that connects again repeats the query of the first time, and says here how far it came since.
    let seen = headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?")).or(asked.after.as_deref());
    let cursor = seen.map_or(Cursor::After(0), |seen| Cursor::of_run(seen, &run));
    match wants_stream(&headers) {
        true => stream(&app, &session, &run, cursor),
        false => lines(&app, &session, &run, cursor, &asked).await,
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

async fn lines(
    app: &SharedApp,
    session: &SessionId,
    run: &RunId,
    cursor: Cursor,
    asked: &EventsAsked,
) -> Result<Response, ApiError> {
    let Cursor::After(after_seq) = cursor else {
        return Err(ApiError::invalid("after is the number or the id of an event of this run"));
    };
    let (waits, follows) = (asked.wait.unwrap_or(false), asked.follow.unwrap_or(false));
    let begin = |waits| Follower::new(&app.hub, app.hub.tail(session, run), after_seq, waits);
    if follows {
        let count = app.count_follower()?;
        refuse_ahead(begin(Waits::No).next().await, after_seq)?;
        return Ok(lines_answer(app, None, begin(Waits::ForMore), count));
    }
    let mut follower = begin(if waits { Waits::ForMore } else { Waits::No });
    let first = match waits {
        true => first_within(&mut follower, app.options.long_poll).await,
        false => follower.next().await,
    };
    let first = refuse_ahead(first, after_seq)?;
    Ok(lines_answer(app, Some(first), follower, app.count_reader()))
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
