//! The cache on its own: bounds, order, and one load for all.

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use super::{Cache, CacheOptions, Weighed};
use crate::model::SessionId;

#[derive(Debug)]
struct Value {
    bytes: usize,
    stays: Arc<AtomicBool>,
}

impl Weighed for Value {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn must_stay(&self) -> bool {
        self.stays.load(Ordering::Relaxed)
    }
}

type TestCache = Cache<Value, String>;

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn value(bytes: usize) -> Value {
    Value { bytes, stays: Arc::default() }
}

fn cache(sessions_max: usize, bytes_max: usize) -> TestCache {
    Cache::new(CacheOptions { sessions_max, bytes_max })
}

fn held(cache: &TestCache) -> Vec<String> {
    cache.ids().iter().map(ToString::to_string).collect()
}

#[test]
fn the_one_used_least_recently_goes_first() {
    let cache = cache(2, 100);
    cache.put(&id("a"), value(1));
    cache.put(&id("b"), value(1));
    cache.get(&id("a"));
    cache.peek(&id("b"));
    cache.put(&id("c"), value(1));
    assert_eq!(held(&cache), ["a", "c"]);
}

#[test]
fn bytes_are_bounded_and_what_is_too_large_alone_is_not_kept() {
    let cache = cache(10, 10);
    cache.put(&id("a"), value(4));
    cache.put(&id("b"), value(4));
    cache.put(&id("c"), value(4));
    assert_eq!((held(&cache), cache.bytes()), (vec!["b".to_owned(), "c".to_owned()], 8));
    assert_eq!(cache.put(&id("d"), value(11)).bytes, 11);
    assert_eq!(held(&cache), ["b", "c"]);
    cache.put(&id("b"), value(1));
    assert_eq!((held(&cache), cache.bytes()), (vec!["c".to_owned(), "b".to_owned()], 5));
}

#[test]
fn what_must_stay_stays_and_goes_when_it_no_longer_must() {
    let cache = cache(1, 100);
    let stays = Arc::new(AtomicBool::new(true));
    cache.put(&id("live"), Value { bytes: 1, stays: stays.clone() });
    cache.put(&id("a"), value(1));
    cache.put(&id("b"), value(1));
    assert_eq!(held(&cache), ["live"], "what must stay fills the cache");
    stays.store(false, Ordering::Relaxed);
    cache.put(&id("c"), value(1));
    cache.put(&id("d"), value(1));
    assert_eq!(held(&cache), ["d"]);
}

#[test]
fn one_that_has_to_stay_keeps_none_that_came_after_it_and_no_longer_has_to() {
    let cache = cache(1, 100);
    let [live, done] = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
    cache.put(&id("live"), Value { bytes: 1, stays: live });
    cache.put(&id("done"), Value { bytes: 1, stays: done.clone() });
    assert_eq!(held(&cache).len(), 2);
    done.store(false, Ordering::Relaxed);
    for name in ["a", "b"] {
        cache.put(&id(name), value(1));
    }
    assert_eq!(held(&cache), ["live"]);
}

#[test]
fn fifty_who_ask_at_once_make_one_load() {
    let (cache, loads, barrier) = (cache(10, 100), AtomicUsize::new(0), Barrier::new(50));
    let ask = || {
        barrier.wait();
        let load = || {
            loads.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
            Ok(value(1))
        };
        cache.get(&id("a")).map_or_else(|| cache.load(&id("a"), None, load), Ok).unwrap();
    };
    std::thread::scope(|scope| (0..50).for_each(|_| drop(scope.spawn(ask))));
    assert_eq!(loads.load(Ordering::Relaxed), 1);
}

#[test]
fn who_waits_for_a_load_gets_its_result_and_its_error() {
    let (cache, entered, release) = (cache(10, 100), Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            cache.load(&id("a"), None, || {
                entered.wait();
                release.wait();
                Err("no such thing".to_owned())
            })
        });
        entered.wait();
        let second = scope.spawn(|| cache.load(&id("a"), None, || Ok(value(1))));
        while !second.is_finished() && cache.held.lock().flights.get(&id("a")).is_some_and(|f| Arc::strong_count(f) < 4)
        {
            std::thread::yield_now();
        }
        release.wait();
        assert_eq!(first.join().unwrap().unwrap_err(), "no such thing");
        assert_eq!(second.join().unwrap().unwrap_err(), "no such thing");
    });
}

#[test]
fn a_load_that_began_before_a_save_does_not_bring_back_the_old() {
    let cache = cache(10, 100);
    let loaded = cache.load(&id("a"), None, || {
        cache.put(&id("a"), value(2));
        Ok(value(1))
    });
    assert_eq!(loaded.unwrap().bytes, 1);
    assert_eq!(cache.get(&id("a")).unwrap().bytes, 2);
}

#[test]
fn a_loader_that_panics_leaves_the_next_one_free() {
    let cache = Arc::new(cache(10, 100));
    let panicking = cache.clone();
    let failed = std::thread::spawn(move || panicking.load(&id("a"), None, || panic!("on purpose"))).join();
    assert!(failed.is_err());
    assert_eq!(cache.load(&id("a"), None, || Ok(value(3))).unwrap().bytes, 3);
}

#[test]
fn a_load_that_began_before_a_removal_does_not_bring_back_the_old() {
    let cache = cache(10, 100);
    let loaded = cache.load(&id("a"), None, || {
        cache.remove(&id("a"));
        Ok(value(1))
    });
    assert_eq!(loaded.unwrap().bytes, 1);
    assert!(cache.get(&id("a")).is_none());
}

#[test]
fn a_load_that_fails_takes_what_was_known_before_with_it() {
    let cache = cache(10, 100);
    let known = cache.put(&id("a"), value(4));
    assert_eq!(cache.load(&id("a"), Some(&known), || Err("gone".to_owned())).unwrap_err(), "gone");
    assert!(cache.get(&id("a")).is_none());
    assert_eq!((cache.size().sessions, cache.bytes()), (0, 0));
    assert_eq!(cache.load(&id("a"), None, || Ok(value(3))).unwrap().bytes, 3, "the next one loads");
}

#[test]
fn what_must_stay_is_kept_although_it_is_too_large_alone() {
    let cache = cache(10, 10);
    cache.put(&id("a"), value(4));
    let stays = Arc::new(AtomicBool::new(true));
    cache.put(&id("live"), Value { bytes: 11, stays: stays.clone() });
    assert_eq!((held(&cache), cache.bytes()), (vec!["live".to_owned()], 11), "the others make room");
    stays.store(false, Ordering::Relaxed);
    cache.put(&id("b"), value(1));
    cache.put(&id("c"), value(1));
    assert!(held(&cache).ends_with(&["c".to_owned()]) && cache.bytes() <= 10, "it goes when it no longer must stay");
}
