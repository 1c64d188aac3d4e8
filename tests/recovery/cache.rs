//! Sessions in memory: never older than their file, never more than allowed, and a live one stays.

use lastword::{CacheOptions, Event, Freshness, NewSession, Options, Outcome, SessionId, Store, UserTurn};

use crate::scene::{Scene, contents, id, user};

fn small(scene: &Scene, sessions_max: usize) -> Options {
    let cache = CacheOptions { sessions_max, ..CacheOptions::default() };
    Options { cache, ..scene.options.clone() }
}

fn create(store: &Store, name: &str) -> SessionId {
    store.create(NewSession::titled(name).with_id(SessionId::parse(name).unwrap())).unwrap()
}

#[test]
fn a_change_by_another_program_is_seen_by_the_next_read() {
    let scene = Scene::new();
    scene.session(&[user("one", 1)]);
    let store = scene.open();
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["one"]);
    for text in ["two", "six", "a longer one"] {
        scene.session(&[user(text, 1)]);
        assert_eq!(contents(&store.get_session(&id()).unwrap()), [text]);
        assert_eq!(store.metadata(&id()).unwrap().message_count(), 1);
    }
    std::fs::remove_file(scene.root.join("talk.json")).unwrap();
    assert_eq!(store.get_session(&id()).unwrap_err().code(), "not_found");
    assert!(store.cached_sessions().is_empty());
}

#[test]
fn who_trusts_the_lock_sees_its_own_changes_only() {
    let scene = Scene::new();
    scene.session(&[user("one", 1)]);
    let options = Options { freshness: Freshness::TrustLock, ..scene.options.clone() };
    let store = Store::open_on(scene.disk.clone(), &scene.root, options).unwrap();
    store.get_session(&id()).unwrap();
    scene.session(&[user("two", 1)]);
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["one"]);
    let own = create(&store, "own");
    let run = store.begin_run(&own, UserTurn::text("hello")).unwrap();
    run.append(Event::token("world")).unwrap();
    run.finish(Outcome::Completed).unwrap();
    assert_eq!(contents(&store.get_session(&own).unwrap()), ["hello", "world"]);
    store.delete(&own).unwrap();
    assert_eq!(store.get_session(&own).unwrap_err().code(), "not_found");
}

#[test]
fn who_reads_a_session_while_it_is_deleted_does_not_keep_it_in_memory() {
    for freshness in [Freshness::Check, Freshness::TrustLock] {
        let scene = Scene::new();
        scene.session(&[user("one", 1)]);
        let options = Options { freshness, ..scene.options.clone() };
        let store = Store::open_on(scene.disk.clone(), &scene.root, options).unwrap();
        let held = scene.disk.hold_next_deletion();
        std::thread::scope(|scope| {
            let deleter = scope.spawn(|| store.delete(&id()));
            held.until_entered();
            assert_eq!(contents(&store.get_session(&id()).unwrap()), ["one"], "it is still there");
            held.release();
            deleter.join().unwrap().unwrap();
        });
        assert_eq!(store.get_session(&id()).unwrap_err().code(), "not_found", "{freshness:?}");
        assert!(store.cached_sessions().is_empty(), "{freshness:?}");
    }
}

#[test]
fn a_session_with_a_live_run_stays_in_memory() {
    let scene = Scene::new();
    let store = Store::open_on(scene.disk.clone(), &scene.root, small(&scene, 2)).unwrap();
    let live = create(&store, "live");
    let run = store.begin_run(&live, UserTurn::text("hello")).unwrap();
    let others: Vec<SessionId> = (0..5).map(|n| create(&store, &format!("other-{n}"))).collect();
    others.iter().for_each(|id| drop(store.get_session(id).unwrap()));
    assert!(store.cached_sessions().contains(&live));
    run.finish(Outcome::Completed).unwrap();
    others.iter().for_each(|id| drop(store.get_session(id).unwrap()));
    assert_eq!(store.cached_sessions().len(), 2);
    assert!(!store.cached_sessions().contains(&live));
}

#[test]
fn a_warm_session_is_the_same_one_and_a_snapshot_stays_what_it_was() {
    let scene = Scene::new();
    scene.session(&[user("one", 1)]);
    let store = scene.open();
    let (first, second) = (store.get_session(&id()).unwrap(), store.get_session(&id()).unwrap());
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    store.update(&id(), lastword::SaveOptions::default(), |session| session.set_text("title", "Another")).unwrap();
    assert_eq!((first.title(), store.get_session(&id()).unwrap().title()), ("A talk".into(), "Another".into()));
}
