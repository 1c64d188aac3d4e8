//! Revisions: none is ever repeated, whatever the file system does with inodes and times.

use lastword::storage::sim::{Crash, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{NewSession, Revision, SaveOptions};

use crate::logged::layout;
use crate::machine::{created, id, open, open_at, prepared};

/// Stale revisions are refused although inodes are reused and the kernel's clock is coarse.
#[test]
fn no_revision_is_ever_repeated() {
    let coarse = |disk: SimDisk| disk.with_inode_reuse().with_coarse_clock(4_000_000);
    let disks = [
        ("nanoseconds", coarse(SimDisk::new())),
        ("hundreds of them", coarse(SimDisk::new()).with_coarse_times(100)),
        ("microseconds", coarse(SimDisk::new()).with_coarse_times(1_000)),
        ("seconds", coarse(SimDisk::new()).with_coarse_times(1_000_000_000)),
        ("two seconds", coarse(SimDisk::new()).with_coarse_times(2_000_000_000)),
    ];
    for (name, disk) in disks {
        let store = open(&disk).unwrap();
        store.create(NewSession::titled("0").with_id(id())).unwrap();
        let mut seen = vec![store.metadata(&id()).unwrap().revision().unwrap().clone()];
        for number in 0..200 {
            let title = (number % 2).to_string();
            let saved = store.update(&id(), SaveOptions::default(), |session| session.set_text("title", &title));
            seen.push(saved.unwrap().revision().unwrap().clone());
        }
        let distinct: std::collections::HashSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len(), "{name}: a revision was given twice");
        let (latest, stale) = seen.split_last().unwrap();
        for revision in stale {
            let is_stale = |found: Option<&Revision>| found == Some(revision);
            let outcome =
                store.update_if(&id(), SaveOptions::default(), is_stale, |session| session.set_text("x", "1"));
            assert!(outcome.unwrap().is_none(), "{name}: a stale revision was accepted");
        }
        assert_eq!(store.metadata(&id()).unwrap().revision(), Some(latest));
    }
}

#[test]
fn revisions_go_on_after_a_crash_and_when_the_clock_steps_back() {
    let disk = SimDisk::new().with_inode_reuse();
    let mut seen = Vec::new();
    for (life, now) in [1_800_000_000, 1_700_000_000, 1_700_000_000, 1_900_000_000].into_iter().enumerate() {
        let store = open_at(&disk, now).unwrap();
        if life == 0 {
            store.create(NewSession::titled("x").with_id(id())).unwrap();
        }
        for number in 0..5 {
            let title = format!("{life} {number}");
            let saved = store.update(&id(), SaveOptions::default(), |session| session.set_text("title", &title));
            seen.push(saved.unwrap().revision().unwrap().clone());
        }
        drop(store);
        disk.power_cut(Crash::LoseAll);
    }
    let distinct: std::collections::HashSet<_> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len());
}

/// Another program gave a document the last time that its file system knows.
#[test]
fn a_document_of_the_far_future_is_saved_all_the_same() {
    const LAST: i128 = 15_032_385_535_000_000_000;
    let disk = SimDisk::new().with_last_time(LAST);
    let store = open(&disk).unwrap();
    store.create(NewSession::titled("x").with_id(id())).unwrap();
    disk.open(&layout().sidecar(&id()), Access::Write).unwrap().set_modified(LAST * 2).unwrap();
    let before = store.metadata(&id()).unwrap().revision().unwrap().clone();
    for title in ["one", "two"] {
        let saved = store.update(&id(), SaveOptions::default(), |session| session.set_text("title", title)).unwrap();
        assert_ne!(saved.revision(), Some(&before));
    }
    assert!(store.update_if(&id(), SaveOptions::default(), |found| found == Some(&before), |_| {}).unwrap().is_none());
}

#[test]
fn a_foreign_write_changes_the_revision() {
    let (disk, _) = prepared(created);
    let store = open(&disk).unwrap();
    let before = store.metadata(&id()).unwrap().revision().unwrap().clone();
    let path = layout().sidecar(&id());
    let bytes = disk.files()[&path].clone();
    disk.open(&path, Access::Write).unwrap().write_at(&bytes, 0).unwrap();
    let refused = store.update_if(&id(), SaveOptions::default(), |found| found == Some(&before), |_| {});
    assert!(refused.unwrap().is_none());
}
