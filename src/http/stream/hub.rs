//! Who follows what: one tail for each run that somebody follows, one bell for each session.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, broadcast};

use super::list::ListTail;
use super::tail::Tail;
use crate::http::blocking_pool::BlockingPool;
use crate::http::metrics::Metrics;
use crate::journal::Segment;
use crate::model::{RunId, SessionId};
use crate::store::{Change, Store};

/// Runs that begin before somebody who follows a session has heard of the first of them. Beyond that it looks itself.
const BEGUN_MAX: usize = 16;

/// After how many new entries those of whom nobody is left are cleared away.
const CLEAR_AFTER: usize = 1_024;

/// What happens in a session that somebody follows.
#[derive(Debug, Clone)]
pub(in crate::http) enum SessionNews {
    /// A run has begun.
    Begun(Segment),
    /// A run was opened to be appended to again.
    Resumed(RunId),
    /// A run goes on although another one began since.
    Continued(Segment),
    /// The session is gone.
    Deleted,
}

/// All that is followed.
#[derive(Debug)]
pub(in crate::http) struct Hub {
    store: Store,
    pub(in crate::http) blocking: Arc<BlockingPool>,
    pub(in crate::http) metrics: Arc<Metrics>,
    pub(in crate::http) list: Arc<ListTail>,
    /// Journal files that readers may hold open between two reads.
    pub(super) reader_files: Arc<Semaphore>,
    tails: Mutex<HashMap<(SessionId, RunId), Weak<Tail>>>,
    sessions: Mutex<HashMap<SessionId, Weak<broadcast::Sender<SessionNews>>>>,
}

/// The newest segment of a session.
fn segment(run: &RunId, after_seq: u64, order: u64) -> Segment {
    Segment { run: run.clone(), after_seq, until_seq: None, order }
}

impl Hub {
    pub(in crate::http) fn new(
        store: &Store,
        blocking: Arc<BlockingPool>,
        metrics: Arc<Metrics>,
        reader_files_max: usize,
    ) -> Arc<Self> {
        let hub = Arc::new(Hub {
            store: store.clone(),
            blocking,
            metrics,
            list: Arc::new(ListTail::default()),
            reader_files: Arc::new(Semaphore::new(reader_files_max)),
            tails: Mutex::default(),
            sessions: Mutex::default(),
        });
        // The store outlives its server at times, and must not hold it.
        let told = Arc::downgrade(&hub);
        store.on_change(move |change| told.upgrade().iter().for_each(|hub| hub.hear(change)));
        hub
    }

    pub(in crate::http) fn store(&self) -> &Store {
        &self.store
    }

    fn hear(&self, change: &Change) {
        self.list.hear(change);
        let news = match change {
            Change::Listed(..) => return,
            Change::Deleted(_) => SessionNews::Deleted,
            Change::Begun { run, order, .. } => SessionNews::Begun(segment(run, 0, *order)),
            Change::Resumed(_, run) => SessionNews::Resumed(run.clone()),
            Change::Continued { run, after_seq, order, .. } => SessionNews::Continued(segment(run, *after_seq, *order)),
        };
        let listening = self.sessions.lock().get(change.session()).and_then(Weak::upgrade);
        // Nobody listens any more, perhaps.
        listening.iter().for_each(|sender| drop(sender.send(news.clone())));
    }

    /// The tail of a run. As long as anybody holds it, everybody gets the same one.
    pub(in crate::http) fn tail(&self, session: &SessionId, run: &RunId) -> Arc<Tail> {
        let mut tails = self.tails.lock();
        let key = (session.clone(), run.clone());
        if let Some(tail) = tails.get(&key).and_then(Weak::upgrade).filter(|tail| !tail.is_spent()) {
            return tail;
        }
        if tails.len() >= CLEAR_AFTER && tails.len().is_power_of_two() {
            tails.retain(|_, tail| tail.strong_count() > 0);
        }
        let tail = Tail::new(session, run);
        tails.insert(key, Arc::downgrade(&tail));
        tail
    }

    /// Hears what happens in a session, for as long as both are held.
    pub(in crate::http) fn listen(
        &self,
        session: &SessionId,
    ) -> (Arc<broadcast::Sender<SessionNews>>, broadcast::Receiver<SessionNews>) {
        let mut sessions = self.sessions.lock();
        if let Some(sender) = sessions.get(session).and_then(Weak::upgrade) {
            let receiver = sender.subscribe();
            return (sender, receiver);
        }
        if sessions.len() >= CLEAR_AFTER && sessions.len().is_power_of_two() {
            sessions.retain(|_, sender| sender.strong_count() > 0);
        }
        let (sender, receiver) = broadcast::channel(BEGUN_MAX);
        let sender = Arc::new(sender);
        sessions.insert(session.clone(), Arc::downgrade(&sender));
        (sender, receiver)
    }

    pub(in crate::http) fn note_lag(&self, bytes: u64) {
        self.metrics.follower_lag.observe(bytes);
    }

    pub(in crate::http) fn note_snapshot(&self) {
        self.metrics.snapshots.add(1);
    }

    pub(in crate::http) fn note_gap(&self) {
        self.metrics.gaps.add(1);
    }

    /// How many runs are followed.
    pub(in crate::http) fn followed_runs(&self) -> usize {
        self.tails.lock().values().filter(|tail| tail.strong_count() > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::{TestServer, run, session};

    #[tokio::test]
    async fn a_follower_hears_of_its_session_however_many_others_are_followed() {
        let server = TestServer::new();
        let hub = &server.app.hub;
        let (_listening, mut news) = hub.listen(&session());
        for nth in 0..3 * CLEAR_AFTER {
            drop(hub.listen(&SessionId::parse(&format!("s{nth}")).unwrap()));
        }
        hub.hear(&Change::Deleted(session()));
        assert!(matches!(news.try_recv(), Ok(SessionNews::Deleted)));
        assert!(hub.sessions.lock().len() <= CLEAR_AFTER, "sessions that are not followed pile up");
    }

    #[tokio::test]
    async fn followers_of_a_run_share_its_tail_however_many_others_are_followed() {
        let server = TestServer::new();
        let hub = &server.app.hub;
        let tail = hub.tail(&session(), &run("r"));
        for nth in 0..3 * CLEAR_AFTER {
            drop(hub.tail(&session(), &run(&format!("r{nth}"))));
        }
        assert!(Arc::ptr_eq(&tail, &hub.tail(&session(), &run("r"))));
        assert!(hub.tails.lock().len() <= CLEAR_AFTER, "tails that are not followed pile up");
    }
}
