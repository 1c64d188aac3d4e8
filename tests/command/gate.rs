//! No command goes to work whose group is not noted.

use std::fs;

use crate::agent::{Agent, until};
use crate::house::pause;
use lastword::run::RunFailure;

#[tokio::test]
async fn a_command_whose_group_cannot_be_noted_does_not_go_to_work() {
    let agent = Agent::new("echo x >> $0/starts; echo hi");
    // A file stands where the folder of notes should be.
    fs::write(agent.house.data().join("_groups"), "").unwrap();
    let (_, end) = agent.house.answer("hi").await;
    let Some(RunFailure { kind, message }) = &end.failure else { panic!("{end:?}") };
    assert_eq!(kind, "storage");
    assert!(message.contains("could not be noted"), "{message}");
    pause(0.3).await;
    assert_eq!(agent.starts(), 0);
}

#[tokio::test]
async fn a_group_is_noted_while_it_works_and_forgotten_when_it_is_gone() {
    let agent = Agent::new("echo $$ > $0/pid; until [ -e $0/go ]; do sleep 0.02; done; echo hi");
    let mut started = agent.house.start("hi").await;
    let pid = agent.line("pid").await;
    let noted = agent.house.store.noted_groups().unwrap();
    assert_eq!(noted.len(), 1);
    assert_eq!((noted[0].id.to_string(), noted[0].run_id.as_str()), (pid, started.run().as_str()));
    assert_eq!(noted[0].boot_id, agent.house.store.boot_id());
    assert!(noted[0].started_ticks.is_some());
    fs::write(agent.folder.path().join("go"), "").unwrap();
    assert!(started.ended().await.is_completed());
    started.gone().await;
    until("the note is gone", || agent.noted() == 0).await;
}
