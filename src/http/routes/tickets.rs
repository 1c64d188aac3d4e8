//! Tickets: the call that issues one. What one opens is decided in `door`.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::clock::{Clock, SystemClock};
use crate::http::app::SharedApp;
use crate::http::door::{PATH_RULE, TicketPath, issue};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{expect_json, parse_json, read_body_up_to};
use crate::http::token::Caller;

/// Bytes of the body: a path of 1,024 bytes, each escaped, and some room.
const BODY_BYTES_MAX: usize = 8 * 1024;

/// What a ticket is for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TicketAsked {
    /// The path that is to be read, with or without the server's base path. The ticket is also good for what is below it.
    #[schema(
        pattern = "^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*){1,16}$",
        max_length = 1024,
        example = "/v1/sessions/trip/events"
    )]
    path: String,
}

/// A ticket.
#[derive(Serialize, ToSchema)]
pub(super) struct TicketIssued {
    /// What to send as `?ticket=`.
    ticket: String,
    /// When it expires, in seconds since 1970.
    expires_at: f64,
}

/// Issues a ticket: permission to read a path and what is below it for an hour, sent as `?ticket=` by clients that cannot
/// send a header. It has at most the rights of the token, and ends with it. A server without tokens issues tickets, too.
#[utoipa::path(
    post, path = "/v1/tickets", operation_id = "issue_ticket", tag = "operations", request_body = TicketAsked,
    responses(
        (status = 201, description = "The ticket.", body = TicketIssued),
        (status = 400, description = "There are no tickets for this path.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
    )
)]
pub(super) async fn create(
    State(app): State<SharedApp>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    expect_json(request.headers())?;
    let body = read_body_up_to(request, &app, BODY_BYTES_MAX).await?;
    let asked: TicketAsked = parse_json(&body)?;
    let path = app.options.base_path.strip(&asked.path).unwrap_or(&asked.path);
    let path = TicketPath::parse(path).ok_or_else(|| ApiError::invalid(PATH_RULE))?;
    let ticket = issue(&app.door.tokens(), caller, path, SystemClock.now()).ok_or_else(ApiError::token_removed)?;
    let issued = TicketIssued { ticket: ticket.text, expires_at: ticket.expires_at.seconds() };
    Ok((StatusCode::CREATED, Json(issued)).into_response())
}
