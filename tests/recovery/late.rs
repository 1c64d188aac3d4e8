//! What comes after a turn was given up for dead: more events, its end, another turn.

use lastword::{Event, NewSession, Outcome, Run, SaveOptions, Store, UserTurn};
use serde_json::{Value, json};

use crate::scene::{RUN, Scene, contents, id, markers, rows, run, said};

/// A turn that was recovered with half of its answer, and a producer that turns up again.
fn given_up(scene: &Scene) -> (Store, Run) {
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    let begun = store.begin_run(&id(), UserTurn::text("Where to?").with_run(run(RUN))).unwrap();
    begun.append(Event::token("To the ")).unwrap();
    begun.append(Event::new("tool", r#"{"name":"map"}"#).unwrap()).unwrap();
    drop(begun);
    scene.wait(30);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the"]);
    let late = store.resume_run(&id(), &run(RUN)).unwrap();
    (store, late)
}

#[test]
fn late_events_are_folded_above_their_own_marker() {
    let scene = Scene::new();
    let (store, late) = given_up(&scene);
    late.append(Event::new("tool_complete", r#"{"name":"map","preview":"found"}"#).unwrap()).unwrap();
    late.append(Event::token("sea.")).unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the", "sea."]);
    assert_eq!(rows(&session)[3]["type"], "interrupted");
    let card = session.tool_cards().next().unwrap();
    assert_eq!((card.is_done(), card.row_index(), session.tool_cards().len()), (true, Some(1), 1));
}

#[test]
fn a_row_that_grows_is_extended_and_not_repeated() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the "}))]);
    let store = scene.open();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the"]);
    scene.journal(RUN, 2, &[("token", json!({"text": "sea."})), ("reasoning", json!({"text": "hm"}))]);
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea."]);
    assert_eq!(rows(&session)[1]["reasoning"], "hm");
    assert_eq!(markers(&session).len(), 1);
}

/// A journal that begins with an event of another run, under a number that an own event has too.
fn with_event_of_another_run(scene: &Scene, foreign: (&str, Value), own: &[(&str, Value)]) {
    scene.pending(&[], "Where to?");
    scene.journal("other", 1, &[foreign]);
    let folder = scene.root.join("_run_journal/talk");
    std::fs::rename(folder.join("other.jsonl"), folder.join(format!("{RUN}.jsonl"))).unwrap();
    scene.journal(RUN, 1, own);
}

#[test]
fn rows_that_begin_with_the_same_number_are_not_repeated_when_the_journal_grows() {
    let scene = Scene::new();
    let own = [("token", json!({"text": "sea."})), ("interim_assistant", json!({"already_streamed": true}))];
    with_event_of_another_run(&scene, ("interim_assistant", json!({"text": "To the"})), &own);
    let store = scene.open();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the", "sea."]);
    scene.journal(RUN, 3, &[("token", json!({"text": "And home."}))]);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the", "sea.", "And home."]);
}

#[test]
fn cards_with_the_same_number_are_not_mixed_up_when_the_journal_grows() {
    let scene = Scene::new();
    let own = [("tool", json!({"name": "book", "id": "b"}))];
    with_event_of_another_run(&scene, ("tool", json!({"name": "map", "id": "a"})), &own);
    let store = scene.open();
    store.get_session(&id()).unwrap();
    scene.journal(RUN, 2, &[("tool_complete", json!({"name": "map", "id": "a"}))]);
    let session = store.get_session(&id()).unwrap();
    let cards: Vec<(String, bool)> =
        session.tool_cards().map(|card| (card.name().into_owned(), card.is_done())).collect();
    assert_eq!(cards, [("map".to_owned(), true), ("book".to_owned(), false)]);
}

#[test]
fn a_late_finisher_replaces_its_own_marker_and_nothing_else() {
    let scene = Scene::new();
    let (store, late) = given_up(&scene);
    let next = store.begin_run(&id(), UserTurn::text("And then?")).unwrap();
    next.append(Event::token("Home.")).unwrap();
    drop(next);
    scene.wait(30);
    assert_eq!(markers(&store.get_session(&id()).unwrap()).len(), 2);
    late.append(Event::token("sea.")).unwrap();
    late.finish(Outcome::Completed).unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the", "sea.", "And then?", "Home."]);
    assert_eq!(said(&session)[5].0, "assistant", "the other marker stays: {:?}", said(&session));
    assert_eq!(markers(&session).len(), 1);
    let own = &rows(&session)[..3];
    assert!(own.iter().all(|row| row["_run_id"] == RUN), "{own:?}");
    assert!(!format!("{own:?}").contains("_recovered"), "it ended normally after all: {own:?}");
    assert_eq!(session.tool_cards().next().unwrap().row_index(), Some(1));
}

#[test]
fn a_late_stop_and_a_late_failure_say_so_in_the_marker_of_their_run() {
    for (end, word) in [(Event::cancel(), "stopped"), (Event::error("quota", "The quota is used up."), "quota")] {
        let scene = Scene::new();
        let (store, late) = given_up(&scene);
        late.append(end).unwrap();
        let session = store.get_session(&id()).unwrap();
        let marker = &markers(&session)[0];
        assert_eq!(markers(&session).len(), 1);
        assert!(marker["content"].as_str().unwrap().contains(word), "{marker}");
        assert_eq!(marker.get("_pending_journal_recovery"), None);
    }
}

#[test]
fn a_run_that_ended_properly_but_was_never_saved_is_folded_without_a_marker() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea."})), ("done", json!({}))]);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(
        said(&session),
        [("user".to_owned(), "Where to?".to_owned()), ("assistant".to_owned(), "To the sea.".to_owned())]
    );
}

#[test]
fn a_dead_turn_is_recovered_before_the_next_one_begins() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea."}))]);
    let store = scene.open();
    store.begin_run(&id(), UserTurn::text("Hello?")).unwrap().finish(Outcome::Completed).unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea.", "Hello?"]);
    assert_eq!(rows(&session)[2]["type"], "interrupted");
}

#[test]
fn a_prompt_that_no_run_was_begun_for_stays_when_the_next_one_comes() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    let path = scene.root.join("talk.json");
    let text = std::fs::read_to_string(&path)
        .unwrap()
        .replace(&format!("\"active_stream_id\": \"{RUN}\""), "\"active_stream_id\": null");
    std::fs::write(&path, text).unwrap();
    let store = scene.open();
    store.begin_run(&id(), UserTurn::text("Hello?")).unwrap().finish(Outcome::Completed).unwrap();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "Hello?"]);
}

/// Its own marker may be gone, or stand above that of a later turn which nothing is known of yet.
#[test]
fn a_late_finisher_leaves_the_armed_marker_of_another_run_alone() {
    for has_own_marker in [true, false] {
        let scene = Scene::new();
        let (store, late) = given_up(&scene);
        drop(store.begin_run(&id(), UserTurn::text("And then?").with_run(run("other"))).unwrap());
        scene.wait(30);
        let is_armed = |marker: &&Value| marker["_journal_retry_stream_id"] == "other";
        let armed: Vec<Value> = markers(&store.get_session(&id()).unwrap()).iter().filter(is_armed).cloned().collect();
        assert_eq!(armed.len(), 1, "nothing of the other answer was found yet");
        if !has_own_marker {
            scene.edit(|stored| stored["messages"].as_array_mut().unwrap().retain(|row| !is_marker_of(row, RUN)));
        }
        late.append(Event::token("sea.")).unwrap();
        late.finish(Outcome::Completed).unwrap();
        let session = store.get_session(&id()).unwrap();
        let last = rows(&session).pop().unwrap();
        assert_eq!(last, armed[0], "it still asks for another look: {:?}", rows(&session));
        assert_eq!(said(&session)[said(&session).len() - 2].1, "And then?", "no row landed in the other turn");
        assert_eq!(contents(&session).contains(&"sea.".to_owned()), has_own_marker);
    }
}

fn is_marker_of(row: &Value, run: &str) -> bool {
    row["_error"] == true && row["_run_id"] == run
}

/// The same, after another turn, and the producer has gone on in a process that never had the session in memory.
fn grown_unnoticed(scene: &Scene) {
    let (store, late) = given_up(scene);
    store.begin_run(&id(), UserTurn::text("And then?")).unwrap().finish(Outcome::Completed).unwrap();
    drop((store, late));
    let store = scene.open();
    store.resume_run(&id(), &run(RUN)).unwrap().append(Event::token("sea.")).unwrap();
}

#[test]
fn late_events_are_folded_after_a_save_of_a_session_that_was_not_in_memory() {
    let scene = Scene::new();
    grown_unnoticed(&scene);
    let store = scene.open();
    let mut session = (*store.get_session_for_scan(&id()).unwrap()).clone();
    session.set_text("title", "Another");
    store.save(&session, SaveOptions::default()).unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the", "sea.", "And then?"]);
    assert_eq!(session.title(), "Another");
}

#[test]
fn late_events_are_folded_as_soon_as_their_journal_can_be_looked_at_again() {
    let scene = Scene::new();
    grown_unnoticed(&scene);
    let store = scene.open();
    let read = || contents(&store.get_session(&id()).unwrap());
    scene.disk.refuse_journals(true);
    for _ in 0..2 {
        assert_eq!(read(), ["Where to?", "To the", "And then?"]);
    }
    scene.disk.refuse_journals(false);
    assert_eq!(read(), ["Where to?", "To the", "sea.", "And then?"]);
}

#[test]
fn a_late_finisher_does_not_touch_a_prompt_that_another_run_was_begun_for() {
    let scene = Scene::new();
    let (store, late) = given_up(&scene);
    let prompt = json!({"role": "user", "content": "Where to?", "_recovered": true, "_run_id": "other"});
    scene.edit(|stored| stored["messages"][0] = prompt.clone());
    late.append(Event::token("sea.")).unwrap();
    late.finish(Outcome::Completed).unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the", "sea."]);
    assert_eq!((rows(&session)[0].clone(), markers(&session).len()), (prompt, 0));
}
