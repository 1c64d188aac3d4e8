//! A mutex and a condition variable whose every use is a step of a schedule. The interface is parking_lot's.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::schedule::Scheduled;

/// A mutex.
#[derive(Default)]
pub(crate) struct Mutex<T: ?Sized> {
    inner: parking_lot::Mutex<T>,
}

/// A locked mutex.
pub(crate) struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// None only while it is unlocked for a moment.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex { inner: parking_lot::Mutex::new(value) }
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, inner: Some(self.lock_inner()) }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        super::schedule::step();
        self.inner.try_lock().map(|inner| MutexGuard { mutex: self, inner: Some(inner) })
    }

    pub(crate) fn is_locked(&self) -> bool {
        super::schedule::step();
        self.inner.is_locked()
    }

    fn lock_inner(&self) -> parking_lot::MutexGuard<'_, T> {
        let Some(scheduled) = Scheduled::current() else { return self.inner.lock() };
        scheduled.step();
        loop {
            match self.inner.try_lock() {
                Some(inner) => return inner,
                None => scheduled.wait_for_lock(self.address()),
            }
        }
    }

    fn address(&self) -> usize {
        (&raw const self.inner).cast::<()>() as usize
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Unlocks the mutex for as long as `work` takes.
    pub(crate) fn unlocked<U>(guard: &mut Self, work: impl FnOnce() -> U) -> U {
        guard.release();
        let done = work();
        guard.inner = Some(guard.mutex.lock_inner());
        done
    }

    /// Lets a thread that waits for the mutex have it first.
    pub(crate) fn bump(guard: &mut Self) {
        match Scheduled::current() {
            None => parking_lot::MutexGuard::bump(guard.inner.as_mut().expect("a guard that can be reached is locked")),
            Some(_) => MutexGuard::unlocked(guard, || ()),
        }
    }

    fn release(&mut self) {
        drop(self.inner.take());
        if let Some(scheduled) = Scheduled::current() {
            scheduled.note_unlocked(self.mutex.address());
        }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_deref().expect("a guard that can be reached is locked")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_deref_mut().expect("a guard that can be reached is locked")
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar { inner: parking_lot::Condvar::new() }
    }

    pub(crate) fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match Scheduled::current() {
            None => self.inner.wait(guard.inner.as_mut().expect("a guard that can be reached is locked")),
            Some(scheduled) => self.wait_in(&scheduled, guard, None),
        }
    }

    pub(crate) fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) {
        match Scheduled::current() {
            None => {
                let inner = guard.inner.as_mut().expect("a guard that can be reached is locked");
                self.inner.wait_for(inner, limit);
            }
            Some(scheduled) => self.wait_in(&scheduled, guard, Some(limit)),
        }
    }

    fn wait_in<T: ?Sized>(&self, scheduled: &Scheduled, guard: &mut MutexGuard<'_, T>, limit: Option<Duration>) {
        // Nothing happens between the two: no other thread has its turn before this one waits.
        guard.release();
        scheduled.wait_for_signal(self.address(), limit);
        guard.inner = Some(guard.mutex.lock_inner());
    }

    pub(crate) fn notify_one(&self) {
        match Scheduled::current() {
            None => {
                self.inner.notify_one();
            }
            Some(scheduled) => scheduled.notify_one(self.address()),
        }
    }

    pub(crate) fn notify_all(&self) {
        match Scheduled::current() {
            None => {
                self.inner.notify_all();
            }
            Some(scheduled) => scheduled.notify_all(self.address()),
        }
    }

    fn address(&self) -> usize {
        (&raw const self.inner).cast::<()>() as usize
    }
}
