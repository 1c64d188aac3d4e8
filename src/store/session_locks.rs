//! One lock for each session: changes of its document are made one at a time. With it, the journals that are open here.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

use crate::clock::Stopwatch;
use crate::journal::RunJournal;
use crate::model::{RunId, SessionId};

/// What belongs to one session while this process works on it.
#[derive(Debug, Default)]
pub(super) struct SessionLock {
    /// Held while the session's document is read to be changed, and changed.
    pub(super) document: Mutex<()>,
    runs: Mutex<HashMap<RunId, Opened>>,
    /// What was read of the journal of the pending turn, when it is not open here.
    read: Mutex<Option<(RunId, u64, JournalEnd)>>,
    /// When the store last tried to save an answer for which there was no room.
    tried_to_save: Mutex<Option<Stopwatch>>,
    /// The last number in this session's stream, if it is known.
    last_order: Mutex<Option<u64>>,
    /// Whether no branch of the session waits for an end that its run's journal holds.
    has_settled_branches: AtomicBool,
}

/// How often an answer for which there was no room is tried to be saved.
const SAVE_RETRY: Duration = Duration::from_secs(1);

/// A run whose journal was opened in this process.
#[derive(Debug)]
struct Opened {
    journal: Weak<RunJournal>,
    /// Whether no read of the session has looked at it since.
    is_new: bool,
}

/// What reading a journal of a certain length told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JournalEnd {
    pub(super) is_sealed: bool,
    /// When its latest event was written, in seconds.
    pub(super) last_event_at: Option<f64>,
}

impl SessionLock {
    /// The open journal of a run, if this process has it open.
    pub(super) fn open_run(&self, run: &RunId) -> Option<Arc<RunJournal>> {
        self.runs.lock().get(run).and_then(|opened| opened.journal.upgrade())
    }

    /// Whether the session's branches need no look: since it was loaded they had one, and no end has failed to be saved.
    pub(super) fn has_settled_branches(&self) -> bool {
        self.has_settled_branches.load(Ordering::Acquire)
    }

    /// Notes that the session's branches had their look, or need another one. The caller holds the document's lock.
    pub(super) fn note_branches(&self, are_settled: bool) {
        self.has_settled_branches.store(are_settled, Ordering::Release);
    }

    /// Notes that a run's journal is open.
    pub(super) fn note_run(&self, journal: &Arc<RunJournal>) {
        let opened = Opened { journal: Arc::downgrade(journal), is_new: true };
        self.runs.lock().insert(journal.run().clone(), opened);
    }

    /// The journals of all open runs.
    pub(super) fn open_runs(&self) -> Vec<Arc<RunJournal>> {
        self.runs.lock().values().filter_map(|opened| opened.journal.upgrade()).collect()
    }

    /// The runs that this process may have appended to since their journals were last looked at, each with whether it was
    /// opened since.
    pub(super) fn runs_to_look_at(&self) -> Vec<(RunId, bool)> {
        self.runs.lock().iter().map(|(run, opened)| (run.clone(), opened.is_new)).collect()
    }

    /// Notes that they were looked at. Those that are closed by now need no further look.
    pub(super) fn note_looked_at(&self) {
        self.runs.lock().retain(|_, opened| {
            opened.is_new = false;
            opened.journal.strong_count() > 0
        });
    }

    /// Forgets the runs that are closed: the session has no marker that would call for a look at them.
    pub(super) fn forget_closed_runs(&self) {
        self.runs.lock().retain(|_, opened| opened.journal.strong_count() > 0);
    }

    /// Whether it is time to try again to save an answer for which there was no room.
    pub(super) fn may_try_to_save(&self) -> bool {
        let mut tried = self.tried_to_save.lock();
        let is_time = tried.is_none_or(|tried| tried.elapsed() >= SAVE_RETRY);
        if is_time {
            *tried = Some(Stopwatch::start());
        }
        is_time
    }

    /// How a journal of this length ends. It is read once for each length.
    pub(super) fn end_at(&self, run: &RunId, bytes: u64, read: impl FnOnce() -> JournalEnd) -> JournalEnd {
        let mut known = self.read.lock();
        match &*known {
            Some((known_run, known_bytes, end)) if (known_run, *known_bytes) == (run, bytes) => *end,
            _ => {
                let end = read();
                *known = Some((run.clone(), bytes, end));
                end
            }
        }
    }

    /// The last number in the session's stream, if it is known.
    pub(super) fn last_order(&self) -> Option<u64> {
        *self.last_order.lock()
    }

    /// Notes a number of the session's stream, which is the last one if all before it are lower.
    pub(super) fn note_order(&self, order: u64) {
        let mut last = self.last_order.lock();
        *last = (*last).max(Some(order));
    }
}

/// The locks of all sessions that this process works on.
#[derive(Debug, Default)]
pub(super) struct SessionLocks {
    locks: Mutex<HashMap<SessionId, Weak<SessionLock>>>,
}

/// Locks that are no longer held are cleared away when there are this many.
const CLEAR_AFTER: usize = 1024;

impl SessionLocks {
    /// The lock of a session. As long as it is held, every caller gets the same one.
    pub(super) fn of(&self, session: &SessionId) -> Arc<SessionLock> {
        let mut locks = self.locks.lock();
        if let Some(lock) = locks.get(session).and_then(Weak::upgrade) {
            return lock;
        }
        if locks.len() >= CLEAR_AFTER && locks.len().is_power_of_two() {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::new(SessionLock::default());
        locks.insert(session.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests;
