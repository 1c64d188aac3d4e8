//! Producers outside of this process: their runs stay open between two appends, and appends to one run come one after
//! the other. That a run is open here does not make its producer count as alive; its lease does.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::app::App;
use super::error::ApiError;
use crate::clock::{Steady, SystemSteady};
use crate::model::{RunId, SessionId};
use crate::store::{Run, StoreError};

/// Runs that stay open. Beyond them, those not used for longest are closed until their producer comes again.
const OPEN_MAX: usize = 4_096;

/// Runs of which it is remembered that they ended here and their answers are saved.
const ENDED_MAX: usize = 1_024;

/// After how many new entries those that nobody holds are cleared away.
const CLEAR_AFTER: usize = 1_024;

/// How long a run stays open that nobody appends to.
const IDLE_MAX: Duration = Duration::from_secs(600);

type Key = (SessionId, RunId);

/// All of them that are open.
#[derive(Debug, Default)]
pub(super) struct Producers {
    open: Mutex<HashMap<Key, Open>>,
    turns: Mutex<HashMap<Key, Weak<tokio::sync::Mutex<()>>>>,
    /// The oldest first.
    ended: Mutex<VecDeque<Key>>,
    clock: SystemSteady,
}

/// The right to compare with what is there, and to append.
pub(super) type Turn = tokio::sync::OwnedMutexGuard<()>;

#[derive(Debug)]
struct Open {
    run: Run,
    last_used: Duration,
}

impl Producers {
    /// Waits until nobody else appends to a run.
    pub(super) async fn turn(&self, session: &SessionId, run: &RunId) -> Turn {
        let turn = {
            let mut turns = self.turns.lock();
            if turns.len() >= CLEAR_AFTER && turns.len().is_power_of_two() {
                turns.retain(|_, turn| turn.strong_count() > 0);
            }
            let known = turns.entry((session.clone(), run.clone())).or_default();
            known.upgrade().unwrap_or_else(|| {
                let turn = Arc::default();
                *known = Arc::downgrade(&turn);
                turn
            })
        };
        turn.lock_owned().await
    }

    /// Keeps a run open that was just begun or opened. Without a lease it would count as alive for ever.
    pub(super) fn add(&self, run: &Run) {
        if run.lease_seconds().is_none() {
            return;
        }
        let (key, last_used) = ((run.session().clone(), run.id().clone()), self.clock.now());
        let dropped = {
            let mut open = self.open.lock();
            let dropped = if open.len() >= OPEN_MAX { take_idlest(&mut open) } else { None };
            open.insert(key, Open { run: run.clone(), last_used });
            dropped
        };
        drop(dropped);
    }

    fn get(&self, session: &SessionId, run: &RunId) -> Option<Run> {
        let mut open = self.open.lock();
        let entry = open.get_mut(&(session.clone(), run.clone()))?;
        entry.last_used = self.clock.now();
        Some(entry.run.clone())
    }

    /// Forgets a run that takes no more, or that has to be opened again.
    pub(super) fn forget(&self, session: &SessionId, run: &RunId) {
        let gone = self.open.lock().remove(&(session.clone(), run.clone()));
        drop(gone);
    }

    /// Notes that a run has ended and its answer is saved: a repeat of its end need not look for that again.
    pub(super) fn note_ended(&self, session: &SessionId, run: &RunId) {
        let key = (session.clone(), run.clone());
        let mut ended = self.ended.lock();
        if ended.contains(&key) {
            return;
        }
        if ended.len() >= ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back(key);
    }

    /// Whether that was noted. If not, it may be so all the same.
    pub(super) fn has_ended(&self, session: &SessionId, run: &RunId) -> bool {
        self.ended.lock().iter().any(|(of, ended)| (of, ended) == (session, run))
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

fn take_idlest(open: &mut HashMap<Key, Open>) -> Option<Open> {
    let idlest = open.iter().min_by_key(|(_, entry)| entry.last_used).map(|(key, _)| key.clone())?;
    open.remove(&idlest)
}

impl App {
    /// The run of a producer outside. Not one that a runner of ours produces.
    pub(super) async fn producer(&self, session: &SessionId, run: &RunId) -> Result<Run, ApiError> {
        if let Some(run) = self.producers.get(session, run) {
            return Ok(run);
        }
        if self.supervisor.is_running(session, run) {
            let message = "this run is produced by a runner of the server: follow it, or stop it";
            return Err(ApiError::new(axum::http::StatusCode::CONFLICT, "not_yours", message));
        }
        let of = run.clone();
        let opened = self.document(session, move |store, id| {
            // A deleted session has no runs, whatever is left of them.
            store.metadata(id)?;
            store.resume_run(id, &of)
        });
        match opened.await? {
            Ok(run) => {
                self.producers.add(&run);
                Ok(run)
            }
            Err(StoreError::NotFound { .. }) => Err(ApiError::no_session()),
            Err(StoreError::RunNotFound { .. }) => Err(ApiError::no_run()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::http::tests::{TestServer, run, session};
    use crate::store::UserTurn;

    #[tokio::test]
    async fn a_turn_that_is_held_is_not_given_to_a_second_request_however_many_runs_there_are() {
        let producers = Producers::default();
        let held = producers.turn(&session(), &run("held")).await;
        for nth in 0..3 * CLEAR_AFTER {
            drop(producers.turn(&session(), &run(&format!("r{nth}"))).await);
            assert!(producers.turn(&session(), &run("held")).now_or_never().is_none(), "after {nth} others");
        }
        assert!(producers.turns.lock().len() <= CLEAR_AFTER, "turns that are not held pile up");
        drop(held);
        assert!(producers.turn(&session(), &run("held")).now_or_never().is_some());
    }

    #[test]
    fn the_last_runs_that_ended_are_remembered() {
        let producers = Producers::default();
        for nth in 0..=ENDED_MAX {
            (0..2).for_each(|_| producers.note_ended(&session(), &run(&format!("r{nth}"))));
        }
        assert_eq!(producers.ended.lock().len(), ENDED_MAX);
        assert!(!producers.has_ended(&session(), &run("r0")) && producers.has_ended(&session(), &run("r1")));
    }

    #[tokio::test]
    async fn a_request_that_waits_for_its_turn_keeps_it() {
        let producers = Producers::default();
        let (session, run) = (session(), run("r"));
        let first = producers.turn(&session, &run).await;
        let mut second = std::pin::pin!(producers.turn(&session, &run));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(producers.turn(&session, &run).now_or_never().is_none(), "the second one is first");
        let second = second.await;
        assert!(producers.turn(&session, &run).now_or_never().is_none());
        drop(second);
        assert!(producers.turn(&session, &run).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_run_without_a_lease_is_not_kept_open() {
        let server = TestServer::new();
        let producers = Producers::default();
        let leased = server.begin("r1");
        producers.add(&leased);
        leased.append(crate::http::tests::done()).unwrap();
        producers.add(&server.store().begin_run(&session(), UserTurn::text("m").with_run(run("r2"))).unwrap());
        assert_eq!(producers.len(), 1);
        assert!(producers.get(&session(), &run("r1")).is_some() && producers.get(&session(), &run("r2")).is_none());
    }
}
