//! Journals and sessions of odd shape: lines of another run, runs without a usable name, lists that are none.

use std::fs;

use lastword::{Outcome, UserTurn};
use serde_json::{Value, json};

use crate::scene::{RUN, Scene, contents, id, markers, rows};

/// Adds lines to the journal that say that they are another run's.
fn add_foreign(scene: &Scene, first_seq: u64, events: &[(&str, Value)]) {
    let place = |run: &str| scene.root.join(format!("_run_journal/talk/{run}.jsonl"));
    scene.journal("another", first_seq, events);
    let own = fs::read_to_string(place(RUN)).unwrap_or_default();
    fs::write(place(RUN), own + &fs::read_to_string(place("another")).unwrap()).unwrap();
    fs::remove_file(place("another")).unwrap();
}

fn token(text: &str) -> (&'static str, Value) {
    ("token", json!({"text": text}))
}

fn tool(name: &str) -> (&'static str, Value) {
    ("tool", json!({"name": name}))
}

#[test]
fn a_line_with_another_runs_number_is_not_taken_for_one_that_was_there() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[token("To "), token("the ")]);
    add_foreign(&scene, 1, &[token("sea"), token("side")]);
    scene.journal(RUN, 2, &[token("the "), token(".")]);
    assert_eq!(contents(&scene.open().get_session(&id()).unwrap()), ["Where to?", "To the seaside."]);
}

#[test]
fn rows_and_cards_that_share_a_number_with_another_runs_stay_two() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[token("To the sea."), tool("map")]);
    add_foreign(&scene, 1, &[token("Or the hills."), tool("weather")]);
    let store = scene.open();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea.", "Or the hills."]);
    scene.journal(RUN, 3, &[token("Bye.")]);
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea.", "Or the hills.", "Bye."]);
    let cards: Vec<_> = session.tool_cards().map(|card| (card.name().into_owned(), card.row_index())).collect();
    assert_eq!(cards, [("map".to_owned(), Some(1)), ("weather".to_owned(), Some(2))]);
}

#[test]
fn a_call_that_arrives_later_is_not_the_one_with_the_same_number() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[token("To the sea."), tool("map")]);
    let store = scene.open();
    store.get_session(&id()).unwrap();
    add_foreign(&scene, 2, &[tool("weather")]);
    let session = store.get_session(&id()).unwrap();
    let names: Vec<String> = session.tool_cards().map(|card| card.name().into_owned()).collect();
    assert_eq!(names, ["map", "weather"]);
}

#[test]
fn a_run_without_a_usable_name_does_not_block_the_next_turn() {
    for prompt in [json!("Where to?"), json!(null)] {
        for name in ["../escape", "a b", "."] {
            let scene = Scene::new();
            scene.pending(&[], "Where to?");
            scene.edit(|stored| {
                stored["active_stream_id"] = json!(name);
                stored["pending_user_message"] = prompt.clone();
            });
            let store = scene.open();
            store.begin_run(&id(), UserTurn::text("Hello?")).unwrap().finish(Outcome::Completed).unwrap();
            let said = contents(&store.get_session(&id()).unwrap());
            let kept: Vec<&str> = prompt.as_str().into_iter().chain(["Hello?"]).collect();
            assert_eq!(said, kept, "{name}");
        }
    }
}

#[test]
fn tool_calls_that_are_no_list_stay_as_they_are_and_cost_no_row() {
    for odd in [json!({"a": 1}), json!("text"), json!(7)] {
        let scene = Scene::new();
        scene.pending(&[], "Where to?");
        scene.edit(|stored| stored["tool_calls"] = odd.clone());
        scene.journal(RUN, 1, &[token("To the sea."), tool("map"), token("Bye.")]);
        let session = scene.open().get_session(&id()).unwrap();
        assert_eq!((contents(&session).len(), markers(&session).len()), (3, 1), "{odd}: {:?}", rows(&session));
        let stored: Value = serde_json::from_slice(&fs::read(scene.root.join("talk.json")).unwrap()).unwrap();
        assert_eq!(stored["tool_calls"], odd);
    }
}

#[test]
fn a_result_goes_to_the_call_with_its_id_and_not_to_a_later_one_with_its_name() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    let call = ("tool", json!({"name": "map", "id": "call-1"}));
    let result = ("tool_complete", json!({"name": "map", "id": "call-1", "preview": "found"}));
    scene.journal(RUN, 1, &[call, tool("map"), result]);
    let session = scene.open().get_session(&id()).unwrap();
    let done: Vec<bool> = session.tool_cards().map(|card| card.is_done()).collect();
    assert_eq!(done, [true, false]);
}
