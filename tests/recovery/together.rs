//! Many readers at once: one load, one splice, nobody waits for a retry, and a live run's session is left alone.

use std::sync::Barrier;

use lastword::{Event, Outcome, SaveOptions, UserTurn};
use serde_json::json;

use crate::scene::{OPENED, RUN, Scene, armed, contents, id, markers, rows, run, user};

#[test]
fn fifty_readers_of_a_dead_turn_make_one_splice() {
    let scene = Scene::new();
    scene.pending(&[user("before", 1)], "Where to?");
    scene.journal(RUN, 1, &[("token", json!({"text": "To the sea"})), ("tool", json!({"name": "map"}))]);
    let (store, barrier) = (scene.open(), Barrier::new(50));
    let written = scene.disk.sidecars_written();
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                barrier.wait();
                let session = store.get_session(&id()).unwrap();
                assert!([1, 4].contains(&rows(&session).len()), "half a recovery: {:?}", rows(&session));
            });
        }
    });
    assert_eq!(scene.disk.sidecars_written() - written, 1);
    assert_eq!(scene.disk.journal_reads(), 1);
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["before", "Where to?", "To the sea"]);
    assert_eq!((markers(&session).len(), session.tool_cards().len()), (1, 1));
}

#[test]
fn nobody_waits_while_somebody_else_changes_the_session() {
    let scene = Scene::new();
    scene.pending(&[], "Where to?");
    let store = scene.open();
    let (entered, release) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let keep = SaveOptions { touch_updated_at: false, ..SaveOptions::default() };
            store.update(&id(), keep, |_| {
                entered.wait();
                release.wait();
            })
        });
        entered.wait();
        assert!(store.get_session(&id()).unwrap().pending_turn().is_some(), "served as it is");
        release.wait();
    });
    assert!(store.get_session(&id()).unwrap().pending_turn().is_none(), "and resolved by the next read");
}

#[test]
fn a_retry_never_touches_a_session_whose_own_run_is_live() {
    let scene = Scene::new();
    scene.session(&[user("first", 1), armed("old", 0, OPENED)]);
    let store = scene.open();
    let live = store.begin_run(&id(), UserTurn::text("second").with_run(run(RUN))).unwrap();
    scene.journal("old", 1, &[("token", json!({"text": "late"}))]);
    let before = rows(&store.get_session(&id()).unwrap());
    assert_eq!(before.len(), 2, "{before:?}");
    live.append(Event::token("fine")).unwrap();
    live.finish(Outcome::Completed).unwrap();
    let session = store.get_session(&id()).unwrap();
    assert_eq!(contents(&session), ["first", "late", "second", "fine"]);
}

/// The end of a run and a retry of an older marker want the same session at the same time.
#[test]
fn a_run_that_ends_during_a_retry_loses_nothing() {
    let scene = Scene::new();
    scene.session(&[user("first", 1), armed("old", 0, OPENED)]);
    scene.journal("old", 1, &[("token", json!({"text": "late"}))]);
    let store = scene.open();
    let held = scene.disk.hold_next_journal_read();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| store.get_session(&id()).unwrap());
        held.until_entered();
        let writer = scope.spawn(|| {
            let run = store.begin_run(&id(), UserTurn::text("second").with_run(run(RUN))).unwrap();
            run.append(Event::token("fine")).unwrap();
            run.finish(Outcome::Completed).unwrap();
        });
        held.release();
        reader.join().unwrap();
        writer.join().unwrap();
    });
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["first", "late", "second", "fine"]);
}

#[test]
fn many_who_ask_for_a_cold_session_make_one_load() {
    let scene = Scene::new();
    scene.session(&[user("hello", 1)]);
    let (store, barrier) = (scene.open(), Barrier::new(16));
    let opened = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    store.get_session(&id()).unwrap()
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(opened.iter().all(|session| std::sync::Arc::ptr_eq(session, &opened[0])), "all have the same");
}
