//! Locks, condition variables, atomics and threads, as everything from the store down uses them.
//!
//! In a normal build these are parking_lot's and the standard library's own. With feature `sim` each of them is also a step at
//! which [`schedule`] can stop the thread, if it runs under a schedule; any other thread does not notice a difference.

#[cfg(any(test, feature = "sim"))]
pub(crate) mod atomic;
#[cfg(any(test, feature = "sim"))]
mod locks;
#[cfg(not(any(test, feature = "sim")))]
mod plain;
#[cfg(any(test, feature = "sim"))]
pub mod schedule;
#[cfg(any(test, feature = "sim"))]
pub(crate) mod thread;

#[cfg(any(test, feature = "sim"))]
pub(crate) use self::locks::{Condvar, Mutex, MutexGuard};
#[cfg(not(any(test, feature = "sim")))]
pub(crate) use self::plain::{Condvar, Mutex, MutexGuard, atomic, thread};

/// How many threads can run at the same time; 1 if the system does not report it.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
