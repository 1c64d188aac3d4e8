//! What belongs to which turn: the same words said twice are two turns, and rows, markers and tool cards agree.

use lastword::{Event, NewSession, Outcome, UserTurn};
use serde_json::{Value, json};

use crate::scene::{BEGAN, OPENED, RUN, Scene, armed, assistant, contents, id, markers, rows, user};

#[test]
fn a_user_who_repeats_a_message_after_an_interruption_has_said_it_twice() {
    let scene = Scene::new();
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    for answer in ["one", "two"] {
        let run = store.begin_run(&id(), UserTurn::text("go on")).unwrap();
        run.append(Event::token(answer)).unwrap();
        drop(run);
        scene.wait(30);
        store.get_session(&id()).unwrap();
    }
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["go on", "one", "go on", "two"]);
    assert_eq!(markers(&session).len(), 2);
}

#[test]
fn a_prompt_that_was_not_answered_does_not_swallow_the_same_one_after_it() {
    let scene = Scene::new();
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    for _ in 0..2 {
        store.begin_run(&id(), UserTurn::text("go on")).unwrap().finish(Outcome::Completed).unwrap();
    }
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["go on", "go on"]);
}

#[test]
fn the_same_words_in_an_older_turn_are_another_turn() {
    let scene = Scene::new();
    scene.pending(&[user("go on", BEGAN - 100), assistant("Done.", BEGAN - 90)], "go on");
    scene.journal(RUN, 1, &[("token", json!({"text": "Done."})), ("done", json!({}))]);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["go on", "Done.", "go on", "Done."]);
}

#[test]
fn an_answer_that_was_saved_before_the_crash_is_not_repeated() {
    let scene = Scene::new();
    scene.pending(&[user("go on", BEGAN), assistant("Done.", BEGAN + 5)], "go on");
    scene.journal(RUN, 1, &[("token", json!({"text": "Done."})), ("done", json!({}))]);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!((contents(&session), markers(&session).len()), (vec!["go on".to_owned(), "Done.".to_owned()], 0));
}

#[test]
fn a_saved_part_of_the_answer_becomes_the_whole() {
    let scene = Scene::new();
    let part = json!({"role": "assistant", "content": "To the", "timestamp": BEGAN, "_partial": true});
    scene.pending(&[user("Where to?", BEGAN), part], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea."}))]);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea."]);
}

#[test]
fn reasoning_that_a_row_has_already_is_kept_even_if_the_journal_has_more() {
    let scene = Scene::new();
    let saved = json!({"role": "assistant", "content": "To the sea.", "timestamp": BEGAN, "reasoning": "mine"});
    scene.pending(&[user("Where to?", BEGAN), saved], "Where to?");
    scene.journal(
        RUN,
        1,
        &[("reasoning", json!({"text": "theirs, and longer"})), ("token", json!({"text": "To the sea."}))],
    );
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(rows(&session)[1]["reasoning"], "mine");
}

fn card(name: &str, row: usize) -> Value {
    json!({"name": name, "preview": name, "done": true, "tid": name, "assistant_msg_idx": row})
}

#[test]
fn rows_that_land_in_the_middle_move_every_later_tool_card_with_its_row() {
    let scene = Scene::new();
    scene.session(&[
        user("first", 1),
        assistant("a", 2),
        user("second", 3),
        armed(RUN, 0, OPENED),
        user("third", 5),
        assistant("c", 6),
    ]);
    let path = scene.root.join("talk.json");
    let mut stored: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    stored["tool_calls"] = json!([card("early", 1), card("later", 5)]);
    stored["context_messages"] = json!([user("first", 1), user("second", 3), user("third", 5), assistant("c", 6)]);
    std::fs::write(&path, stored.to_string()).unwrap();
    scene.journal(
        RUN,
        1,
        &[("token", json!({"text": "b1"})), ("tool", json!({"name": "new"})), ("token", json!({"text": "b2"}))],
    );
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["first", "a", "second", "b1", "b2", "third", "c"]);
    let cards: Vec<(String, Option<usize>)> =
        session.tool_cards().map(|card| (card.name().into_owned(), card.row_index())).collect();
    assert_eq!(cards, [("early".into(), Some(1)), ("later".into(), Some(7)), ("new".into(), Some(3))]);
    let context: Vec<String> = session
        .texts(lastword::List::ContextMessages)
        .map(|row| lastword::Row::parse(row).content().into_owned())
        .collect();
    assert_eq!(context, ["first", "second", "b1", "b2", "third", "c"], "the model's view goes on in the same place");
}

#[test]
fn a_thousand_rows_against_four_thousand_take_no_time_to_speak_of() {
    let scene = Scene::new();
    let long = |n: usize| format!("row {n} of an answer that is long enough to be found inside another one");
    let mut transcript = vec![user("Where to?", BEGAN)];
    transcript.extend((0..4_000).map(|n| assistant(&format!("saved: {}", long(n + 10_000)), BEGAN + 1)));
    scene.pending(&transcript, "Where to?");
    let events: Vec<(&str, Value)> = (0..1_000)
        .map(|n| ("interim_assistant", json!({"text": long(if n < 500 { n + 10_000 } else { n })})))
        .collect();
    scene.journal(RUN, 1, &events);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(rows(&session).len(), 1 + 4_000 + 500 + 1, "half of it was there already");
}
