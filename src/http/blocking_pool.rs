//! Threads for blocking work, with a bound on each kind of work, so that large reads never delay small writes.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::body_budget::BodyPermit;
use super::error::ApiError;

/// Appends at the same time. More would only wait for each other.
const LINES_AT_ONCE: usize = 32;
/// Documents that are read or saved at the same time.
const DOCUMENTS_AT_ONCE: usize = 16;
/// Followers that read journals at the same time, because they are behind.
const READS_AT_ONCE: usize = 8;
/// Runs whose last events are read at the same time, for all who have caught up.
const TAILS_AT_ONCE: usize = 8;

/// Bytes of a body that nobody waits for while it is read.
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// Kinds of work, each with places of its own.
#[derive(Debug)]
pub(super) struct BlockingPool {
    lines: Arc<Semaphore>,
    documents: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    tails: Arc<Semaphore>,
    /// The doctor looks through everything; one look at a time is enough.
    pub(super) doctor: Arc<Semaphore>,
}

impl Default for BlockingPool {
    fn default() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        BlockingPool {
            lines: places(LINES_AT_ONCE),
            documents: places(DOCUMENTS_AT_ONCE),
            reads: places(READS_AT_ONCE),
            tails: places(TAILS_AT_ONCE),
            doctor: places(1),
        }
    }
}

impl BlockingPool {
    /// Makes something of a body: here and now if it is a small one.
    pub(super) async fn parse<T: Send + 'static>(
        &self,
        body: Bytes,
        parse: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        self.sized(body.len(), move || parse(&body)).await
    }

    /// Does work on so many bytes: here and now if they are few.
    pub(super) async fn sized<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        match bytes <= SMALL_BYTES_MAX {
            true => Ok(work()),
            false => at(&self.lines, work).await,
        }
    }

    /// Appends something.
    pub(super) async fn line<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        at(&self.lines, work).await
    }

    /// Reads or saves a document.
    pub(super) async fn document<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        at(&self.documents, work).await
    }

    /// Reads a piece of a journal for somebody who is behind.
    pub(super) fn read<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Reading<T> {
        let places = self.reads.clone();
        tokio::spawn(async move { at(&places, work).await })
    }

    /// Reads what was just appended to a journal, for all who have caught up.
    pub(super) async fn tail<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        at(&self.tails, work).await
    }
}

/// Something that is being read.
pub(super) type Reading<T> = tokio::task::JoinHandle<Result<T, ApiError>>;

/// Does work in one of so many places. It is done to its end, whether or not its caller waits.
pub(super) async fn at<T: Send + 'static>(
    places: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let place = places.clone().acquire_owned().await.expect("nobody closes it");
    // What was read of the request's body lives on in the work.
    let permit = BodyPermit::of_request();
    let work = tokio::task::spawn_blocking(move || {
        let done = work();
        drop((place, permit));
        done
    });
    work.await.map_err(|broken| ApiError::broken(format!("a task broke: {broken}")))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::http::tests::{DEADLINE, until};
    use crate::http::time::within;

    #[tokio::test]
    async fn work_keeps_its_place_until_it_is_done_although_its_caller_has_left() {
        let places = Arc::new(Semaphore::new(1));
        let ((begin, begun), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
        let asked = places.clone();
        let leaving = tokio::spawn(async move {
            let work = move || {
                begin.send(()).unwrap();
                let _ = released.recv_timeout(DEADLINE);
            };
            at(&asked, work).await
        });
        until(|| begun.try_recv().is_ok()).await;
        leaving.abort();
        assert!(leaving.await.unwrap_err().is_cancelled());
        assert!(within(Duration::from_millis(20), at(&places, || ())).await.is_none(), "more is done than allowed");
        release.send(()).unwrap();
        within(DEADLINE, at(&places, || ())).await.expect("the place is given back").unwrap();
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test]
    async fn work_that_breaks_is_an_error_and_gives_its_place_back() {
        let places = Arc::new(Semaphore::new(1));
        at(&places, || panic!("on purpose")).await.unwrap_err();
        assert_eq!(within(DEADLINE, at(&places, || 7)).await.unwrap().unwrap(), 7);
    }
}
