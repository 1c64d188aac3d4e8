//! The end of what commands print on stderr. It is in no event and no row, because it may hold what a reader of the conversation must
//! not see: it is kept in the run's record, and the embedding program gets it for its log or its terminal.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::runner::Prompt;
use super::scribe::Desk;
use crate::limits::STDERR_BYTES_MAX;
use crate::model::{RunId, SessionId};
use crate::store::Store;

/// What one command printed on stderr.
#[derive(Debug, Clone, Copy)]
pub struct StderrTail<'a> {
    /// The session that it worked for.
    pub session: &'a SessionId,
    /// The run.
    pub run: &'a RunId,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The end of it: at most [`STDERR_BYTES_MAX`] bytes, and not empty. It may hold secrets and bytes that command a terminal.
    pub text: &'a str,
    /// Whether the attempt failed. One that was stopped did not.
    pub has_failed: bool,
}

/// Called with the stderr of each command that has ended. It must not wait, and must not use the store.
#[derive(Clone)]
pub struct OnStderr(Arc<dyn Fn(&StderrTail<'_>) + Send + Sync>);

impl OnStderr {
    /// Calls this.
    pub fn new(call: impl Fn(&StderrTail<'_>) + Send + Sync + 'static) -> Self {
        OnStderr(Arc::new(call))
    }
}

impl fmt::Debug for OnStderr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnStderr")
    }
}

/// Keeps the stderr of one run's commands: of all attempts together, the last bytes.
#[derive(Debug, Clone)]
pub(super) struct StderrKeeper {
    store: Store,
    desk: Desk,
    on_stderr: Option<OnStderr>,
    kept: Arc<Mutex<String>>,
}

impl StderrKeeper {
    pub(super) fn of(store: &Store, desk: &Desk, on_stderr: Option<OnStderr>) -> Self {
        StderrKeeper { store: store.clone(), desk: desk.clone(), on_stderr, kept: Arc::default() }
    }

    /// Keeps what a command printed. When this returns, it is durable, so that a run's details have it when the run has ended.
    pub(super) async fn keep(&self, prompt: &Prompt, text: &str, has_failed: bool) {
        if text.is_empty() {
            return;
        }
        if let Some(OnStderr(call)) = &self.on_stderr {
            let Prompt { session, run, attempt, .. } = prompt;
            call(&StderrTail { session, run, attempt: *attempt, text, has_failed });
        }
        let (store, session, run) = (self.store.clone(), prompt.session.clone(), prompt.run.clone());
        let kept = self.with(text);
        // Where there is no room for it, the answer counts, and not what was complained of.
        let _ = self.desk.document(move || store.keep_stderr(&session, &run, &kept)).await;
    }

    fn with(&self, text: &str) -> String {
        let mut kept = self.kept.lock();
        if !kept.is_empty() && !kept.ends_with('\n') {
            kept.push('\n');
        }
        kept.push_str(text);
        let surplus = kept.len().saturating_sub(STDERR_BYTES_MAX);
        let from = (surplus..=kept.len()).find(|at| kept.is_char_boundary(*at)).unwrap_or(kept.len());
        kept.drain(..from);
        kept.clone()
    }
}
