//! The one place that waits for time to pass.

use std::future::{Future, pending};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Waits.
pub(super) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits, for ever if there is no limit.
pub(super) async fn sleep_or_stay(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => pending().await,
    }
}

/// A moment that somebody waits for; none if it is too far away to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(Option<tokio::time::Instant>);

impl Deadline {
    /// So long from now.
    pub(super) fn after(time: Duration) -> Self {
        Deadline(tokio::time::Instant::now().checked_add(time))
    }

    /// Whether it has come.
    pub(super) fn is_over(self) -> bool {
        self.0.is_some_and(|moment| moment <= tokio::time::Instant::now())
    }

    /// Waits for it, for ever if there is none.
    pub(super) async fn wait(deadline: Option<Self>) {
        match deadline.and_then(|deadline| deadline.0) {
            Some(moment) => tokio::time::sleep_until(moment).await,
            None => pending().await,
        }
    }
}

/// What came of a task. One that was dropped, because the program's tasks are being ended, is waited for in vain, like
/// everything else then.
pub(super) async fn joined<T>(task: tokio::task::JoinHandle<T>) -> T {
    match task.await {
        Ok(done) => done,
        Err(broken) => match broken.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => pending().await,
        },
    }
}

/// What comes of something, if it comes in time.
pub(super) async fn within<T>(limit: Duration, something: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, something).await.ok()
}

/// Waits where there is nobody else to let go on.
pub(super) fn block(time: Duration) {
    let nobody = Mutex::new(());
    Condvar::new().wait_for(&mut nobody.lock(), time);
}
