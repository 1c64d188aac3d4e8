//! The one place of the server that waits for time to pass.

use std::future::Future;
use std::time::Duration;

pub(super) use tokio::time::{Sleep, sleep};

/// What comes of something, if it comes in time.
pub(super) async fn within<T>(limit: Duration, something: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, something).await.ok()
}
