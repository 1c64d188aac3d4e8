//! Supervised runs beside the same events appended by hand: what a runner, its channel and its watchdog cost.

use std::time::Duration;

use lastword::run::{Finish, Outlet, Producing, Prompt, RunOptions, Runner, Runners, Supervisor};
use lastword::{CacheOptions, Event, NewSession, Outcome, SessionId, Store, UserTurn};
use tokio::runtime::Runtime;

use super::Outcomes;
use super::rounds::timed;
use super::scene::{Bench, Scene, TOKEN, check};
use super::table::{Line, Target, grouped};

const EVENTS: usize = 20_000;
const RUNS: usize = 100;
const EVENTS_EACH: usize = 200;
const NAME: &str = "bench";

pub(super) fn measure(bench: &Bench<'_>) -> Outcomes<()> {
    let scene = bench.scene("runs", CacheOptions::default())?;
    let (events, runs) = (bench.size(EVENTS), bench.size(RUNS));
    let operation = format!("a supervised run of {} events", grouped(events));
    bench.table.add(&beside_plain_runs(bench, &scene, 1, events, operation)?)?;
    let each = bench.size(EVENTS_EACH);
    let operation = format!("{runs} supervised runs at once, {each} events each");
    bench.table.add(&beside_plain_runs(bench, &scene, runs, each, operation)?)
}

/// Says so many events, as fast as they are taken.
#[derive(Debug)]
struct Chatty {
    events: usize,
}

impl Runner for Chatty {
    fn produce(&self, _prompt: Prompt, outlet: Outlet) -> Producing {
        let events = self.events;
        Box::pin(async move {
            for _ in 0..events {
                outlet.say(Event::token(TOKEN)).await?;
            }
            Ok(Finish::done())
        })
    }
}

fn beside_plain_runs(
    bench: &Bench<'_>,
    scene: &Scene,
    runs: usize,
    events: usize,
    operation: String,
) -> Outcomes<Line> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let runners = Runners::default().with(NAME, Chatty { events }).with_default(NAME);
    let store = scene.store.clone();
    let supervisor = runtime.block_on(async { Supervisor::new(store, runners, RunOptions::default()) })?;
    let ours = || {
        let sessions = sessions(&scene.store, runs)?;
        timed(runs * events, || supervised(&runtime, &supervisor, &sessions))
    };
    let limit = || {
        let sessions = sessions(&scene.store, runs)?;
        timed(runs * events, || plain(&scene.store, &sessions, events))
    };
    let figures = bench.rounds.side_by_side(11, ours, limit)?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Line { operation, limit: "the same, appended one by one by one thread", figures, target: Target::None })
}

fn sessions(store: &Store, count: usize) -> Outcomes<Vec<SessionId>> {
    (0..count).map(|_| Ok(store.create(NewSession::titled("A bench"))?)).collect()
}

fn supervised(runtime: &Runtime, supervisor: &Supervisor, sessions: &[SessionId]) -> Outcomes<()> {
    runtime.block_on(async {
        let mut started = Vec::new();
        for session in sessions {
            started.push(supervisor.start(session, UserTurn::text("How fast?"), None).await?);
        }
        for run in &mut started {
            check(run.ended().await.is_completed(), "a run was completed")?;
        }
        Ok(())
    })
}

fn plain(store: &Store, sessions: &[SessionId], events: usize) -> Outcomes<()> {
    for session in sessions {
        let run = store.begin_run(session, UserTurn::text("How fast?"))?;
        (0..events).try_for_each(|_| run.append(Event::token(TOKEN)).map(drop))?;
        run.finish(Outcome::Completed)?;
    }
    Ok(())
}
