//! One marker a run, and what a run that grows behind it does to rows and cards that are there.

use serde_json::{Value, json};

use crate::scene::{BEGAN, OPENED, RUN, Scene, armed, assistant, contents, id, markers, rows, user};

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

/// Another program gave the id of an interrupted run to the run of its next prompt.
#[test]
fn a_pending_prompt_whose_run_has_a_marker_in_another_turn_comes_into_the_transcript() {
    let scene = Scene::new();
    scene.pending(&[user("Where to?", 1), armed(RUN, 0, OPENED)], "And then?");
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "And then?"], "{:?}", rows(&session));
    assert!(session.pending_turn().is_none() && session.active_run().is_none());
    assert_eq!(contents(&scene.open().get_session(&id()).unwrap()), ["Where to?", "And then?"], "the second read");
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

/// The journal of the run may still come, for example with the rest of a copied directory.
#[test]
fn a_run_that_a_marker_waits_for_is_not_begun_a_second_time() {
    let scene = Scene::new();
    scene.session(&[user("Where to?", 1), armed("old", 0, OPENED)]);
    let store = scene.open();
    let turn = lastword::UserTurn::text("And then?").with_run(lastword::RunId::parse("old").unwrap());
    assert_eq!(store.begin_run(&id(), turn).unwrap_err().code(), "exists");
    assert!(store.runs(&id()).unwrap().is_empty());
    scene.journal("old", 1, &[("token", json!({"text": "To the sea"}))]);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea"]);
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

/// What comes after the marker was set may be nothing but the end.
#[test]
fn an_end_that_comes_after_its_marker_settles_it_although_no_row_comes_with_it() {
    let failed = json!({"type": "quota", "message": "The quota is used up."});
    for (end, payload, words) in [
        ("done", json!({}), "all of it was recovered"),
        ("cancel", json!({}), "You stopped this answer"),
        ("apperror", failed, "The quota is used up."),
    ] {
        let scene = Scene::new();
        scene.pending(&[], "Where to?");
        scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"}))]);
        let store = scene.open();
        let open = markers(&store.get_session(&id()).unwrap()).remove(0);
        assert_eq!(open["_recovered_records"], 1, "{open}");
        scene.journal(RUN, 2, &[(end, payload)]);
        let session = store.get_session(&id()).unwrap();
        let settled = markers(&session).remove(0);
        assert!(settled["content"].as_str().unwrap().contains(words), "{settled}");
        assert_eq!((settled.get("_recovered_records"), markers(&session).len()), (None, 1), "nothing more can come");
        assert_eq!(contents(&session), ["Where to?", "To the sea"]);
        drop(store);
        let written = scene.disk.sidecars_written();
        assert_eq!(rows(&scene.open().get_session(&id()).unwrap()), rows(&session));
        assert_eq!(scene.disk.sidecars_written(), written, "it is settled once");
    }
}

/// A failed run carries the error row that its program wanted to save, and perhaps did.
#[test]
fn an_error_row_that_stands_in_the_turn_is_not_shown_again_when_its_marker_is_resolved() {
    let error = json!({"role": "assistant", "content": "The quota is used up.", "_error": true, "timestamp": BEGAN});
    for is_saved in [true, false] {
        let scene = Scene::new();
        let mut transcript = vec![user("Where to?", BEGAN)];
        transcript.extend(is_saved.then(|| error.clone()));
        transcript.push(armed(RUN, 0, OPENED));
        scene.session(&transcript);
        let carried = json!({"session_id": "talk", "messages": [user("Where to?", BEGAN), error]});
        scene.journal(RUN, 1, &[("apperror", json!({"session_id": "talk", "session": carried}))]);
        let session = scene.open().get_session(&id()).unwrap();
        assert_eq!(markers(&session).len(), 1, "{:?}", rows(&session));
        let shown = &rows(&session)[1];
        assert_eq!((&shown["content"], &shown["_recovered_event_id"]), (&error["content"], &json!("run-1:1")));
    }
}

#[test]
fn an_error_of_an_earlier_turn_is_not_the_error_of_the_run_that_carries_it() {
    let error = json!({"role": "assistant", "content": "The quota is used up.", "_error": true, "timestamp": 1});
    let (old, new) = (user("Hello?", 1), user("Where to?", BEGAN));
    for carried in [json!([old, error, new]), json!([old, new, error, assistant("To the sea", BEGAN)])] {
        let scene = Scene::new();
        scene.session(&[user("Where to?", BEGAN), armed(RUN, 0, OPENED)]);
        let carried = json!({"session_id": "talk", "messages": carried});
        scene.journal(RUN, 1, &[("apperror", json!({"session_id": "talk", "session": carried}))]);
        let session = scene.open().get_session(&id()).unwrap();
        assert_eq!((rows(&session).len(), &markers(&session)[0]["_pending_journal_recovery"]), (2, &json!(true)));
    }
}
