//! Threads for blocking work, with a bound on each kind of work, so that large reads never delay small writes.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body_budget::BodyPermit;
use super::error::ApiError;
use super::session_shares::{SHARE_OF_SESSION, SessionShares, Share};
use crate::model::SessionId;
use crate::store::Store;

/// Appends at the same time. More would only wait for each other.
const LINES_AT_ONCE: usize = 32;
/// Documents that are read or saved at the same time.
const DOCUMENTS_AT_ONCE: usize = 16;
/// Documents among them that are huge.
pub(super) const HUGE_AT_ONCE: usize = DOCUMENTS_AT_ONCE / 2;
/// Bytes from which on a document is huge: reading or saving it takes tens of milliseconds.
pub(super) const HUGE_BYTES_MIN: u64 = 4 * 1024 * 1024;
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
    huge: Arc<Semaphore>,
    sessions: Arc<SessionShares>,
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
            huge: places(HUGE_AT_ONCE),
            sessions: Arc::new(SessionShares::of(SHARE_OF_SESSION)),
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

    /// Reads or saves the document of a session, within the session's share of the places, and within that of huge documents
    /// if it is one. A request that waits for its share takes no place.
    pub(super) async fn document_of<T: Send + 'static>(
        &self,
        store: &Store,
        session: SessionId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let share = self.share(&session).await;
        let (store, huge) = (store.clone(), self.huge.clone());
        let first = move || match huge_place(&store, &session, huge) {
            Some(place) => Tried::Done(done_with(work, (share, place))),
            None => Tried::Huge(work, share),
        };
        match at(&self.documents, first).await? {
            Tried::Done(done) => Ok(done),
            Tried::Huge(work, share) => {
                let place = self.huge.clone().acquire_owned().await.expect("it is never closed");
                at(&self.documents, move || done_with(work, (share, place))).await
            }
        }
    }

    /// A place in the session's share, for work that waits for its lock.
    pub(super) async fn share(&self, session: &SessionId) -> Share {
        self.sessions.place(session).await
    }

    /// Reads or saves documents that are not those of one session.
    pub(super) async fn document<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        at(&self.documents, work).await
    }

    /// Documents that are read or saved now.
    #[cfg(test)]
    pub(super) fn documents_at_work(&self) -> usize {
        DOCUMENTS_AT_ONCE - self.documents.available_permits()
    }

    /// Reads a piece of a journal for a follower that is behind.
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

/// What became of work on a document: done, or not begun because all places of huge ones are taken.
enum Tried<T, W> {
    Done(T),
    Huge(W, Share),
}

/// The place that a document needs among the huge ones: none is needed for others, and for those whose size cannot be read,
/// which the work itself reports. Nothing if all of them are taken.
fn huge_place(store: &Store, session: &SessionId, huge: Arc<Semaphore>) -> Option<Option<OwnedSemaphorePermit>> {
    match store.document_bytes(session) {
        Ok(Some(bytes)) if bytes >= HUGE_BYTES_MIN => huge.try_acquire_owned().ok().map(Some),
        _ => Some(None),
    }
}

/// Does work, and gives back what it holds.
fn done_with<T, H>(work: impl FnOnce() -> T, held: H) -> T {
    let done = work();
    drop(held);
    done
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
    use crate::http::body_budget::BodyBudget;
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

    #[tokio::test]
    async fn the_room_of_a_body_is_given_back_when_the_work_is_done_although_its_caller_has_left_or_it_broke() {
        let budget = BodyBudget::new(1_000, 1_000);
        let places = Arc::new(Semaphore::new(1));
        let (release, released) = mpsc::channel::<()>();
        let permit = BodyPermit::new(&budget);
        permit.hold(700).unwrap();
        let asked = places.clone();
        let leaving = tokio::spawn(permit.during(async move {
            let work = move || released.recv_timeout(DEADLINE).map(drop);
            at(&asked, work).await
        }));
        until(|| places.available_permits() == 0).await;
        leaving.abort();
        assert!(leaving.await.unwrap_err().is_cancelled());
        assert_eq!(budget.bytes(), 700, "the work has the body still");
        release.send(()).unwrap();
        until(|| budget.bytes() == 0).await;
        let permit = BodyPermit::new(&budget);
        permit.hold(700).unwrap();
        permit.during(at(&places, || panic!("on purpose"))).await.unwrap_err();
        assert_eq!(budget.bytes(), 0);
    }
}
