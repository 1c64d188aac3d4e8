//! What a save and a page cost does not depend on how many sessions there are. Counted in disk operations.

use std::path::Path;
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::index::ListFilter;
use lastword::storage::sim::SimDisk;
use lastword::storage::{Access, Disk};
use lastword::{NewSession, Options, Store};

use crate::shelf::{rename, sid};

fn store_with(disk: &SimDisk, sessions: usize) -> Store {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0)));
    let store = Store::open_on(Arc::new(disk.clone()), "/data", Options { clock, ..Options::default() }).unwrap();
    for at in 0..sessions {
        store.create(NewSession::titled("x").with_id(sid(&format!("s{at}")))).unwrap();
    }
    store.list_page(None, 1).unwrap();
    store
}

fn operations(disk: &SimDisk, work: impl FnOnce()) -> u64 {
    let all = || disk.operations() + disk.looks();
    let before = all();
    work();
    all() - before
}

#[test]
fn a_save_takes_as_many_operations_among_a_thousand_sessions_as_alone() {
    let counts = [1, 1_000].map(|sessions| {
        let disk = SimDisk::new();
        let store = store_with(&disk, sessions);
        operations(&disk, || rename(&store, "s0", "Renamed"))
    });
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn a_page_looks_at_its_own_sessions_only() {
    let counts = [20, 1_000].map(|sessions| {
        let disk = SimDisk::new();
        let store = store_with(&disk, sessions);
        store.list().unwrap();
        store.list_page(None, 10).unwrap();
        operations(&disk, || assert_eq!(store.list_page(None, 10).unwrap().sessions.len(), 10))
    });
    assert_eq!(counts[0], counts[1]);
    assert!(counts[1] < 30, "{} operations", counts[1]);
}

#[test]
fn a_search_looks_at_the_sessions_that_it_gives_and_at_no_other() {
    let counts = [20, 1_000].map(|sessions| {
        let disk = SimDisk::new();
        let store = store_with(&disk, sessions);
        rename(&store, "s7", "A needle");
        store.list().unwrap();
        let search = |title: &str| {
            let filter = ListFilter { title: Some(title.to_owned()), ..ListFilter::default() };
            store.find_page(None, 10, &filter).unwrap().sessions.len()
        };
        search("needle");
        [("nothing like it", 0), ("NEEDLE", 1)]
            .map(|(title, found)| operations(&disk, || assert_eq!(search(title), found, "{title}")))
    });
    assert_eq!(counts[0], counts[1]);
    assert!(counts[1][0] < counts[1][1] && counts[1][1] < 10, "{counts:?} operations");
}

/// The time of the folder does not tell of it, so the page has to look at its sessions.
#[test]
fn a_page_shows_what_was_changed_in_place() {
    let disk = SimDisk::new();
    let store = store_with(&disk, 3);
    assert_eq!(store.list_page(None, 3).unwrap().sessions[0].summary.as_ref().unwrap().title(), "x");
    let path = Path::new("/data/s0.json");
    let file = disk.open(path, Access::Write).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let text = String::from_utf8(bytes).unwrap().replace("\"x\"", "\"y\"");
    file.write_at(text.as_bytes(), 0).unwrap();
    let titles: Vec<String> = store
        .list_page(None, 3)
        .unwrap()
        .sessions
        .iter()
        .map(|entry| entry.summary.as_ref().unwrap().title())
        .collect();
    assert_eq!(titles.iter().filter(|title| *title == "y").count(), 1, "{titles:?}");
}

#[test]
fn a_good_index_spares_reading_the_sessions() {
    let disk = SimDisk::new();
    drop(store_with(&disk, 200));
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0)));
    let store = Store::open_on(Arc::new(disk.clone()), "/data", Options { clock, ..Options::default() }).unwrap();
    let count = operations(&disk, || assert_eq!(store.list().unwrap().len(), 200));
    assert!(count < 230, "{count} operations: a look at each, and a few more");
}
