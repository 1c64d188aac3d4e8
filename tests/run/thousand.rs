//! A thousand runs at once in one process: tasks, not threads, and everybody gets on.

use std::time::Duration;

use lastword::run::{DemoRunner, RunOptions, Runners, Supervisor};
use lastword::{NewSession, Options, Store, UserTurn};

use crate::house::Scripted;

const RUNS: usize = 1_000;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map(|tasks| tasks.count()).unwrap_or(0)
}

fn supervised(runners: Runners) -> (tempfile::TempDir, Store, Supervisor) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("data"), Options::default()).unwrap();
    let supervisor = Supervisor::new(store.clone(), runners, RunOptions::default()).unwrap();
    (dir, store, supervisor)
}

async fn start_all(store: &Store, supervisor: &Supervisor) -> Vec<lastword::run::Started> {
    let mut starting = Vec::new();
    for at in 0..RUNS {
        let session = store.create(NewSession::titled(&format!("session {at}"))).unwrap();
        let supervisor = supervisor.clone();
        let start = async move { supervisor.start(&session, UserTurn::text("hello there"), None).await.unwrap() };
        starting.push(tokio::spawn(start));
    }
    let mut started = Vec::new();
    for start in starting {
        started.push(start.await.unwrap());
    }
    started
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_demo_runs_at_once_all_finish_and_the_program_stays_responsive() {
    let runners = Runners::default().with("demo", DemoRunner { pace: Duration::from_millis(20) });
    let (_dir, store, supervisor) = supervised(runners);
    let worst = tokio::spawn(worst_delay(supervisor.clone()));
    let begin = tokio::time::Instant::now();
    for mut run in start_all(&store, &supervisor).await {
        assert!(run.ended().await.is_completed());
        run.gone().await;
    }
    assert!(supervisor.running().is_empty());
    // An answer takes three seconds; a thousand that stood in each other's way took minutes.
    assert!(begin.elapsed() < Duration::from_secs(90), "all of them took {:?}", begin.elapsed());
    let worst = worst.await.unwrap();
    // Far beyond what a loaded machine takes, and far below what a blocked thread would cost.
    assert!(worst < Duration::from_secs(5), "a task waited for {worst:?}");
}

/// How late a task came that only wanted to be woken every 10 ms, as long as anybody works.
async fn worst_delay(supervisor: Supervisor) -> Duration {
    let (nap, mut worst, mut has_begun) = (Duration::from_millis(10), Duration::ZERO, false);
    while !has_begun || !supervisor.running().is_empty() {
        let asleep = tokio::time::Instant::now();
        tokio::time::sleep(nap).await;
        worst = worst.max(asleep.elapsed().saturating_sub(nap));
        has_begun |= !supervisor.running().is_empty();
    }
    worst
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_waits_is_a_task_and_not_a_thread() {
    let waiting = Scripted(|_, _| std::future::pending());
    let (_dir, store, supervisor) = supervised(Runners::default().with("wait", waiting).with_default("wait"));
    let started = start_all(&store, &supervisor).await;
    assert_eq!(supervisor.running().len(), RUNS);
    // Those of the tests beside this one count too.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while threads() > RUNS / 3 {
        assert!(tokio::time::Instant::now() < deadline, "{} threads for {RUNS} runs that wait", threads());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let drained = supervisor.drain(Duration::ZERO).await;
    assert_eq!(drained.cut, RUNS);
    drop(started);
}
