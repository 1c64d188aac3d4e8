//! How far a live journal has come, for those who follow it. The writer never waits for them.

use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::fmt;
use std::sync::Arc;

use crate::sync::Mutex;

/// The visible extent of a journal that is being written in this process.
///
/// No wake-up is lost, and an append without followers needs no barrier for that: a follower is counted under the
/// journal's pen, and so is seen by every writer that holds the pen after it. A writer that sees one stores the extent and
/// calls the wakers; a follower attaches before it looks at the extent. The thread that settles a ticket holds no pen, and
/// has a barrier instead.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    extent: AtomicU64,
    /// Appends that are not to be shown before they are durable, and are not yet. Only counted up with the pen held.
    unsettled: AtomicUsize,
    /// What is to be shown when all of them are.
    held_back: Mutex<u64>,
    has_ended: AtomicBool,
    followers: AtomicUsize,
    /// One for each follower.
    wakers: Mutex<Vec<AppendWaker>>,
    to_be_told: Mutex<Vec<OnEnd>>,
}

/// Wakes a reader whenever there may be more. Called with locks held: it must neither wait nor use the store.
#[derive(Clone)]
pub(crate) struct AppendWaker(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl AppendWaker {
    pub(crate) fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for AppendWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppendWaker")
    }
}

/// Somebody who wants to be told of the end.
struct OnEnd(Box<dyn FnOnce() + Send>);

impl fmt::Debug for OnEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnEnd")
    }
}

impl Progress {
    /// Shows everything up to this offset to followers. The caller holds the pen.
    pub(super) fn publish(&self, extent: u64) {
        self.extent.store(extent, Ordering::Release);
        self.wake();
    }

    /// Shows everything up to this offset, unless something before it is not to be shown yet. The caller holds the pen.
    pub(super) fn publish_in_turn(&self, extent: u64) {
        if self.unsettled.load(Ordering::Acquire) == 0 {
            return self.publish(extent);
        }
        let mut held_back = self.held_back.lock();
        match self.unsettled.load(Ordering::Acquire) {
            0 => self.publish(extent),
            _ => *held_back = extent,
        }
    }

    /// Holds back everything from here on until [`Progress::settle`]. The caller holds the pen.
    pub(super) fn hold_back(&self, extent: u64) {
        let mut held_back = self.held_back.lock();
        self.unsettled.fetch_add(1, Ordering::AcqRel);
        *held_back = extent;
    }

    /// What ended at this offset is durable, or never will be.
    pub(super) fn settle(&self, extent: u64, is_durable: bool) {
        let held_back = self.held_back.lock();
        if is_durable {
            let is_last = self.unsettled.fetch_sub(1, Ordering::AcqRel) == 1;
            self.extent.fetch_max(if is_last { *held_back } else { extent }, Ordering::AcqRel);
        } else {
            // It stays unsettled, so that nothing behind it is ever shown.
            self.has_ended.store(true, Ordering::Release);
        }
        drop(held_back);
        fence(Ordering::SeqCst);
        self.wake();
        if !is_durable {
            self.tell_end();
        }
    }

    /// Tells followers that nothing more will come. The caller holds the pen.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.wake();
        self.tell_end();
    }

    /// Tells those who asked to be told, once.
    pub(super) fn tell_end(&self) {
        let told = std::mem::take(&mut *self.to_be_told.lock());
        told.into_iter().for_each(|OnEnd(tell)| tell());
    }

    /// Calls back at the end; at once if that was. The caller holds the pen.
    pub(super) fn on_end(&self, is_sealed: bool, tell: Box<dyn FnOnce() + Send>) {
        self.to_be_told.lock().push(OnEnd(tell));
        if is_sealed || self.has_ended.load(Ordering::Acquire) {
            self.tell_end();
        }
    }

    pub(super) fn extent(&self) -> u64 {
        self.extent.load(Ordering::Acquire)
    }

    fn wake(&self) {
        if self.followers.load(Ordering::Relaxed) > 0 {
            self.wakers.lock().iter().for_each(AppendWaker::wake);
        }
    }
}

/// A follower of a journal, counted for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Attached {
    progress: Arc<Progress>,
    waker: AppendWaker,
}

impl Attached {
    /// Wakes the follower from now on whenever there is more. To be called with the journal's pen held.
    pub(super) fn new(progress: &Arc<Progress>, waker: AppendWaker) -> Self {
        progress.wakers.lock().push(waker.clone());
        progress.followers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Attached { progress: progress.clone(), waker }
    }

    /// Whether this is what it follows.
    pub(super) fn follows(&self, progress: &Arc<Progress>) -> bool {
        Arc::ptr_eq(&self.progress, progress)
    }

    /// The offset up to which a reader may look.
    pub(crate) fn extent(&self) -> u64 {
        self.progress.extent.load(Ordering::Acquire)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut wakers = self.progress.wakers.lock();
        if let Some(at) = wakers.iter().position(|AppendWaker(waker)| Arc::ptr_eq(waker, &self.waker.0)) {
            wakers.swap_remove(at);
        }
        drop(wakers);
        self.progress.followers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
