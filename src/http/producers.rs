//! Producers outside of this process: their runs stay open between two appends, and appends to one run come one after
//! the other. That a run is open here does not make its producer count as alive; its lease does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::app::App;
use super::error::ApiError;
use crate::clock::{Steady, SystemSteady};
use crate::model::{RunId, SessionId};
use crate::store::{Run, StoreError};

/// Runs that stay open. Beyond them, those not used for longest are closed until their producer comes again.
const OPEN_MAX: usize = 4_096;

/// How long a run stays open that nobody appends to.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// A run that is produced outside.
#[derive(Debug)]
pub(super) struct Producer {
    pub(super) run: Run,
    /// Held while events are compared and appended.
    pub(super) turn: tokio::sync::Mutex<()>,
}

/// All of them that are open.
#[derive(Debug, Default)]
pub(super) struct Producers {
    open: Mutex<HashMap<(SessionId, RunId), Open>>,
    clock: SystemSteady,
}

#[derive(Debug)]
struct Open {
    producer: Arc<Producer>,
    last_used: Duration,
}

impl Producers {
    /// A run that was just begun or opened. Whoever opened it first stays.
    pub(super) fn add(&self, run: Run) -> Arc<Producer> {
        let key = (run.session().clone(), run.id().clone());
        let producer = Arc::new(Producer { run, turn: tokio::sync::Mutex::default() });
        // Without a lease, an open run would count as alive for ever.
        if producer.run.lease_seconds().is_none() {
            return producer;
        }
        let now = self.clock.now();
        let (producer, dropped) = {
            let mut open = self.open.lock();
            let dropped = if open.len() >= OPEN_MAX { take_idlest(&mut open) } else { None };
            let entry = open.entry(key).or_insert(Open { producer, last_used: now });
            entry.last_used = now;
            (entry.producer.clone(), dropped)
        };
        drop(dropped);
        producer
    }

    fn get(&self, session: &SessionId, run: &RunId) -> Option<Arc<Producer>> {
        let mut open = self.open.lock();
        let entry = open.get_mut(&(session.clone(), run.clone()))?;
        entry.last_used = self.clock.now();
        Some(entry.producer.clone())
    }

    /// Forgets a run that takes no more, or that has to be opened again.
    pub(super) fn forget(&self, session: &SessionId, run: &RunId) {
        let gone = self.open.lock().remove(&(session.clone(), run.clone()));
        drop(gone);
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.lock().len()
    }

    /// Closes runs that nobody appends to.
    pub(super) fn sweep(&self) {
        let now = self.clock.now();
        let idle: Vec<Open> = {
            let mut open = self.open.lock();
            let is_idle = |entry: &Open| now.saturating_sub(entry.last_used) > IDLE_MAX;
            open.extract_if(|_, entry| is_idle(entry)).map(|(_, entry)| entry).collect()
        };
        drop(idle);
    }
}

fn take_idlest(open: &mut HashMap<(SessionId, RunId), Open>) -> Option<Open> {
    let idlest = open.iter().min_by_key(|(_, entry)| entry.last_used).map(|(key, _)| key.clone())?;
    open.remove(&idlest)
}

impl App {
    /// The run of a producer outside. Not one that a runner of ours produces.
    pub(super) async fn producer(&self, session: &SessionId, run: &RunId) -> Result<Arc<Producer>, ApiError> {
        if let Some(producer) = self.producers.get(session, run) {
            return Ok(producer);
        }
        if self.supervisor.is_running(session, run) {
            let message = "this run is produced by a runner of the server: follow it, or stop it";
            return Err(ApiError::new(axum::http::StatusCode::CONFLICT, "not_yours", message));
        }
        let (store, id, of) = (self.store.clone(), session.clone(), run.clone());
        let opened = self.desk.document(move || {
            // A deleted session has no runs, whatever is left of them.
            store.metadata(&id)?;
            store.resume_run(&id, &of)
        });
        match opened.await? {
            Ok(run) => Ok(self.producers.add(run)),
            Err(StoreError::NotFound { .. }) => Err(ApiError::no_session()),
            Err(StoreError::RunNotFound { .. }) => Err(ApiError::no_run()),
            Err(error) => Err(error.into()),
        }
    }
}
