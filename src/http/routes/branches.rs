//! Branches of a session: answers that were replaced and attempts that failed, listed and put back.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::sessions::{matches_any, metadata_answer, missing};
use crate::http::app::SharedApp;
use crate::http::describe::{InBranch, InSession, SessionMetadata};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::request::{OfBranch, OfSession, text_of};
use crate::model::{BranchReason, BranchSummary, Metadata, Revision};
use crate::store::StoreError;

/// The branches of a session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BranchList)]
pub(super) struct Branches {
    /// The oldest first.
    branches: Vec<ListedBranch>,
}

/// Rows that are not in the transcript.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Branch)]
struct ListedBranch {
    branch_id: String,
    /// The run that answered its first message.
    #[schema(required = true)]
    run_id: Option<String>,
    /// The row of the transcript at which it begins.
    at_row: usize,
    /// How many rows it has.
    rows: usize,
    /// When it left the transcript, in seconds.
    replaced_at: f64,
    reason: Reason,
}

#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = BranchReason)]
enum Reason {
    /// Its message got another answer.
    Regenerate,
    /// Its message was edited.
    Edit,
    /// It was to replace what is in the transcript, and failed.
    Failed,
}

impl From<BranchSummary> for ListedBranch {
    fn from(summary: BranchSummary) -> Self {
        let BranchSummary { branch_id, run_id, at_row, rows, replaced_at, reason } = summary;
        let reason = match reason {
            BranchReason::Regenerate => Reason::Regenerate,
            BranchReason::Edit => Reason::Edit,
            BranchReason::Failed => Reason::Failed,
        };
        ListedBranch { branch_id, run_id, at_row, rows, replaced_at, reason }
    }
}

/// Lists what was replaced in a session.
#[utoipa::path(
    get, path = "/v1/sessions/{sid}/branches", operation_id = "list_branches", tag = "branches", params(InSession),
    responses(
        (status = 200, description = "The branches.", body = Branches),
        (status = 404, description = "There is no such session.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn list(
    State(app): State<SharedApp>,
    OfSession(session): OfSession,
) -> Result<Json<Branches>, ApiError> {
    let branches = app.document(&session, |store, session| store.branches(session)).await?.map_err(missing)?;
    Ok(Json(Branches { branches: branches.into_iter().map(ListedBranch::from).collect() }))
}

/// Puts a branch back into the transcript. The rows from its place on become a branch.
#[utoipa::path(
    post, path = "/v1/sessions/{sid}/branches/{bid}/restore", operation_id = "restore_branch", tag = "branches",
    params(InBranch, ("if-match" = String, Header, description = "The revision that is to be changed, or * for any.")),
    responses(
        (status = 200, description = "It is back.", body = SessionMetadata, headers(("etag" = String, description = "The session's revision."))),
        (status = 404, description = "There is no such branch.", body = ErrorBody),
        (status = 409, description = "An answer has not ended, or the conversation before the branch is another one.", body = ErrorBody),
        (status = 412, description = "The session was changed since.", body = ErrorBody),
        (status = 428, description = "No revision was given.", body = ErrorBody),
        (status = "4XX", description = "Refused.", body = ErrorBody),
        (status = "5XX", description = "Failed.", body = ErrorBody),
    )
)]
pub(super) async fn restore(
    State(app): State<SharedApp>,
    OfBranch(session, branch): OfBranch,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let expected = text_of(&headers, &header::IF_MATCH).map(str::to_owned).ok_or_else(ApiError::no_revision)?;
    let restored = app.document(&session, move |store, session| {
        // A client that names a revision has read the session, and so is it read here: what was interrupted is resolved first.
        store.get_session(session).map_err(missing)?;
        let will_do = |revision: Option<&Revision>| matches_any(&expected, revision);
        let restored = store.restore_branch(session, &branch, will_do).map_err(|error| match error {
            StoreError::UnknownBranch { .. } => ApiError::no_branch(),
            error => missing(error),
        })?;
        restored.map(|session| Metadata::of(&session)).ok_or_else(ApiError::changed_meanwhile)
    });
    Ok(metadata_answer(&restored.await??))
}
