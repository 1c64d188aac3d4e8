//! What a normal build uses.

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic;

/// Threads with a name.
pub(crate) mod thread {
    use std::io;
    pub(crate) use std::thread::{JoinHandle, current};

    /// Starts a thread.
    pub(crate) fn spawn<T: Send + 'static>(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        std::thread::Builder::new().name(name.to_owned()).spawn(work)
    }
}
