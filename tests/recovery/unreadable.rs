//! A journal that cannot be read is not a missing one: nothing is spent, nothing is given up, and it heals.

use std::fs;

use lastword::{Event, NewSession, Store, UserTurn};
use serde_json::json;

use crate::scene::{OPENED, RUN, Scene, armed, contents, id, markers, rows, run, user};

const DAY: i64 = 24 * 60 * 60;

fn assert_armed_and_unspent(store: &Store) {
    for _ in 0..20 {
        let marker = &markers(&store.get_session(&id()).unwrap())[0];
        assert_eq!(marker["_pending_journal_recovery"], true, "{marker}");
        assert_eq!(marker["_journal_retry_attempts"], 0, "{marker}");
    }
}

#[test]
fn an_unreadable_journal_is_not_a_missing_one() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"}))]);
    scene.disk.refuse_journals(true);
    let store = scene.open();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?"]);
    assert_armed_and_unspent(&store);
    scene.wait(2 * DAY);
    assert_armed_and_unspent(&store);
    scene.disk.refuse_journals(false);
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["Where to?", "To the sea"]);
    assert_eq!(markers(&session)[0].get("_pending_journal_recovery"), None);
}

#[test]
fn a_folder_in_the_place_of_a_journal_is_no_answer_and_no_end_of_hope() {
    let scene = Scene::new();
    let place = scene.root.join(format!("_run_journal/talk/{RUN}.jsonl"));
    fs::create_dir_all(&place).unwrap();
    scene.pending(&[], "Where to?");
    let store = scene.open();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?"]);
    scene.wait(2 * DAY);
    assert_armed_and_unspent(&store);
    fs::remove_dir(&place).unwrap();
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"}))]);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea"]);
}

#[test]
fn a_marker_on_its_last_look_keeps_it_while_its_journal_cannot_be_read() {
    let scene = Scene::new();
    scene.session(&[user("Where to?", 1), armed(RUN, 11, OPENED)]);
    scene.journal(RUN, 1, &[("metering", json!({}))]);
    scene.disk.refuse_journals(true);
    let store = scene.open();
    let before = rows(&store.get_session(&id()).unwrap());
    assert_eq!(before[1]["_journal_retry_attempts"], 11);
    scene.disk.refuse_journals(false);
    let marker = &markers(&store.get_session(&id()).unwrap())[0];
    assert!(marker["content"].as_str().unwrap().contains("no agent output was recovered"), "{marker}");
}

#[test]
fn a_marker_whose_journal_grew_stays_as_it_is_while_that_cannot_be_read() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the "}))]);
    let store = scene.open();
    let before = rows(&store.get_session(&id()).unwrap());
    scene.journal(RUN, 2, &[("token", json!({"text": "sea."}))]);
    scene.disk.refuse_journals(true);
    assert_eq!(rows(&store.get_session(&id()).unwrap()), before);
    scene.disk.refuse_journals(false);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea."]);
}

/// A turn with a lease that has lapsed, and half of its answer.
fn lapsed(scene: &Scene) {
    let store = scene.open();
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    let turn = UserTurn { lease_seconds: Some(100.0), ..UserTurn::text("Where to?").with_run(run(RUN)) };
    store.begin_run(&id(), turn).unwrap().append(Event::token("To the sea")).unwrap();
    scene.wait(101);
}

#[test]
fn a_lease_whose_journal_cannot_be_read_does_not_take_the_session_with_it() {
    let scene = Scene::new();
    lapsed(&scene);
    scene.disk.refuse_journals(true);
    let store = scene.open();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?"]);
    assert_armed_and_unspent(&store);
    scene.disk.refuse_journals(false);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea"]);
}

#[test]
fn a_run_whose_record_cannot_be_read_does_not_take_the_session_with_it() {
    let scene = Scene::new();
    lapsed(&scene);
    let record = scene.root.join(format!("_run_journal/talk/_{RUN}.run"));
    fs::remove_file(&record).unwrap();
    fs::create_dir(&record).unwrap();
    assert_eq!(contents(&scene.open().get_session(&id()).unwrap()), ["Where to?", "To the sea"]);
}
