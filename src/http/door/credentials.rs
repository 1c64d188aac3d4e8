//! The credentials of a request, and who its caller is by them: a bearer token, a ticket, or a login cookie.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::cookie::caller_by_cookie;
use super::ticket::{caller_by_ticket, ticket_of};
use crate::clock::Timestamp;
use crate::http::error::ApiError;
use crate::http::page_files::is_file;
use crate::http::request::text_of;
use crate::http::token::{Access, Caller, Tokens};

/// What may be used without a token beside the page's files: nothing in it belongs to a user.
const OPEN_PATHS: &[&str] = &["/healthz", "/readyz", "/openapi.json", "/login", "/logout"];

/// The call that issues tickets: it changes nothing, so that a token that may only read may use it.
const TICKETS_PATH: &str = "/v1/tickets";

/// Who sends a request, and whether that caller may send it.
pub(in crate::http) fn caller_of(tokens: &Tokens, request: &Request, now: Timestamp) -> Result<Caller, ApiError> {
    if tokens.is_empty() {
        return Ok(Caller::ANYONE);
    }
    if is_open(request.uri().path()) {
        return Ok(Caller::STRANGER);
    }
    let caller = known_caller(tokens, request, now)?;
    let changes = !is_reading(request) && request.uri().path() != TICKETS_PATH;
    match caller.access == Access::Write || !changes {
        true => Ok(caller),
        false => Err(forbidden("this token may only read: use one that may write")),
    }
}

fn is_open(path: &str) -> bool {
    is_file(path) || OPEN_PATHS.contains(&path)
}

fn is_reading(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
}

/// The caller by the first credential that decides: a bearer header always does, a ticket and a cookie if they hold.
fn known_caller(tokens: &Tokens, request: &Request, now: Timestamp) -> Result<Caller, ApiError> {
    let headers = request.headers();
    if headers.get_all(header::AUTHORIZATION).iter().count() > 1 {
        return Err(unauthorized(SEVERAL_TOKENS));
    }
    if let Some(given) = headers.get(header::AUTHORIZATION).and_then(bearer) {
        return tokens.caller(given).ok_or_else(|| unauthorized(NO_SUCH_TOKEN));
    }
    let ticket = ticket_of(request);
    let by_ticket = ticket.as_ref().and_then(|ticket| caller_by_ticket(tokens, ticket, request.uri().path(), now));
    if let Some(caller) = by_ticket {
        return Ok(caller);
    }
    match caller_by_cookie(tokens, headers, now) {
        Some(caller) if is_reading(request) || is_own_page(headers) => Ok(caller),
        Some(_) => Err(forbidden(FOREIGN_COOKIE)),
        None if ticket.is_some() => Err(unauthorized(VOID_TICKET)),
        None => Err(unauthorized(NO_TOKEN)),
    }
}

const NO_TOKEN: &str = "a token is needed: send `Authorization: Bearer TOKEN` with one of the server's token file, or log in on \
                        the server's page";
const SEVERAL_TOKENS: &str = "there are several Authorization headers: send one";
const NO_SUCH_TOKEN: &str =
    "this token is not one of the server's token file: send another one as `Authorization: Bearer TOKEN`";
const VOID_TICKET: &str = "this ticket does not hold: it has expired, is for another path, or its token was removed. Get another one \
                           with POST /v1/tickets";
const FOREIGN_COOKIE: &str = "a login cookie may change things only from the server's own page: send the token as \
                              `Authorization: Bearer TOKEN` instead";

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
}

fn forbidden(message: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", message)
}

/// The token of a bearer header: an empty text, which is no token, where it has none or one that no token is like.
fn bearer(authorization: &HeaderValue) -> Option<&str> {
    let scheme = authorization.as_bytes().get(..BEARER.len())?;
    let token = authorization.to_str().ok().and_then(|text| text.get(BEARER.len()..)).unwrap_or_default();
    let is_alone = token.is_empty() || token.starts_with(' ');
    (scheme.eq_ignore_ascii_case(BEARER.as_bytes()) && is_alone).then_some(token.trim())
}

const BEARER: &str = "bearer";

/// Whether a request comes from a page of this server. A browser says so itself in `Sec-Fetch-Site`, which no page can
/// change; one that does not send it names the page's origin, which must be the host that it called.
fn is_own_page(headers: &HeaderMap) -> bool {
    match headers.get("sec-fetch-site") {
        Some(site) => site.as_bytes() == b"same-origin",
        None => names_own_origin(headers),
    }
}

/// Whether `Origin` names the host that was called.
pub(in crate::http) fn names_own_origin(headers: &HeaderMap) -> bool {
    let host = text_of(headers, &header::HOST).unwrap_or_default();
    let origin = text_of(headers, &header::ORIGIN).unwrap_or_default();
    let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    named.is_some_and(|named| !named.is_empty() && named.eq_ignore_ascii_case(host))
}
