//! A read that finds nothing new writes nothing, and what cannot be saved is not shown as if it were.

use std::os::unix::fs::PermissionsExt;

use lastword::{Options, Store};
use serde_json::{Value, json};

use crate::scene::{OPENED, RUN, Scene, armed, contents, id, markers, rows, user};

/// Every state that a read can leave behind, by name.
fn states() -> Vec<(&'static str, Scene)> {
    let token = ("token", json!({"text": "To the sea"}));
    let pending = |events: Option<Vec<(&'static str, Value)>>| {
        let scene = Scene::new();
        scene.pending(&[user("before", 1)], "Where to?");
        if let Some(events) = events {
            scene.journal(RUN, 1, &events);
        }
        scene
    };
    let cancelled = ("cancel", json!({}));
    vec![
        ("nothing found", pending(None)),
        ("an empty journal", pending(Some(vec![]))),
        ("half an answer", pending(Some(vec![token.clone(), ("metering", json!({}))]))),
        ("a whole answer", pending(Some(vec![token.clone(), ("done", json!({}))]))),
        ("no answer at all", pending(Some(vec![("done", json!({}))]))),
        ("stopped", pending(Some(vec![token, cancelled.clone()]))),
        ("stopped at once", pending(Some(vec![cancelled]))),
    ]
}

#[test]
fn a_second_read_writes_nothing_whatever_the_first_one_found() {
    for (name, scene) in states() {
        let store = scene.open();
        let first = store.get_session(&id()).unwrap();
        let (written, bytes) = (scene.disk.sidecars_written(), std::fs::read(scene.root.join("talk.json")).unwrap());
        for _ in 0..3 {
            assert_eq!(rows(&store.get_session(&id()).unwrap()), rows(&first), "{name}");
        }
        drop(store);
        scene.wait(60);
        assert_eq!(rows(&scene.open().get_session(&id()).unwrap()), rows(&first), "{name}, in another process");
        assert_eq!(std::fs::read(scene.root.join("talk.json")).unwrap(), bytes, "{name}");
        assert_eq!(scene.disk.sidecars_written(), written, "{name}");
    }
}

#[test]
fn a_journal_that_was_looked_at_is_not_read_again_until_it_grows() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"}))]);
    let store = scene.open();
    (0..10).for_each(|_| drop(store.get_session(&id()).unwrap()));
    let written = scene.disk.sidecars_written();
    assert_eq!(scene.disk.journal_reads(), 1);
    scene.journal(RUN, 2, &[("metering", json!({}))]);
    (0..10).for_each(|_| drop(store.get_session(&id()).unwrap()));
    assert_eq!(scene.disk.journal_reads(), 2, "one look, and nothing to take");
    assert_eq!(scene.disk.sidecars_written(), written, "growth that adds nothing changes nothing");
}

#[test]
fn what_cannot_be_saved_is_an_error_and_memory_stays_behind_the_disk() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"}))]);
    let store = scene.open();
    let allow = |mode: u32| std::fs::set_permissions(&scene.root, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o500);
    let probe = std::fs::write(scene.root.join("_probe"), "x");
    let refused = store.get_session(&id());
    allow(0o700);
    if probe.is_ok() {
        // Nothing is refused to this user: the simulated disk's suite has the same test.
        return;
    }
    assert_eq!(refused.unwrap_err().code(), "io_error");
    assert!(store.get_session_for_scan(&id()).unwrap().pending_turn().is_some());
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["Where to?", "To the sea"]);
}

#[test]
fn readers_that_may_not_write_serve_what_is_there() {
    let scene = Scene::new();
    scene.pending(&[user("before", 1), armed("old", 0, OPENED)], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"}))]);
    let options = Options { clock: scene.clock.clone(), ..Options::default() };
    let reader = Store::open_read_only(&scene.root, options).unwrap();
    let session = reader.get_session(&id()).unwrap();
    assert_eq!((contents(&session), markers(&session).len()), (vec!["before".to_owned()], 1));
    assert!(session.pending_turn().is_some());
}

#[test]
fn a_look_through_all_sessions_resolves_nothing_and_spends_nothing() {
    let scene = Scene::new();
    scene.session(&[user("before", 1), armed(RUN, 11, OPENED)]);
    scene.journal(RUN, 1, &[("stream_end", json!({}))]);
    let store = scene.open();
    for _ in 0..20 {
        let session = store.get_session_for_scan(&id()).unwrap();
        assert_eq!(markers(&session)[0]["_journal_retry_attempts"], 11);
        store.metadata(&id()).unwrap();
    }
    assert!(store.cached_sessions().is_empty());
}
