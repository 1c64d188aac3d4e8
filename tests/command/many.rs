//! More commands than the system has files for: they wait for their turn, and nobody else goes without.
//!
//! The process that may open only a few files is this test program, started again for the one test below.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use lastword::run::{BudgetSettings, Retries, RunOptions, Runners, Supervisor};
use lastword::{NewSession, UserTurn};

use crate::agent::{Agent, script, until};
use crate::house::pause;

const SMALL: &str = "LASTWORD_TEST_FEW_FILES";
const COMMANDS: usize = 100;

#[test]
fn more_commands_than_files_allow_wait_for_their_turn() {
    let program = std::env::current_exe().unwrap();
    let mut small = Command::new("/bin/sh");
    small.args(["-c", "ulimit -n 256 && exec \"$@\"", "sh"]).arg(program);
    small.args(["--exact", "many::answers_in_a_small_process_when_it_is_told_to", "--nocapture"]).env(SMALL, "1");
    let output = small.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Not a test unless it is told to be: then the test is in the process that told it.
#[test]
fn answers_in_a_small_process_when_it_is_told_to() {
    if std::env::var_os(SMALL).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(answer_all());
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// All of them together take longer than a first event may: whoever waits for its turn is not called silent.
async fn answer_all() {
    let budgets = BudgetSettings { first_event_seconds: Some(3.0), ..BudgetSettings::default() };
    let agent = Agent::with(budgets, "sleep 0.7; echo \"$LASTWORD_SESSION_ID\"");
    let mut started = Vec::new();
    for at in 0..COMMANDS {
        let session = agent.house.store.create(NewSession::titled(&at.to_string())).unwrap();
        started
            .push((session.clone(), agent.house.supervisor.start(&session, UserTurn::text("hi"), None).await.unwrap()));
    }
    for (session, mut run) in started {
        let end = run.ended().await;
        assert!(end.is_completed(), "{end:?}");
        let events = agent.house.store.read_events(&session, run.run(), Default::default()).unwrap().events;
        assert_eq!(events.iter().filter(|event| event.name == "attempt").count(), 1, "it was not called silent");
    }
}

#[tokio::test]
async fn a_command_that_has_waited_for_its_turn_is_called_silent_like_any_other() {
    let agent = Agent::new("");
    let supervisor = supervisor_of_one_command(&agent);
    let start = async |runner| {
        let session = agent.house.store.create(NewSession::titled(runner)).unwrap();
        (session.clone(), supervisor.start(&session, UserTurn::text("hi"), Some(runner)).await.unwrap())
    };
    let (_, mut first) = start("first").await;
    agent.line("pid").await;
    let (session, mut silent) = start("silent").await;
    let events = || agent.house.store.read_events(&session, silent.run(), Default::default()).unwrap().events.len();
    until("its attempt has begun", || events() == 1).await;
    pause(2.0 * SILENCE_MAX).await;
    assert_eq!(events(), 1, "it waits for its turn, which is not its silence");
    std::fs::write(agent.folder.path().join("go"), "").unwrap();
    assert!(first.ended().await.is_completed());
    let end = tokio::time::timeout(Duration::from_secs(10), silent.ended()).await.expect("it is cut off");
    assert!(end.has_failed_as("timeout"), "{end:?}");
}

/// How long the silent command may be silent, in seconds.
const SILENCE_MAX: f64 = 0.05;

/// A supervisor with files for one command at a time: one that goes on until it is told, and one that says nothing.
fn supervisor_of_one_command(agent: &Agent) -> Supervisor {
    let folder = agent.folder.path().to_str().unwrap();
    let first = script("echo $$ > $0/pid; until [ -e $0/go ]; do sleep 0.02; done; echo word", folder);
    let silent = Arc::new(script("exec sleep 600", folder));
    let budgets = BudgetSettings { first_event_seconds: Some(SILENCE_MAX), ..BudgetSettings::default() };
    let runners = Runners::default().with("first", first).with_budgets("silent", silent, budgets);
    let retries = Retries { attempts_max: 1, ..Retries::default() };
    let options = RunOptions { retries, command_files_max: 5, ..RunOptions::default() };
    Supervisor::new(agent.house.store.clone(), runners, options).unwrap()
}
