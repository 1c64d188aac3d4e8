//! A writer whose lock file was removed or replaced: another may be at work, so it writes no more.

use super::by_hand::{ByHand, SMALL, layout};
use super::*;
use crate::storage::disk::Disk;
use crate::storage::sim::SimDisk;
use crate::storage::sim::schedule::{Explorer, Schedule, sleep, spawn};

fn is_lock_lost(error: &StorageError) -> bool {
    matches!(error, StorageError::LockLost { .. })
        || matches!(error, StorageError::Stopped { source } if matches!(**source, StorageError::LockLost { .. }))
}

fn remove(disk: &SimDisk) {
    disk.remove_file(&layout().lock()).unwrap();
}

fn replace(disk: &SimDisk) {
    let other = Path::new("/data/other");
    drop(disk.open(other, Access::CreateNew).unwrap());
    disk.rename(other, &layout().lock()).unwrap();
}

/// The log and the journals are the new writer's: retiring the log would drop what it has acknowledged.
#[test]
fn a_close_after_the_lock_was_lost_writes_nothing_and_says_so() {
    for lose in [remove, replace] {
        let scene = ByHand::new(SMALL);
        let _lock = scene.lock();
        let journal = scene.journal("r");
        let first = journal.write("first", 40);
        scene.submit(&journal, &first).wait().unwrap();
        let pending = journal.write("second", 40);
        let ticket = scene.submit(&journal, &pending);
        lose(&scene.disk);
        let before = scene.disk.operations();
        scene.committer.close();
        assert_eq!(scene.disk.operations(), before, "{}", scene.disk.log().join("\n"));
        assert!(is_lock_lost(&ticket.wait().unwrap_err()));
    }
}

#[test]
fn a_commit_after_the_lock_was_lost_writes_nothing_and_says_so() {
    for lose in [remove, replace] {
        let scene = ByHand::new(SMALL);
        let _lock = scene.lock();
        let journal = scene.journal("r");
        let ticket = scene.submit(&journal, &journal.write("line", 40));
        lose(&scene.disk);
        let before = scene.disk.operations();
        assert!(is_lock_lost(&ticket.wait().unwrap_err()));
        assert_eq!(scene.disk.operations(), before, "{}", scene.disk.log().join("\n"));
    }
}

/// The commit thread may hang in an fsync, and the whole process may have been stopped for a while.
#[test]
fn an_append_looks_at_the_lock_file_itself_if_no_look_was_made_for_a_while() {
    let work = || {
        let scene = ByHand::new(SMALL);
        let _lock = scene.lock();
        let latch = scene.committer.latch();
        sleep(LOCK_CHECK_EVERY);
        assert!(latch.may_append(), "the lock is held");
        remove(&scene.disk);
        let looks = scene.disk.looks();
        sleep(LOCK_CHECK_EVERY / 2);
        assert!(latch.may_append() && scene.disk.looks() == looks, "not at every append");
        sleep(LOCK_CHECK_EVERY / 2);
        let may_append = latch.may_append();
        (may_append, latch.check())
    };
    Explorer::default().replay(&Schedule::Calm, work, |(may_append, outcome)| {
        assert!(!may_append, "no look for {LOCK_CHECK_EVERY:?}");
        assert!(is_lock_lost(&outcome.unwrap_err()));
    });
}

/// Its outcome counts for the others when it is known, and not before.
#[test]
fn while_one_append_looks_at_the_lock_file_no_other_counts_on_it() {
    let work = || {
        let scene = ByHand::new(SMALL);
        let _lock = scene.lock();
        remove(&scene.disk);
        sleep(LOCK_CHECK_EVERY);
        let latch = scene.committer.latch().clone();
        let other = spawn("other", move || latch.may_append());
        [scene.committer.latch().may_append(), other.join()]
    };
    let explorer = Explorer { singles_max: 200, pairs_max: 100, seeds: 20, ..Explorer::default() };
    explorer.explore(work, |may_append| assert_eq!(may_append, [false, false]));
}
