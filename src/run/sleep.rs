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

/// A moment that somebody waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(tokio::time::Instant);

impl Deadline {
    /// So long from now.
    pub(super) fn after(time: Duration) -> Self {
        Deadline(tokio::time::Instant::now() + time)
    }

    /// Whether it has come.
    pub(super) fn is_over(self) -> bool {
        self.0 <= tokio::time::Instant::now()
    }

    /// Waits for it, for ever if there is none.
    pub(super) async fn wait(deadline: Option<Self>) {
        match deadline {
            Some(Deadline(moment)) => tokio::time::sleep_until(moment).await,
            None => pending().await,
        }
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
