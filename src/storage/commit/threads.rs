//! The committer's two threads: one commits and watches the lock, one tends the log. Neither decides anything.

use crate::sync::atomic::{AtomicBool, Ordering};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

use super::Committer;
use crate::clock::Stopwatch;
use crate::sync::thread::{self, JoinHandle};

/// How long a thread that could not be started is not tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Starts a thread of this name.
type Spawn = Arc<dyn Fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> + Send + Sync>;

/// The threads of a committer.
pub(super) struct Threads {
    /// Whether there are none, and every step is made by its caller.
    by_hand: bool,
    spawn: Spawn,
    commits: Mutex<Commits>,
    has_commits: AtomicBool,
    tending: Mutex<Tending>,
    wake: Condvar,
    is_closing: AtomicBool,
}

/// The thread that commits.
#[derive(Debug, Default)]
struct Commits {
    thread: Option<JoinHandle<()>>,
    /// Since when it could not be started.
    failed: Option<Stopwatch>,
}

#[derive(Debug, Default)]
struct Tending {
    is_wanted: bool,
    thread: Option<JoinHandle<()>>,
}

impl Threads {
    pub(super) fn new(by_hand: bool) -> Self {
        let spawn: Spawn = Arc::new(thread::spawn);
        Self::spawned_by(by_hand, spawn)
    }

    pub(super) fn spawned_by(by_hand: bool, spawn: Spawn) -> Self {
        Threads {
            by_hand,
            spawn,
            commits: Mutex::default(),
            has_commits: AtomicBool::new(false),
            tending: Mutex::default(),
            wake: Condvar::new(),
            is_closing: AtomicBool::new(false),
        }
    }

    pub(super) fn are_by_hand(&self) -> bool {
        self.by_hand
    }

    pub(super) fn are_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub(super) fn begin_closing(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    /// Whether there is a thread that commits. Starts it if it is not there yet and can be; a failure is reported, and
    /// not tried again for [`RETRY_AFTER`].
    pub(super) fn ensure_commits(&self, committer: &Weak<Committer>) -> bool {
        if self.has_commits.load(Ordering::Acquire) {
            return true;
        }
        let mut commits = self.commits.lock();
        if self.by_hand || self.are_closing() || commits.failed.as_ref().is_some_and(is_too_early) {
            return false;
        }
        if commits.thread.is_none() {
            self.start_commits(&mut commits, committer);
        }
        self.has_commits.store(commits.thread.is_some(), Ordering::Release);
        commits.thread.is_some()
    }

    #[cold]
    fn start_commits(&self, commits: &mut Commits, weak: &Weak<Committer>) {
        let Some(committer) = weak.upgrade() else { return };
        let started = self.start("lastword-commit", weak, |committer| {
            while committer.await_work() {
                run(committer, Committer::work);
            }
        });
        commits.failed = started.is_err().then(Stopwatch::start);
        committer.note_thread(&started);
        commits.thread = started.ok();
    }

    /// Asks the thread that tends the log to do so. `false` if there is none.
    pub(super) fn ask_to_tend(&self, committer: &Weak<Committer>) -> bool {
        let mut tending = self.tending.lock();
        if self.by_hand || self.are_closing() {
            return false;
        }
        tending.is_wanted = true;
        if tending.thread.is_none() {
            // Without it the caller does the same, and asks again the next time.
            tending.thread = self
                .start("lastword-tend", committer, |committer| {
                    while committer.threads.await_tending() {
                        run(committer, Committer::tend);
                    }
                })
                .ok();
        }
        self.wake.notify_one();
        tending.thread.is_some()
    }

    fn await_tending(&self) -> bool {
        let mut tending = self.tending.lock();
        while !tending.is_wanted && !self.are_closing() {
            self.wake.wait(&mut tending);
        }
        std::mem::take(&mut tending.is_wanted) && !self.are_closing()
    }

    fn start(&self, name: &str, weak: &Weak<Committer>, work: fn(&Committer)) -> io::Result<JoinHandle<()>> {
        let committer = weak.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        (self.spawn)(name, Box::new(move || work(&committer)))
    }

    /// Waits for both to end. One that closes the store itself, because a callback dropped it last, is not waited for.
    pub(super) fn join(&self) {
        let commits = self.commits.lock().thread.take();
        self.has_commits.store(false, Ordering::Release);
        let tending = self.tending.lock().thread.take();
        self.wake.notify_all();
        for thread in commits.into_iter().chain(tending).filter(|thread| thread.thread().id() != thread::current().id())
        {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

/// One piece of work. A panic stops the store, and not the thread: appenders count on it.
fn run(committer: &Committer, work: fn(&Committer)) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(committer))) {
        committer.stop_after(&*panic);
    }
}

fn is_too_early(failed: &Stopwatch) -> bool {
    failed.elapsed() < RETRY_AFTER
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("by_hand", &self.by_hand).finish_non_exhaustive()
    }
}
