//! Sessions: created, listed, read whole or in part, changed by those who know what they change, deleted.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use crate::http::app::SharedApp;
use crate::http::describe::{
    InSession, Knowing, ListItem, Meaning, Resuming, Session as SessionBody, SessionMetadata, SessionStream,
};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{Asked, OfSession, Sent, text_of};
use crate::http::stream::{SessionFeed, StartAt, event_stream};
use crate::index::{ListFilter, Position};
use crate::model::{List, Metadata, Object, Revision, Session, SessionId, ToolCard, UNTITLED};
use crate::sidecar::{SaveOptions, SidecarError};
use crate::store::{Listed, NewSession, StoreError};

/// Sessions of one page of the list, unless it is asked for another number.
const PAGE_DEFAULT: u32 = 50;
/// And at the most.
const PAGE_MAX: u32 = 1_000;
/// Rows of one page of a transcript, unless it is asked for another number.
const ROWS_DEFAULT: u32 = 100;
/// And at the most.
const ROWS_MAX: u32 = 10_000;
/// Characters of what a title is searched for.
const QUERY_CHARS_MAX: usize = 200;

/// A session to be created.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSession)]
pub(super) struct Creation {
    /// Its title. Without one, the first words of its first message become the title.
    #[serde(default = "untitled")]
    #[schema(default = "Untitled")]
    title: String,
    /// Its id; a fresh one if none is given.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,128}$")]
    session_id: Option<String>,
}

fn untitled() -> String {
    UNTITLED.to_owned()
}

/// A page of the list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionPage {
    /// The sessions, the one changed last first. One that cannot be read has an `error`.
    #[schema(value_type = Vec<ListItem>)]
    sessions: Vec<Box<RawValue>>,
    /// Where the next page begins; null at the end. Go on while there is one, also behind a page that is short or empty.
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListAsked {
    /// Sessions of a page.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u32>,
    /// Where the page begins: what came with the page before.
    #[param(pattern = "^([0-9a-fA-F]{16})?-[A-Za-z0-9_-]{1,128}$")]
    cursor: Option<String>,
    /// Only sessions whose title holds this, in whatever case.
    #[param(max_length = 200)]
    q: Option<String>,
    /// Only archived ones, or only others.
    archived: Option<bool>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ReadAsked {
    /// `metadata`: only what stands before the transcript.
    #[param(inline)]
    view: Option<View>,
    /// Only rows before this one.
    #[param(format = Int64, maximum = 4_294_967_295_u64)]
    rows_before: Option<u32>,
    /// Only so many rows, the last ones.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum View {
    Full,
    Metadata,
}

/// What is to be changed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SessionChanges)]
pub(super) struct Changes {
    title: Option<String>,
    pinned: Option<bool>,
    archived: Option<bool>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FollowAsked {
    /// The last event that was seen, `run:seq`; `0` for everything, `now` for what is live.
    after: Option<String>,
}

/// Creates a session. It is durable when this answers.
#[utoipa::path(
    post, path = "/v1/sessions", operation_id = "create_session", tag = "sessions", request_body = Creation,
    responses(
        (status = 201, description = "It was created.", body = SessionMetadata,
         headers(("location" = String, description = "Its path."), ("etag" = String, description = "Its revision.")),
         links(
            ("read" = (operation_id = "read_session", parameters(("sid" = "$response.body#/session_id")))),
            ("change" = (operation_id = "change_session", parameters(("sid" = "$response.body#/session_id"), ("if-match" = "$response.header.etag")))),
            ("delete" = (operation_id = "delete_session", parameters(("sid" = "$response.body#/session_id")))),
            ("follow" = (operation_id = "follow_session", parameters(("sid" = "$response.body#/session_id")))),
            ("begin" = (operation_id = "begin_run", parameters(("sid" = "$response.body#/session_id")))),
            ("resume" = (operation_id = "resume_chat", parameters(("sid" = "$response.body#/session_id")))),
            ("messages" = (operation_id = "chat_messages", parameters(("sid" = "$response.body#/session_id")))),
            ("attach" = (operation_id = "store_attachment", parameters(("sid" = "$response.body#/session_id")))),
            ("branches" = (operation_id = "list_branches", parameters(("sid" = "$response.body#/session_id")))),
         )),
        (status = 400, description = "It cannot be created like this.", body = ErrorBody),
        (status = 409, description = "The id is taken, or was.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn create(State(app): State<SharedApp>, Sent(sent): Sent<Creation>) -> Result<Response, ApiError> {
    let id = sent.session_id.as_deref().map(SessionId::parse).transpose().map_err(StoreError::from)?;
    let store = app.store.clone();
    let created = app.blocking.document(move || {
        let id = store.create(NewSession { id, title: sent.title })?;
        store.metadata(&id)
    });
    let metadata = created.await??;
    let location = format!("/v1/sessions/{}", metadata.id());
    let location = HeaderValue::from_str(&location).map_err(|cause| ApiError::broken(cause.to_string()))?;
    let mut response = (StatusCode::CREATED, metadata_answer(&metadata)).into_response();
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// A page of the list, the session changed last first.
#[utoipa::path(
    get, path = "/v1/sessions", operation_id = "list_sessions", tag = "sessions", params(ListAsked),
    responses(
        (status = 200, description = "A page.", body = SessionPage,
         links(("next" = (operation_id = "list_sessions", parameters(("cursor" = "$response.body#/next_cursor")))))),
        (status = 400, description = "It cannot be listed like this.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn list(State(app): State<SharedApp>, Asked(asked): Asked<ListAsked>) -> Result<Response, ApiError> {
    let limit = bounded("limit", asked.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let after = asked.cursor.as_deref().map(str::parse::<Position>).transpose();
    let after = after.map_err(|cause| ApiError::invalid(cause.to_string()))?;
    let title = asked.q.filter(|query| !query.is_empty());
    if title.as_ref().is_some_and(|title| title.chars().count() > QUERY_CHARS_MAX) {
        return Err(ApiError::invalid(format!("q has more than {QUERY_CHARS_MAX} characters: search for less")));
    }
    let filter = ListFilter { title, archived: asked.archived };
    let store = app.store.clone();
    let page = app.blocking.document(move || {
        let page = store.find_page(after.as_ref(), limit as usize, &filter)?;
        let sessions = page.sessions.iter().map(listed).collect();
        // A thousand sessions are megabytes: they are written here and not where connections are served.
        let page = SessionPage { sessions, next_cursor: page.next.map(|next| next.to_string()) };
        Ok::<_, StoreError>(serde_json::to_vec(&page).expect("texts and numbers are JSON"))
    });
    Ok(json_answer(Bytes::from(page.await??)))
}

fn listed(listed: &Listed) -> Box<RawValue> {
    let json = match &listed.summary {
        Ok(summary) => summary.to_listed_json(listed.state),
        Err(error) => {
            let error = serde_json::json!({ "code": error.code(), "message": error.to_string() });
            serde_json::json!({ "session_id": listed.id.as_str(), "error": error }).to_string()
        }
    };
    RawValue::from_string(json).unwrap_or_default()
}

fn bounded(name: &str, given: Option<u32>, usual: u32, max: u32) -> Result<u32, ApiError> {
    match given.unwrap_or(usual) {
        number if (1..=max).contains(&number) => Ok(number),
        _ => Err(ApiError::invalid(format!("{name} is a number from 1 to {max}"))),
    }
}

/// Reads a session: whole, with every interrupted answer resolved first, or only what stands before its transcript, or a
/// page of its rows from the end.
#[utoipa::path(
    get, path = "/v1/sessions/{sid}", operation_id = "read_session", tag = "sessions",
    params(InSession, ReadAsked, Knowing),
    responses(
        (status = 200, description = "The session's object.", body = SessionBody, headers(("etag" = String, description = "Its revision."))),
        (status = 304, description = "It is of that revision still."),
        (status = 400, description = "It cannot be read like this.", body = ErrorBody),
        (status = 404, description = "There is no such session.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn read(
    State(app): State<SharedApp>,
    OfSession(id): OfSession,
    Asked(asked): Asked<ReadAsked>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let known = text_of(&headers, &header::IF_NONE_MATCH).map(str::to_owned);
    if asked.view == Some(View::Metadata) {
        let metadata = app.document(&id, |store, id| store.metadata(id)).await?.map_err(missing)?;
        return Ok(unless_known(known.as_deref(), metadata.revision(), || metadata_answer(&metadata)));
    }
    let rows = bounded("limit", asked.limit, ROWS_DEFAULT, ROWS_MAX)?;
    let is_paged = asked.limit.is_some() || asked.rows_before.is_some();
    let read = app.document(&id, move |store, id| {
        let session = store.get_session(id)?;
        let is_known = is_known(known.as_deref(), session.revision());
        let body = (!is_known).then(|| match is_paged {
            true => Bytes::from(page_of(&session, asked.rows_before, rows)),
            false => Bytes::from_owner(AsStored(session.clone())),
        });
        Ok::<_, StoreError>((body, session.revision().cloned()))
    });
    let (body, revision) = read.await?.map_err(missing)?;
    Ok(match body {
        Some(body) if is_paged => with_tag(json_answer(app.answers.body(body)?), revision.as_ref()),
        Some(body) => with_tag(json_answer(body), revision.as_ref()),
        None => with_tag(StatusCode::NOT_MODIFIED.into_response(), revision.as_ref()),
    })
}

/// The bytes of a session that was read and not changed, as they are stored.
struct AsStored(Arc<Session>);

impl AsRef<[u8]> for AsStored {
    fn as_ref(&self) -> &[u8] {
        self.0.source().as_bytes()
    }
}

/// The session's object with some of its rows, and their tool cards.
fn page_of(session: &Session, before: Option<u32>, limit: u32) -> Vec<u8> {
    let total = session.len(List::Messages);
    let before = before.map_or(total, |before| (before as usize).min(total));
    let from = before.saturating_sub(limit as usize);
    let mut object = Object::default();
    for (key, value) in Metadata::of(session).iter() {
        object.set(&key, value);
    }
    let rows = (from..before).filter_map(|at| session.item(List::Messages, at));
    object.set("messages", list_of(rows));
    let is_shown = |card: &&str| ToolCard::parse(card).row_index().is_some_and(|row| (from..before).contains(&row));
    object.set("tool_calls", list_of(session.texts(List::ToolCalls).filter(is_shown)));
    object.set("page", format!("{{\"rows_from\":{from},\"rows_before\":{before},\"rows_total\":{total}}}"));
    object.to_json().into_bytes()
}

fn list_of<'a>(items: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// Changes what a list shows of a session. Whoever changes it says which revision it has seen.
#[utoipa::path(
    patch, path = "/v1/sessions/{sid}", operation_id = "change_session", tag = "sessions", request_body = Changes,
    params(InSession,
           ("if-match" = String, Header, description = "The revision that is to be changed, or * for any.")),
    responses(
        (status = 200, description = "It is changed.", body = SessionMetadata, headers(("etag" = String, description = "Its revision."))),
        (status = 400, description = "It cannot be changed like this.", body = ErrorBody),
        (status = 404, description = "There is no such session.", body = ErrorBody),
        (status = 412, description = "It was changed since.", body = ErrorBody),
        (status = 428, description = "No revision was given.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn change(
    State(app): State<SharedApp>,
    OfSession(id): OfSession,
    headers: HeaderMap,
    Sent(changes): Sent<Changes>,
) -> Result<Response, ApiError> {
    let expected = text_of(&headers, &header::IF_MATCH).map(str::to_owned).ok_or_else(ApiError::no_revision)?;
    if changes.title.as_ref().is_some_and(|title| title.len() > crate::limits::MESSAGE_BYTES_MAX) {
        return Err(ApiError::invalid("the title is too long: shorten it"));
    }
    let changed = app.document(&id, move |store, id| {
        // Whoever changes a session has read it, and so have we: what was interrupted is resolved first.
        store.get_session(id).map_err(missing)?;
        let options = SaveOptions { touch_updated_at: false, ..SaveOptions::default() };
        let will_do = |revision: Option<&Revision>| matches_any(&expected, revision);
        let changed = store.update_if(id, options, will_do, |session| changes.apply(session)).map_err(missing)?;
        changed.map(|session| Metadata::of(&session)).ok_or_else(ApiError::changed_meanwhile)
    });
    Ok(metadata_answer(&changed.await??))
}

impl Changes {
    fn apply(&self, session: &mut Session) {
        if let Some(title) = &self.title {
            session.set_text("title", title);
        }
        for (key, value) in [("pinned", self.pinned), ("archived", self.archived)] {
            value.iter().for_each(|value| session.set(key, &value.to_string()));
        }
    }
}

/// Deletes a session and its journals, into the trash. Runs that are under way end.
#[utoipa::path(
    delete, path = "/v1/sessions/{sid}", operation_id = "delete_session", tag = "sessions",
    params(InSession, Meaning),
    responses(
        (status = 204, description = "It is in the trash."),
        (status = 404, description = "There is no such session.", body = ErrorBody),
        (status = 412, description = "It was changed since.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn delete(
    State(app): State<SharedApp>,
    OfSession(id): OfSession,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let expected = text_of(&headers, &header::IF_MATCH).map(str::to_owned);
    let deleted = app.document(&id, move |store, id| {
        let Some(expected) = expected else { return store.delete(id).map_err(missing) };
        match store.delete_if(id, |revision| matches_any(&expected, revision)).map_err(missing)? {
            true => Ok(()),
            false => Err(ApiError::changed_meanwhile()),
        }
    });
    deleted.await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Follows a session: the events of its runs, one run after the other, then of whatever begins.
#[utoipa::path(
    get, path = "/v1/sessions/{sid}/events", operation_id = "follow_session", tag = "streams",
    params(InSession, FollowAsked, Resuming),
    responses(
        (status = 200, description = "Server-sent events.", content_type = "text/event-stream", body = SessionStream),
        (status = 404, description = "There is no such session.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn events(
    State(app): State<SharedApp>,
    OfSession(id): OfSession,
    Asked(asked): Asked<FollowAsked>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let from = match headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?")).or(asked.after.as_deref()) {
        Some(text) => StartAt::parse(text),
        None => StartAt::Start,
    };
    let feed = SessionFeed::begin(&app.hub, &id, from).await?;
    Ok(event_stream(feed, &app.policy, app.count_follower()?))
}

/// A session that is not there is said so in this server's words.
pub(super) fn missing(error: StoreError) -> ApiError {
    match error {
        StoreError::NotFound { .. } | StoreError::Sidecar(SidecarError::Deleted { .. }) => ApiError::no_session(),
        error => error.into(),
    }
}

fn metadata_json(metadata: &Metadata) -> String {
    let mut object = Object::default();
    object.set_text("session_id", metadata.id().as_str());
    for (key, value) in metadata.iter().filter(|(key, _)| key != "session_id") {
        object.set(&key, value);
    }
    object.set("message_count", metadata.message_count().to_string());
    object.to_json()
}

pub(super) fn metadata_answer(metadata: &Metadata) -> Response {
    with_tag(json_answer(Bytes::from(metadata_json(metadata))), metadata.revision())
}

fn json_answer(body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body.into()).into_response()
}

fn with_tag(mut response: Response, revision: Option<&Revision>) -> Response {
    let tag = revision.and_then(|revision| HeaderValue::from_str(&tag_of(revision)).ok());
    tag.into_iter().for_each(|tag| drop(response.headers_mut().insert(header::ETAG, tag)));
    response
}

fn tag_of(revision: &Revision) -> String {
    format!("\"{}\"", revision.as_str())
}

fn unless_known(known: Option<&str>, revision: Option<&Revision>, answer: impl FnOnce() -> Response) -> Response {
    match is_known(known, revision) {
        true => with_tag(StatusCode::NOT_MODIFIED.into_response(), revision),
        false => answer(),
    }
}

/// Whether one of the tags of `If-None-Match` is this revision's. A weak one will do.
fn is_known(known: Option<&str>, revision: Option<&Revision>) -> bool {
    let (Some(known), Some(revision)) = (known, revision) else { return false };
    let tag = tag_of(revision);
    known.split(',').map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

/// Whether one of the tags of `If-Match` is this revision's, exactly.
pub(super) fn matches_any(expected: &str, revision: Option<&Revision>) -> bool {
    let tag = revision.map(tag_of);
    expected.split(',').map(str::trim).any(|one| one == "*" || Some(one) == tag.as_deref())
}
