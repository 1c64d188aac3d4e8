//! Everything that may come instead of what was asked for. Each says what was attempted, where, and what to do next.

use std::time::Duration;

/// A refusal or a failure on the way.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nothing can be asked with what was given.
    #[error("{reason}")]
    BadSetup {
        /// What is wrong with it.
        reason: String,
    },
    /// The server said no.
    #[error("could not {attempt}: {message} (HTTP {status}, {code}){}", hint(*status))]
    Api {
        /// What was attempted.
        attempt: String,
        /// The HTTP status.
        status: u16,
        /// A word for programs.
        code: String,
        /// A sentence for people.
        message: String,
        /// The last event of the run, if the server said it.
        last_seq: Option<u64>,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// There was no connection: nothing was done.
    #[error(
        "could not {attempt}: {server} could not be reached: {reason}. Is the server running there, and is the address right?"
    )]
    Unreachable {
        /// What was attempted.
        attempt: String,
        /// The server's address.
        server: String,
        /// What the system said.
        reason: String,
    },
    /// The connection broke, or nothing came for too long: what was asked for may have been done.
    #[error(
        "could not {attempt}: the connection to {server} broke off: {reason}. It may have been done: look before you repeat it"
    )]
    BrokenOff {
        /// What was attempted.
        attempt: String,
        /// The server's address.
        server: String,
        /// What happened to the connection.
        reason: String,
    },
    /// The answer was none that a Lastword server gives.
    #[error(
        "could not {attempt}: the answer of {server} was not understood: {reason}. Is that a Lastword server, and as new as this client?"
    )]
    BadAnswer {
        /// What was attempted.
        attempt: String,
        /// The server's address.
        server: String,
        /// What was not understood.
        reason: String,
    },
    /// It failed again and again for as long as was allowed.
    #[error("gave up after {seconds:.0} s of trying: {last}")]
    GaveUp {
        /// For how long.
        seconds: f64,
        /// The last failure.
        last: Box<ClientError>,
    },
    /// Events were sent before, and whether they arrived is not known.
    #[error("could not {attempt}: whether event {seq} and those behind it arrived is not known yet: settle that first")]
    Unsettled {
        /// What was attempted.
        attempt: String,
        /// The first event in question.
        seq: u64,
    },
}

fn hint(status: u16) -> &'static str {
    match status {
        401 | 403 => ". Give a token that the server knows",
        404 | 409 | 412 => "",
        429 | 503 => ". Try again later",
        500.. => ". The server's log says more",
        _ => "",
    }
}

impl ClientError {
    /// The HTTP status, if the server answered.
    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::Api { status, .. } => Some(*status),
            ClientError::GaveUp { last, .. } => last.status(),
            _ => None,
        }
    }

    /// The server's word for programs, if it said no.
    pub fn code(&self) -> Option<&str> {
        match self {
            ClientError::Api { code, .. } => Some(code),
            ClientError::GaveUp { last, .. } => last.code(),
            _ => None,
        }
    }

    /// Whether the same may succeed a little later, without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } | ClientError::BrokenOff { .. } => true,
            ClientError::Api { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504 | 507),
            _ => false,
        }
    }

    /// How long the server asks to wait.
    pub(super) fn asked_pause(&self) -> Option<Duration> {
        match self {
            ClientError::Api { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16) -> ClientError {
        let (attempt, code, message) = ("read session a".to_owned(), "busy".to_owned(), "it is busy".to_owned());
        ClientError::Api { attempt, status, code, message, last_seq: None, retry_after: None }
    }

    #[test]
    fn an_error_says_what_was_attempted_and_what_to_do() {
        let text = refusal(503).to_string();
        assert_eq!(text, "could not read session a: it is busy (HTTP 503, busy). Try again later");
        let gave_up = ClientError::GaveUp { seconds: 61.2, last: Box::new(refusal(401)) };
        assert!(gave_up.to_string().starts_with("gave up after 61 s of trying: could not read session a"));
        assert_eq!((gave_up.status(), gave_up.code()), (Some(401), Some("busy")));
    }

    #[test]
    fn what_nobody_needs_to_change_is_tried_again() {
        let tried_again: Vec<u16> = (400..600).filter(|status| refusal(*status).is_transient()).collect();
        assert_eq!(tried_again, [408, 429, 500, 502, 503, 504, 507]);
    }
}
