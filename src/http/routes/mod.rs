//! The routes: one file for each kind of thing. Each says what it answers, and the API's description is made of that.

mod append;
mod attachments;
mod branches;
mod chat;
mod events;
mod history;
mod login;
mod operations;
mod page;
mod run_list;
mod runners;
mod runs;
mod security;
mod sessions;
mod tickets;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware;
use axum::response::IntoResponse;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::admission::admit;
use super::app::SharedApp;
use super::compress::compress;
use super::describe::{RunStateWord, describe_refusals};
use super::error::{ApiError, ErrorBody};
use super::guard::guard;
use super::log::log;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Lastword",
        description = "Sessions, runs and their streams of a crash-proof session store: the last word is never lost."
    ),
    components(schemas(ErrorBody, RunStateWord)),
    security(("token" = []), ("cookie" = [])),
    tags(
        (name = "sessions", description = "Conversations: created, listed, read, changed, deleted."),
        (name = "runs", description = "Answers: begun, produced event by event, stopped."),
        (name = "streams", description = "Events as they come: of a run, of a session, of the list. Each `data` is JSON text."),
        (name = "attachments", description = "Files of messages, stored by the hash of their bytes."),
        (name = "branches", description = "Answers that were replaced."),
        (name = "chat", description = "The AI SDK's chat: its messages and its stream."),
        (name = "operations", description = "For the operator: health, numbers, the doctor's report."),
    ),
)]
struct Described;

/// Everything that is served.
pub(super) fn router(app: &SharedApp) -> Router {
    let (router, mut described) = OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::read, sessions::change, sessions::delete))
        .routes(routes!(sessions::events))
        .routes(routes!(runners::list))
        .routes(routes!(runs::begin, run_list::list))
        .routes(routes!(run_list::read))
        .routes(routes!(append::append, events::read))
        .routes(routes!(runs::stop))
        .routes(routes!(events::list))
        .routes(routes!(chat::begin))
        .routes(routes!(history::messages))
        .routes(routes!(history::resume))
        .routes(routes!(attachments::upload))
        .routes(routes!(attachments::read))
        .routes(routes!(branches::list))
        .routes(routes!(branches::restore))
        .routes(routes!(tickets::create))
        .routes(routes!(login::login))
        .routes(routes!(login::logout))
        .routes(routes!(operations::health))
        .routes(routes!(operations::readiness))
        .routes(routes!(operations::metrics))
        .routes(routes!(operations::check))
        .split_for_parts();
    attachments::describe(&mut described);
    describe_refusals(&mut described);
    security::describe(&mut described, &app.options.base_path);
    let described = operations::Description::of(&described);
    router
        .merge(page::router(&app.options.base_path))
        .route("/openapi.json", axum::routing::get(move || async move { described.into_response() }))
        .fallback(|| async {
            ApiError::not_found("there is nothing under this path: /openapi.json tells what there is")
        })
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), admit))
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .layer(middleware::from_fn_with_state(app.clone(), compress))
        .layer(middleware::from_fn_with_state(app.clone(), log))
        .with_state(app.clone())
}

async fn wrong_method() -> ApiError {
    let message = "this cannot be done with what is under this path: /openapi.json tells what can";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
