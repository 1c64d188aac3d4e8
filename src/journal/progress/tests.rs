//! What followers are shown while durable appends are outstanding, and who is told of the end.

use super::*;
use crate::sync::schedule::{Explorer, spawn};

/// Counts how often it is called.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicUsize>);

impl Calls {
    fn waker(&self) -> AppendWaker {
        let calls = self.clone();
        AppendWaker(Arc::new(move || calls.add()))
    }

    fn listener(&self) -> Box<dyn FnOnce() + Send> {
        let calls = self.clone();
        Box::new(move || calls.add())
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn of_two_durable_appends_each_is_shown_when_it_is_durable_and_the_rest_with_the_last() {
    for (first, second, shown) in [(10, 20, 10), (20, 10, 20)] {
        let progress = Progress::default();
        progress.hold_back(10);
        progress.hold_back(20);
        progress.publish_in_turn(30);
        assert_eq!(progress.extent(), 0, "nothing is durable yet");
        progress.settle(first, true);
        assert_eq!(progress.extent(), shown);
        progress.settle(second, true);
        assert_eq!(progress.extent(), 30);
        progress.publish_in_turn(40);
        assert_eq!(progress.extent(), 40, "nothing is outstanding any more");
    }
}

/// A line that is appended just while the last ticket settles must not wait for the next append to be shown.
#[test]
fn what_is_appended_while_the_last_ticket_settles_is_shown_with_it_or_after_it() {
    let work = || {
        let (progress, is_durable) = (Arc::new(Progress::default()), Arc::new(AtomicBool::new(false)));
        progress.hold_back(10);
        let (settling, synced) = (progress.clone(), is_durable.clone());
        let settler = spawn("settler", move || {
            synced.store(true, Ordering::SeqCst);
            settling.settle(10, true);
        });
        progress.publish_in_turn(20);
        let shown = progress.extent();
        assert!(shown == 0 || is_durable.load(Ordering::SeqCst), "{shown} bytes are shown before they are durable");
        settler.join();
        progress.extent()
    };
    let explorer = Explorer { singles_max: 100, pairs_max: 100, seeds: 20, ..Explorer::default() };
    explorer.explore(work, |extent| assert_eq!(extent, 20));
}

#[test]
fn after_a_failed_fsync_nothing_more_is_shown_and_followers_and_listeners_are_told() {
    let progress = Arc::new(Progress::default());
    let (woken, told) = (Calls::default(), Calls::default());
    let _follower = Attached::new(&progress, woken.waker());
    progress.publish_in_turn(5);
    progress.on_end(false, told.listener());
    progress.hold_back(10);
    assert_eq!((woken.count(), told.count()), (1, 0));
    progress.settle(10, false);
    assert_eq!((woken.count(), told.count(), progress.extent()), (2, 1, 5));
    progress.publish_in_turn(20);
    assert_eq!(progress.extent(), 5, "nor is what comes after it");
}

#[test]
fn a_listener_is_told_at_the_end_or_at_once_if_that_was() {
    let (progress, early) = (Progress::default(), Calls::default());
    progress.on_end(false, early.listener());
    progress.publish(10);
    assert_eq!(early.count(), 0, "the run goes on");
    progress.end();
    assert_eq!(early.count(), 1);
    let late = Calls::default();
    progress.on_end(false, late.listener());
    assert_eq!((early.count(), late.count()), (1, 1), "each once");

    let (failed, late) = (Progress::default(), Calls::default());
    failed.hold_back(10);
    failed.settle(10, false);
    failed.on_end(false, late.listener());
    assert_eq!(late.count(), 1, "its journal takes no more");

    let (sealed, late) = (Progress::default(), Calls::default());
    sealed.on_end(true, late.listener());
    assert_eq!(late.count(), 1, "its end is written, and perhaps not shown");
}

#[test]
fn a_follower_that_leaves_takes_its_own_waker_with_it_and_no_other() {
    let progress = Arc::new(Progress::default());
    let [first, second, third] = [Calls::default(), Calls::default(), Calls::default()];
    let twice = third.waker();
    let leaving = Attached::new(&progress, first.waker());
    let staying = Attached::new(&progress, second.waker());
    let pair = [Attached::new(&progress, twice.clone()), Attached::new(&progress, twice)];
    drop(leaving);
    let [one, other] = pair;
    drop(one);
    progress.publish(10);
    assert_eq!((first.count(), second.count(), third.count()), (0, 1, 1));
    assert_eq!(progress.wakers.lock().len(), 2, "those that left leave nothing");
    drop((staying, other));
    progress.publish(20);
    assert_eq!((second.count(), third.count(), progress.wakers.lock().len()), (1, 1, 0));
    assert_eq!(progress.followers.load(Ordering::SeqCst), 0);
}
