//! The committer's two threads: one commits, one tends the log. Neither decides anything.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

use super::Committer;

/// The threads, begun when they are first needed.
#[derive(Debug)]
pub(super) struct Threads {
    /// Whether there are none, and every step is made by its caller.
    by_hand: bool,
    commits: Mutex<Option<JoinHandle<()>>>,
    has_commits: AtomicBool,
    tending: Mutex<Tending>,
    wake: Condvar,
    is_closing: AtomicBool,
}

#[derive(Debug, Default)]
struct Tending {
    is_wanted: bool,
    thread: Option<JoinHandle<()>>,
}

impl Threads {
    pub(super) fn new(by_hand: bool) -> Self {
        Threads {
            by_hand,
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

    /// Whether there is a thread that commits. Begins it if it is not there yet and can be.
    pub(super) fn ensure_commits(&self, committer: &Weak<Committer>) -> bool {
        if self.has_commits.load(Ordering::Acquire) {
            return true;
        }
        let mut commits = self.commits.lock();
        if self.by_hand || self.are_closing() {
            return false;
        }
        if commits.is_none() {
            *commits = begin("lastword-commit", committer, |committer| {
                while committer.await_work() {
                    committer.work();
                }
            });
        }
        self.has_commits.store(commits.is_some(), Ordering::Release);
        commits.is_some()
    }

    /// Asks the thread that tends the log to do so. `false` if there is none.
    pub(super) fn ask_to_tend(&self, committer: &Weak<Committer>) -> bool {
        let mut tending = self.tending.lock();
        if self.by_hand || self.are_closing() {
            return false;
        }
        tending.is_wanted = true;
        if tending.thread.is_none() {
            tending.thread = begin("lastword-tend", committer, |committer| {
                while committer.threads.await_tending() {
                    committer.tend();
                }
            });
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

    /// Waits for both to end. One that closes the store itself, because a callback let go of it last, is not waited for.
    pub(super) fn join(&self) {
        let commits = self.commits.lock().take();
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

fn begin(name: &str, committer: &Weak<Committer>, work: fn(&Committer)) -> Option<JoinHandle<()>> {
    let committer = committer.upgrade()?;
    thread::Builder::new().name(name.to_owned()).spawn(move || work(&committer)).ok()
}
