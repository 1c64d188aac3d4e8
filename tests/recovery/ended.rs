//! Runs that ended, or that may not go yet: folded without a trace of recovery, and removed only when nothing hangs on
//! them.

use lastword::{Event, NewSession, Options, Outcome, Store, StoreError, UserTurn};
use serde_json::json;

use crate::scene::{OPENED, RUN, Scene, armed, contents, id, markers, rows, run, user};

fn talk(scene: &Scene) -> Store {
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    store
}

/// A run that was sealed, and whose answer the disk refused to save.
fn unsaved(scene: &Scene, store: &Store) -> lastword::Run {
    let run = store.begin_run(&id(), UserTurn::text("Where to?").with_run(run(RUN))).unwrap();
    run.append(Event::token("To the sea.")).unwrap();
    run.append(Event::new("tool", r#"{"name":"map"}"#).unwrap()).unwrap();
    scene.disk.refuse_sidecars(true);
    run.finish(Outcome::Completed).unwrap_err();
    scene.disk.refuse_sidecars(false);
    run
}

fn assert_folded(store: &Store) {
    let session = store.get_session(&id()).unwrap();
    assert_eq!((contents(&session), markers(&session).len()), (vec!["Where to?".into(), "To the sea.".into()], 0));
    assert!(session.pending_turn().is_none());
    let cards: Vec<String> = session.tool_cards().map(|card| card.fields().to_json()).collect();
    assert!(!format!("{:?} {cards:?}", rows(&session)).contains("_recovered"), "{:?} {cards:?}", rows(&session));
}

#[test]
fn our_own_end_that_was_never_saved_is_folded_at_once_and_without_a_trace() {
    let scene = Scene::new();
    let store = talk(&scene);
    let _run = unsaved(&scene, &store);
    assert_folded(&store);
}

#[test]
fn our_own_end_that_was_never_saved_is_folded_the_same_by_the_next_process() {
    let scene = Scene::new();
    let store = talk(&scene);
    drop(unsaved(&scene, &store));
    drop(store);
    scene.wait(1);
    assert_folded(&scene.open());
}

#[test]
fn a_transcript_of_the_agent_without_rows_is_as_good_as_none() {
    let scene = Scene::new();
    let core = tempfile::tempdir().unwrap();
    let empty = json!({"session_id": "talk", "messages": [], "tool_calls": [{"name": "map", "tid": "t"}]});
    std::fs::write(core.path().join("session_talk.json"), empty.to_string()).unwrap();
    scene.pending(&[], "Where to?");
    let options = Options { core_dir: Some(core.path().to_owned()), ..scene.options.clone() };
    let store = Store::open_on(scene.disk.clone(), &scene.root, options).unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!((contents(&session), markers(&session).len()), (vec!["Where to?".to_owned()], 1));
    assert_eq!(session.tool_cards().len(), 0);
}

#[test]
fn a_run_whose_marker_is_armed_cannot_be_removed() {
    let scene = Scene::new();
    scene.session(&[user("Where to?", 1), armed(RUN, 0, OPENED)]);
    scene.journal(RUN, 1, &[("metering", json!({}))]);
    let store = scene.open();
    let refused = store.remove_run(&id(), &run(RUN)).unwrap_err();
    assert!(matches!(refused, StoreError::RunNotFolded { .. }), "{refused}");
    assert_eq!((refused.code(), store.runs(&id()).unwrap()), ("refused", vec![run(RUN)]));
    scene.journal(RUN, 2, &[("token", json!({"text": "To the sea."}))]);
    store.remove_run(&id(), &run(RUN)).unwrap();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea."], "folded before it went");
}

#[test]
fn the_active_run_cannot_be_removed_while_it_is_live() {
    let scene = Scene::new();
    let store = talk(&scene);
    let live = store.begin_run(&id(), UserTurn::text("Where to?").with_run(run(RUN))).unwrap();
    live.append(Event::token("To the sea.")).unwrap();
    assert_eq!(store.remove_run(&id(), &run(RUN)).unwrap_err().code(), "run_in_progress");
    live.finish(Outcome::Completed).unwrap();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea."]);
    store.remove_run(&id(), &run(RUN)).unwrap();
}

#[test]
fn what_a_failed_attempt_called_the_conversation_is_not_noted_for_the_next_turn() {
    let named = |id: &str| ("agent_session", json!({"runner": "script", "agent_session_id": id}));
    let (attempt, word) = (("attempt", json!({"number": 2})), ("token", json!({"text": "To the sea."})));
    let cases: [(Vec<_>, Option<&str>); 4] = [
        (vec![named("first"), word.clone()], Some("first")),
        (vec![named("first"), named("second"), word.clone()], Some("second")),
        (vec![named("first"), attempt.clone(), word.clone()], None),
        (vec![named("first"), attempt, named("second"), word], Some("second")),
    ];
    for (mut events, expected) in cases {
        let scene = Scene::new();
        scene.pending(&[], "Where to?");
        events.push(("done", json!({})));
        scene.journal(RUN, 1, &events);
        let session = scene.open().get_session(&id()).unwrap();
        assert_eq!(session.agent_session("script").map(|known| known.id).as_deref(), expected, "{events:?}");
    }
}
