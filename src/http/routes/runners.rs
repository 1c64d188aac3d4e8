//! The runners of the server: the names that a turn may choose from.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::app::SharedApp;
use crate::http::error::ErrorBody;
use crate::run::RunnerInfo;

/// The runners of the server.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ListedRunners {
    /// By name.
    runners: Vec<ListedRunner>,
}

/// A runner of the server.
#[derive(Debug, Serialize, ToSchema)]
struct ListedRunner {
    /// What a turn gives as `runner`.
    name: String,
    /// `demo`, `command`, `openai`, or the word that a runner of the embedding program has for itself.
    #[schema(example = "command")]
    kind: String,
    /// Whether it answers a turn whose `runner` is `default`. True of exactly one.
    default: bool,
}

impl From<RunnerInfo<'_>> for ListedRunner {
    fn from(RunnerInfo { name, kind, is_default }: RunnerInfo<'_>) -> Self {
        ListedRunner { name: name.to_owned(), kind: kind.to_owned(), default: is_default }
    }
}

/// Lists the runners that a turn may choose from.
#[utoipa::path(
    get, path = "/v1/runners", operation_id = "list_runners", tag = "runs",
    responses(
        (status = 200, description = "The runners.", body = ListedRunners),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn list(State(app): State<SharedApp>) -> Json<ListedRunners> {
    Json(ListedRunners { runners: app.supervisor.runners().list().map(ListedRunner::from).collect() })
}
