//! What all requests share.

use std::sync::Arc;

use tokio::sync::watch;

use super::desk::Desk;
use super::metrics::Metrics;
use super::options::ServerOptions;
use super::producers::Producers;
use super::stream::{FollowerCount, Hub, Manners};
use crate::run::Supervisor;
use crate::store::Store;

/// The server's parts.
#[derive(Debug)]
pub(super) struct App {
    pub(super) store: Store,
    pub(super) supervisor: Supervisor,
    pub(super) options: ServerOptions,
    pub(super) desk: Arc<Desk>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) hub: Arc<Hub>,
    pub(super) producers: Producers,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) manners: Manners,
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
        options: ServerOptions,
        closing: watch::Receiver<bool>,
    ) -> SharedApp {
        let (desk, metrics) = (Arc::new(Desk::default()), Arc::new(Metrics::default()));
        let hub = Hub::new(&store, desk.clone(), metrics.clone());
        let manners = Manners { heartbeat: options.heartbeat, retry: options.retry, closing };
        let (producers, stage) = (Producers::default(), watch::Sender::new(Stage::Open));
        Arc::new(App { store, supervisor, options, desk, metrics, hub, producers, stage, manners })
    }

    pub(super) fn is_draining(&self) -> bool {
        *self.stage.borrow() >= Stage::Draining
    }

    /// Counts somebody who follows.
    pub(super) fn count_follower(&self) -> FollowerCount {
        FollowerCount::new(&self.metrics)
    }
}
