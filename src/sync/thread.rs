//! Threads. One that is started by a thread under a schedule belongs to the same schedule.

use std::io;
use std::thread::{self, Thread};

pub(crate) use std::thread::current;

use super::schedule::{Scheduled, ThreadNumber};

/// A thread that can be waited for.
#[derive(Debug)]
pub(crate) struct JoinHandle<T> {
    real: thread::JoinHandle<T>,
    number: Option<ThreadNumber>,
}

impl<T> JoinHandle<T> {
    pub(crate) fn thread(&self) -> &Thread {
        self.real.thread()
    }

    /// Waits for it to end.
    pub(crate) fn join(self) -> thread::Result<T> {
        if let (Some(number), Some(scheduled)) = (self.number, Scheduled::current()) {
            scheduled.wait_for_end(number);
        }
        self.real.join()
    }
}

/// Starts a thread.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = thread::Builder::new().name(name.to_owned());
    let Some(scheduled) = Scheduled::current() else {
        return Ok(JoinHandle { real: builder.spawn(work)?, number: None });
    };
    let own = scheduled.begin_thread(name);
    let number = own.number();
    let real = builder.spawn(move || own.run(work))?;
    scheduled.step();
    Ok(JoinHandle { real, number: Some(number) })
}
