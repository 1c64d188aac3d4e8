//! For those who operate the server: is it there, is it ready, what does it count, what does it offer, is all well.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::doctor::{self, DoctorError, DoctorOptions};
use crate::http::app::{App, SharedApp};
use crate::http::blocking_pool::at;
use crate::http::describe::CheckReport;
use crate::http::error::{ApiError, ErrorBody, with_causes};
use crate::http::metrics::Exposition;
use crate::http::request::Asked;
use crate::http::store_metrics::write_store;
use crate::model::SessionId;

/// Sessions that one check may name.
const CHECKED_MAX: usize = 1_000;

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok` or `ready`.
    status: &'static str,
}

/// Whether the process answers.
#[utoipa::path(
    get, path = "/healthz", operation_id = "health", tag = "operations", security(()),
    responses((status = 200, description = "It does.", body = Health),
              (status = "4XX", description = "Refused.", body = ErrorBody))
)]
pub(super) async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether new turns can be begun: the store can be written, nothing is wrong with it, and the server is not about to end.
#[utoipa::path(
    get, path = "/readyz", operation_id = "readiness", tag = "operations", security(()),
    responses((status = 200, description = "They can.", body = Health),
              (status = 503, description = "They cannot.", body = ErrorBody),
              (status = "4XX", description = "Refused.", body = ErrorBody))
)]
pub(super) async fn readiness(State(app): State<SharedApp>) -> Result<Json<Health>, ApiError> {
    if app.is_draining() {
        return Err(ApiError::draining());
    }
    if let Some(reason) = app.store.stopped_reason() {
        return Err(reason.into());
    }
    if let Some(finding) = app.store.live_findings().into_iter().next() {
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, finding.code, finding.message));
    }
    Ok(Json(Health { status: "ready" }))
}

/// What the server and its store count, in the text format of Prometheus.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "operations",
    responses((status = 200, description = "Numbers.", body = String, content_type = "text/plain"),
              (status = "4XX", description = "Refused.", body = ErrorBody))
)]
pub(super) async fn metrics(State(app): State<SharedApp>) -> Response {
    let mut text = Exposition::default();
    app.metrics.write(&mut text);
    write_bounds(&app, &mut text);
    write_runs(&app, &mut text);
    write_store(&app.store, &mut text);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text.into_text()).into_response()
}

fn write_bounds(app: &App, text: &mut Exposition) {
    text.gauge("lastword_http_body_bytes", "Bytes of request bodies in memory.", app.bodies.bytes());
    text.gauge("lastword_http_answer_bytes", "Bytes of large answers in memory.", app.answers.bytes());
    text.counter(
        "lastword_http_bodies_refused_total",
        "Requests that were refused because their body found no room in memory.",
        app.bodies.refused.get(),
    );
    text.counter(
        "lastword_http_too_many_connections_total",
        "Connections and requests that were refused because their address or their token has as many as it may have.",
        app.client_places.refused.get(),
    );
}

fn write_runs(app: &App, text: &mut Exposition) {
    text.gauge("lastword_runs_at_work", "Runs that runners are at work on.", app.supervisor.running().len());
    text.gauge("lastword_followed_runs", "Runs that somebody follows.", app.hub.followed_runs());
    text.gauge("lastword_producers_open", "Runs of outside producers that are held open.", app.producers.len());
}

/// Looks through the whole directory, or some sessions, and says what is wrong. Changes nothing.
#[utoipa::path(
    get, path = "/v1/check", operation_id = "check", tag = "operations",
    params(("session" = Option<Vec<String>>, Query, description = "Only these sessions.")),
    responses(
        (status = 200, description = "The report.", body = CheckReport),
        (status = 400, description = "It cannot be checked like this.", body = ErrorBody),
        (status = 404, description = "There is no such session.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn check(
    State(app): State<SharedApp>,
    Asked(asked): Asked<Vec<(String, String)>>,
) -> Result<Response, ApiError> {
    let sessions = named_sessions(&asked)?;
    let data = app.options.data.clone();
    let options = DoctorOptions { sessions, allow_network_fs: true, ..DoctorOptions::default() };
    let report = at(&app.blocking.doctor, move || doctor::check(&data, &options)).await?;
    match report {
        Ok(report) => Ok(([(header::CONTENT_TYPE, "application/json")], report.to_json()).into_response()),
        Err(DoctorError::NotFound { .. }) => Err(ApiError::no_session()),
        Err(DoctorError::Storage(error)) => Err(ApiError::broken(with_causes(&error))),
    }
}

/// The sessions of a query that may name several.
fn named_sessions(asked: &[(String, String)]) -> Result<Vec<SessionId>, ApiError> {
    let named = asked.iter().filter(|(name, _)| name == "session");
    let named = named.map(|(_, id)| SessionId::parse(id).map_err(|_| ApiError::no_session()));
    let named: Vec<SessionId> = named.collect::<Result<_, _>>()?;
    match named.len() {
        0..=CHECKED_MAX => Ok(named),
        _ => Err(ApiError::invalid(format!("at most {CHECKED_MAX} sessions can be named at a time"))),
    }
}

/// The API's description, as it is served.
#[derive(Debug, Clone)]
pub(super) struct Description(Bytes);

impl Description {
    pub(super) fn of(described: &utoipa::openapi::OpenApi) -> Self {
        let json = described.to_json().expect("a description is JSON");
        // utoipa 5.5 spells this key of a link as Rust would.
        Description(Bytes::from(json.replace("\"operation_id\":", "\"operationId\":")))
    }
}

impl IntoResponse for Description {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}
