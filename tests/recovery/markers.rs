//! One marker a run, and what a run that grows behind it does to rows and cards that are there.

use serde_json::{Value, json};

use crate::scene::{BEGAN, OPENED, RUN, Scene, armed, contents, id, markers, rows, user};

#[test]
fn two_armed_markers_of_one_run_become_one() {
    let scene = Scene::new();
    scene.session(&[user("Where to?", 1), armed(RUN, 0, OPENED), armed(RUN, 3, OPENED)]);
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"}))]);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea"]);
    assert_eq!(markers(&session).len(), 1, "{:?}", rows(&session));
    assert_eq!(rows(&session)[2]["type"], "interrupted", "it stands below what was recovered");
}

#[test]
fn markers_of_different_runs_stay_two() {
    let scene = Scene::new();
    scene.session(&[user("one", 1), armed("old", 0, OPENED), user("two", 2), armed(RUN, 0, OPENED)]);
    scene.journal("old", 1, &[("token", json!({"text": "a"}))]);
    scene.journal(RUN, 1, &[("token", json!({"text": "b"}))]);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!((contents(&session).len(), markers(&session).len()), (4, 2), "{:?}", rows(&session));
}

#[test]
fn a_pending_turn_whose_run_has_its_marker_is_only_cleared() {
    let answers: [&[(&str, Value)]; 2] = [&[], &[("token", json!({"text": "To the sea"}))]];
    for events in answers {
        let scene = Scene::new();
        scene.pending(&[], "Where to?");
        scene.journal(RUN, 1, events);
        let before = rows(&scene.open().get_session(&id()).unwrap());
        scene.edit(|stored| {
            stored["active_stream_id"] = json!(RUN);
            stored["pending_user_message"] = json!("Where to?");
            stored["pending_started_at"] = json!(BEGAN);
        });
        let session = scene.open().get_session(&id()).unwrap();
        assert!(session.pending_turn().is_none() && session.active_run().is_none());
        assert_eq!(rows(&session), before);
    }
}

#[test]
fn a_card_that_gets_its_result_keeps_what_others_put_on_it() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"})), ("tool", json!({"name": "map"}))]);
    scene.open().get_session(&id()).unwrap();
    scene.edit(|stored| stored["tool_calls"][0]["note"] = json!({"pinned": [1, 2]}));
    scene.journal(RUN, 3, &[("tool_complete", json!({"name": "map", "preview": "found"}))]);
    let session = scene.open().get_session(&id()).unwrap();
    let card = session.tool_cards().next().unwrap();
    assert!(card.is_done());
    assert_eq!(card.fields().get("note"), Some(r#"{"pinned":[1,2]}"#));
    assert_eq!(session.tool_cards().len(), 1);
}

#[test]
fn a_row_that_is_completed_no_longer_says_that_it_is_a_part() {
    for (journaled, is_part) in [("To the sea.", false), ("To the", true)] {
        let scene = Scene::new();
        let part = json!({"role": "assistant", "content": "To the", "timestamp": BEGAN, "_partial": true});
        scene.pending(&[user("Where to?", BEGAN), part], "Where to?");
        scene.journal(RUN, 1, &[("token", json!({"text": journaled}))]);
        let session = scene.open().get_session(&id()).unwrap();
        assert_eq!(contents(&session), ["Where to?", journaled]);
        assert_eq!(rows(&session)[1].get("_partial").is_some(), is_part);
    }
}
