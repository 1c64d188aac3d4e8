//! An agent with a memory of its own: it is told what it called the conversation, and begins afresh, once, if it forgot.

use lastword::run::{BudgetSettings, CommandRunner, RunReport};
use serde_json::Value;

use crate::agent::Agent;

/// Keeps what it is told, and calls the conversation by the number of its turn.
const REMEMBERS: &str = r#"cat >> $0/input
    n=$(wc -l < $0/input)
    echo "{\"event\":\"agent_session\",\"payload\":{\"agent_session_id\":\"chat-$n\"}}"
    echo "answer $n""#;

/// What each start was told.
fn told(agent: &Agent) -> Vec<Value> {
    let input = agent.written("input");
    input.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["agent_session_id"].clone()).collect()
}

#[tokio::test]
async fn a_command_is_told_what_it_called_the_conversation() {
    let agent = Agent::new(REMEMBERS);
    for message in ["one", "two", "three"] {
        assert!(agent.house.answer(message).await.1.is_completed());
    }
    assert_eq!(told(&agent), [Value::Null, "chat-1".into(), "chat-2".into()]);
}

#[track_caller]
fn check_fresh_start(agent: &Agent, end: &RunReport) {
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(told(agent), [Value::Null, "chat-1".into(), Value::Null]);
    let rows = agent.house.rows();
    let notices = rows.iter().filter(|(_, words)| words.contains("no longer knew this conversation")).count();
    assert_eq!((notices, rows.last().unwrap().1.as_str()), (1, "answer 3"), "{rows:?}");
}

#[tokio::test]
async fn a_command_that_says_that_it_forgot_begins_afresh_once_in_plain_sight() {
    let forgets = r#"read -r line; printf '%s\n' "$line" >> $0/input
        case "$line" in *'"agent_session_id":"'*) echo '{"event":"apperror","payload":{"type":"unknown_agent_session"}}'; exit 1;; esac
        n=$(wc -l < $0/input)
        echo "{\"event\":\"agent_session\",\"payload\":{\"agent_session_id\":\"chat-$n\"}}"
        echo "answer $n""#;
    let agent = Agent::new(forgets);
    agent.house.answer("one").await;
    let (_, end) = agent.house.answer("two").await;
    check_fresh_start(&agent, &end);
}

#[tokio::test]
async fn a_command_that_forgot_and_has_no_new_name_is_not_told_the_old_one_again() {
    let agent = Agent::new(
        r#"read -r line; printf '%s\n' "$line" >> $0/input
           case "$line" in *'"agent_session_id":"'*) echo '{"event":"apperror","payload":{"type":"unknown_agent_session"}}'; exit 1;; esac
           [ $(wc -l < $0/input) = 1 ] && echo '{"event":"agent_session","payload":{"agent_session_id":"chat-1"}}'
           echo fine"#,
    );
    for message in ["one", "two", "three"] {
        assert!(agent.house.answer(message).await.1.is_completed());
    }
    assert_eq!(told(&agent), [Value::Null, "chat-1".into(), Value::Null, Value::Null]);
}

#[tokio::test]
async fn a_name_that_a_failed_attempt_gave_is_not_used() {
    let agent = Agent::new(
        r#"cat >> $0/input
           [ $(wc -l < $0/input) = 1 ] && echo '{"event":"agent_session","payload":{"agent_session_id":"lost"}}' && exit 75
           echo fine"#,
    );
    for message in ["one", "two"] {
        assert!(agent.house.answer(message).await.1.is_completed());
    }
    assert_eq!(told(&agent), [Value::Null, Value::Null, Value::Null]);
}

#[tokio::test]
async fn what_fails_behind_a_fresh_start_is_not_tried_again_behind_the_notice() {
    let agent = Agent::new(
        r#"read -r line; printf '%s\n' "$line" >> $0/input
           case "$line" in *'"agent_session_id":"'*) echo '{"event":"apperror","payload":{"type":"unknown_agent_session"}}'; exit 1;; esac
           [ $(wc -l < $0/input) = 1 ] || exit 75
           echo '{"event":"agent_session","payload":{"agent_session_id":"chat-1"}}'; echo fine"#,
    );
    agent.house.answer("one").await;
    assert!(agent.house.answer("two").await.1.failure.is_some());
    assert_eq!(told(&agent).len(), 3);
}

#[tokio::test]
async fn a_command_whose_complaint_is_known_to_mean_that_it_forgot_begins_afresh_too() {
    let forgets = r#"read -r line; printf '%s\n' "$line" >> $0/input
        case "$line" in *'"agent_session_id":"'*) echo 'Error: No conversation found with id' >&2; exit 1;; esac
        n=$(wc -l < $0/input)
        echo "{\"event\":\"agent_session\",\"payload\":{\"agent_session_id\":\"chat-$n\"}}"
        echo "answer $n""#;
    let agent = Agent::made(BudgetSettings::default(), forgets, |runner| CommandRunner {
        forgotten_when: vec!["No conversation found".to_owned()],
        ..runner
    });
    agent.house.answer("one").await;
    let (_, end) = agent.house.answer("two").await;
    check_fresh_start(&agent, &end);
}
