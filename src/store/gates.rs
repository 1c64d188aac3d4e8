//! One gate a session: whoever changes a session's document passes it alone. Runs that are open are known here too.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::journal::RunJournal;
use crate::model::{RunId, SessionId};

/// What belongs to one session while anybody works on it.
#[derive(Debug, Default)]
pub(super) struct Gate {
    /// Held while the session's document is read to be changed, and changed.
    pub(super) document: Mutex<()>,
    runs: Mutex<HashMap<RunId, Weak<RunJournal>>>,
}

impl Gate {
    /// The open journal of a run, if somebody holds it open.
    pub(super) fn open_run(&self, run: &RunId) -> Option<Arc<RunJournal>> {
        self.runs.lock().get(run).and_then(Weak::upgrade)
    }

    /// Notes that a run's journal is open, and forgets those that no longer are.
    pub(super) fn note_run(&self, journal: &Arc<RunJournal>) {
        let mut runs = self.runs.lock();
        runs.retain(|_, journal| journal.strong_count() > 0);
        runs.insert(journal.run().clone(), Arc::downgrade(journal));
    }

    /// The journals of all open runs.
    pub(super) fn open_runs(&self) -> Vec<Arc<RunJournal>> {
        self.runs.lock().values().filter_map(Weak::upgrade).collect()
    }
}

/// The gates of all sessions that anybody works on.
#[derive(Debug, Default)]
pub(super) struct Gates {
    gates: Mutex<HashMap<SessionId, Weak<Gate>>>,
}

/// Forgotten gates are cleared away when there are this many more than at the last clearing.
const CLEAR_AFTER: usize = 1024;

impl Gates {
    /// The gate of a session. As long as anybody holds it, everybody gets the same one.
    pub(super) fn of(&self, session: &SessionId) -> Arc<Gate> {
        let mut gates = self.gates.lock();
        if let Some(gate) = gates.get(session).and_then(Weak::upgrade) {
            return gate;
        }
        if gates.len() >= CLEAR_AFTER && gates.len().is_power_of_two() {
            gates.retain(|_, gate| gate.strong_count() > 0);
        }
        let gate = Arc::new(Gate::default());
        gates.insert(session.clone(), Arc::downgrade(&gate));
        gate
    }
}
