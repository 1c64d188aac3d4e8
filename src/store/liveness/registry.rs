//! The registry of live runs: which runs this process works on, which outside producers hold a lease, and which readers wait
//! for a run. It knows memory alone; what the files say is `facts.rs`'s.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex, MutexGuard};

use super::judge::{Began, LastSign, LeaseFacts};
use super::timer::PAUSE_AFTER;
use crate::awake::{AwakeClock, AwakeOptions};
use crate::clock::Clock;
use crate::journal::AppendWaker;
use crate::model::{RunId, SessionId};
use crate::store::{Options, StoreError};

/// Lapsed leases are dropped when there are this many more than at the last time.
const SWEEP_AFTER: usize = 1024;

/// The same for the runs of one session.
const SWEEP_SESSION_AFTER: usize = 32;

/// A run of a session.
pub(in crate::store) type RunKey = (SessionId, RunId);

/// The lease of an outside producer that this process has heard of. Shared by the handles of its run.
#[derive(Debug)]
pub(in crate::store) struct Lease {
    pub(in crate::store) seconds: f64,
    /// When its run began.
    began: Began,
    last_sign_micros: AtomicU64,
}

impl Lease {
    /// Notes a sign of life at this time of [`Registry::sign_time`].
    pub(in crate::store) fn renew(&self, at: Duration) {
        self.last_sign_micros.fetch_max(micros(at), Ordering::Relaxed);
    }

    fn last_sign(&self) -> Duration {
        Duration::from_micros(self.last_sign_micros.load(Ordering::Relaxed))
    }

    fn holds_at(&self, now: Duration, granted: Duration) -> bool {
        now.saturating_sub(self.last_sign().max(granted)).as_secs_f64() <= self.seconds
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What is known of one run in memory.
#[derive(Default)]
struct RunEntry {
    holders: usize,
    /// Its journal holds its end.
    is_sealed: bool,
    lease: Option<Arc<Lease>>,
    readers: Vec<(u64, AppendWaker)>,
    /// When the timer examines it next.
    due: Option<Duration>,
    /// How long its journal was when the timer last looked.
    seen_bytes: Option<u64>,
    /// Why it could not be sealed or saved. Given to a reader once.
    failure: Option<StoreError>,
}

impl RunEntry {
    fn is_needless(&self) -> bool {
        self.holders == 0 && self.lease.is_none() && self.readers.is_empty()
    }
}

/// What the memory of this process says of a run.
pub(in crate::store) struct Known {
    pub(in crate::store) is_held: bool,
    pub(in crate::store) lease: Option<LeaseFacts>,
    pub(in crate::store) began: Option<Began>,
}

#[derive(Default)]
pub(super) struct State {
    runs: HashMap<SessionId, HashMap<RunId, RunEntry>>,
    /// The runs that readers wait for, by the awake time of their next examination.
    pub(super) due: BTreeSet<(Duration, RunKey)>,
    pub(super) is_closing: bool,
    leases_swept: usize,
    next_reader: u64,
}

/// All that this process knows of live runs.
pub(in crate::store) struct Registry {
    /// The timer's clock, and the clock of leases in a process that serves outside producers.
    pub(super) clock: AwakeClock,
    /// The clock of leases in a process that does not.
    wall: Arc<dyn Clock>,
    /// Whether this process serves outside producers: then every lease is granted anew at its start and after a pause.
    grants_leases: bool,
    state: Mutex<State>,
    /// Tells the timer that there may be something due earlier.
    pub(super) changed: Condvar,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// While this lives, its run counts as live, whether or not anything was appended to it yet.
#[derive(Debug)]
pub struct KeptAlive {
    registry: Arc<Registry>,
    key: RunKey,
    renews_lease: bool,
}

impl KeptAlive {
    /// Ends it with a sign of life of the run's producer, whose request was answered.
    pub fn end_with_sign_of_life(mut self) {
        self.renews_lease = true;
    }
}

impl Drop for KeptAlive {
    fn drop(&mut self) {
        self.registry.release(&self.key, self.renews_lease);
    }
}

/// A reader that waits for a run. The store's timer seals the run if it is orphaned, and wakes the reader.
#[derive(Debug)]
pub(in crate::store) struct Waiting {
    registry: Arc<Registry>,
    key: RunKey,
    reader: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.registry.forget_reader(&self.key, self.reader);
    }
}

impl Registry {
    /// A process that serves outside producers looks at the clock often enough to tell a pause from a busy machine.
    pub(in crate::store) fn of(options: &Options) -> Self {
        let grants_leases = options.serves_producers;
        let awake = match grants_leases {
            true => AwakeOptions { gap_max: PAUSE_AFTER, wall: Some(options.clock.clone()) },
            false => AwakeOptions { gap_max: Duration::MAX, wall: None },
        };
        let clock = AwakeClock::new(options.steady.clone(), awake);
        let (wall, state, changed) = (options.clock.clone(), Mutex::default(), Condvar::new());
        Registry { clock, wall, grants_leases, state, changed }
    }

    /// What time it is for leases: awake time in a process that serves outside producers, else the wall clock's.
    pub(in crate::store) fn sign_time(&self) -> Duration {
        match self.grants_leases {
            true => self.clock.now(),
            false => Duration::from_micros(self.wall.now().micros() as u64),
        }
    }

    /// The same, and since when all leases are granted.
    fn sign_time_and_grant(&self) -> (Duration, Duration) {
        match self.grants_leases {
            true => {
                let look = self.clock.look();
                (look.awake, look.pause_ended)
            }
            false => (self.sign_time(), Duration::ZERO),
        }
    }

    pub(super) fn grants_leases(&self) -> bool {
        self.grants_leases
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What memory says of a run, if anything.
    pub(in crate::store) fn known(&self, session: &SessionId, run: &RunId) -> Option<Known> {
        let state = self.state.lock();
        let entry = state.runs.get(session)?.get(run)?;
        let (is_held, lease) = (entry.holders > 0, entry.lease.clone());
        drop(state);
        let began = lease.as_ref().map(|lease| lease.began);
        let lease = lease.map(|lease| self.lease_facts(&lease));
        Some(Known { is_held, lease, began })
    }

    /// A lease that this process has heard of, from the last sign of life or the moment that all leases were granted.
    fn lease_facts(&self, lease: &Lease) -> LeaseFacts {
        let (seconds, last_sign) = (lease.seconds, lease.last_sign());
        let last_sign = match self.grants_leases {
            true => LastSign::Awake(last_sign.max(self.clock.look().pause_ended)),
            false => LastSign::Wall(last_sign.as_secs_f64()),
        };
        LeaseFacts { seconds, last_sign }
    }

    /// Whether only the files say when the producer of a run with a lease last gave a sign of life.
    pub(super) fn lease_on_disk_counts(&self, session: &SessionId, run: &RunId) -> bool {
        !self.grants_leases && self.known(session, run).is_none_or(|known| known.lease.is_none())
    }

    /// The lease of a run that this process has not heard of, if it grants leases. If not, the files say when the last sign
    /// was.
    pub(in crate::store) fn granted_lease(&self, seconds: f64) -> Option<LeaseFacts> {
        let last_sign = LastSign::Awake(self.clock.look().pause_ended);
        self.grants_leases.then_some(LeaseFacts { seconds, last_sign })
    }

    /// Lets a run count as live while the guard lives.
    pub(in crate::store) fn keep_alive(self: &Arc<Self>, session: &SessionId, run: &RunId) -> KeptAlive {
        let mut state = self.state.lock();
        state.entry(session, run).holders += 1;
        KeptAlive { registry: self.clone(), key: (session.clone(), run.clone()), renews_lease: false }
    }

    fn release(&self, key: &RunKey, renews_lease: bool) {
        let (now, sign) = (self.clock.now(), self.sign_time());
        let mut state = self.state.lock();
        let mut may_be_over = false;
        if let Some(entry) = state.find(key) {
            entry.holders -= 1;
            entry.lease.iter().filter(|_| renews_lease).for_each(|lease| lease.renew(sign));
            // A run with a lease is due when that lapses.
            may_be_over = entry.holders == 0 && entry.lease.is_none() && !entry.readers.is_empty();
        }
        if may_be_over {
            state.schedule(key, now);
            self.changed.notify_all();
        }
        state.tidy(key);
    }

    /// Has lists told when the lease of a run lapses, which its producer has just renewed after it had.
    pub(in crate::store) fn expect_lapse(&self, session: &SessionId, run: &RunId) {
        let (now, key) = (self.clock.now(), (session.clone(), run.clone()));
        let mut state = self.state.lock();
        let seconds = state.find(&key).and_then(|entry| entry.lease.as_ref()).map(|lease| lease.seconds);
        if let Some(seconds) = seconds.filter(|_| self.grants_leases) {
            state.schedule(&key, now + Duration::from_secs_f64(seconds));
            self.changed.notify_all();
        }
    }

    /// The lease of a run whose producer is outside of this process, with a sign of life now. The run began at this second of
    /// the wall clock, or just now if none is given.
    pub(in crate::store) fn lease(
        &self,
        session: &SessionId,
        run: &RunId,
        seconds: f64,
        began: Option<f64>,
    ) -> Arc<Lease> {
        let (now, granted) = self.sign_time_and_grant();
        let just_now = || match self.grants_leases {
            true => Began::Awake(now),
            false => Began::Wall(now.as_secs_f64()),
        };
        let mut state = self.state.lock();
        state.sweep_leases(now, granted);
        state.sweep_session(session, now, granted);
        let entry = state.entry(session, run);
        let began = began.map_or_else(just_now, Began::Wall);
        let fresh = || Arc::new(Lease { seconds, began, last_sign_micros: AtomicU64::new(0) });
        let lease = entry.lease.get_or_insert_with(fresh).clone();
        lease.renew(now);
        if self.grants_leases {
            // Lists are told when it has lapsed.
            state.schedule(&(session.clone(), run.clone()), now + Duration::from_secs_f64(seconds));
        }
        drop(state);
        self.changed.notify_all();
        lease
    }

    /// Notes that a run has ended: handles that are still open do not make it live. Says whether it had a lease.
    pub(in crate::store) fn end_lease(&self, session: &SessionId, run: &RunId) -> bool {
        let mut state = self.state.lock();
        let key = (session.clone(), run.clone());
        let had_lease = state.find(&key).is_some_and(|entry| {
            entry.is_sealed = true;
            entry.lease.take().is_some()
        });
        state.tidy(&key);
        had_lease
    }

    /// Whether this process works on a run of the session, or a producer of one holds an unlapsed lease.
    pub(in crate::store) fn has_live_run(&self, session: &SessionId) -> bool {
        let state = self.state.lock();
        let Some(runs) = state.runs.get(session) else { return false };
        if runs.values().any(|entry| entry.holders > 0 && !entry.is_sealed) {
            return true;
        }
        let leases: Vec<Arc<Lease>> = runs.values().filter_map(|entry| entry.lease.clone()).collect();
        drop(state);
        let (now, granted) = self.sign_time_and_grant();
        leases.iter().any(|lease| lease.holds_at(now, granted))
    }

    /// Registers a reader that waits for a run. It is woken when the run may be over, and when this process opens the run's
    /// journal.
    pub(in crate::store) fn wait_for(self: &Arc<Self>, key: RunKey, waker: AppendWaker) -> Waiting {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.next_reader += 1;
        let reader = state.next_reader;
        let entry = state.entry(&key.0, &key.1);
        entry.readers.push((reader, waker));
        // It may have looked before what the timer knows of.
        entry.seen_bytes = None;
        state.schedule(&key, now);
        drop(state);
        self.changed.notify_all();
        Waiting { registry: self.clone(), key, reader }
    }

    fn forget_reader(&self, key: &RunKey, reader: u64) {
        let mut state = self.state.lock();
        if let Some(entry) = state.find(key) {
            entry.readers.retain(|(known, _)| *known != reader);
            if entry.readers.is_empty() {
                (entry.seen_bytes, entry.failure) = (None, None);
            }
            if let Some(due) = entry.due.take_if(|_| entry.readers.is_empty() && entry.lease.is_none()) {
                state.due.remove(&(due, key.clone()));
            }
        }
        state.tidy(key);
    }

    /// Wakes the readers of a run, and has the run examined soon.
    pub(in crate::store) fn wake(&self, session: &SessionId, run: &RunId) {
        let key = (session.clone(), run.clone());
        let now = self.clock.now();
        self.state.lock().schedule(&key, now);
        self.changed.notify_all();
        self.wake_readers(&key);
    }

    pub(super) fn wake_readers(&self, key: &RunKey) {
        let wakers = self.state.lock().wakers(key);
        wakers.iter().for_each(AppendWaker::wake);
    }

    /// Wakes the readers of all runs of a session, because it was deleted.
    pub(in crate::store) fn wake_session(&self, session: &SessionId) {
        let runs: Vec<RunId> =
            self.state.lock().runs.get(session).into_iter().flat_map(HashMap::keys).cloned().collect();
        runs.iter().for_each(|run| self.wake(session, run));
    }

    /// Whether a reader waits for a run.
    pub(super) fn has_readers(&self, key: &RunKey) -> bool {
        self.state.lock().find(key).is_some_and(|entry| !entry.readers.is_empty())
    }

    /// Notes how long a run's journal is, and says whether it may have grown since its readers looked. It may at the timer's
    /// first look.
    pub(super) fn has_grown(&self, key: &RunKey, bytes: Option<u64>) -> bool {
        let mut state = self.state.lock();
        let Some(entry) = state.find(key) else { return false };
        std::mem::replace(&mut entry.seen_bytes, bytes) != bytes
    }

    /// Keeps a failure for the readers of a run, and wakes them.
    pub(super) fn report(&self, key: &RunKey, failure: StoreError) {
        let mut state = self.state.lock();
        state.find(key).into_iter().for_each(|entry| entry.failure = Some(failure.clone()));
        drop(state);
        self.wake_readers(key);
    }

    /// The failure that kept a run from being sealed or saved, once.
    pub(in crate::store) fn take_failure(&self, session: &SessionId, run: &RunId) -> Option<StoreError> {
        let key = (session.clone(), run.clone());
        self.state.lock().find(&key)?.failure.take()
    }
}

impl State {
    fn entry(&mut self, session: &SessionId, run: &RunId) -> &mut RunEntry {
        self.runs.entry(session.clone()).or_default().entry(run.clone()).or_default()
    }

    fn find(&mut self, key: &RunKey) -> Option<&mut RunEntry> {
        self.runs.get_mut(&key.0)?.get_mut(&key.1)
    }

    fn wakers(&mut self, key: &RunKey) -> Vec<AppendWaker> {
        self.find(key).into_iter().flat_map(|entry| entry.readers.iter().map(|(_, waker)| waker.clone())).collect()
    }

    /// Has a run examined at this awake time, if readers wait for it or its lease may lapse, and it is not due before.
    pub(super) fn schedule(&mut self, key: &RunKey, at: Duration) {
        let is_watched = |entry: &&mut RunEntry| !entry.readers.is_empty() || entry.lease.is_some();
        let Some(entry) = self.find(key).filter(is_watched) else { return };
        if entry.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(before) = entry.due.replace(at) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key.clone()));
    }

    /// Takes the run that is due first, if it is due by now.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<RunKey> {
        let (_, key) = self.due.first().filter(|(at, _)| *at <= now).cloned()?;
        self.due.pop_first();
        self.find(&key).into_iter().for_each(|entry| entry.due = None);
        self.tidy(&key);
        Some(key)
    }

    fn tidy(&mut self, key: &RunKey) {
        let Some(runs) = self.runs.get_mut(&key.0) else { return };
        if runs.get(&key.1).is_some_and(RunEntry::is_needless) {
            let due = runs.remove(&key.1).and_then(|entry| entry.due);
            due.into_iter().for_each(|due| {
                self.due.remove(&(due, key.clone()));
            });
        }
        if runs.is_empty() {
            self.runs.remove(&key.0);
        }
    }

    /// Drops lapsed leases of runs that no handle is open for. What the files say of them is the same.
    fn sweep_leases(&mut self, now: Duration, granted: Duration) {
        if self.runs.len() < self.leases_swept + SWEEP_AFTER {
            return;
        }
        self.runs.values_mut().for_each(|runs| sweep(runs, now, granted));
        self.runs.retain(|_, runs| !runs.is_empty());
        self.leases_swept = self.runs.len();
    }

    /// The same for one session with many runs.
    fn sweep_session(&mut self, session: &SessionId, now: Duration, granted: Duration) {
        if let Some(runs) = self.runs.get_mut(session).filter(|runs| runs.len() >= SWEEP_SESSION_AFTER) {
            sweep(runs, now, granted);
        }
    }
}

/// Drops the lapsed leases among these runs. An entry that is still due is dropped when it is.
fn sweep(runs: &mut HashMap<RunId, RunEntry>, now: Duration, granted: Duration) {
    for entry in runs.values_mut() {
        let is_over = |lease: &mut Arc<Lease>| Arc::strong_count(lease) == 1 && !lease.holds_at(now, granted);
        entry.lease.take_if(|lease| is_over(lease));
    }
    runs.retain(|_, entry| !entry.is_needless() || entry.due.is_some());
}

#[cfg(test)]
mod tests;
