//! How far a live journal has come, for those who follow it. The writer never waits for them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The visible extent of a journal that is being written in this process.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    extent: AtomicU64,
    has_ended: AtomicBool,
    followers: AtomicUsize,
    gate: Mutex<()>,
    changed: Condvar,
}

impl Progress {
    /// Shows everything up to this offset to followers.
    pub(super) fn publish(&self, extent: u64) {
        self.extent.store(extent, Ordering::SeqCst);
        self.wake();
    }

    /// Tells followers that nothing more will come.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // Either this sees the follower, or the follower sees what was stored before: it counts itself first.
        if self.followers.load(Ordering::SeqCst) > 0 {
            drop(self.gate.lock());
            self.changed.notify_all();
        }
    }

    /// The offset up to which a reader may look.
    pub(crate) fn extent(&self) -> u64 {
        self.extent.load(Ordering::SeqCst)
    }

    /// Whether nothing more will come.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Waits until there is more than a reader has seen, the journal has ended, or the time is up.
    pub(crate) fn wait_beyond(&self, seen: u64, limit: Duration) {
        self.followers.fetch_add(1, Ordering::SeqCst);
        let mut gate = self.gate.lock();
        if self.extent() <= seen && !self.has_ended() {
            self.changed.wait_for(&mut gate, limit);
        }
        drop(gate);
        self.followers.fetch_sub(1, Ordering::SeqCst);
    }
}
