//! How a command says no: a sentence on stderr and an exit code.

use std::error::Error;
use std::io;
use std::process::ExitCode;

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
