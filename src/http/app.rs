//! What all requests share.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use super::answer_budget::AnswerBudget;
use super::blocking_pool::BlockingPool;
use super::body_budget::BodyBudget;
use super::chat::LeftOutRuns;
use super::door::Door;
use super::error::ApiError;
use super::forwarded::TrustedProxies;
use super::metrics::Metrics;
use super::options::ServerOptions;
use super::peers::ClientPlaces;
use super::producers::Producers;
use super::session_shares::{SessionShares, Share};
use super::stream::{FollowerCount, Hub, StreamPolicy};
use crate::model::SessionId;
use crate::run::Supervisor;
use crate::store::Store;

/// Requests that begin a turn of one chat, or wait for that.
const CHAT_REQUESTS_MAX: usize = 32;

/// The server's parts.
#[derive(Debug)]
pub(super) struct App {
    pub(super) store: Store,
    pub(super) supervisor: Supervisor,
    pub(super) options: ServerOptions,
    /// Who may use the server.
    pub(super) door: Arc<Door>,
    pub(super) blocking: Arc<BlockingPool>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) bodies: Arc<BodyBudget>,
    pub(super) client_places: ClientPlaces,
    pub(super) hub: Arc<Hub>,
    pub(super) producers: Producers,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) policy: StreamPolicy,
    /// What histories of chats left out a moment ago.
    pub(super) left_out: LeftOutRuns,
    /// Two requests of one chat do not begin turns at the same time: the second sees what the first has begun.
    chat_turns: Arc<SessionShares>,
    pub(super) answers: Arc<AnswerBudget>,
    /// Places of streams: an eighth of the connections is kept for requests.
    streams: Arc<Semaphore>,
}

/// How far the server is from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Everything is served.
    Open,
    /// No new turns are begun; those that run may end.
    Draining,
}

pub(super) type SharedApp = Arc<App>;

impl App {
    pub(super) fn new(
        store: Store,
        supervisor: Supervisor,
        mut options: ServerOptions,
        closing: watch::Receiver<bool>,
    ) -> SharedApp {
        let door = Arc::new(Door::new(std::mem::take(&mut options.tokens)));
        let (blocking, metrics) = (Arc::new(BlockingPool::default()), Arc::new(Metrics::default()));
        let hub = Hub::new(&store, blocking.clone(), metrics.clone(), options.reader_files_max);
        let streams = Arc::new(Semaphore::new(options.connections_max - options.connections_max / 8));
        let policy = StreamPolicy { heartbeat: options.heartbeat, retry: options.retry, closing };
        let bodies = BodyBudget::new(options.bodies_bytes_max, options.body_bytes_max);
        let client_places = ClientPlaces::new(&options);
        let (producers, stage) = (Producers::default(), watch::Sender::new(Stage::Open));
        let (left_out, chat_turns) = (LeftOutRuns::default(), Arc::new(SessionShares::of(1)));
        Arc::new(App {
            store,
            supervisor,
            options,
            door,
            blocking,
            metrics,
            bodies,
            client_places,
            hub,
            producers,
            stage,
            policy,
            left_out,
            chat_turns,
            answers: Arc::default(),
            streams,
        })
    }

    /// Waits until no other request of this chat begins a turn. A request that leaves meanwhile waits no more.
    pub(super) async fn chat_turn(&self, session: &SessionId) -> Result<Share, ApiError> {
        match self.chat_turns.users(session) < CHAT_REQUESTS_MAX {
            true => Ok(self.chat_turns.place(session).await),
            false => Err(ApiError::too_many_messages()),
        }
    }

    /// Reads or saves the document of a session, on a thread that may block.
    pub(super) async fn document<T: Send + 'static>(
        &self,
        session: &SessionId,
        work: impl FnOnce(&Store, &SessionId) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (store, id) = (self.store.clone(), session.clone());
        self.blocking.document_of(&self.store, session.clone(), move || work(&store, &id)).await
    }

    pub(super) fn is_draining(&self) -> bool {
        *self.stage.borrow() >= Stage::Draining
    }

    /// The proxies whose word on the addresses of their clients is taken.
    pub(super) fn proxies(&self) -> TrustedProxies<'_> {
        TrustedProxies(&self.options.trusted_proxies)
    }

    /// Counts a reader of an answer that ends by itself.
    pub(super) fn count_reader(&self) -> FollowerCount {
        FollowerCount::new(&self.metrics, None)
    }

    /// Counts a follower, and gives it one of the places for streams.
    pub(super) fn count_follower(&self) -> Result<FollowerCount, ApiError> {
        let place = self.streams.clone().try_acquire_owned().map_err(|_| ApiError::too_many_streams())?;
        Ok(FollowerCount::new(&self.metrics, Some(place)))
    }
}
