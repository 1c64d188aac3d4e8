//! Markers that were given up: they say what is known, and a journal that changes all the same heals them.

use serde_json::json;

use crate::scene::{OPENED, RUN, Scene, armed, contents, id, markers, rows, user};

const DAY: i64 = 24 * 60 * 60;
const LOST: &str = "no agent output was recovered";

fn words(scene_rows: &[serde_json::Value]) -> String {
    scene_rows.last().and_then(|row| row["content"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn a_given_up_marker_is_healed_when_its_journal_grows() {
    let scene = Scene::new();
    scene.session(&[user("Where to?", 1), armed(RUN, 11, OPENED)]);
    scene.journal(RUN, 1, &[("metering", json!({}))]);
    let store = scene.open();
    assert!(words(&rows(&store.get_session(&id()).unwrap())).contains(LOST));
    scene.journal(RUN, 2, &[("token", json!({"text": "To the sea"}))]);
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea"]);
    assert!(!words(&rows(&session)).contains(LOST));
    assert_eq!(markers(&session).len(), 1);
}

#[test]
fn a_given_up_marker_is_healed_when_its_missing_journal_appears() {
    let scene = Scene::new();
    scene.session(&[user("Where to?", 1), armed(RUN, 0, OPENED)]);
    scene.wait(DAY + 1);
    assert!(words(&rows(&scene.open().get_session(&id()).unwrap())).contains(LOST));
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"})), ("done", json!({}))]);
    let session = scene.open().get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea"]);
    assert!(!words(&rows(&session)).contains(LOST));
}

#[test]
fn a_failure_whose_budget_is_over_says_why_and_that_nothing_was_recovered() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("apperror", json!({"type": "auth", "message": "The key is wrong."}))]);
    let store = scene.open();
    let undecided = words(&rows(&store.get_session(&id()).unwrap()));
    assert!(undecided.contains("The key is wrong.") && !undecided.contains(LOST), "{undecided}");
    (0..12).for_each(|_| drop(store.get_session(&id()).unwrap()));
    let session = store.get_session(&id()).unwrap();
    let decided = words(&rows(&session));
    assert!(decided.contains("The key is wrong.") && decided.contains(LOST), "{decided}");
    assert_eq!(markers(&session)[0].get("_pending_journal_recovery"), None);
}
