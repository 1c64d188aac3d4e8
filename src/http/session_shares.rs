//! Places that one session has for some kind of work, so that its slow reads and saves leave room for other sessions.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::SessionId;

/// Documents of one session that are read or saved at the same time, and ends of its runs. More would only wait for the
/// session's lock.
pub(super) const SHARE_OF_SESSION: usize = 4;

/// Places of sessions that have work under way. A session without any is forgotten.
#[derive(Debug)]
pub(super) struct SessionShares {
    places: usize,
    open: Mutex<HashMap<SessionId, Open>>,
}

#[derive(Debug)]
struct Open {
    places: Arc<Semaphore>,
    users: usize,
}

impl SessionShares {
    /// This number of places for each session.
    pub(super) fn of(places: usize) -> Self {
        SessionShares { places, open: Mutex::default() }
    }

    /// How many have a place of this session, or wait for one.
    pub(super) fn users(&self, session: &SessionId) -> usize {
        self.open.lock().get(session).map_or(0, |open| open.users)
    }

    /// Waits for a place of this session, in the order of the requests.
    pub(super) async fn place(self: &Arc<Self>, session: &SessionId) -> Share {
        let (user, places) = self.enter(session);
        let place = places.acquire_owned().await.expect("it is never closed");
        Share { _place: place, _user: user }
    }

    fn enter(self: &Arc<Self>, session: &SessionId) -> (User, Arc<Semaphore>) {
        let mut sessions = self.open.lock();
        let fresh = || Open { places: Arc::new(Semaphore::new(self.places)), users: 0 };
        let open = sessions.entry(session.clone()).or_insert_with(fresh);
        open.users += 1;
        (User { shares: self.clone(), session: session.clone() }, open.places.clone())
    }
}

/// A place of a session, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    _place: OwnedSemaphorePermit,
    _user: User,
}

/// One that has a place, or waits for one.
#[derive(Debug)]
struct User {
    shares: Arc<SessionShares>,
    session: SessionId,
}

impl Drop for User {
    fn drop(&mut self) {
        let mut sessions = self.shares.open.lock();
        let Some(open) = sessions.get_mut(&self.session) else { return };
        open.users -= 1;
        if open.users == 0 {
            sessions.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use axum::body::Body;
    use axum::extract::Request;
    use axum::http::StatusCode;
    use futures_util::FutureExt;
    use parking_lot::Condvar;
    use tower::Service;

    use super::*;
    use crate::http::app::SharedApp;
    use crate::http::routes::router;
    use crate::http::tests::{DEADLINE, TestServer, until};
    use crate::http::time::{sleep, within};
    use crate::store::NewSession;

    fn id(text: &str) -> SessionId {
        SessionId::parse(text).unwrap()
    }

    #[tokio::test]
    async fn a_session_has_its_share_and_is_forgotten_without_work() {
        let shares = Arc::new(SessionShares::of(SHARE_OF_SESSION));
        let (a, mut held) = (id("a"), Vec::new());
        for _ in 0..SHARE_OF_SESSION {
            held.push(shares.place(&a).await);
        }
        let mut waiting = Box::pin(shares.place(&a));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(shares.place(&id("b")).now_or_never().is_some());
        held.pop();
        drop(waiting.await);
        let left = Box::pin(shares.place(&a));
        drop((held, left));
        assert!(shares.open.lock().is_empty());
    }

    #[tokio::test]
    async fn requests_for_one_chat_wait_for_each_other_up_to_a_bound_and_for_no_other_chat() {
        let server = TestServer::new();
        let (app, chat) = (&server.app, id("s"));
        let first = app.chat_turn(&chat).await.unwrap();
        let mut waiting: Vec<_> = (1..32).map(|_| Box::pin(app.chat_turn(&chat))).collect();
        assert!(waiting.iter_mut().all(|waiting| waiting.as_mut().now_or_never().is_none()));
        assert!(app.chat_turn(&chat).await.unwrap_err().is("too_many_messages"));
        for other in (0..200).map(|nth| id(&format!("other{nth}"))) {
            within(DEADLINE, app.chat_turn(&other)).await.expect("it waits for another chat").unwrap();
        }
        // Those that leave are not waited for.
        waiting.truncate(1);
        drop(first);
        within(DEADLINE, waiting.remove(0)).await.expect("it waits for one that has left").unwrap();
    }

    #[tokio::test]
    async fn large_answers_that_find_no_room_are_refused_and_others_are_given() {
        let server = TestServer::new();
        let words = "x".repeat(100_000);
        server.store().begin_run(&id("s"), crate::store::UserTurn::text(&words)).unwrap();
        create(&server, "small", "t");
        let get = |path: &str| asked(server.app.clone(), "GET", path.to_owned(), "");
        let large = || axum::body::Bytes::from(vec![0; (1 << 20) - 1]);
        let all: Vec<_> = (0..128).map(|_| server.app.answers.counted(large()).unwrap()).collect();
        for (path, status) in [
            ("/api/chat/s/messages", 503),
            ("/v1/sessions/s?limit=1", 503),
            ("/v1/sessions/s", 200),
            ("/api/chat/small/messages", 200),
            ("/v1/sessions/small?limit=1", 200),
        ] {
            // A pending turn is in the history, and the object of the session names it.
            assert_eq!(get(path).await.as_u16(), status, "{path}");
        }
        drop(all);
        assert_eq!(get("/api/chat/s/messages").await, StatusCode::OK);
        assert_eq!(server.app.answers.bytes(), 0);
    }

    /// A disk on which operations stand still that begin while it is slow, until it is released.
    #[derive(Default)]
    struct SlowDisk {
        is_slow: AtomicBool,
        is_released: Mutex<bool>,
        released: Condvar,
    }

    impl SlowDisk {
        fn of(server: &TestServer) -> Arc<Self> {
            let slow = Arc::new(SlowDisk::default());
            let disk = slow.clone();
            server.disk.observe(move |_| {
                if disk.is_slow.load(Ordering::SeqCst) {
                    let mut is_released = disk.is_released.lock();
                    let is_stuck = |is_released: &mut bool| !*is_released;
                    disk.released.wait_while_for(&mut is_released, is_stuck, 3 * DEADLINE);
                }
            });
            slow
        }
    }

    /// However a test ends, no thread stays stuck, which the runtime would wait for.
    struct Release(Arc<SlowDisk>);

    impl Drop for Release {
        fn drop(&mut self) {
            *self.0.is_released.lock() = true;
            self.0.released.notify_all();
        }
    }

    async fn asked(app: SharedApp, method: &str, path: String, body: &'static str) -> StatusCode {
        let request = Request::builder().method(method).uri(path).header("host", "localhost").header("if-match", "*");
        let request = request.body(Body::from(body)).unwrap();
        router(&app).call(request).await.unwrap().status()
    }

    /// Begins a turn of a session, appends to it, ends it and reads it.
    async fn whole_turn(app: &SharedApp, session: &str) -> Vec<StatusCode> {
        let path = format!("/v1/sessions/{session}");
        let run = format!("{path}/runs/r/events");
        let mut statuses = Vec::new();
        for (method, path, body) in [
            ("POST", format!("{path}/runs"), r#"{"message":"m","run_id":"r"}"#),
            ("POST", run.clone(), r#"{"event":"token","payload":{"text":"x"}}"#),
            ("POST", run, r#"{"event":"done"}"#),
            ("GET", path, ""),
        ] {
            statuses.push(asked(app.clone(), method, path, body).await);
        }
        statuses
    }

    /// Lets 32 saves of these sessions stand still, and has another session take a turn meanwhile.
    async fn check_turn_beside(slow_sessions: &[&str], server: TestServer, places: usize) {
        let disk = SlowDisk::of(&server);
        let release = Release(disk.clone());
        disk.is_slow.store(true, Ordering::SeqCst);
        let paths = slow_sessions.iter().cycle().take(32).map(|id| format!("/v1/sessions/{id}"));
        let save = |path| tokio::spawn(asked(server.app.clone(), "PATCH", path, r#"{"pinned":true}"#));
        let slow: Vec<_> = paths.map(save).collect();
        until(|| server.app.blocking.documents_at_work() == places).await;
        // Those that would come after them have the time to.
        sleep(Duration::from_millis(50)).await;
        disk.is_slow.store(false, Ordering::SeqCst);
        assert_eq!(server.app.blocking.documents_at_work(), places, "slow work has more places than its share");
        let turn = within(DEADLINE, whole_turn(&server.app, "other")).await.expect("the other session starves");
        assert_eq!(turn.iter().map(StatusCode::as_u16).collect::<Vec<_>>(), [202, 200, 200, 200]);
        drop(release);
        for slow in slow {
            assert_eq!(slow.await.unwrap(), StatusCode::OK);
        }
    }

    fn create(server: &TestServer, session: &str, title: &str) {
        server.store().create(NewSession { id: Some(id(session)), ..NewSession::titled(title) }).unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_slow_session_leaves_places_to_other_sessions() {
        let server = TestServer::new();
        create(&server, "other", "t");
        check_turn_beside(&["s"], server, SHARE_OF_SESSION).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn huge_sessions_leave_places_to_other_sessions_however_many_they_are() {
        let server = TestServer::new();
        create(&server, "other", "t");
        let huge = "x".repeat(crate::http::blocking_pool::HUGE_BYTES_MIN as usize);
        for session in ["a", "b", "c", "d"] {
            create(&server, session, &huge);
        }
        check_turn_beside(&["a", "b", "c", "d"], server, crate::http::blocking_pool::HUGE_AT_ONCE).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_huge_document_is_known_by_its_file_where_it_is_in_no_cache() {
        let server = TestServer::new();
        let huge = "x".repeat(crate::http::blocking_pool::HUGE_BYTES_MIN as usize);
        create(&server, "huge", &huge);
        let store = server.store();
        assert_eq!(store.document_bytes(&id("nothing")).unwrap(), None);
        let file = server.disk.files()[&std::path::PathBuf::from("/data/huge.json")].len() as u64;
        assert_eq!(store.document_bytes(&id("huge")).unwrap(), Some(file));
        store.get_session(&id("huge")).unwrap();
        let looks = server.disk.looks();
        assert_eq!((store.document_bytes(&id("huge")).unwrap(), server.disk.looks()), (Some(file), looks));
    }
}
