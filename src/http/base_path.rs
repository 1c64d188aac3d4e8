//! The base path: the prefix under which a proxy offers the server, `/chat` in `https://example.org/chat/`.
//!
//! A request may come with the prefix or without it. Handlers know nothing of it: it is taken off before routing, and the
//! guard puts it in front of every `Location`. What else is an address (files of messages, the cookie's path, the API's
//! description) is made with [`BasePath::as_str`].

use std::fmt;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use axum::middleware::{self, Next};
use axum::response::Response;

use super::page_files;

/// Bytes of the longest base path.
const BYTES_MAX: usize = 256;

/// First segments of the server's own paths beside those of the page's files. A base path that began with one could not be
/// told from them.
const OWN_SEGMENTS: &[&str] = &["v1", "api", "login", "logout", "healthz", "readyz", "metrics", "openapi.json"];

fn own_segments() -> impl Iterator<Item = &'static str> {
    OWN_SEGMENTS.iter().copied().chain(page_files::first_segments())
}

/// The path under which a server is reached: none, or segments like `/chat` or `/tools/chat`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BasePath(Box<str>);

/// A text that is not a base path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "give a path like /chat: up to {BYTES_MAX} bytes, segments of letters, digits, `-`, `_`, `.` and `~` that are not `.` or `..`, and \
     the first of which is not one of the server's own ({})", own_segments().collect::<Vec<_>>().join(", ")
)]
pub struct BadBasePath;

impl BasePath {
    /// Takes `/chat` or `/chat/`; `/` and the empty text are no base path.
    pub fn parse(text: &str) -> Result<Self, BadBasePath> {
        let path = text.strip_suffix('/').unwrap_or(text);
        if path.is_empty() {
            return Ok(BasePath::default());
        }
        let mut segments = path.strip_prefix('/').ok_or(BadBasePath)?.split('/');
        let is_own = segments.clone().next().is_some_and(|first| own_segments().any(|own| own == first));
        match path.len() <= BYTES_MAX && !is_own && segments.all(is_plain_segment) {
            true => Ok(BasePath(path.into())),
            false => Err(BadBasePath),
        }
    }

    /// What stands before the server's own paths: empty, or `/chat` without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path for which a browser keeps the login cookie.
    pub(super) fn cookie_path(&self) -> &str {
        if self.0.is_empty() { "/" } else { &self.0 }
    }

    /// Whether this is the base path itself, without the slash that makes it the page's address.
    pub(super) fn is(&self, path: &str) -> bool {
        !self.0.is_empty() && *self.0 == *path
    }

    /// The server's own path of a path that begins with this; none if it does not.
    pub(super) fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&*self.0).filter(|rest| !self.0.is_empty() && rest.starts_with('/'))
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a segment of a path means itself, to every proxy and every router.
pub(super) fn is_plain_segment(segment: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !matches!(segment, "" | "." | "..") && segment.bytes().all(is_plain)
}

/// The same routes, also under the base path.
pub(super) fn under(base: &BasePath, router: Router) -> Router {
    match base.as_str() {
        "" => router,
        _ => Router::new()
            .fallback_service(router)
            .layer(middleware::from_fn_with_state(base.clone(), take_base_path_off)),
    }
}

async fn take_base_path_off(State(base): State<BasePath>, mut request: Request, next: Next) -> Response {
    if let Some(uri) = base.strip(request.uri().path()).and_then(|rest| with_path(request.uri(), rest)) {
        *request.uri_mut() = uri;
    }
    next.run(request).await
}

fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let path_and_query = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path_and_query.ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_plain_segments_and_has_one_form() {
        for (text, path) in [
            ("", ""),
            ("/", ""),
            ("/chat", "/chat"),
            ("/chat/", "/chat"),
            ("/a/b-c_d.e~f", "/a/b-c_d.e~f"),
            ("/v1x", "/v1x"),
        ] {
            assert_eq!(BasePath::parse(text).unwrap().as_str(), path, "{text}");
        }
        let long = format!("/{}", "x".repeat(BYTES_MAX));
        for text in [
            "chat",
            "//",
            "/chat//",
            "//chat",
            "/a//b",
            "/.",
            "/a/..",
            "/a/../b",
            "/a b",
            "/a%20b",
            "/a?b",
            "/a#b",
            "/{a}",
            "/\u{e9}",
            "/v1",
            "/v1/chat",
            "/api",
            "/login",
            "/compose.js",
            "/client",
            "http://host/chat",
            &long,
        ] {
            assert_eq!(BasePath::parse(text), Err(BadBasePath), "{text}");
        }
    }

    #[test]
    fn a_path_is_taken_off_at_the_boundary_of_a_segment_and_once() {
        let base = BasePath::parse("/chat").unwrap();
        for (path, rest) in [
            ("/chat/", Some("/")),
            ("/chat/v1/events", Some("/v1/events")),
            ("/chat/chat/v1", Some("/chat/v1")),
            ("/chat", None),
            ("/chats/v1", None),
            ("/v1/events", None),
        ] {
            assert_eq!(base.strip(path), rest, "{path}");
        }
        assert_eq!(BasePath::default().strip("/v1"), None);
        let uri = with_path(&"/chat/v1/events?after=1".parse().unwrap(), "/v1/events").unwrap();
        assert_eq!(uri.to_string(), "/v1/events?after=1");
    }
}
