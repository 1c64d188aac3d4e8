//! The page, and the transport for chat UIs: files that the server hands out as they are.

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::http::app::SharedApp;
use crate::http::base_path::BasePath;

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const ICON: &str = "image/svg+xml";
/// No browser runs it: it is a source file to be fetched and built into a page.
const SOURCE: &str = "text/plain; charset=utf-8";

/// Each file's path, type and text. None needs a token: the guard has their paths, too.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("../../../web/index.html")),
    ("/page.css", STYLE, include_str!("../../../web/page.css")),
    ("/page.js", SCRIPT, include_str!("../../../web/page.js")),
    ("/compose.js", SCRIPT, include_str!("../../../web/compose.js")),
    ("/dom.js", SCRIPT, include_str!("../../../web/dom.js")),
    ("/list.js", SCRIPT, include_str!("../../../web/list.js")),
    ("/login.js", SCRIPT, include_str!("../../../web/login.js")),
    ("/server.js", SCRIPT, include_str!("../../../web/server.js")),
    ("/stream.js", SCRIPT, include_str!("../../../web/stream.js")),
    ("/transcript.js", SCRIPT, include_str!("../../../web/transcript.js")),
    ("/icon.svg", ICON, include_str!("../../../web/icon.svg")),
    ("/client/chat-transport.ts", SOURCE, include_str!("../../../web/chat-transport.ts")),
];

pub(super) fn router(base: &BasePath) -> Router<SharedApp> {
    let router = match base.as_str() {
        "" => Router::new(),
        // Relative addresses of the page need the slash at the end.
        base => Router::new().route(base, get(to_page)),
    };
    FILES.iter().fold(router, |router, &(path, content_type, text)| {
        router.route(path, get(move || async move { file(content_type, text) }))
    })
}

async fn to_page(RawQuery(query): RawQuery) -> Response {
    let location = HeaderValue::try_from(query.map_or_else(|| "/".to_owned(), |query| format!("/?{query}")));
    (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location.unwrap_or(HeaderValue::from_static("/")))])
        .into_response()
}

fn file(content_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}
