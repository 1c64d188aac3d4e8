//! How far a live journal has come, for those who follow it. The writer never waits for them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The visible extent of a journal that is being written in this process.
///
/// No wake-up is lost, and an append without followers needs no barrier for that: a follower is counted under the
/// journal's pen, and so is seen by every writer that holds the pen after it. A writer that sees one stores the extent,
/// passes the gate and notifies; a follower looks at the extent and begins to wait without leaving the gate in between.
/// Whoever settles a ticket holds no pen, and has a barrier instead.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    extent: AtomicU64,
    /// Appends that are not to be shown before they are durable, and are not yet. Only counted up with the pen held.
    unsettled: AtomicUsize,
    /// What is to be shown when all of them are.
    held_back: Mutex<u64>,
    has_ended: AtomicBool,
    followers: AtomicUsize,
    /// Passed before anybody is woken; holds those who are rung for.
    gate: Mutex<Vec<Bell>>,
    changed: Condvar,
    to_be_told: Mutex<Vec<OnEnd>>,
}

/// What is rung whenever there may be more. Rung with locks held: it must neither wait nor use the store.
#[derive(Clone)]
pub(crate) struct Bell(pub(crate) Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bell")
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
            self.gate.lock().iter().for_each(|Bell(ring)| ring());
            self.changed.notify_all();
        }
    }

    fn wait_beyond(&self, seen: u64, limit: Duration) {
        let mut gate = self.gate.lock();
        if self.extent.load(Ordering::Acquire) <= seen && !self.has_ended.load(Ordering::Acquire) {
            self.changed.wait_for(&mut gate, limit);
        }
    }
}

/// A follower of a journal, counted for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Attached {
    progress: Arc<Progress>,
    bell: Option<Bell>,
}

impl Attached {
    /// To be called with the journal's pen held.
    pub(super) fn new(progress: &Arc<Progress>) -> Self {
        progress.followers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Attached { progress: progress.clone(), bell: None }
    }

    /// The same, and the bell is rung from now on whenever there is more. To be called with the journal's pen held.
    pub(super) fn with_bell(progress: &Arc<Progress>, bell: Option<Bell>) -> Self {
        progress.gate.lock().extend(bell.clone());
        let mut attached = Self::new(progress);
        attached.bell = bell;
        attached
    }

    /// One that follows nothing, and waits without ever being woken.
    pub(crate) fn to_nothing() -> Self {
        Self::new(&Arc::default())
    }

    /// Whether this is what it follows.
    pub(super) fn follows(&self, progress: &Arc<Progress>) -> bool {
        Arc::ptr_eq(&self.progress, progress)
    }

    /// The offset up to which a reader may look.
    pub(crate) fn extent(&self) -> u64 {
        self.progress.extent.load(Ordering::Acquire)
    }

    /// Whether nothing more will come.
    pub(crate) fn has_ended(&self) -> bool {
        self.progress.has_ended.load(Ordering::Acquire)
    }

    /// Waits until there is more than a reader has seen, the journal has ended, or the time is up.
    pub(crate) fn wait_beyond(&self, seen: u64, limit: Duration) {
        self.progress.wait_beyond(seen, limit);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(Bell(own)) = &self.bell {
            let mut bells = self.progress.gate.lock();
            if let Some(at) = bells.iter().position(|Bell(bell)| Arc::ptr_eq(bell, own)) {
                bells.swap_remove(at);
            }
        }
        self.progress.followers.fetch_sub(1, Ordering::Relaxed);
    }
}
