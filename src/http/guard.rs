//! Host and Origin checks, CORS, and the security headers of every response. Authentication is in `door`.

use std::net::IpAddr;
use std::str::FromStr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::app::{App, SharedApp};
use super::base_path::BasePath;
use super::door::{caller_of, ended_by_removal, names_own_origin, removed};
use super::error::{ApiError, accepts_json, as_plain_text};
use super::request::text_of;
use super::token::Caller;
use crate::clock::{Clock, SystemClock};

const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                              img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Headers that every answer has.
const ALWAYS: &[(&str, &str)] = &[
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    // Without one, a browser would say of the page's login form that it comes from nowhere (`Origin: null`).
    ("referrer-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

const ALLOWED_METHODS: &str = "GET, HEAD, POST, PATCH, DELETE";
/// The SDKs of other languages send `user-agent` from browsers, too.
const ALLOWED_HEADERS: &str =
    "authorization, content-type, if-match, if-none-match, last-event-id, user-agent, x-request-id";
const EXPOSED_HEADERS: &str =
    "etag, lastword-error, lastword-live-run, lastword-run, lastword-run-state, location, retry-after, x-request-id";
const PREFLIGHT_SECONDS: &str = "600";

/// Lets a request in, or says why not.
pub(super) async fn guard(State(app): State<SharedApp>, mut request: Request, next: Next) -> Response {
    let origin = text_of(request.headers(), &header::ORIGIN).map(str::to_owned);
    let is_configured = origin.as_deref().is_some_and(|origin| app.options.origins.iter().any(|known| known == origin));
    let plain_text = is_chat(request.uri().path()).then(|| accepts_json(request.headers()));
    let mut response = match check(&app, &request, is_configured) {
        Ok(_) if is_preflight(&request, is_configured) => preflight(),
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            let response = serve(&app, caller, request, next).await;
            ended_by_removal(&app.door, caller, response)
        }
        Err(refusal) => refusal.into_response(),
    };
    if let Some(accepts_json) = plain_text {
        response = as_plain_text(response, accepts_json);
    }
    protect(response.headers_mut());
    put_base_path_first(response.headers_mut(), &app.options.base_path);
    if !app.options.origins.is_empty() {
        // An answer that a page fetched without an origin must not be used from a cache for one that names its own.
        response.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(origin) = origin.filter(|_| is_configured) {
        share(response.headers_mut(), &origin);
    }
    response
}

/// Runs the route. A reader that waits is refused when its token is removed; what changes something is seen to its end.
async fn serve(app: &App, caller: Caller, request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    tokio::select! {
        biased;
        response = next.run(request) => response,
        () = removed(&app.door, caller) => ApiError::token_removed().into_response(),
    }
}

/// Whether a path is one of the AI SDK's.
fn is_chat(path: &str) -> bool {
    path.strip_prefix("/api/chat").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn check(app: &App, request: &Request, is_configured_origin: bool) -> Result<Caller, ApiError> {
    check_host(app, request)?;
    check_origin(app, request, is_configured_origin)?;
    if is_preflight(request, is_configured_origin) {
        return Ok(Caller::STRANGER);
    }
    if app.options.base_path.is(request.uri().path()) {
        return Ok(Caller::STRANGER);
    }
    caller_of(&app.door.tokens(), request, SystemClock.now())
}

fn forbidden(message: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", message)
}

/// A name that somebody made point at this machine is not ours. An address cannot be made to.
fn check_host(app: &App, request: &Request) -> Result<(), ApiError> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (host, more) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next());
    let Some(host) = host.filter(|_| more.is_none()) else {
        return Err(ApiError::invalid("the request names no host, or several: send one Host header"));
    };
    let name = host_name(host);
    let is_ours = IpAddr::from_str(name.trim_matches(['[', ']'])).is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || app.options.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
    match is_ours {
        true => Ok(()),
        false => Err(forbidden("the server does not go by this name: add it with --allow-host if it should")),
    }
}

/// A host without its port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// A page of another site may neither read nor write, unless it is configured. A program sends no origin.
fn check_origin(app: &App, request: &Request, is_configured: bool) -> Result<(), ApiError> {
    let headers = request.headers();
    let refusal =
        || forbidden("pages of other sites may not use this server: add theirs with --allow-origin if it should");
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if is_configured {
        return Ok(());
    }
    let path = request.uri().path();
    let is_navigation = request.method() == Method::GET && (path == "/" || app.options.base_path.is(path));
    if site == Some(b"cross-site") && !is_navigation {
        return Err(refusal());
    }
    // A form of a page without a referrer policy of its own has the origin `null`; the browser knows better.
    if site == Some(b"same-origin") || !headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    match names_own_origin(headers) {
        true => Ok(()),
        false => Err(refusal()),
    }
}

fn is_preflight(request: &Request, is_configured: bool) -> bool {
    is_configured
        && request.method() == Method::OPTIONS
        && request.headers().contains_key("access-control-request-method")
}

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOWED_METHODS));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED_HEADERS));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_SECONDS));
    response
}

fn protect(headers: &mut HeaderMap) {
    for (name, value) in ALWAYS {
        // An attachment comes with a stricter policy of its own.
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
}

/// Routes name the server's own paths, and know nothing of a base path.
fn put_base_path_first(headers: &mut HeaderMap, base: &BasePath) {
    let own = headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
    let Some(own) = own.filter(|own| own.starts_with('/') && !base.as_str().is_empty()) else { return };
    if let Ok(location) = HeaderValue::from_str(&format!("{base}{own}")) {
        headers.insert(header::LOCATION, location);
    }
}

/// Lets a page of this origin read the answer.
fn share(headers: &mut HeaderMap, origin: &str) {
    if let Ok(origin) = HeaderValue::from_str(origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("cross-origin"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_without_its_port() {
        for (host, name) in
            [("a.b:80", "a.b"), ("a.b", "a.b"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("127.0.0.1:1", "127.0.0.1")]
        {
            assert_eq!(host_name(host), name);
        }
    }

    fn asked(method: &Method, path: &str, token: &str) -> Request {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = match token {
            "" => request,
            token => request.header("authorization", format!("Bearer {token}")),
        };
        request.body(axum::body::Body::empty()).unwrap()
    }

    #[tokio::test]
    async fn no_method_does_without_a_token_and_only_two_do_with_one_that_reads() {
        const METHODS: [Method; 7] =
            [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
        let (write, read) = ("0123456789abcdef", "fedcba9876543210");
        let tokens = crate::http::Tokens::parse(&format!("{write}\n{read} read-only\n")).unwrap();
        let options = crate::http::ServerOptions { tokens, ..Default::default() };
        let server = crate::http::tests::TestServer::with(crate::storage::Durability::Buffered, options);
        let checked = |method: &Method, path: &str, token: &str| {
            check(&server.app, &asked(method, path, token), false).err().map(|error| error.into_response().status())
        };
        for method in &METHODS {
            let is_reading = [Method::GET, Method::HEAD].contains(method);
            for path in ["/v1/sessions", "/v1/sessions/a", "/v1/sessions/a/runs/r/events", "/metrics", "/nothing", "//"]
            {
                for wrong in ["", "x", "0123456789abcdef0"] {
                    assert_eq!(checked(method, path, wrong), Some(StatusCode::UNAUTHORIZED), "{method} {path}");
                }
                assert_eq!(checked(method, path, write), None, "{method} {path}");
                let reader = if is_reading { None } else { Some(StatusCode::FORBIDDEN) };
                assert_eq!(checked(method, path, read), reader, "{method} {path}");
            }
            assert_eq!(checked(method, "/healthz", ""), None);
        }
    }
}
