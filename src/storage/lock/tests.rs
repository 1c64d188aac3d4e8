//! Lock files that are lost, replaced, half written, or left by a writer whose fsync failed.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::storage::sim::SimDisk;
use crate::storage::sim::schedule::{Explorer, Schedule, sleep, spawn};

fn layout() -> Layout {
    Layout::new(Path::new("/data"))
}

fn new_disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/data")).unwrap();
    disk
}

fn take(disk: &SimDisk) -> WriterLock {
    let shared: SharedDisk = Arc::new(disk.clone());
    WriterLock::take(&shared, &layout(), Timestamp::from_seconds(1.0), Durability::Buffered).unwrap()
}

/// A page that a failed fsync left clean looks written until the machine starts again, however many writers come and go.
#[test]
fn a_failed_fsync_is_remembered_by_every_later_writer_of_the_same_boot() {
    let disk = new_disk();
    let first = take(&disk);
    assert!(!first.is_unsure());
    first.mark_unsure();
    drop(first);
    assert!(holder(&disk, &layout()).is_some_and(|last| last.is_unsure && last.is_stopped));
    for _ in 0..3 {
        let next = take(&disk);
        assert!(next.is_unsure());
        assert!(holder(&disk, &layout()).is_some_and(|own| own.is_unsure && !own.is_stopped && !own.has_replayed));
        next.mark_replayed().unwrap();
        next.mark_closed();
        drop(next);
        let last = holder(&disk, &layout()).unwrap();
        assert!(last.is_unsure && last.is_closed && last.has_replayed && !last.is_stopped);
        disk.kill();
    }
    disk.reboot();
    assert!(!take(&disk).is_unsure(), "every page is what the medium holds");
}

#[test]
fn a_note_is_always_as_long_and_replaces_the_one_before() {
    let disk = new_disk();
    let first = take(&disk);
    let path = layout().lock();
    let bytes = disk.files()[&path].len();
    assert_eq!(bytes, NOTE_BYTES + 1);
    first.mark_unsure();
    first.mark_replayed().unwrap();
    first.mark_closed();
    assert_eq!(disk.files()[&path].len(), bytes);
    drop(first);
    drop(take(&disk));
    assert_eq!(disk.files()[&path].len(), bytes);
}

#[test]
fn a_lock_file_that_cannot_be_looked_at_is_not_lost() {
    let disk = new_disk();
    let lock = take(&disk);
    disk.set_mode("/data", 0).unwrap();
    assert!(lock.is_named(), "a failure to find out is not an answer");
    disk.set_mode("/data", 0o700).unwrap();
    disk.remove_file(&layout().lock()).unwrap();
    assert!(!lock.is_named());
}

/// Another program replaces the lock file while a writer takes the lock. What it does before the writer compares both files
/// must not leave that writer with a lock on a file without a name: a second one would get the lock as well.
#[test]
fn a_lock_on_a_file_that_was_replaced_before_it_was_compared_is_not_taken() {
    for is_replaced in [false, true] {
        let work = move || {
            let disk = new_disk();
            let (path, other) = (layout().lock(), Path::new("/data/other"));
            drop(disk.open(&path, Access::CreateNew).unwrap());
            drop(disk.open(other, Access::CreateNew).unwrap());
            let (taken, looks) = (disk.clone(), disk.looks());
            let taker = spawn("taker", move || take(&taken).is_named());
            match is_replaced {
                true => disk.rename(other, &path).unwrap(),
                false => disk.remove_file(&path).unwrap(),
            }
            // Only the taker looks, and its first look is the comparison.
            let is_before = disk.looks() == looks;
            (is_before, taker.join())
        };
        let explorer = Explorer { singles_max: 200, pairs_max: 50, seeds: 20, ..Explorer::default() };
        explorer.explore(work, |(is_before, is_named)| assert!(is_named || !is_before));
    }
}

/// What a writer finds: the note of the last one, if any.
fn with_note(last: Option<&Holder>) -> SimDisk {
    let disk = new_disk();
    drop(disk.open(&layout().identity(), Access::CreateNew).unwrap());
    if let Some(last) = last {
        let file = disk.open(&layout().lock(), Access::CreateNew).unwrap();
        file.write_at(&last.note(), 0).unwrap();
    }
    disk
}

/// A process that is alive and is not this one.
#[cfg(unix)]
fn stranger(disk: &SimDisk) -> Holder {
    Holder {
        pid: std::os::unix::process::parent_id(),
        started_at: 1.0,
        boot_id: disk.boot_id(),
        is_unsure: false,
        durability: Durability::Buffered,
        is_stopped: false,
        is_closed: false,
        has_replayed: false,
    }
}

/// How long taking the lock takes.
fn taking(disk: &SimDisk) -> Duration {
    let watch = Stopwatch::start();
    drop(take(disk));
    watch.elapsed()
}

#[cfg(unix)]
#[test]
fn a_writer_waits_for_a_last_one_that_may_be_at_work_and_for_no_other() {
    let work = || {
        let at_work = stranger(&SimDisk::new());
        let waits = [None, Some(at_work.clone())];
        let does_not = [
            Holder { is_closed: true, ..at_work.clone() },
            Holder { is_stopped: true, ..at_work.clone() },
            Holder { boot_id: "another boot".to_owned(), ..at_work.clone() },
            Holder { pid: std::process::id(), ..at_work.clone() },
            Holder { pid: u32::MAX, ..at_work },
        ];
        let waited = waits.map(|last| taking(&with_note(last.as_ref())));
        (waited, does_not.map(|last| taking(&with_note(Some(&last)))), taking(&new_disk()))
    };
    let explorer = Explorer { early_timeouts: false, ..Explorer::default() };
    explorer.replay(&Schedule::Calm, work, |(waited, did_not, new)| {
        assert!(waited.iter().all(|time| *time >= LAST_WRITER_STOPS_WITHIN), "{waited:?}");
        assert!(did_not.iter().all(|time| *time < LAST_WRITER_STOPS_WITHIN), "{did_not:?}");
        assert!(new < LAST_WRITER_STOPS_WITHIN, "a new directory has had no writer: {new:?}");
    });
    assert!(LAST_WRITER_STOPS_WITHIN > LOCK_CHECK_EVERY, "it has noticed by then");
}

/// The process that waits is killed: its own note would tell the next one that there is no reason to wait.
#[cfg(unix)]
#[test]
fn a_writer_that_is_killed_while_it_waits_for_the_last_one_leaves_the_wait_to_the_next() {
    let work = || {
        let at_work = stranger(&SimDisk::new());
        let disks = [None, Some(at_work)].map(|last| with_note(last.as_ref()));
        disks.map(|disk| {
            let before = holder(&disk, &layout());
            let waiting = disk.clone();
            let taker = spawn("taker", move || drop(take(&waiting)));
            sleep(LAST_WRITER_STOPS_WITHIN / 2);
            // On the copy the taker is dead.
            let copy = disk.copy();
            let found = holder(&copy, &layout());
            let waited = taking(&copy);
            taker.join();
            (found == before, waited)
        })
    };
    let explorer = Explorer { early_timeouts: false, ..Explorer::default() };
    explorer.replay(&Schedule::Calm, work, |found| {
        for (is_as_before, waited) in found {
            assert!(is_as_before && waited >= LAST_WRITER_STOPS_WITHIN, "{is_as_before}, {waited:?}");
        }
    });
}
