//! Runs as they are listed and shown: state, runner, model, times, usage, attempts. Nothing is resolved, and no run ends by being
//! looked at.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::sessions::missing;
use crate::http::app::SharedApp;
use crate::http::describe::{InRun, InSession};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{Asked, OfRun, OfSession};
use crate::http::token::{Access, Caller};
use crate::model::{RunEnd, RunId, RunState};
use crate::recovery::{Usage, UsageSum};
use crate::store::{RunInfo, StoreError};

/// Runs of one page, and of a page whose size is not given.
const RUNS_MAX: usize = 1_000;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsAsked {
    /// Only this number of runs, the last ones.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<usize>,
    /// Only runs that began before the run with this id.
    before: Option<String>,
}

/// Runs of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunPage {
    /// The runs of the page, the newest last.
    runs: Vec<ShownRun>,
    /// The sum over all runs of the session.
    usage: SummedUsage,
}

/// A run.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ShownRun {
    run_id: String,
    state: ShownState,
    /// The runner of its last attempt; null if its producer makes no attempts, as one outside of the server.
    #[schema(required = true)]
    runner: Option<String>,
    /// The model, once its producer has named it.
    #[schema(required = true)]
    model: Option<String>,
    /// Seconds since 1970.
    #[schema(required = true)]
    began_at: Option<f64>,
    /// Seconds since 1970.
    #[schema(required = true)]
    first_event_at: Option<f64>,
    /// Seconds since 1970. Null while it has not ended.
    #[schema(required = true)]
    ended_at: Option<f64>,
    /// The number of its last event; 0 without events.
    last_seq: u64,
    /// How many attempts were made so far; null if its producer makes none, as one outside of the server.
    #[schema(required = true)]
    attempts: Option<u64>,
    usage: SummedUsage,
    /// Why it ended, as a word; null if nothing says so, and of a complete answer.
    #[schema(required = true)]
    close_reason: Option<String>,
    /// The end of what its commands printed on stderr. Only of a single run, for callers with full rights, and if it is not empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_length = 8192)]
    stderr_tail: Option<String>,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
enum ShownState {
    /// It has no events yet.
    #[serde(rename = "unknown")]
    Unknown,
    #[serde(rename = "running")]
    Running,
    #[serde(rename = "completed")]
    Completed,
    #[serde(rename = "tool_limit_reached")]
    ToolLimitReached,
    #[serde(rename = "interrupted-by-user")]
    InterruptedByUser,
    #[serde(rename = "interrupted-by-crash")]
    InterruptedByCrash,
    #[serde(rename = "errored")]
    Errored,
    /// Its producer is dead, and no event ended it.
    #[serde(rename = "orphaned")]
    Orphaned,
    /// Another program's, left unfinished.
    #[serde(rename = "foreign")]
    Foreign,
    /// Its journal is not there.
    #[serde(rename = "gone")]
    Gone,
}

/// Tokens. A number that is not known is null; a sum is not known if a part is not.
#[derive(Debug, Serialize, ToSchema)]
struct SummedUsage {
    #[schema(required = true)]
    input_tokens: Option<u64>,
    #[schema(required = true)]
    output_tokens: Option<u64>,
    #[schema(required = true)]
    total_tokens: Option<u64>,
    /// The sums of what is known, where a number is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    at_least: Option<KnownUsage>,
}

/// Tokens that were reported.
#[derive(Debug, Serialize, ToSchema)]
struct KnownUsage {
    #[schema(required = true)]
    input_tokens: Option<u64>,
    #[schema(required = true)]
    output_tokens: Option<u64>,
    #[schema(required = true)]
    total_tokens: Option<u64>,
}

impl From<RunState> for ShownState {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Unknown => ShownState::Unknown,
            RunState::Running => ShownState::Running,
            RunState::Ended(RunEnd::Completed) => ShownState::Completed,
            RunState::Ended(RunEnd::ToolLimitReached) => ShownState::ToolLimitReached,
            RunState::Ended(RunEnd::InterruptedByUser) => ShownState::InterruptedByUser,
            RunState::Ended(RunEnd::InterruptedByCrash) => ShownState::InterruptedByCrash,
            RunState::Ended(RunEnd::Errored) => ShownState::Errored,
            RunState::Orphaned => ShownState::Orphaned,
            RunState::Foreign => ShownState::Foreign,
            RunState::Gone => ShownState::Gone,
        }
    }
}

impl From<Usage> for KnownUsage {
    fn from(Usage { input, output, total }: Usage) -> Self {
        KnownUsage { input_tokens: input, output_tokens: output, total_tokens: total }
    }
}

impl SummedUsage {
    /// The usage of one run: what it is at least is only there if an event reported something.
    fn of_run(usage: UsageSum) -> Self {
        Self::of(usage, usage.at_least.says_anything())
    }

    /// A sum over runs.
    fn of_all(usage: UsageSum) -> Self {
        Self::of(usage, true)
    }

    fn of(UsageSum { known, at_least }: UsageSum, has_parts: bool) -> Self {
        let Usage { input, output, total } = known;
        let at_least = (has_parts && !known.is_complete()).then(|| at_least.into());
        SummedUsage { input_tokens: input, output_tokens: output, total_tokens: total, at_least }
    }
}

impl From<RunInfo> for ShownRun {
    fn from(info: RunInfo) -> Self {
        ShownRun {
            run_id: info.run.to_string(),
            state: info.state.into(),
            runner: info.runner,
            model: info.model,
            began_at: info.began_at,
            first_event_at: info.first_event_at,
            ended_at: info.ended_at,
            last_seq: info.last_seq,
            attempts: info.attempts,
            usage: SummedUsage::of_run(info.usage),
            close_reason: info.close_reason,
            stderr_tail: None,
        }
    }
}

/// Lists the runs of a session. Nothing is resolved.
#[utoipa::path(
    get, path = "/v1/sessions/{sid}/runs", operation_id = "list_runs", tag = "runs", params(InSession, RunsAsked),
    responses(
        (status = 200, description = "The runs.", body = RunPage),
        (status = 400, description = "The page cannot be given like this.", body = ErrorBody),
        (status = 404, description = "There is no such session, or no run before which to begin.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn list(
    State(app): State<SharedApp>,
    OfSession(session): OfSession,
    Asked(asked): Asked<RunsAsked>,
) -> Result<Json<RunPage>, ApiError> {
    let limit = asked.limit.unwrap_or(RUNS_MAX);
    if !(1..=RUNS_MAX).contains(&limit) {
        return Err(ApiError::invalid(format!("limit is a number from 1 to {RUNS_MAX}")));
    }
    let unknown =
        || ApiError::not_found("before names no run of this session: give the id of the first run that you have");
    let before = asked.before.map(|run| RunId::parse(&run).map_err(|_| unknown())).transpose()?;
    let listed = app.document(&session, move |store, id| store.list_runs(id, before.as_ref(), limit)).await?;
    let listed = listed.map_err(|error| match error {
        StoreError::RunNotFound { .. } => unknown(),
        error => missing(error),
    })?;
    let runs = listed.runs.into_iter().map(ShownRun::from).collect();
    Ok(Json(RunPage { runs, usage: SummedUsage::of_all(listed.usage) }))
}

/// Shows a run. Nothing is resolved.
#[utoipa::path(
    get, path = "/v1/sessions/{sid}/runs/{rid}", operation_id = "read_run", tag = "runs", params(InRun),
    responses(
        (status = 200, description = "The run.", body = ShownRun),
        (status = 404, description = "There is no such run.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn read(
    State(app): State<SharedApp>,
    caller: Caller,
    OfRun(session, run): OfRun,
) -> Result<Json<ShownRun>, ApiError> {
    let shown = app.document(&session, move |store, session| {
        let info = store.run_info(session, &run)?;
        // What a command complains about may hold what a reader must not see.
        let stderr_tail = match caller.access {
            Access::Write => store.stderr_tail(session, &run)?,
            Access::Read => None,
        };
        Ok(ShownRun { stderr_tail, ..ShownRun::from(info) })
    });
    let shown = shown.await?.map_err(|error| match error {
        StoreError::RunNotFound { .. } => ApiError::no_run(),
        error => missing(error),
    })?;
    Ok(Json(shown))
}
