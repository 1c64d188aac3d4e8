//! Routes of the page's files, which the server hands out as they are.

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::http::app::SharedApp;
use crate::http::base_path::BasePath;
use crate::http::page_files::FILES;

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
