//! All runs of a store that are answered by runners: started, stopped, and drained when the program ends.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::ending::Why;
use super::group::{Groups, Reaped, reap};
use super::options::{BadBudget, BudgetSettings, RunOptions};
use super::runners::{Named, Runners};
use super::scribe::{Desk, Scribe};
use super::sleep::{joined, sleep, within};
use super::stderr::StderrKeeper;
use super::supervise::{RunReport, Stage, Supervision, ask};
use crate::awake::{AwakeClock, AwakeOptions};
use crate::entropy::SystemEntropy;
use crate::model::{RunId, SessionId};
use crate::storage::StorageError;
use crate::store::{Run, Store, StoreError, UserTurn};

/// How often the clock is looked at by which the silence of producers is measured, and how much of a longer gap counts. A busy
/// machine may well be late by a few seconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const GAP_MAX: Duration = Duration::from_secs(5);

/// Why a supervisor was not made.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// A budget is no number of seconds.
    #[error(transparent)]
    Budget(#[from] BadBudget),
    /// The runner that is to answer where nobody is asked for is not there.
    #[error("the default runner {name:?} is not configured: choose one of {known}")]
    NoDefault {
        /// Its name.
        name: String,
        /// Those that are there.
        known: String,
    },
    /// What earlier writers left behind could not be looked at.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a turn was not started.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// There is no such runner.
    #[error("there is no runner {name:?}: choose one of {known}")]
    UnknownRunner {
        /// What was asked for.
        name: String,
        /// Those that are there.
        known: String,
    },
    /// The program is about to end.
    #[error("no new turns are begun, because the program is shutting down: try again when it is back")]
    Draining,
    /// The store refused, perhaps because another run of the session has not ended.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of the runs when the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Runs that were at work when the drain began.
    pub running: usize,
    /// Those of them that were cut off at the deadline.
    pub cut: usize,
}

/// Starts runs, watches over them, and ends them. Clones are the same supervisor.
#[derive(Debug, Clone)]
pub struct Supervisor {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    runners: Runners,
    budgets: BudgetSettings,
    options: RunOptions,
    clock: Arc<AwakeClock>,
    desk: Desk,
    groups: Groups,
    floor: Mutex<Floor>,
    /// How many runs are at work.
    count: watch::Sender<usize>,
    reaped: Vec<Reaped>,
}

/// The runs at work, one a session.
#[derive(Debug, Default)]
struct Floor {
    is_closed: bool,
    at_work: HashMap<SessionId, AtWork>,
}

/// A run at work.
#[derive(Debug, Clone)]
struct AtWork {
    run: RunId,
    /// The run itself, once its turn has begun.
    begun: Arc<OnceLock<Run>>,
    asked: Arc<watch::Sender<Option<Why>>>,
    stage: watch::Receiver<Stage>,
}

impl AtWork {
    /// Whether the run has ended, as whoever follows it may have seen already.
    fn has_ended(&self) -> bool {
        self.stage.borrow().end.is_some() || self.begun.get().is_some_and(Run::is_sealed)
    }
}

/// A run that was started. Dropping this changes nothing.
#[derive(Debug, Clone)]
pub struct Started {
    run: RunId,
    stage: watch::Receiver<Stage>,
}

impl Started {
    /// Its id.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Waits until the run has ended: sealed, folded, saved.
    pub async fn ended(&mut self) -> RunReport {
        ended(&mut self.stage).await.unwrap_or_else(|| {
            RunReport::failed(
                "supervision_broke",
                "The supervision of this run broke down. What had arrived is kept; please try again.",
            )
        })
    }

    /// Waits until its producer is gone too.
    pub async fn gone(&mut self) {
        // A supervision that broke down is gone as well.
        let _ = self.stage.wait_for(|stage| stage.is_gone).await;
    }
}

/// How a run ended; nothing if it never began, or nobody saw to its end.
async fn ended(stage: &mut watch::Receiver<Stage>) -> Option<RunReport> {
    stage.wait_for(|stage| stage.end.is_some() || stage.is_gone).await.ok()?.end.clone()
}

impl Supervisor {
    /// A supervisor of a store's runs. Ends the processes that earlier writers left behind, for which it may wait a few
    /// seconds. To be called inside a tokio runtime, whose tasks the runs become.
    pub fn new(store: Store, runners: Runners, options: RunOptions) -> Result<Self, SuperviseError> {
        options.budgets.check()?;
        for named in runners.all() {
            named.budgets.check()?;
        }
        if runners.get(None).is_none() {
            return Err(SuperviseError::NoDefault { name: runners.default_name().to_owned(), known: listed(&runners) });
        }
        let budgets = options.budgets.or(BudgetSettings::from_environment()?);
        let reaped = match reap(&store) {
            // What cannot be read tells of no process that could be ended.
            Err(error) if error.storage().is_some_and(StorageError::is_of_one_object) => Vec::new(),
            reaped => reaped?,
        };
        let clock = Arc::new(AwakeClock::new(options.steady.clone(), AwakeOptions { gap_max: GAP_MAX, wall: None }));
        tokio::spawn(look_often(Arc::downgrade(&clock)));
        let (desk, floor, count) = (Desk::default(), Mutex::default(), watch::Sender::new(0));
        let groups = Groups::of(&store, options.command_files_max);
        let shared = Shared { store, runners, budgets, options, clock, desk, groups, floor, count, reaped };
        Ok(Supervisor { shared: Arc::new(shared) })
    }

    /// The processes that earlier writers had left behind.
    pub fn reaped(&self) -> &[Reaped] {
        &self.shared.reaped
    }

    /// The runners that can be asked for.
    pub fn runners(&self) -> &Runners {
        &self.shared.runners
    }

    /// Begins a turn and lets a runner answer it. The prompt is durable when this returns. Whoever stops waiting for this
    /// stops nothing.
    pub async fn start(
        &self,
        session: &SessionId,
        turn: UserTurn,
        runner: Option<&str>,
    ) -> Result<Started, StartError> {
        let named = self.shared.runners.get(runner).cloned().ok_or_else(|| self.unknown(runner))?;
        let turn = UserTurn {
            run: Some(turn.run.unwrap_or_else(|| RunId::fresh(&SystemEntropy))),
            lease_seconds: None,
            ..turn
        };
        joined(tokio::spawn(self.shared.clone().begin(session.clone(), turn, named))).await
    }

    /// Stops a run of a runner here or of a producer outside. It ends as stopped, what arrived is kept, and nothing is
    /// added to it any more. Works before the first event, too. Of any number of calls at most one is answered with
    /// `true`: the one that ended the run. For all others it had ended before.
    pub async fn stop(&self, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        let at_work = self.shared.floor.lock().at_work.get(session).filter(|at_work| at_work.run == *run).cloned();
        if let Some(AtWork { asked, mut stage, .. }) = at_work {
            let is_first = ask(&asked, Why::Stop);
            match ended(&mut stage).await {
                Some(report) if !report.is_unwritten() => {
                    let is_ended_by_stop = stage.borrow().is_ended_by_stop;
                    let is_unreported = || self.shared.store.take_unreported_stop(session, run);
                    return Ok(if is_ended_by_stop { is_first } else { is_unreported() });
                }
                // The journal may still have to be told, or know nothing of it.
                _ => {}
            }
        }
        let (store, session, run) = (self.shared.store.clone(), session.clone(), run.clone());
        self.shared.desk.document(move || store.stop_run(&session, &run)).await
    }

    /// Whether a runner is at work on this run.
    pub fn is_running(&self, session: &SessionId, run: &RunId) -> bool {
        self.shared.floor.lock().at_work.get(session).is_some_and(|at_work| at_work.run == *run)
    }

    /// The runs that runners are at work on.
    pub fn running(&self) -> Vec<(SessionId, RunId)> {
        let floor = self.shared.floor.lock();
        floor.at_work.iter().map(|(session, at_work)| (session.clone(), at_work.run.clone())).collect()
    }

    /// Begins no more turns, gives those that run so long to end, and then ends them with an event that says why.
    /// Returns when all are gone.
    pub async fn drain(&self, deadline: Duration) -> Drained {
        let running = self.close();
        let mut count = self.shared.count.subscribe();
        if within(deadline, count.wait_for(|count| *count == 0)).await.is_some() {
            return Drained { running, cut: 0 };
        }
        let left: Vec<AtWork> = self.shared.floor.lock().at_work.values().cloned().collect();
        let cut = left.iter().filter(|at_work| at_work.stage.borrow().end.is_none()).count();
        for at_work in &left {
            ask(&at_work.asked, Why::Shutdown);
        }
        let _ = count.wait_for(|count| *count == 0).await;
        Drained { running, cut }
    }

    fn close(&self) -> usize {
        let mut floor = self.shared.floor.lock();
        floor.is_closed = true;
        floor.at_work.len()
    }

    fn unknown(&self, runner: Option<&str>) -> StartError {
        let name = runner.unwrap_or(self.shared.runners.default_name()).to_owned();
        StartError::UnknownRunner { name, known: listed(&self.shared.runners) }
    }
}

/// Looks at the clock every second, for as long as a supervisor holds it.
async fn look_often(clock: Weak<AwakeClock>) {
    while let Some(clock) = clock.upgrade() {
        clock.look();
        drop(clock);
        sleep(LOOK_EVERY).await;
    }
}

fn listed(runners: &Runners) -> String {
    runners.names().collect::<Vec<_>>().join(", ")
}

/// A session's place on the floor. Given back when this is dropped, however that comes about.
struct Place {
    shared: Arc<Shared>,
    session: SessionId,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut floor = self.shared.floor.lock();
        floor.at_work.remove(&self.session);
        self.shared.count.send_replace(floor.at_work.len());
    }
}

impl Shared {
    /// Takes the session's place, begins the turn, and lets the run go.
    async fn begin(self: Arc<Self>, session: SessionId, turn: UserTurn, named: Named) -> Result<Started, StartError> {
        let run = turn.run.clone().expect("start has given it one");
        let (asked, wishes) = watch::channel(None);
        let (stage, stages) = watch::channel(Stage::default());
        let asked = Arc::new(asked);
        let told = Arc::downgrade(&asked);
        let handle = Arc::new(OnceLock::new());
        let at_work = AtWork { run: run.clone(), begun: handle.clone(), asked, stage: stages.clone() };
        let place = self.take_place(&session, at_work).await?;
        let store = self.store.clone();
        let begun = self.desk.document(move || store.begin_run(&session, turn)).await?;
        let _ = handle.set(begun.clone());
        begun.on_end(move || {
            told.upgrade().map(|asked| ask(&asked, Why::Elsewhere));
        });
        let supervision = self.supervision(begun, named, wishes, stage);
        tokio::spawn(async move {
            let stage = supervision.run().await;
            drop(place);
            stage.send_modify(|stage| stage.is_gone = true);
        });
        Ok(Started { run, stage: stages })
    }

    /// A run that has ended is waited for until its producer is gone; one that has not is in the way.
    async fn take_place(self: &Arc<Self>, session: &SessionId, at_work: AtWork) -> Result<Place, StartError> {
        loop {
            let before = match self.try_take_place(session, &at_work)? {
                Ok(place) => return Ok(place),
                Err(before) => before,
            };
            if !before.has_ended() {
                let run = before.run.to_string();
                return Err(StoreError::RunInProgress { session: session.clone(), run }.into());
            }
            self.wait_until_gone(session, &before.run).await;
        }
    }

    async fn wait_until_gone(&self, session: &SessionId, run: &RunId) {
        let mut count = self.count.subscribe();
        while self.floor.lock().at_work.get(session).is_some_and(|now| now.run == *run) {
            // Whoever tells is this very value.
            let _ = count.changed().await;
        }
    }

    fn try_take_place(
        self: &Arc<Self>,
        session: &SessionId,
        at_work: &AtWork,
    ) -> Result<Result<Place, AtWork>, StartError> {
        let mut floor = self.floor.lock();
        if floor.is_closed {
            return Err(StartError::Draining);
        }
        if let Some(before) = floor.at_work.get(session) {
            return Ok(Err(before.clone()));
        }
        floor.at_work.insert(session.clone(), at_work.clone());
        self.count.send_replace(floor.at_work.len());
        Ok(Ok(Place { shared: self.clone(), session: session.clone() }))
    }

    fn supervision(
        &self,
        run: Run,
        named: Named,
        asked: watch::Receiver<Option<Why>>,
        stage: watch::Sender<Stage>,
    ) -> Supervision {
        let (store, options, clock) = (self.store.clone(), self.options.clone(), self.clock.clone());
        let budgets = named.budgets.or(self.budgets).budgets();
        let scribe = Scribe {
            durability: store.durability(),
            run,
            desk: self.desk.clone(),
            disk_patience: options.disk_patience,
            asked: asked.clone(),
        };
        let groups = self.groups.clone();
        let stderr = StderrKeeper::of(&store, &self.desk, options.on_stderr.clone());
        Supervision { store, named, budgets, options, clock, scribe, groups, stderr, asked, stage }
    }
}
