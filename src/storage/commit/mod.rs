//! Group commit: appends of all journals are gathered, written to a shared log, and made durable with one fsync.
//!
//! The rules, and what a crash leaves at each step:
//! 1. The journal's own file is written first; only bytes that are in it enter the log. A crash here leaves lines that
//!    were appended and not made durable.
//! 2. A batch of records is written to the log and synced once. A crash before the sync has returned leaves any part of
//!    the batch; none of its tickets was done. A record is whole or it is no record.
//! 3. Tickets are done. From here on a replay brings back what the journals' own files lost.
//! 4. A segment is used again only when every journal it names is synced in its own file; the directories of these were
//!    synced before the journal took its first line. A crash before that replays the segment; replaying what is there
//!    already changes nothing.
//! 5. When the store is closed, every journal is synced, and a new segment says that nothing before it counts.
//!
//! After the first failed fsync nothing is written any more ([`Latch`]). Where the log cannot be written, each journal is
//! synced in its own file.
//!
//! [`Core`] is the state machine. The first waiter becomes the leader and runs the commit; appenders who only asked to be
//! called back leave it to a thread, which also commits, within the background interval, what no appender waits for. Without
//! that thread each append commits itself. Once a batch, and at least every second, the lock file is compared with the locked
//! one. On a simulated disk there are no threads, and the steps are made by hand.

mod core;
mod latch;
mod log;
mod options;
mod queue;
mod stream;
mod threads;

use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::sync::{Condvar, Mutex, MutexGuard};

use self::core::Core;
pub(super) use self::latch::Latch;
pub(super) use self::log::{FoundLog, Log, Retired, Slot};
pub use self::options::CommitOptions;
use self::queue::Gathered;
pub(super) use self::stream::Stream;
use self::threads::Threads;
use super::error::StorageError;
use super::finding::{Finding, LiveFindings};
use super::lock::LOCK_CHECK_EVERY;
use super::ticket::{Batch, Callback, Commits, Durable, Outcome, Ticket, tell};
use crate::clock::Stopwatch;
use crate::limits::COMMIT_LINES_BYTES_MAX;
use crate::meter::Meter;
use crate::model::SessionId;
use crate::sync::thread::JoinHandle;

/// For how long the committer looks out for more before it sleeps until there is.
const LOOK_OUT: Duration = Duration::from_micros(20);
/// Pauses between two looks: each takes from the appenders what they are about to write.
const PAUSES: usize = 64;
/// For how long it waits for them, at the most.
const PATIENCE_MAX: Duration = Duration::from_millis(2);

/// The finding about a thread that could not be started.
const NO_THREAD: &str = "no_commit_thread";

/// Makes what is appended durable.
#[derive(Debug)]
pub(super) struct Committer {
    queue: Mutex<Queue>,
    /// Wakes the thread that commits.
    wake: Condvar,
    is_hurried: AtomicBool,
    /// Whether the thread calls back, and nobody is to count on it.
    is_telling: AtomicBool,
    /// How many appends wait, and how many were in the batch before.
    waiting: AtomicUsize,
    expected: AtomicUsize,
    /// How long the last commit took.
    commit_nanos: AtomicU64,
    core: Mutex<Core>,
    latch: Arc<Latch>,
    background: Option<Duration>,
    /// Abandoned journals whose files are still open, and how many there may be.
    left: AtomicUsize,
    left_max: usize,
    streams: Mutex<Vec<Weak<Stream>>>,
    threads: Threads,
    findings: Arc<LiveFindings>,
    meter: Arc<Meter>,
    own: Weak<Committer>,
}

/// What a committer works with.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) log: Log,
    /// The last batch that was found.
    pub(super) last_batch: u64,
    pub(super) options: CommitOptions,
    pub(super) latch: Arc<Latch>,
    /// How many abandoned journals keep a file open.
    pub(super) left_max: usize,
    pub(super) findings: Arc<LiveFindings>,
    pub(super) meter: Arc<Meter>,
}

/// What has arrived.
#[derive(Default)]
struct Queue {
    gathered: Gathered,
    /// A used one, for its room.
    spare: Gathered,
    /// Steps that have taken a batch and not yet handed over its callbacks. More than one, because the next step can begin
    /// when the sync of the last one is done.
    steps_under_way: usize,
    /// Whether the thread will come by soon, unasked.
    is_armed: bool,
    /// Those that the thread is to tell: whoever settled their batch may hold locks that they need.
    to_tell: Vec<(Callback, Outcome)>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("gathered", &self.gathered).finish_non_exhaustive()
    }
}

impl Committer {
    /// A committer without threads, if it is used by hand, else one whose threads start now or when they are first needed.
    pub(super) fn new(parts: Parts, by_hand: bool) -> Arc<Self> {
        Self::with_threads(parts, Threads::new(by_hand))
    }

    fn with_threads(parts: Parts, threads: Threads) -> Arc<Self> {
        let Parts { log, last_batch, options, latch, left_max, findings, meter } = parts;
        let committer = Arc::new_cyclic(|own| Committer {
            queue: Mutex::default(),
            wake: Condvar::new(),
            is_hurried: AtomicBool::new(false),
            is_telling: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            expected: AtomicUsize::new(0),
            commit_nanos: AtomicU64::new(0),
            core: Mutex::new(Core::new(log, last_batch)),
            latch,
            background: options.background,
            left: AtomicUsize::new(0),
            left_max,
            streams: Mutex::default(),
            threads,
            findings,
            meter,
            own: own.clone(),
        });
        committer.threads.ensure_commits(&committer.own);
        committer
    }

    pub(super) fn latch(&self) -> &Arc<Latch> {
        &self.latch
    }

    /// Knows a journal from now on.
    pub(super) fn register(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.lock();
        if streams.len() == streams.capacity() {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(Arc::downgrade(stream));
    }

    /// Called when the writer of a journal is dropped. At most `left_max` abandoned journals keep a file open, until the log
    /// needs them no more.
    pub(super) fn leave(&self) {
        if self.left.fetch_add(1, Ordering::Relaxed) + 1 >= self.left_max {
            self.want_sweep();
        }
    }

    /// Lines were written that nobody waits for.
    #[inline]
    pub(super) fn note(&self, stream: &Arc<Stream>) {
        if stream.note() {
            self.note_first(stream);
        }
    }

    #[cold]
    fn note_first(&self, stream: &Arc<Stream>) {
        let mut queue = self.queue.lock();
        queue.gathered.noted.push(stream.clone());
        self.arm(queue);
    }

    /// Lines were written at this offset that somebody wants durable.
    pub(super) fn submit(&self, stream: &Arc<Stream>, offset: u64, lines: &[u8]) -> Ticket {
        let mut queue = self.queue.lock();
        if self.latch.is_stopped() {
            return Ticket::failed(Box::new(self.latch.refusal()));
        }
        queue.gathered.push(stream, offset, lines);
        let batch = queue.gathered.batch.clone();
        let waiting = queue.gathered.entries.len();
        self.waiting.store(waiting, Ordering::Release);
        if waiting == self.expected.load(Ordering::Relaxed) {
            self.wake.notify_one();
        }
        let is_too_much = queue.gathered.lines.len() > COMMIT_LINES_BYTES_MAX;
        self.arm(queue);
        if is_too_much {
            self.settle(&batch);
        }
        let own = self.own.upgrade().expect("whoever submits holds the committer");
        Ticket::pending(batch, own)
    }

    /// Makes sure that what is gathered becomes durable in time: by the thread, or here and now if it could not be started.
    fn arm(&self, mut queue: MutexGuard<'_, Queue>) {
        if self.background.is_none() || queue.is_armed {
            return;
        }
        queue.is_armed = self.threads.ensure_commits(&self.own);
        let is_left_to_thread = queue.is_armed;
        drop(queue);
        if is_left_to_thread {
            self.wake.notify_one();
        } else if !self.threads.are_by_hand() && !self.threads.are_closing() {
            self.step_alone(self.core.lock());
        }
    }

    /// Reports that the thread could not be started, or that it could after all.
    /// Starts the thread that could not be started, if it can be by now: without appends no other call does.
    pub(super) fn retry_thread(&self) {
        self.threads.ensure_commits(&self.own);
    }

    fn note_thread(&self, started: &io::Result<JoinHandle<()>>) {
        match started {
            Ok(_) => self.findings.clear(NO_THREAD),
            Err(cause) => {
                let message = format!(
                    "the thread that makes events durable in the background could not be started ({cause}): every append is \
                     synced by itself until it can, which is tried again every second; allow this user more threads"
                );
                self.findings.report(Finding::new(NO_THREAD, PathBuf::from("_commit_log"), message));
            }
        }
    }

    /// Makes everything that was appended so far durable, now.
    pub(super) fn commit(&self) -> Result<(), StorageError> {
        let batch = self.queue.lock().gathered.batch.clone();
        let core = self.core.lock();
        self.step_alone(core);
        if self.threads.are_by_hand() {
            self.tell_all();
        }
        self.latch.check()?;
        match batch.outcome() {
            Some(Err(error)) => Err(*error),
            _ => Ok(()),
        }
    }

    /// Makes everything durable in place that was appended to a session's journals, because they are to be moved.
    pub(super) fn secure_session(&self, session: &SessionId) -> Result<(), StorageError> {
        let streams: Vec<_> = self.streams.lock().iter().filter_map(Weak::upgrade).collect();
        let mut own = streams.iter().filter(|stream| stream.session == *session);
        own.try_for_each(|stream| self.secure(stream))
    }

    /// Makes a journal durable in place. A failure stops the store.
    pub(super) fn secure(&self, stream: &Stream) -> Result<(), StorageError> {
        self.latch.check()?;
        stream.secure().inspect_err(|error| self.latch.stop(error))
    }

    fn step(&self) {
        self.linger();
        self.step_alone(self.core.lock());
    }

    /// Leaves the next step to the thread, if others commit too, so that it pays to wait for them. Says whether it will
    /// be made.
    fn leave_to_thread(&self) -> bool {
        let has_company = self.expected.load(Ordering::Relaxed) > 1 || self.core.is_locked();
        if !has_company || !self.threads.ensure_commits(&self.own) {
            return false;
        }
        self.hurry();
        !self.is_telling.load(Ordering::SeqCst)
    }

    /// One step for whoever waits. If there was nothing to do, somebody else has it done and is about to say so.
    fn step_or_wait(&self, batch: &Batch) {
        let core = self.core.lock();
        if !batch.is_settled() && !self.step_alone(core) {
            batch.wait();
        }
    }

    /// Those whose tickets were just done are likely to come again: a sync that began at once would leave most of them
    /// to the next. They are waited for, as many as there were, for a fraction of what a sync takes.
    fn linger(&self) {
        let expected = self.expected.load(Ordering::Relaxed);
        let (patience, watch) = (self.patience(), Stopwatch::start());
        while expected > 1 && self.waiting.load(Ordering::Acquire) < expected {
            match watch.elapsed() {
                spent if spent >= patience => return,
                spent if spent < LOOK_OUT => (0..PAUSES).for_each(|_| std::hint::spin_loop()),
                spent => self.sleep_until(expected, patience - spent),
            }
        }
    }

    fn sleep_until(&self, expected: usize, limit: Duration) {
        let mut queue = self.queue.lock();
        if queue.gathered.entries.len() < expected {
            self.wake.wait_for(&mut queue, limit);
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_nanos(self.commit_nanos.load(Ordering::Relaxed) / 4).min(PATIENCE_MAX)
    }

    /// One step, by whoever holds the core. Says whether there was anything to do.
    fn step_alone(&self, mut core: MutexGuard<'_, Core>) -> bool {
        let gathered = self.take();
        if gathered.is_empty() {
            self.give_back(gathered);
            return false;
        }
        let outcome = self.judged(self.latch.check_lock().and_then(|()| self.commit_caught(&mut core, &gathered)));
        let (is_half_full, lacks_spare) = (core.log.is_half_full(), core.log.lacks_spare());
        drop(core);
        self.expected.store(gathered.entries.len(), Ordering::Relaxed);
        self.tell(gathered.batch.settle(&outcome), &outcome);
        self.give_back(gathered);
        if is_half_full {
            self.want_sweep();
        } else if lacks_spare {
            self.threads.ask_to_tend(&self.own);
        }
        true
    }

    /// A panic stops the store, and each waiter gets the error.
    fn commit_caught(&self, core: &mut Core, gathered: &Gathered) -> Result<(), StorageError> {
        let committed = catch_unwind(AssertUnwindSafe(|| self.commit_measured(core, gathered)));
        committed.unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    /// Stops the store because one of its threads panicked.
    fn stop_after(&self, panic: &(dyn Any + Send)) {
        self.latch.stop(&panicked(panic));
    }

    fn commit_measured(&self, core: &mut Core, gathered: &Gathered) -> Result<(), StorageError> {
        let watch = Stopwatch::start();
        let committed = core.commit(gathered);
        let took = watch.elapsed();
        self.commit_nanos.store(took.as_nanos() as u64, Ordering::Relaxed);
        match &committed {
            Ok(()) => {
                self.meter.batch_appends.observe(gathered.entries.len() as u64);
                self.meter.sync_nanos.observe_time(took);
            }
            Err(_) => self.meter.sync_failures.add(1),
        }
        committed
    }

    fn judged(&self, committed: Result<(), StorageError>) -> Outcome {
        match committed {
            Ok(()) => Ok(Durable::after_sync()),
            Err(error) => {
                self.latch.stop(&error);
                // A full disk is no reason to try again: the store has stopped.
                Err(Box::new(if error.is_no_space() { self.latch.refusal() } else { error }))
            }
        }
    }

    /// Has callbacks called by the thread, which holds no lock that they could need. By hand, [`Committer::commit`] calls
    /// them.
    fn tell(&self, callbacks: Vec<Callback>, outcome: &Outcome) {
        if !callbacks.is_empty() {
            let to_tell = callbacks.into_iter().map(|callback| (callback, outcome.clone()));
            self.queue.lock().to_tell.extend(to_tell);
            self.wake.notify_one();
        }
    }

    fn tell_all(&self) {
        let to_tell = std::mem::take(&mut self.queue.lock().to_tell);
        to_tell.into_iter().for_each(|(callback, outcome)| tell(callback, &outcome));
    }

    /// What the thread does when there is something to do.
    ///
    /// A callback may wait for somebody who waits for a ticket. So nobody leaves a step to this thread while it tells:
    /// whoever has looked before that is served by the step here, whoever looks later makes its own.
    fn work(&self) {
        if self.queue.lock().to_tell.is_empty() {
            return self.step();
        }
        self.is_telling.store(true, Ordering::SeqCst);
        if self.is_hurried.load(Ordering::SeqCst) {
            self.step_alone(self.core.lock());
        }
        self.tell_all();
        self.is_telling.store(false, Ordering::SeqCst);
    }

    /// Takes what was gathered, for a step that ends with [`Committer::give_back`]. The caller holds the core.
    fn take(&self) -> Gathered {
        let mut queue = self.queue.lock();
        queue.steps_under_way += 1;
        self.take_from(&mut queue)
    }

    fn take_from(&self, queue: &mut Queue) -> Gathered {
        self.is_hurried.store(false, Ordering::SeqCst);
        self.waiting.store(0, Ordering::Release);
        let spare = std::mem::take(&mut queue.spare);
        std::mem::replace(&mut queue.gathered, spare)
    }

    fn give_back(&self, mut gathered: Gathered) {
        gathered.clear(COMMIT_LINES_BYTES_MAX);
        // Nobody holds a claim on a batch that nothing was put in.
        gathered.batch = Arc::default();
        let mut queue = self.queue.lock();
        queue.steps_under_way -= 1;
        queue.spare = gathered;
        drop(queue);
        if self.threads.are_closing() {
            self.wake.notify_all();
        }
    }

    /// The core, while no step is under way. A waiter may have made the last step, after the threads have ended: its callbacks
    /// are called by the close, so they have to be handed over before it.
    fn lock_core_between_steps(&self) -> MutexGuard<'_, Core> {
        loop {
            let core = self.core.lock();
            let mut queue = self.queue.lock();
            if queue.steps_under_way == 0 {
                return core;
            }
            // The step may need the core once more before it is over.
            drop(core);
            self.wake.wait(&mut queue);
        }
    }

    fn want_sweep(&self) {
        if !self.threads.ask_to_tend(&self.own) {
            self.sweep();
        }
    }

    /// What the second thread does while others go on committing: it makes a file that will be needed, and sweeps when
    /// it is time to.
    fn tend(&self) {
        let ordered = self.core.lock().log.order_spare();
        if let Some(blank) = ordered {
            let made = blank.make_durable();
            if let Err(error @ StorageError::SyncFailed { .. }) = &made
                && !error.is_no_space()
            {
                self.latch.stop(error);
            }
            self.core.lock().log.take_spare(made);
        }
        if self.left.load(Ordering::Relaxed) >= self.left_max || self.core.lock().log.is_half_full() {
            self.sweep();
        }
    }

    /// Makes durable in place what the log is needed for, while others go on committing, and the log free.
    fn sweep(&self) {
        if self.latch.is_stopped() {
            return;
        }
        self.left.store(0, Ordering::Relaxed);
        let named = self.core.lock().log.named();
        if named.iter().try_for_each(|stream| self.secure(stream)).is_ok() {
            self.core.lock().log.release();
        }
    }

    /// Whether there is something to do for the thread that commits; it waits until there is. `false` when it is over.
    fn await_work(&self) -> bool {
        let mut queue = self.queue.lock();
        let (mut since, mut lock_checked): (Option<Stopwatch>, _) = (None, Stopwatch::start());
        loop {
            if self.threads.are_closing() {
                return false;
            }
            if lock_checked.elapsed() >= LOCK_CHECK_EVERY {
                // What it finds stops the store by itself.
                let _ = MutexGuard::unlocked(&mut queue, || self.latch.check_lock());
                lock_checked = Stopwatch::start();
                continue;
            }
            if !queue.to_tell.is_empty() {
                return true;
            }
            if queue.gathered.is_empty() {
                since = None;
                queue.is_armed = false;
                self.is_hurried.store(false, Ordering::SeqCst);
                self.wake.wait_for(&mut queue, LOCK_CHECK_EVERY);
            } else if self.is_hurried.load(Ordering::SeqCst) {
                return true;
            } else if let Some(limit) = self.background {
                // Half of it, because the sync takes its time too.
                queue.is_armed = true;
                let spent = since.get_or_insert_with(Stopwatch::start).elapsed();
                if spent >= limit / 2 {
                    return true;
                }
                self.wake.wait_for(&mut queue, (limit / 2 - spent).min(LOCK_CHECK_EVERY));
            } else {
                self.wake.wait_for(&mut queue, LOCK_CHECK_EVERY);
            }
        }
    }

    /// Makes everything durable and ends both threads. What cannot be done is left to the next opening.
    pub(super) fn close(&self) {
        self.threads.begin_closing();
        drop(self.queue.lock());
        self.wake.notify_all();
        self.threads.join();
        let mut core = self.lock_core_between_steps();
        let gathered = self.take_from(&mut self.queue.lock());
        let all: Vec<_> = self.streams.lock().iter().filter_map(Weak::upgrade).collect();
        let closed = self.latch.check_lock().and_then(|()| core.close(&all));
        drop(core);
        self.settle_last(gathered, &self.judged(closed));
        self.latch.close();
        // Appends that came in between are told that it was too late.
        let late = self.take_from(&mut self.queue.lock());
        self.settle_last(late, &Err(Box::new(StorageError::Closed)));
    }

    fn settle_last(&self, gathered: Gathered, outcome: &Outcome) {
        let callbacks = gathered.batch.settle(outcome);
        callbacks.into_iter().for_each(|callback| tell(callback, outcome));
        self.tell_all();
    }
}

fn panicked(panic: &(dyn Any + Send)) -> StorageError {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let what = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    StorageError::Panicked { what }
}

impl Commits for Committer {
    fn settle(&self, batch: &Batch) {
        while !batch.is_settled() {
            match self.leave_to_thread() {
                true => batch.wait(),
                false => self.step_or_wait(batch),
            }
        }
    }

    fn calls_back(&self) -> bool {
        self.threads.are_by_hand() || self.threads.ensure_commits(&self.own)
    }

    fn hurry(&self) {
        if !self.is_hurried.swap(true, Ordering::SeqCst) {
            drop(self.queue.lock());
            self.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
