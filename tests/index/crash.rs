//! A power cut or a kill at every disk operation of work on the list: the list is what the files say.

use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::storage::sim::{Crash, SimDisk};
use lastword::{NewSession, Options, Store, StoreError};

use crate::shelf::{shown, sid};

fn open(disk: &SimDisk) -> Result<Store, StoreError> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0)));
    Store::open_on(Arc::new(disk.clone()), "/data", Options { clock, ..Options::default() })
}

/// Lists, creates, changes, deletes, lists again, closes, and lists in a new store.
fn work(disk: &SimDisk) -> Result<(), StoreError> {
    let store = open(disk)?;
    store.list()?;
    for name in ["a", "b", "c"] {
        store.create(NewSession::titled(name).with_id(sid(name)))?;
    }
    store.list_page(None, 2)?;
    store.update(&sid("b"), Default::default(), |session| session.set_text("title", "changed"))?;
    store.delete(&sid("a"))?;
    store.list()?;
    drop(store);
    open(disk)?.list().map(drop)
}

/// The list is what reading each file says, before and after the index was written again.
fn check(disk: &SimDisk, what: &str) {
    for round in 0..2 {
        let store = open(disk).unwrap();
        let listed = store.list().unwrap();
        for entry in &listed {
            let metadata = store.metadata(&entry.id).unwrap();
            let summary = entry.summary.as_ref().unwrap();
            assert_eq!(summary.title(), metadata.title(), "{what}, round {round}");
            assert_eq!(Some(summary.revision()), metadata.revision(), "{what}, round {round}");
        }
        let there = ["a", "b", "c"].iter().filter(|name| store.metadata(&sid(name)).is_ok()).count();
        assert_eq!(listed.len(), there, "{what}, round {round}: {:?}", shown(&listed));
    }
}

#[test]
fn a_list_after_a_crash_at_any_operation_is_what_the_files_say() {
    let whole = SimDisk::new();
    work(&whole).unwrap();
    for operation in 0..whole.operations() {
        let stopped = || {
            let disk = SimDisk::new();
            disk.stop_before(operation);
            // A failure to write the index down is nobody's, so some of these are done all the same.
            let _ = work(&disk);
            disk
        };
        let unsynced = stopped().unsynced();
        let single = (0..unsynced).flat_map(|at| [Crash::LoseOnly(at), Crash::TearOnly(at), Crash::ZeroOnly(at)]);
        for crash in [Crash::KeepAll, Crash::LoseAll].into_iter().chain(single) {
            let disk = stopped();
            disk.power_cut(crash);
            check(&disk, &format!("operation {operation}, {crash:?}"));
        }
        let disk = stopped();
        disk.kill();
        check(&disk, &format!("operation {operation}, killed"));
    }
}
