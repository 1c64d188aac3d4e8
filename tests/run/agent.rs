//! What an agent calls a conversation: told to it again after success, and only then; and begun afresh, once and in plain
//! sight, if it no longer knows it.

use std::sync::{Arc, Mutex};

use lastword::Event;
use lastword::run::{Failure, Finish, Retry};

use crate::house::{House, rows, token};

/// What each attempt was told.
type Told = Arc<Mutex<Vec<Option<String>>>>;

fn named(id: &str) -> Event {
    Event::new("agent_session", &format!("{{\"agent_session_id\":\"{id}\"}}")).unwrap()
}

fn forgotten() -> Failure {
    Failure { retry: Retry::Afresh, ..Failure::new("unknown_agent_session", "Who?") }
}

fn house(told: Told) -> House {
    House::new(move |prompt, outlet| {
        told.lock().unwrap().push(prompt.agent_session.clone());
        async move {
            match prompt.message.as_str() {
                "forget" if prompt.agent_session.is_some() => return Err(forgotten()),
                "forget always" => return Err(forgotten()),
                "fail" => {
                    outlet.say(named("from a failure")).await?;
                    return Err(Failure::new("x", "m"));
                }
                message => outlet.say(named(&format!("after {message}"))).await?,
            }
            outlet.say(token("ok")).await?;
            Ok(Finish::done())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_completed_turn_is_told_to_the_next_and_that_of_a_failed_one_is_not() {
    let told = Told::default();
    let house = house(told.clone());
    for message in ["one", "fail", "two", "three"] {
        house.answer(message).await;
    }
    let told: Vec<_> = told.lock().unwrap().iter().map(|id| id.clone().unwrap_or_default()).collect();
    assert_eq!(told, ["", "after one", "after one", "after two"]);
}

#[tokio::test(start_paused = true)]
async fn another_runners_agent_knows_nothing_of_it() {
    let told = Told::default();
    let house = house(told.clone());
    house.answer("one").await;
    assert!(house.transcript().agent_session("script").is_some());
    assert!(house.transcript().agent_session("other").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_forgot_begins_afresh_once_and_everybody_can_see_it() {
    let told = Told::default();
    let house = house(told.clone());
    house.answer("one").await;
    let (run, end) = house.answer("forget").await;
    assert!(end.is_completed(), "{end:?}");
    assert_eq!(told.lock().unwrap()[1..], [Some("after one".to_owned()), None]);
    let said: Vec<String> = house.rows().into_iter().map(|(_, words)| words).collect();
    assert!(said.iter().any(|words| words.contains("no longer knew this conversation")), "{said:?}");
    assert!(house.names(&run).contains(&"attempt_end".to_owned()));
    house.answer("two").await;
    assert_eq!(told.lock().unwrap()[3].as_deref(), Some("after forget"), "the new name counts from now on");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_forgets_for_ever_does_not_go_round_for_ever() {
    let told = Told::default();
    let house = house(told.clone());
    house.answer("one").await;
    let (_, end) = house.answer("forget always").await;
    assert!(end.failure.is_some());
    assert_eq!(told.lock().unwrap().len(), 3, "one attempt with the name, one without");
    assert_eq!(house.rows().last().unwrap(), &rows(&[("notice", "unknown_agent_session")])[0]);
}
