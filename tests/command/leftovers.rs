//! Nobody outlives the program that started them: not if it ends without a word, and not if only a note is left.

use std::process::{Child, Command};
use std::time::Duration;

use lastword::run::{RunOptions, Runners, Supervisor, reap};
use lastword::storage::ProcessGroup;
use lastword::{Options, Store};

use crate::agent::{Agent, is_alive, until};

/// Starts an agent that says its own number and a child's, lets the runtime go, and waits until both are gone.
fn check_runtime_that_goes(deed: &str, is_ready: impl Fn(&str) -> bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (agent, pid, child) = runtime.block_on(async {
        let agent = Agent::new(deed);
        agent.house.start("hi").await;
        let (pid, child) = (agent.line("pid").await, agent.line("child").await);
        until("the moment has come", || is_ready(&pid)).await;
        (agent, pid, child)
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    other.block_on(until("both are gone", || !is_alive(&pid) && !is_alive(&child)));
    drop(agent);
}

#[test]
fn a_runtime_that_goes_away_takes_its_commands_with_it() {
    let deed = "trap '' TERM; sleep 600 & echo $! > $0/child; echo $$ > $0/pid; wait; wait";
    check_runtime_that_goes(deed, |_| true);
}

#[test]
fn a_runtime_that_goes_away_takes_those_with_it_whose_first_process_has_just_ended() {
    let deed = "env -i sleep 600 & echo $! > $0/child; echo $$ > $0/pid; echo hi";
    check_runtime_that_goes(deed, |pid| !is_alive(pid));
}

/// A process in a group of its own, as an earlier writer might have left it behind.
fn sleeper() -> Child {
    use std::os::unix::process::CommandExt;
    Command::new("sleep").arg("600").process_group(0).spawn().unwrap()
}

/// When a process started, as the kernel counts.
fn started_ticks(id: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap()
}

/// A note of a process by a writer that is gone.
fn note(process: &Child, boot_id: String) -> ProcessGroup {
    ProcessGroup {
        token: format!("{:032x}", process.id()),
        id: process.id(),
        started_ticks: Some(started_ticks(process.id())),
        boot_id,
        session_id: "s".to_owned(),
        run_id: "r".to_owned(),
        owner_id: 1,
        owner_started_ticks: Some(0),
    }
}

/// Whether a process that is noted like this outlives a reaping.
async fn outlives(change: impl FnOnce(ProcessGroup) -> ProcessGroup) -> bool {
    let agent = Agent::new("");
    let store = agent.house.store.clone();
    let mut process = sleeper();
    store.note_group(&change(note(&process, store.boot_id()))).unwrap();
    tokio::task::spawn_blocking(move || reap(&store).unwrap()).await.unwrap();
    assert_eq!(agent.noted(), 0, "the note is gone either way");
    let outlived = process.try_wait().unwrap().is_none();
    process.kill().unwrap();
    process.wait().unwrap();
    outlived
}

#[tokio::test]
async fn a_process_that_an_earlier_writer_left_behind_is_ended() {
    assert!(!outlives(|group| group).await);
}

#[tokio::test]
async fn a_process_is_ended_although_the_start_of_its_owner_is_not_known() {
    let dead = |group| ProcessGroup { owner_id: u32::MAX, owner_started_ticks: None, ..group };
    assert!(!outlives(dead).await);
}

#[test]
fn where_one_boot_is_not_told_from_another_no_process_is_ended_and_no_note_removed() {
    let disk = lastword::storage::sim::SimDisk::new().without_boot_id();
    let store = Store::open_on(std::sync::Arc::new(disk), std::path::Path::new("/data"), Options::default()).unwrap();
    let mut process = sleeper();
    store.note_group(&note(&process, store.boot_id())).unwrap();
    assert_eq!(reap(&store).unwrap(), []);
    assert!(process.try_wait().unwrap().is_none());
    assert_eq!(store.noted_groups().unwrap().len(), 1);
    process.kill().unwrap();
    process.wait().unwrap();
}

#[tokio::test]
async fn those_whose_owner_still_lives_are_left_to_it() {
    let owner = std::process::id();
    let owned = |group| ProcessGroup { owner_id: owner, owner_started_ticks: Some(started_ticks(owner)), ..group };
    let agent = Agent::new("");
    let store = agent.house.store.clone();
    let mut process = sleeper();
    store.note_group(&owned(note(&process, store.boot_id()))).unwrap();
    assert_eq!(reap(&store).unwrap(), []);
    assert!(process.try_wait().unwrap().is_none());
    assert_eq!(agent.noted(), 1);
    process.kill().unwrap();
    process.wait().unwrap();
}

#[tokio::test]
async fn a_reader_ends_nobody_and_removes_no_note() {
    let agent = Agent::new("echo $$ > $0/pid; echo half; sleep 600");
    let started = agent.house.start("hi").await;
    let pid = agent.line("pid").await;
    let reader = Store::open_read_only(agent.house.data(), Options::default()).unwrap();
    assert_eq!(reap(&reader).unwrap_err().code(), "read_only");
    assert_eq!(reader.noted_groups().unwrap_err().code(), "read_only");
    assert!(Supervisor::new(reader, Runners::default(), RunOptions::default()).is_err());
    assert!(is_alive(&pid));
    assert_eq!(agent.noted(), 1);
    agent.house.supervisor.stop(&agent.house.session, started.run()).await.unwrap();
}

#[tokio::test]
async fn a_note_that_cannot_be_read_keeps_nobody_from_starting() {
    let agent = Agent::new("echo fine");
    let folder = agent.house.data().join("_groups");
    std::fs::create_dir(&folder).unwrap();
    let unreadable = folder.join(format!("{:032x}", 7));
    std::os::unix::fs::symlink(&unreadable, &unreadable).unwrap();
    std::fs::write(folder.join("README"), "not ours").unwrap();
    assert_eq!(reap(&agent.house.store).unwrap(), []);
    assert!(folder.join("README").exists());
    assert!(agent.house.answer("hi").await.1.is_completed());
}

#[tokio::test]
async fn a_stranger_is_never_ended() {
    let later =
        |group: ProcessGroup| ProcessGroup { started_ticks: group.started_ticks.map(|ticks| ticks + 1), ..group };
    assert!(outlives(later).await, "another process has the number now");
    assert!(outlives(|group| ProcessGroup { boot_id: "another".to_owned(), ..group }).await, "another boot");
    assert!(outlives(|group| ProcessGroup { started_ticks: None, ..group }).await, "nobody knows when it started");
}
