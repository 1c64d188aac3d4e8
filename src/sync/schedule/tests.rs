//! Schedules find the races that they are there for, and repeat them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::*;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};

fn explorer() -> Explorer {
    Explorer { seeds: 20, time_max: Duration::from_secs(10), ..Explorer::default() }
}

/// What an exploration says is wrong.
fn failure<T: Send + 'static>(work: impl Fn() -> T + Send + Sync + 'static, check: impl Fn(T)) -> String {
    let found = catch_unwind(AssertUnwindSafe(|| explorer().explore(work, check)));
    text_of(&*found.expect_err("nothing was found")).to_owned()
}

fn two<T: Send + 'static>(
    one: impl FnOnce() -> T + Send + 'static,
    other: impl FnOnce() -> T + Send + 'static,
) -> [T; 2] {
    let (one, other) = (spawn("one", one), spawn("other", other));
    [one.join(), other.join()]
}

fn count_twice(count_once: fn(&AtomicU64)) -> u64 {
    let counter = Arc::new(AtomicU64::new(0));
    let again = counter.clone();
    let own = counter.clone();
    two(move || count_once(&own), move || count_once(&again));
    counter.load(Ordering::SeqCst)
}

fn careful(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_lost_update_is_found_and_its_schedule_repeats_it() {
    fn careless(counter: &AtomicU64) {
        let count = counter.load(Ordering::SeqCst);
        counter.store(count + 1, Ordering::SeqCst);
    }
    let check = |count| assert_eq!(count, 2, "an update is lost");
    let found = failure(|| count_twice(careless), check);
    assert!(found.contains("an update is lost") && found.contains("Deviating"), "{found}");
    explorer().explore(|| count_twice(careful), check);

    let at = |choice| Schedule::Deviating(vec![(choice, 1)]);
    let is_lost = |schedule: &Schedule| {
        catch_unwind(AssertUnwindSafe(|| explorer().replay(schedule, || count_twice(careless), check))).is_err()
    };
    let lost: Vec<_> = (0..20).filter(|choice| is_lost(&at(*choice))).collect();
    let again: Vec<_> = (0..20).filter(|choice| is_lost(&at(*choice))).collect();
    assert!(!lost.is_empty());
    assert_eq!(lost, again, "the same schedule is the same run");
}

#[test]
fn locks_that_are_taken_in_two_orders_are_found() {
    let work = || {
        let locks = [Arc::new(Mutex::new(())), Arc::new(Mutex::new(()))];
        let [a, b] = locks.clone();
        let [c, d] = locks;
        let both = |first: Arc<Mutex<()>>, second: Arc<Mutex<()>>| {
            let _first = first.lock();
            drop(second.lock());
        };
        two(move || both(a, b), move || both(d, c));
    };
    let found = failure(work, drop);
    assert!(found.contains("every thread waits for another") && found.contains("other: Waits"), "{found}");
}

/// A flag under a lock, and its condition variable.
#[derive(Default)]
struct Flag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Flag {
    fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    /// Waits, but looks only once, outside of the lock that it waits with.
    fn wait_carelessly(&self, limit: Option<Duration>) {
        let is_set = *self.is_set.lock();
        if !is_set {
            let mut guard = self.is_set.lock();
            match limit {
                None => self.changed.wait(&mut guard),
                Some(limit) => self.changed.wait_for(&mut guard, limit),
            }
        }
    }

    fn wait(&self) {
        let mut is_set = self.is_set.lock();
        while !*is_set {
            self.changed.wait(&mut is_set);
        }
    }
}

fn set_and_wait(wait: fn(&Flag)) -> Duration {
    let flag = Arc::new(Flag::default());
    let setter = flag.clone();
    two(move || setter.set(), move || wait(&flag));
    now().expect("this runs under a schedule")
}

#[test]
fn a_wake_up_that_can_be_lost_is_found() {
    let found = failure(|| set_and_wait(|flag| flag.wait_carelessly(None)), drop);
    assert!(found.contains("every thread waits"), "{found}");
    explorer().explore(|| set_and_wait(Flag::wait), drop);
}

#[test]
fn time_passes_when_all_threads_wait() {
    let limited = || set_and_wait(|flag| flag.wait_carelessly(Some(Duration::from_secs(1))));
    let found = failure(limited, |took| assert!(took < Duration::from_secs(1), "it had to wait"));
    assert!(found.contains("it had to wait"), "{found}");
    explorer().explore(limited, |took| assert!(took < Duration::from_secs(2), "{took:?}"));
}

#[test]
fn a_time_limit_passes_early_only_if_that_is_asked_for() {
    let work = || {
        let flag = Arc::new(Flag::default());
        let other = flag.clone();
        let waiter = spawn("waiter", move || {
            let mut is_set = other.is_set.lock();
            other.changed.wait_for(&mut is_set, Duration::from_secs(1));
            *is_set
        });
        flag.set();
        waiter.join()
    };
    let check = |is_set: bool| assert!(is_set, "too early");
    let calm = Explorer { early_timeouts: false, ..explorer() };
    // The flag may be set before the waiter waits; then it is set as well.
    calm.explore(work, check);
    assert!(failure(work, check).contains("too early"));
}

#[test]
fn a_schedule_that_never_ends_is_found() {
    let spins = || {
        let counter = AtomicU64::new(0);
        while counter.load(Ordering::SeqCst) == 0 {}
    };
    let explorer = Explorer { steps_max: 1_000, ..explorer() };
    let found = catch_unwind(AssertUnwindSafe(|| explorer.replay(&Schedule::Calm, spins, drop))).unwrap_err();
    assert!(text_of(&*found).contains("it does not end"));
    let naps = || {
        loop {
            sleep(Duration::from_secs(1));
        }
    };
    let found = catch_unwind(AssertUnwindSafe(|| explorer.replay(&Schedule::Calm, naps, drop))).unwrap_err();
    assert!(text_of(&*found).contains("it does not end in time"));
}

#[test]
fn a_panic_of_any_thread_is_a_failure() {
    let found = failure(|| spawn("bad", || panic!("on purpose")).join(), drop);
    assert!(found.contains("bad panicked: on purpose"), "{found}");
}

#[test]
fn every_order_of_two_short_threads_is_run() {
    let orders: Arc<parking_lot::Mutex<std::collections::BTreeSet<Vec<u8>>>> = Arc::default();
    let seen = orders.clone();
    let work = || {
        let order: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (one, other) = (order.clone(), order.clone());
        let note = |order: Arc<Mutex<Vec<u8>>>, name: u8| (0..2).for_each(|_| order.lock().push(name));
        two(move || note(one, 1), move || note(other, 2));
        order.lock().clone()
    };
    let explorer = Explorer { seeds: 200, ..explorer() };
    let explored = explorer.explore(work, move |order| {
        seen.lock().insert(order);
    });
    assert_eq!(orders.lock().len(), 6, "{orders:?}");
    assert!(explored.choices > 0 && explored.schedules > 200);
}

#[test]
fn a_lock_that_is_let_go_for_a_moment_can_be_taken() {
    let work = || {
        let value = Arc::new(Mutex::new(0));
        let other = value.clone();
        let adder = spawn("adder", move || *other.lock() += 1);
        let mut guard = value.lock();
        let before = *guard;
        MutexGuard::unlocked(&mut guard, || adder.join());
        (before, *guard)
    };
    explorer().explore(work, |(before, after)| assert!(before <= after && after == 1));
}

#[test]
fn a_thread_without_a_schedule_notices_no_difference() {
    assert!(!is_scheduled() && now().is_none());
    sleep(Duration::from_secs(3600));
    assert_eq!(count_twice(careful), 2);
    let flag = Arc::new(Flag::default());
    flag.wait_carelessly(Some(Duration::from_millis(1)));
    let setter = flag.clone();
    two(move || setter.set(), move || flag.wait());
}
