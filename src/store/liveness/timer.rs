//! The store's one timer: a thread that examines the runs for which readers wait, when they are due.
//!
//! In a process that serves outside producers it also looks at the clock often, so that a pause of the process is recognized
//! before a lease is judged.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::sync::Mutex;

use super::facts::Seen;
use super::judge::Liveness;
use super::registry::{Registry, RunKey};
use super::seal::Examined;
use crate::store::Shared;
use crate::sync::thread::{self, JoinHandle};

/// The longest time between two looks at the clock that is not a pause of the process.
pub(in crate::store) const PAUSE_AFTER: Duration = Duration::from_secs(1);

/// How often the clock is looked at in a process that recognizes pauses.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// After how long a run that readers wait for is examined again, in case a wake-up was lost or another program wrote it.
const EXAMINE_EVERY: Duration = Duration::from_secs(5);

/// The same beside a writer of another process, whose appends wake no reader of this one.
const EXAMINE_EVERY_BESIDE_WRITER: Duration = Duration::from_millis(200);

/// How soon a run is examined again that could not be looked at.
const FAILED_RETRY: Duration = Duration::from_secs(1);

/// A lease holds in its last moment, too.
const AFTER_LAPSE: Duration = Duration::from_millis(1);

/// The timer's thread. It ends with this value.
#[derive(Debug)]
pub(in crate::store) struct TimerThread {
    registry: Arc<Registry>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl TimerThread {
    pub(in crate::store) fn new(registry: Arc<Registry>) -> Self {
        TimerThread { registry, thread: Mutex::default() }
    }

    /// Starts the thread if it does not run yet. If it cannot be started, the next call tries again.
    pub(in crate::store) fn ensure(&self, shared: &Arc<Shared>) -> io::Result<()> {
        let mut running = self.thread.lock();
        if running.is_none() {
            let (registry, store) = (self.registry.clone(), Arc::downgrade(shared));
            let work = move || run(&registry, &store);
            *running = Some(thread::spawn("lastword-timer", work)?);
        }
        Ok(())
    }
}

impl Drop for TimerThread {
    fn drop(&mut self) {
        self.registry.state().is_closing = true;
        self.registry.changed.notify_all();
        let thread = self.thread.lock().take();
        // A waker may have dropped the last handle of the store on this very thread.
        for thread in thread.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

fn run(registry: &Registry, store: &Weak<Shared>) {
    while let Some(due) = await_due(registry) {
        let Some(shared) = store.upgrade() else { return };
        for key in due {
            // The examination before this one may have taken a while: that is not a pause.
            registry.clock.look();
            let examined = catch_unwind(AssertUnwindSafe(|| shared.examine_due(&key)));
            if examined.is_err() {
                let at = registry.clock.now() + FAILED_RETRY;
                registry.state().schedule(&key, at);
            }
        }
    }
}

/// Waits until runs are due; nothing when the store is closing.
fn await_due(registry: &Registry) -> Option<Vec<RunKey>> {
    loop {
        let now = registry.clock.now();
        let mut state = registry.state();
        if state.is_closing {
            return None;
        }
        let due: Vec<RunKey> = std::iter::from_fn(|| state.take_due(now)).collect();
        if !due.is_empty() {
            return Some(due);
        }
        let next = state.due.first().map(|(at, _)| at.saturating_sub(now));
        let look = registry.grants_leases().then_some(LOOK_EVERY);
        match next.into_iter().chain(look).min() {
            Some(time) => {
                registry.changed.wait_for(&mut state, time);
            }
            None => registry.changed.wait(&mut state),
        }
    }
}

impl Shared {
    /// Examines a run that is due: for its readers, or for the lists that show its session.
    fn examine_due(&self, key: &RunKey) {
        match self.liveness.has_readers(key) {
            true => self.examine_for_readers(key),
            false => self.examine_for_lists(key),
        }
    }

    /// Tells lists when the lease of a run has lapsed. Its journal is left alone: no reader waits for it.
    fn examine_for_lists(&self, key: &RunKey) {
        let (session, run) = key;
        let lock = self.locks.of(session);
        match self.liveness_seen(&lock, session, run, Seen::NoEnd) {
            Ok(Liveness::Live { for_at_most: Some(time) }) => {
                let at = self.liveness.clock.now() + time + AFTER_LAPSE;
                self.liveness.state().schedule(key, at);
            }
            Ok(Liveness::Orphaned) if self.is_awaited(session, run) => {
                // If it goes on, lists are told so as well.
                lock.open_run(run).iter().for_each(|journal| journal.set_left(true));
                self.tell_listed_now(session);
            }
            _ => {}
        }
    }

    /// Examines a run, wakes its readers if there is something for them, and says when to come again.
    fn examine_for_readers(&self, key: &RunKey) {
        let (session, run) = key;
        let has_grown = self.is_written_elsewhere(key) && {
            let bytes = self.storage.journal_len(session, run).ok().flatten();
            self.liveness.has_grown(key, bytes)
        };
        let every = if self.storage.can_write() { EXAMINE_EVERY } else { EXAMINE_EVERY_BESIDE_WRITER };
        let (next, is_over) = match self.examine(session, run) {
            Ok(Examined::Waits(time)) => (time.map_or(every, |time| (time + AFTER_LAPSE).min(every)), false),
            Ok(Examined::Over) => (every, true),
            // It waits until there is room.
            Err(error) if error.code() == "no_space" => (FAILED_RETRY, false),
            Err(error) => {
                self.liveness.report(key, error);
                (FAILED_RETRY, false)
            }
        };
        let at = self.liveness.clock.now() + next;
        self.liveness.state().schedule(key, at);
        if is_over || has_grown {
            self.liveness.wake_readers(key);
        }
    }

    /// Whether appends to a run wake no reader, because its journal is not open in this process.
    fn is_written_elsewhere(&self, (session, run): &RunKey) -> bool {
        self.locks.of(session).open_run(run).is_none()
    }
}

#[cfg(test)]
mod tests;
