//! Stopping and stalling: a command ends with its whole group, first asked and then not, and the partial stays.

use lastword::run::BudgetSettings;

use crate::agent::{Agent, is_alive, until};
use crate::house::{rows, seconds_since};

/// A command with a child of its own, which says both their numbers.
const WITH_CHILD: &str = "sleep 600 & echo $! > $0/child; echo $$ > $0/pid; echo half; wait";

#[tokio::test]
async fn a_command_is_stopped_with_all_its_children_and_the_partial_stays() {
    let agent = Agent::new(WITH_CHILD);
    let mut started = agent.house.start("hi").await;
    let (pid, child) = (agent.line("pid").await, agent.line("child").await);
    until("the word is there", || agent.house.names(started.run()).contains(&"token".to_owned())).await;
    assert_eq!(agent.noted(), 1);
    assert!(agent.house.supervisor.stop(&agent.house.session, started.run()).await.unwrap());
    started.gone().await;
    assert!(!is_alive(&pid) && !is_alive(&child));
    assert_eq!(agent.noted(), 0);
    assert_eq!(agent.house.names(started.run()).last().unwrap(), "cancel");
    assert_eq!(agent.house.rows(), rows(&[("user", "hi"), ("assistant", "half"), ("notice", "interrupted")]));
}

#[tokio::test]
async fn whoever_does_not_listen_to_term_is_killed_and_the_user_does_not_wait_for_that() {
    let agent = Agent::new(
        "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo $! > $0/child; echo $$ > $0/pid
         while :; do sleep 1; done",
    );
    let mut started = agent.house.start("hi").await;
    let (pid, child) = (agent.line("pid").await, agent.line("child").await);
    let begin = tokio::time::Instant::now();
    assert!(agent.house.supervisor.stop(&agent.house.session, started.run()).await.unwrap());
    assert!(seconds_since(begin) < 1.9, "the end is written before the command is gone: {} s", seconds_since(begin));
    assert!(is_alive(&pid), "it was asked, and does not listen");
    started.gone().await;
    assert!(!is_alive(&pid) && !is_alive(&child));
}

#[tokio::test]
async fn a_command_that_is_asked_to_end_may_tidy_up_but_adds_nothing() {
    let agent = Agent::new(
        "trap 'echo late; echo tidied > $0/tidied; exit 0' TERM; echo $$ > $0/pid; while :; do sleep 0.05; done",
    );
    let mut started = agent.house.start("hi").await;
    agent.line("pid").await;
    agent.house.supervisor.stop(&agent.house.session, started.run()).await.unwrap();
    started.gone().await;
    assert_eq!(agent.line("tidied").await, "tidied");
    assert_eq!(agent.house.names(started.run()), ["attempt", "cancel"]);
}

#[tokio::test]
async fn the_next_turn_begins_when_the_command_of_the_last_is_gone() {
    let agent = Agent::new(
        "[ -e $0/other ] && echo 'not alone' && exit 0
         [ -e $0/second ] && echo alone && exit 0
         touch $0/second $0/other; trap '' TERM; echo $$ > $0/pid
         (trap '' TERM; sleep 1; rm $0/other) & while :; do sleep 0.1; done",
    );
    let started = agent.house.start("one").await;
    agent.line("pid").await;
    agent.house.supervisor.stop(&agent.house.session, started.run()).await.unwrap();
    let (_, end) = agent.house.answer("two").await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(agent.house.rows().last().unwrap().1, "alone");
}

fn budgets(first: f64, idle: f64) -> BudgetSettings {
    BudgetSettings { first_event_seconds: Some(first), idle_seconds: Some(idle), tool_seconds: None }
}

#[tokio::test]
async fn a_command_that_never_says_anything_is_cut_off_with_its_children_and_asked_again() {
    let agent = Agent::with(
        budgets(1.0, 600.0),
        "echo x >> $0/starts; [ $(wc -l < $0/starts) = 1 ] || { echo better; exit 0; }
         sleep 600 & echo $! > $0/child; wait",
    );
    let begin = tokio::time::Instant::now();
    let (run, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert!((1.0..30.0).contains(&seconds_since(begin)), "{} s", seconds_since(begin));
    assert!(!is_alive(&agent.line("child").await));
    let why = agent.house.events(&run).into_iter().find(|event| event.name == "attempt_end").unwrap();
    assert!(why.payload().contains("ttfb_timeout") && why.payload().contains("TTFB"), "{}", why.payload());
}

#[tokio::test]
async fn blank_lines_and_complaints_are_no_events() {
    let agent = Agent::with(budgets(0.7, 600.0), "while :; do echo; echo working >&2; sleep 0.05; done");
    let (run, end) = agent.house.answer("hi").await;
    assert!(end.has_failed_as("timeout"), "{end:?}");
    assert_eq!(agent.house.last_words(&run).text("close_reason").unwrap(), "ttfb_timeout");
    assert!(!agent.house.names(&run).contains(&"token".to_owned()));
}

#[tokio::test]
async fn an_event_that_is_long_in_coming_is_a_sign_of_life() {
    let slow = r#"printf '{"event":"token","payload":{"text":"'; for i in 1 2 3 4 5; do sleep 0.4; printf $i; done; echo '"}}'"#;
    let agent = Agent::with(budgets(1.0, 30.0), slow);
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(agent.house.rows()[1].1, "12345");
}

#[tokio::test]
async fn a_run_that_somebody_else_stops_takes_its_command_with_it() {
    let agent = Agent::new(WITH_CHILD);
    let mut started = agent.house.start("hi").await;
    let (pid, child) = (agent.line("pid").await, agent.line("child").await);
    until("the word is there", || agent.house.names(started.run()).contains(&"token".to_owned())).await;
    assert!(agent.house.store.stop_run(&agent.house.session, started.run()).unwrap());
    assert!(started.ended().await.is_stopped());
    started.gone().await;
    assert!(!is_alive(&pid) && !is_alive(&child));
    assert_eq!(agent.house.rows(), rows(&[("user", "hi"), ("assistant", "half"), ("notice", "interrupted")]));
}

#[tokio::test]
async fn a_silent_command_goes_when_its_session_is_deleted() {
    let agent = Agent::new("echo $$ > $0/pid; sleep 600");
    let mut started = agent.house.start("hi").await;
    let pid = agent.line("pid").await;
    let begin = tokio::time::Instant::now();
    agent.house.store.delete(&agent.house.session).unwrap();
    assert!(started.ended().await.is_unwritten());
    started.gone().await;
    assert!(seconds_since(begin) < 20.0, "its budget was not waited for: {} s", seconds_since(begin));
    assert!(!is_alive(&pid));
}

#[tokio::test]
async fn a_command_that_speaks_may_take_longer_than_the_first_event_budget() {
    let agent = Agent::with(budgets(1.0, 30.0), "for i in 1 2 3 4 5 6; do printf \"$i \"; sleep 0.4; done");
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(agent.house.rows()[1].1, "1 2 3 4 5 6");
}

#[tokio::test]
async fn a_silence_in_the_middle_is_cut_unless_a_tool_is_at_work() {
    let tool = r#"echo '{"event":"tool","payload":{"name":"build","tool_call_id":"1"}}'; sleep 1.5
        echo '{"event":"tool_complete","payload":{"name":"build","tool_call_id":"1"}}'; echo built"#;
    let agent = Agent::with(budgets(30.0, 0.7), tool);
    let (_, end) = agent.house.answer("hi").await;
    assert!(end.is_completed(), "{end:?}");
    let agent = Agent::with(budgets(30.0, 0.7), "echo half; sleep 600");
    let (run, _) = agent.house.answer("hi").await;
    assert_eq!(agent.house.last_words(&run).text("close_reason").unwrap(), "idle_timeout");
    assert_eq!(agent.house.rows(), rows(&[("user", "hi"), ("assistant", "half"), ("notice", "timeout")]));
}

#[tokio::test]
async fn a_session_that_is_deleted_ends_its_command() {
    let agent = Agent::new("echo $$ > $0/pid; while :; do echo word; sleep 0.05; done");
    let mut started = agent.house.start("hi").await;
    let pid = agent.line("pid").await;
    agent.house.store.delete(&agent.house.session).unwrap();
    assert!(started.ended().await.is_unwritten());
    started.gone().await;
    assert!(!is_alive(&pid));
}

#[tokio::test]
async fn a_drain_ends_commands_too_and_says_why() {
    let agent = Agent::new(WITH_CHILD);
    let mut started = agent.house.start("hi").await;
    let (pid, child) = (agent.line("pid").await, agent.line("child").await);
    until("the word is there", || agent.house.names(started.run()).contains(&"token".to_owned())).await;
    assert_eq!(agent.house.supervisor.drain(std::time::Duration::from_millis(200)).await.cut, 1);
    assert!(!is_alive(&pid) && !is_alive(&child));
    assert!(started.ended().await.has_failed_as("shutdown"));
    assert_eq!(agent.house.rows(), rows(&[("user", "hi"), ("assistant", "half"), ("notice", "shutdown")]));
}
