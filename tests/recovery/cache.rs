//! Sessions in memory: never older than their file, never more than allowed, and a live one stays.

use lastword::{CacheOptions, Event, Freshness, NewSession, Options, Outcome, SaveOptions, SessionId, Store, UserTurn};
use serde_json::json;

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

/// Neither brings the new version into memory, so that each of them has to look at the file itself.
#[test]
fn metadata_and_a_scan_say_what_the_file_says_while_memory_holds_an_older_version() {
    let scene = Scene::new();
    scene.session(&[user("one", 1)]);
    let store = scene.open();
    store.get_session(&id()).unwrap();
    for text in ["seven", "a longer one"] {
        scene.edit(|stored| {
            stored["title"] = json!(text);
            stored["messages"][0]["content"] = json!(text);
        });
        assert_eq!(store.metadata(&id()).unwrap().title(), text);
        assert_eq!(contents(&store.get_session_for_scan(&id()).unwrap()), [text]);
    }
    std::fs::remove_file(scene.root.join("talk.json")).unwrap();
    assert_eq!(store.metadata(&id()).unwrap_err().code(), "not_found");
    assert_eq!(store.get_session_for_scan(&id()).unwrap_err().code(), "not_found");
}

#[test]
fn a_caller_that_names_an_old_revision_neither_deletes_nor_changes_what_another_program_wrote() {
    let scene = Scene::new();
    scene.session(&[user("one", 1)]);
    let store = scene.open();
    let old = store.get_session(&id()).unwrap().revision().cloned();
    scene.edit(|stored| stored["title"] = json!("By another program"));
    assert!(!store.delete_if(&id(), |found| found == old.as_ref()).unwrap());
    let set_title = |session: &mut lastword::Session| session.set_text("title", "Lost");
    let changed = store.update_if(&id(), SaveOptions::default(), |found| found == old.as_ref(), set_title).unwrap();
    assert!(changed.is_none());
    let now = store.metadata(&id()).unwrap();
    assert_eq!(now.title(), "By another program");
    assert!(store.delete_if(&id(), |found| found == now.revision()).unwrap());
    assert_eq!(store.metadata(&id()).unwrap_err().code(), "not_found");
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
fn who_trusts_the_lock_reads_the_file_again_after_a_conflict() {
    let scene = Scene::new();
    scene.session(&[user("one", 1)]);
    let options = Options { freshness: Freshness::TrustLock, ..scene.options.clone() };
    let store = Store::open_on(scene.disk.clone(), &scene.root, options).unwrap();
    store.get_session(&id()).unwrap();
    scene.session(&[user("another", 1)]);
    let rename = || store.update(&id(), SaveOptions::default(), |session| session.set_text("title", "Renamed"));
    assert_eq!(rename().unwrap_err().code(), "conflict");
    assert_eq!(contents(&store.get_session(&id()).unwrap()), ["another"]);
    assert_eq!(rename().unwrap().title(), "Renamed");
}

/// It does not hold the lock that it would trust.
#[test]
fn a_process_that_only_reads_looks_at_the_file_each_time() {
    let scene = Scene::new();
    scene.session(&[user("one", 1)]);
    let options = Options { freshness: Freshness::TrustLock, ..scene.options.clone() };
    let reader = Store::open_read_only_on(scene.disk.clone(), &scene.root, options).unwrap();
    assert_eq!(contents(&reader.get_session(&id()).unwrap()), ["one"]);
    scene.session(&[user("another", 1)]);
    assert_eq!(contents(&reader.get_session(&id()).unwrap()), ["another"]);
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

/// While a session is being deleted, an append is neither acknowledged nor lost: it waits, and is refused.
#[test]
fn no_append_is_acknowledged_while_its_session_moves_to_the_trash() {
    let scene = Scene::new();
    let store = scene.open();
    let doomed = create(&store, "doomed");
    let run = store.begin_run(&doomed, UserTurn::text("hello")).unwrap();
    run.append(Event::token("before")).unwrap();
    let held = scene.disk.hold_next_deletion();
    std::thread::scope(|scope| {
        let deleter = scope.spawn(|| store.delete(&doomed));
        held.until_entered();
        let (tell, told) = std::sync::mpsc::channel();
        let appender = run.clone();
        scope.spawn(move || tell.send(appender.append_durable(Event::token("late")).map(|late| late.wait())));
        let early = told.recv_timeout(std::time::Duration::from_millis(200));
        assert!(early.is_err(), "it was answered before the deletion was decided: {early:?}");
        held.release();
        deleter.join().unwrap().unwrap();
        let refused = told.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert_eq!(refused.unwrap_err().code(), "fenced");
    });
}

/// A deletion that fails leaves the run as it was.
#[test]
fn an_append_that_waited_for_a_deletion_that_failed_is_taken() {
    let scene = Scene::new();
    let store = scene.open();
    let kept = create(&store, "kept");
    let run = store.begin_run(&kept, UserTurn::text("hello")).unwrap();
    scene.disk.refuse_tombstones(true);
    store.delete(&kept).unwrap_err();
    scene.disk.refuse_tombstones(false);
    assert_eq!(run.append(Event::token("word")).unwrap().last_seq, 1);
    store.get_session(&kept).unwrap();
}

/// A session that is just being created is changed by another thread that has found its file: the cache holds the change.
#[test]
fn creating_a_session_passes_its_lock() {
    let scene = Scene::new();
    let options = Options { freshness: Freshness::TrustLock, ..scene.options.clone() };
    let store = Store::open_on(scene.disk.clone(), &scene.root, options).unwrap();
    let own = create(&store, "own");
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        store
            .update(&own, SaveOptions::default(), |session| {
                let creator = || store.create(NewSession::titled("again").with_id(own.clone())).unwrap_err().code();
                scope.spawn(move || tell.send(creator()));
                let early = told.recv_timeout(std::time::Duration::from_millis(200));
                assert!(early.is_err(), "it did not wait for the change: {early:?}");
                session.set_text("title", "changed");
            })
            .unwrap();
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(20)).unwrap(), "exists");
    });
    assert_eq!(store.get_session(&own).unwrap().title(), "changed");
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
