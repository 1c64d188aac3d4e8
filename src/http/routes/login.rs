//! Login and logout of the page: a token is exchanged for a cookie that the page's scripts cannot read.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa::ToSchema;

use crate::clock::{Clock, SystemClock};
use crate::http::app::{App, SharedApp};
use crate::http::door::{cleared_cookie, login_cookie};
use crate::http::error::{ApiError, ErrorBody, accepts_json};
use crate::http::request::{expect_form, read_body_up_to, text_of};
use crate::http::token::TokenId;

/// Bytes of a login's form: a token of 512 characters, each of them percent-encoded, and some room.
const FORM_BYTES_MAX: usize = 4 * 1024;

/// Where a native form leads to: the page, which reads from the query how it went.
const PAGE: &str = "/";
const PAGE_AFTER_WRONG_LOGIN: &str = "/?login=wrong";

/// What a login sends.
#[derive(ToSchema)]
#[allow(dead_code, reason = "the API's description is made of it; the body is read without it")]
pub(super) struct LoginForm {
    /// A token of the server's token file.
    token: String,
}

/// Exchanges a token for the cookie `lastword`. With `Accept: application/json` it answers 204 or 401; a native form is
/// sent to the page, with `?login=wrong` if the token is wrong. A server without tokens answers like a right login.
#[utoipa::path(
    post, path = "/login", tag = "operations", security(()),
    request_body(content = LoginForm, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 204, description = "Logged in.", headers(("set-cookie" = String, description = "The cookie `lastword`."))),
        (status = 303, description = "To the page: of a native form.", headers(("location" = String, description = "The page."))),
        (status = 401, description = "The token is wrong.", body = ErrorBody),
        (status = 429, description = "Too many wrong logins in this second.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
    )
)]
pub(super) async fn login(State(app): State<SharedApp>, request: Request) -> Result<Response, ApiError> {
    expect_form(request.headers())?;
    let headers = request.headers().clone();
    let body = read_body_up_to(request, &app, FORM_BYTES_MAX).await?;
    match check(&app, &body)? {
        Checked::Open => Ok(done(&headers, PAGE)),
        Checked::Right(token) => Ok(with_cookie(done(&headers, PAGE), logged_in(&app, token, &headers))),
        Checked::Wrong if accepts_json(&headers) => Err(wrong_token()),
        Checked::Wrong => Ok(see_other(PAGE_AFTER_WRONG_LOGIN)),
    }
}

/// Ends the login of this browser. The cookie is cleared; it is not revoked, which removing its token does.
#[utoipa::path(
    post, path = "/logout", tag = "operations", security(()),
    responses(
        (status = 204, description = "Logged out.", headers(("set-cookie" = String, description = "Clears the cookie."))),
        (status = 303, description = "To the page: of a native form.", headers(("location" = String, description = "The page."))),
        (status = "4XX", description = "Refused.", body = ErrorBody),
    )
)]
pub(super) async fn logout(State(app): State<SharedApp>, headers: HeaderMap) -> Response {
    let cookie = cleared_cookie(app.options.base_path.cookie_path(), is_https(&headers));
    with_cookie(done(&headers, PAGE), Some(cookie))
}

enum Checked {
    /// The server has no tokens.
    Open,
    Right(TokenId),
    Wrong,
}

/// Compares the token of a form. Wrong ones have a budget. What was sent is in no message.
fn check(app: &App, form: &[u8]) -> Result<Checked, ApiError> {
    let tokens = app.door.tokens();
    if tokens.is_empty() {
        return Ok(Checked::Open);
    }
    let mut given = form_urlencoded::parse(form).filter(|(name, _)| name == "token");
    let (Some((_, given)), None) = (given.next(), given.next()) else {
        return Err(ApiError::invalid("the form has no field `token`, or several: send one"));
    };
    match tokens.caller(given.trim()).and_then(|caller| caller.token) {
        Some(token) => Ok(Checked::Right(token)),
        None if app.door.logins.take() => Ok(Checked::Wrong),
        None => Err(ApiError::too_many_logins()),
    }
}

fn wrong_token() -> ApiError {
    let message = "this token is not one of the server's token file: check it for missing characters, or ask the server's \
                   operator for one";
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
}

fn logged_in(app: &App, token: TokenId, headers: &HeaderMap) -> Option<String> {
    login_cookie(&app.door.tokens(), token, app.options.base_path.cookie_path(), is_https(headers), SystemClock.now())
}

/// Whether the page was loaded over TLS, which a proxy may have ended.
fn is_https(headers: &HeaderMap) -> bool {
    text_of(headers, &header::ORIGIN).is_some_and(|origin| origin.starts_with("https://"))
}

fn done(headers: &HeaderMap, page: &'static str) -> Response {
    match accepts_json(headers) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => see_other(page),
    }
}

fn see_other(page: &'static str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, page)]).into_response()
}

fn with_cookie(mut response: Response, cookie: Option<String>) -> Response {
    let cookie = cookie.and_then(|cookie| HeaderValue::from_str(&cookie).ok());
    cookie.into_iter().for_each(|cookie| drop(response.headers_mut().insert(header::SET_COOKIE, cookie)));
    response
}
