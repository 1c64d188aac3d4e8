//! One gate a session: whoever changes a session's document passes it alone. Who is alive is known here too: runs that
//! are open, runs that somebody vouches for, and producers outside whose lease has not lapsed.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Stopwatch, Timestamp};
use crate::journal::RunJournal;
use crate::model::{RunId, SessionId};

/// What belongs to one session while anybody works on it.
#[derive(Debug)]
pub(super) struct Gate {
    /// Held while the session's document is read to be changed, and changed.
    pub(super) document: Mutex<()>,
    runs: Mutex<HashMap<RunId, Opened>>,
    vouched: Mutex<HashMap<RunId, Weak<()>>>,
    leases: Mutex<HashMap<RunId, Lease>>,
    /// The journal of the pending turn, when it is not open here: its length when it was read, and whether it was sealed.
    read_at: Mutex<Option<(RunId, u64, bool)>>,
    /// When an answer was last tried to be saved for which there was no room.
    tried_to_save: Mutex<Option<Stopwatch>>,
    clock: Arc<dyn Clock>,
}

/// How often an answer for which there was no room is tried to be saved for those who wait for it.
const SAVE_RETRY: Duration = Duration::from_secs(1);

/// A run whose journal was opened in this process.
#[derive(Debug)]
struct Opened {
    journal: Weak<RunJournal>,
    /// Whether no read of the session has looked at it since.
    is_new: bool,
}

/// For how long a producer outside counts as alive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Lease {
    /// After its last sign of life.
    pub(super) seconds: f64,
    /// When that was.
    pub(super) renewed_at: Timestamp,
}

impl Lease {
    pub(super) fn holds_at(&self, now: Timestamp) -> bool {
        let age = now.seconds() - self.renewed_at.seconds();
        // A sign of life from further in the future than the lease is a wrong clock.
        (-self.seconds..=self.seconds).contains(&age)
    }
}

/// While this lives, its run counts as live, whether or not anything was appended to it yet.
#[derive(Debug)]
pub struct KeptAlive {
    _gate: Arc<Gate>,
    _token: Arc<()>,
}

impl Gate {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Gate {
            document: Mutex::default(),
            runs: Mutex::default(),
            vouched: Mutex::default(),
            leases: Mutex::default(),
            read_at: Mutex::default(),
            tried_to_save: Mutex::default(),
            clock,
        }
    }

    /// The open journal of a run, if somebody holds it open.
    pub(super) fn open_run(&self, run: &RunId) -> Option<Arc<RunJournal>> {
        self.runs.lock().get(run).and_then(|opened| opened.journal.upgrade())
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

    pub(super) fn keep_alive(self: &Arc<Self>, run: &RunId) -> KeptAlive {
        let mut vouched = self.vouched.lock();
        vouched.retain(|_, token| token.strong_count() > 0);
        let token = vouched.get(run).and_then(Weak::upgrade).unwrap_or_default();
        vouched.insert(run.clone(), Arc::downgrade(&token));
        KeptAlive { _gate: self.clone(), _token: token }
    }

    /// Whether somebody in this process works on a run. That its journal is open says nothing of a producer outside.
    pub(super) fn is_held(&self, run: &RunId) -> bool {
        let is_open = self.open_run(run).is_some_and(|journal| !journal.is_surely_sealed());
        let is_vouched = || self.vouched.lock().get(run).is_some_and(|token| token.strong_count() > 0);
        (is_open && !self.leases.lock().contains_key(run)) || is_vouched()
    }

    /// The lease of a producer outside, counted from its last append if its journal is open.
    pub(super) fn lease(&self, run: &RunId) -> Option<Lease> {
        let mut lease = self.leases.lock().get(run).copied()?;
        let appended = self.open_run(run).map_or(0, |journal| journal.last_used_micros());
        lease.renewed_at = lease.renewed_at.max(Timestamp::from_micros(appended));
        Some(lease)
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

    /// Whether a journal of this length is sealed. It is read once for each length.
    pub(super) fn is_sealed_at(&self, run: &RunId, bytes: u64, read: impl FnOnce() -> bool) -> bool {
        let mut known = self.read_at.lock();
        match &*known {
            Some((known_run, known_bytes, is_sealed)) if (known_run, *known_bytes) == (run, bytes) => *is_sealed,
            _ => {
                let is_sealed = read();
                *known = Some((run.clone(), bytes, is_sealed));
                is_sealed
            }
        }
    }

    /// Notes a sign of life of a producer outside.
    pub(super) fn renew_lease(&self, run: &RunId, lease: Lease) {
        self.leases.lock().insert(run.clone(), lease);
    }

    pub(super) fn end_lease(&self, run: &RunId) {
        self.leases.lock().remove(run);
    }

    fn is_leased(&self) -> bool {
        let now = self.clock.now();
        let leased: Vec<RunId> = self.leases.lock().keys().cloned().collect();
        leased.iter().filter_map(|run| self.lease(run)).any(|lease| lease.holds_at(now))
    }

    /// Whether any run of the session is live.
    pub(super) fn has_live_run(&self) -> bool {
        let open: Vec<RunId> = self.runs.lock().keys().cloned().collect();
        open.iter().any(|run| self.is_held(run))
            || self.vouched.lock().values().any(|token| token.strong_count() > 0)
            || self.is_leased()
    }
}

/// The gates of all sessions that anybody works on.
#[derive(Debug)]
pub(super) struct Gates {
    gates: Mutex<HashMap<SessionId, Weak<Gate>>>,
    /// Gates that nobody may hold at the moment but whose sessions have producers outside.
    leased: Mutex<HashMap<SessionId, Arc<Gate>>>,
    clock: Arc<dyn Clock>,
}

/// Forgotten gates are cleared away when there are this many more than at the last clearing.
const CLEAR_AFTER: usize = 1024;

impl Gates {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Gates { gates: Mutex::default(), leased: Mutex::default(), clock }
    }

    /// The gate of a session. As long as anybody holds it, everybody gets the same one.
    pub(super) fn of(&self, session: &SessionId) -> Arc<Gate> {
        let mut gates = self.gates.lock();
        if let Some(gate) = gates.get(session).and_then(Weak::upgrade) {
            return gate;
        }
        if gates.len() >= CLEAR_AFTER && gates.len().is_power_of_two() {
            gates.retain(|_, gate| gate.strong_count() > 0);
        }
        let gate = Arc::new(Gate::new(self.clock.clone()));
        gates.insert(session.clone(), Arc::downgrade(&gate));
        gate
    }

    /// Notes a sign of life of a producer outside, which nobody in this process vouches for.
    pub(super) fn renew_lease(&self, session: &SessionId, run: &RunId, seconds: f64) {
        let gate = self.of(session);
        gate.renew_lease(run, Lease { seconds, renewed_at: self.clock.now() });
        let mut leased = self.leased.lock();
        if leased.len() >= CLEAR_AFTER && leased.len().is_power_of_two() {
            leased.retain(|_, gate| gate.is_leased());
        }
        leased.insert(session.clone(), gate);
    }
}
