//! How a command says no: a sentence on stderr and an exit code.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use lastword::client::ClientError;
use lastword::doctor::DoctorError;
use lastword::{AppendError, StorageError, StoreError};

use super::output;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// The answer is no. Exit 1.
    No(String),
    /// The answer is no, and it was printed. Exit 1.
    Told,
    /// The command was used wrongly. Exit 2.
    Usage(String),
    /// Somebody else is at work. Exit 3.
    Busy(String),
    /// The disk failed. Exit 4.
    Storage(String),
    /// Nobody reads the output any more. Exit 0, silently.
    OutputClosed,
}

impl Failure {
    pub(super) fn report(self) -> ExitCode {
        let (code, message) = match self {
            Failure::OutputClosed => return ExitCode::SUCCESS,
            Failure::Told => return ExitCode::from(1),
            Failure::No(message) => (1, message),
            Failure::Usage(message) => (2, message),
            Failure::Busy(message) => (3, message),
            Failure::Storage(message) => (4, message),
        };
        output::aside(&message);
        ExitCode::from(code)
    }

    /// A failure to write to stdout.
    pub(super) fn output(cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Storage(format!("could not write to standard output: {cause}")),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let message = with_causes(&error);
        match &error {
            StoreError::InvalidId(_)
            | StoreError::TooLong { .. }
            | StoreError::EmptyMessage
            | StoreError::BadAttachments
            | StoreError::BadAttachment { .. }
            | StoreError::AttachmentTooLarge { .. }
            | StoreError::BadLease { .. }
            | StoreError::Append(AppendError::Invalid(_)) => Failure::Usage(message),
            StoreError::RunInProgress { .. } => Failure::Busy(message),
            _ => error.storage().map_or(Failure::No(message.clone()), |cause| of_storage(cause, message)),
        }
    }
}

impl From<DoctorError> for Failure {
    fn from(error: DoctorError) -> Self {
        match error {
            DoctorError::NotFound { .. } => Failure::No(error.to_string()),
            DoctorError::Storage(error) => error.into(),
        }
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        let message = with_causes(&error);
        of_storage(&error, message)
    }
}

/// The same exit codes as without a server: the server's word counts, and where it has none of ours, the status.
impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = with_causes(&error);
        match (error.code().unwrap_or_default(), error.status()) {
            _ if matches!(error, ClientError::BadSetup { .. }) => Failure::Usage(message),
            ("run_in_progress" | "busy", _) => Failure::Busy(message),
            ("stopped" | "no_space" | "io_error", _) => Failure::Storage(message),
            (code, _) if is_answer(code) => Failure::No(message),
            (_, Some(404 | 409 | 410 | 412)) => Failure::No(message),
            (_, Some(429 | 503)) => Failure::Busy(message),
            (_, Some(408)) | (_, Some(500..)) | (_, None) => Failure::Storage(message),
            (_, Some(_)) => Failure::Usage(message),
        }
    }
}

/// Words of a store that is well and says no.
fn is_answer(code: &str) -> bool {
    matches!(
        code,
        "not_found"
            | "exists"
            | "sealed"
            | "fenced"
            | "deleted"
            | "conflict"
            | "refused"
            | "corrupt_utf8"
            | "corrupt_json"
            | "wrong_shape"
    )
}

fn of_storage(error: &StorageError, message: String) -> Failure {
    match error {
        StorageError::Busy { .. } => Failure::Busy(message),
        StorageError::NoDirectory { .. } | StorageError::Fenced { .. } => Failure::No(message),
        _ => Failure::Storage(message),
    }
}

pub(super) fn with_causes(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        message.push_str(&format!(": {next}"));
        cause = next.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_code(status: u16, code: &str) -> u8 {
        let (attempt, code, message) = (String::new(), code.to_owned(), String::new());
        match (ClientError::Api { attempt, status, code, message, last_seq: None, retry_after: None }).into() {
            Failure::OutputClosed => 0,
            Failure::No(_) | Failure::Told => 1,
            Failure::Usage(_) => 2,
            Failure::Busy(_) => 3,
            Failure::Storage(_) => 4,
        }
    }

    #[test]
    fn a_server_that_says_no_gives_the_exit_code_of_the_same_no_without_one() {
        for (status, code, expected) in [
            (400, "invalid_argument", 2),
            (401, "unauthorized", 2),
            (404, "not_found", 1),
            (409, "exists", 1),
            (409, "run_in_progress", 3),
            (409, "sealed", 1),
            (409, "seq_conflict", 1),
            (412, "precondition_failed", 1),
            (413, "too_large", 2),
            (500, "corrupt_json", 1),
            (500, "io_error", 4),
            (502, "http_502", 4),
            (503, "draining", 3),
            (503, "stopped", 4),
            (507, "no_space", 4),
        ] {
            assert_eq!(exit_code(status, code), expected, "{status} {code}");
        }
    }
}
