//! Findings about a data directory, for people and for programs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::sync::Mutex;

use crate::model::{RunId, SessionId};

/// Something that was not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// A word for programs, the same in every version.
    pub code: &'static str,
    /// The session that it is about.
    pub session: Option<SessionId>,
    /// The run that it is about.
    pub run: Option<RunId>,
    /// The file, relative to the data directory.
    pub file: PathBuf,
    /// Where in the file.
    pub offset: Option<u64>,
    /// A sentence for people: what was found, and what was done about it.
    pub message: String,
}

impl Finding {
    pub(super) fn new(code: &'static str, file: PathBuf, message: impl Into<String>) -> Self {
        Finding { code, session: None, run: None, file, offset: None, message: message.into() }
    }

    pub(super) fn of(self, session: &SessionId) -> Self {
        Finding { session: Some(session.clone()), ..self }
    }

    pub(super) fn of_run(self, session: &SessionId, run: &RunId) -> Self {
        Finding { session: Some(session.clone()), run: Some(run.clone()), ..self }
    }

    pub(super) fn at(self, offset: u64) -> Self {
        Finding { offset: Some(offset), ..self }
    }
}

/// Called with each finding that arises while a store is open, on the thread that found it. It must not use the store.
#[derive(Clone)]
pub struct OnFinding(Arc<dyn Fn(&Finding) + Send + Sync>);

impl OnFinding {
    /// Calls this.
    pub fn new(call: impl Fn(&Finding) + Send + Sync + 'static) -> Self {
        OnFinding(Arc::new(call))
    }
}

impl fmt::Debug for OnFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnFinding")
    }
}

/// Findings that hold while a store is open: reported when they arise, gone when they no longer hold.
#[derive(Debug, Default)]
pub(super) struct LiveFindings {
    listener: Option<OnFinding>,
    current: Mutex<Vec<Finding>>,
}

impl LiveFindings {
    pub(super) fn new(listener: Option<OnFinding>) -> Self {
        LiveFindings { listener, current: Mutex::default() }
    }

    /// Notes a finding in the place of an earlier one with its code. The listener is called if it is not the same.
    pub(super) fn report(&self, finding: Finding) {
        let mut current = self.current.lock();
        if current.contains(&finding) {
            return;
        }
        current.retain(|known| known.code != finding.code);
        current.push(finding.clone());
        drop(current);
        self.tell(&finding);
    }

    /// Calls the listener with a finding about something that is over.
    pub(super) fn tell(&self, finding: &Finding) {
        if let Some(OnFinding(call)) = &self.listener {
            call(finding);
        }
    }

    /// What this code was about is over.
    pub(super) fn clear(&self, code: &str) {
        self.current.lock().retain(|known| known.code != code);
    }

    pub(super) fn current(&self) -> Vec<Finding> {
        self.current.lock().clone()
    }
}
