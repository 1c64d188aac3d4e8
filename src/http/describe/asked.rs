//! What requests bring beside their bodies: ids in paths, and headers. And bytes as a body.

#![allow(dead_code, reason = "a description is made of their fields, and nothing else")]

use utoipa::{IntoParams, ToSchema};

/// The session that a path names.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
pub(in crate::http) struct InSession {
    /// The session.
    #[param(pattern = "^[A-Za-z0-9_-]{1,128}$")]
    sid: String,
}

/// The run that a path names.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
pub(in crate::http) struct InRun {
    /// The session.
    #[param(pattern = "^[A-Za-z0-9_-]{1,128}$")]
    sid: String,
    /// The run.
    #[param(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")]
    rid: String,
}

/// The attachment that a path names.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
pub(in crate::http) struct InAttachment {
    /// The session.
    #[param(pattern = "^[A-Za-z0-9_-]{1,128}$")]
    sid: String,
    /// The attachment.
    #[param(pattern = "^sha256-[0-9a-f]{64}$")]
    attachment: String,
}

/// The branch that a path names.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Path)]
pub(in crate::http) struct InBranch {
    /// The session.
    #[param(pattern = "^[A-Za-z0-9_-]{1,128}$")]
    sid: String,
    /// The branch.
    #[param(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")]
    bid: String,
}

/// The bytes of a file.
#[derive(Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub(in crate::http) struct FileBytes(Vec<u8>);

/// The header of a reader that resumes a stream.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::http) struct Resuming {
    /// The id of the last event that was seen. It wins over `after`. One that means nothing here is answered with a
    /// `snapshot` notice where there are server-sent events.
    #[param(rename = "last-event-id", nullable = false)]
    last_event_id: Option<String>,
}

/// The header of a reader that has a revision already.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::http) struct Knowing {
    /// A revision that is there already.
    #[param(rename = "if-none-match", nullable = false)]
    if_none_match: Option<String>,
}

/// The header of a change that is meant for one revision.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::http) struct Meaning {
    /// The revision that is meant; any if none is given.
    #[param(rename = "if-match", nullable = false)]
    if_match: Option<String>,
}
