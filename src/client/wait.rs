//! The one place of a client that lets time pass.

use std::future::Future;
use std::time::Duration;

/// A moment that is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment(tokio::time::Instant);

impl Moment {
    /// So long from now.
    pub(super) fn after(time: Duration) -> Self {
        Moment(tokio::time::Instant::now() + time)
    }

    /// Waits for it. Whoever stops waiting may begin again.
    pub(super) async fn wait(self) {
        tokio::time::sleep_until(self.0).await;
    }
}

/// What comes of something, if it comes in time. Without a limit there is time.
pub(super) async fn within<T>(limit: Option<Duration>, something: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, something).await.ok(),
        None => Some(something.await),
    }
}
