//! The page, and the transport for chat UIs: files that the server hands out as they are.

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::http::app::SharedApp;
use crate::http::base_path::BasePath;

const PAGE: &str = include_str!("../../../web/index.html");
const SCRIPT: &str = include_str!("../../../web/page.js");
const STYLE: &str = include_str!("../../../web/page.css");
const CHAT_TRANSPORT: &str = include_str!("../../../web/chat-transport.ts");
const ICON: &str = include_str!("../../../web/icon.svg");

pub(super) fn router(base: &BasePath) -> Router<SharedApp> {
    let router = match base.as_str() {
        "" => Router::new(),
        // Relative addresses of the page need the slash at the end.
        base => Router::new().route(base, get(to_page)),
    };
    router
        .route("/", get(|| async { file("text/html; charset=utf-8", PAGE) }))
        .route("/page.js", get(|| async { file("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/page.css", get(|| async { file("text/css; charset=utf-8", STYLE) }))
        // No browser runs it: it is a source file to be fetched and built into a page.
        .route("/client/chat-transport.ts", get(|| async { file("text/plain; charset=utf-8", CHAT_TRANSPORT) }))
        .route("/icon.svg", get(|| async { file("image/svg+xml", ICON) }))
}

async fn to_page(RawQuery(query): RawQuery) -> Response {
    let location = HeaderValue::try_from(query.map_or_else(|| "/".to_owned(), |query| format!("/?{query}")));
    (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location.unwrap_or(HeaderValue::from_static("/")))])
        .into_response()
}

fn file(content_type: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}
