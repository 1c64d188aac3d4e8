//! What others do in the folder shows in the next list, also while the store is open.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lastword::clock::{Clock, ManualClock, Timestamp};
use lastword::storage::sim::SimDisk;
use lastword::storage::{Access, Disk, FileStorage, FilesOptions, Mode};
use lastword::{NewSession, Options, Store, UserTurn};

use crate::shelf::{Shelf, ids, rename, shown, sid};

fn page(store: &Store) -> Vec<String> {
    shown(&store.list_page(None, 100).unwrap().sessions)
}

#[test]
fn a_file_that_is_dropped_in_appears_and_one_that_is_taken_away_goes() {
    let shelf = Shelf::with(3);
    let store = shelf.writer();
    assert_eq!(page(&store).len(), 3);
    fs::copy(shelf.path("s1.json"), shelf.path("dropped-in.json")).unwrap();
    assert_eq!(page(&store), shelf.truth());
    assert_eq!(shown(&store.list().unwrap()), shelf.truth());
    fs::remove_file(shelf.path("s2.json")).unwrap();
    assert_eq!(page(&store), shelf.truth());
    assert_eq!(page(&store).len(), 3);
}

#[test]
fn a_file_that_is_changed_in_place_is_listed_as_it_is_now() {
    let shelf = Shelf::with(3);
    let store = shelf.writer();
    assert_eq!(page(&store).len(), 3);
    let text = fs::read_to_string(shelf.path("s1.json")).unwrap().replace("Session 1", "Another title");
    fs::write(shelf.path("s1.json"), text).unwrap();
    assert_eq!(page(&store), shelf.truth());
    assert!(page(&store).join("").contains("Another title"));
}

#[test]
fn one_bad_file_never_blocks_the_list_and_is_listed_again_once_it_is_good() {
    let shelf = Shelf::with(3);
    let store = shelf.writer();
    let good = fs::read(shelf.path("s0.json")).unwrap();
    fs::write(shelf.path("s0.json"), b"{\"title\":").unwrap();
    assert_eq!(ids(&store.list().unwrap()), ["s1", "s2", "s0"]);
    assert_eq!(page(&store), shelf.truth());
    assert!(store.list().unwrap()[2].summary.is_err());
    fs::write(shelf.path("s0.json"), good).unwrap();
    assert_eq!(ids(&store.list_page(None, 9).unwrap().sessions), ["s0", "s1", "s2"]);
}

#[test]
fn a_session_is_read_by_its_id_without_any_list() {
    let shelf = Shelf::with(1);
    fs::copy(shelf.path("s0.json"), shelf.path("dropped-in.json")).unwrap();
    fs::write(shelf.index(), b"garbage").unwrap();
    assert_eq!(shelf.writer().get_session(&sid("dropped-in")).unwrap().title(), "Session 0");
}

#[test]
fn what_is_dropped_in_while_this_process_saves_appears_after_a_moment() {
    let shelf = Shelf::with(2);
    let store = shelf.writer();
    page(&store);
    rename(&store, "s1", "Renamed");
    fs::copy(shelf.path("s1.json"), shelf.path("dropped-in.json")).unwrap();
    shelf.clock.advance(Duration::from_secs(3600));
    assert_eq!(page(&store), shelf.truth());
    assert_eq!(page(&store).len(), 3);
}

/// A reader, which changes nothing itself, on a disk on which every change within the first second has the same time.
#[test]
fn what_is_dropped_in_within_the_same_tick_as_the_last_change_is_listed() {
    let disk = SimDisk::new().with_coarse_clock(1_000_000_000);
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(10_000)));
    let options = Options { clock: clock.clone(), ..Options::default() };
    let writer = Store::open_on(Arc::new(disk.clone()), "/data", options.clone()).unwrap();
    writer.create(NewSession::titled("x").with_id(sid("s0"))).unwrap();
    assert_eq!(page(&writer).len(), 1);
    drop(writer);
    let files = FilesOptions { clock: clock.clone(), ..FilesOptions::in_mode(Mode::ReadOnly) };
    let storage = FileStorage::open(Arc::new(disk.clone()), Path::new("/data"), files).unwrap();
    let reader = Store::on_storage(Arc::new(storage), options);
    assert_eq!(page(&reader).len(), 1);
    let bytes = disk.files()[Path::new("/data/s0.json")].clone();
    disk.open(Path::new("/data/dropped-in.json"), Access::CreateNew).unwrap().write_at(&bytes, 0).unwrap();
    for _ in 0..3 {
        assert_eq!(page(&reader).len(), 2);
        clock.advance(Duration::from_secs(10));
    }
}

#[test]
fn what_is_taken_away_while_this_process_saves_is_on_no_page() {
    let shelf = Shelf::with(3);
    let store = shelf.writer();
    page(&store);
    rename(&store, "s1", "Renamed");
    fs::remove_file(shelf.path("s2.json")).unwrap();
    assert_eq!(page(&store), shelf.truth());
    assert_eq!(page(&store).len(), 2);
}

/// A comparison that seems to be made later than now says nothing.
#[test]
fn what_is_dropped_in_appears_although_the_clock_was_set_back() {
    let shelf = Shelf::with(2);
    let store = shelf.writer();
    page(&store);
    rename(&store, "s1", "Renamed");
    fs::copy(shelf.path("s1.json"), shelf.path("dropped-in.json")).unwrap();
    shelf.clock.set(Timestamp::from_seconds(shelf.clock.now().seconds() - 3_600.0));
    assert_eq!(page(&store), shelf.truth());
    assert_eq!(page(&store).len(), 3);
}

/// What this process noted of its own save is older than what the file says.
#[test]
fn what_others_do_to_a_session_after_an_own_save_shows_in_the_first_list() {
    for was_listed in [false, true] {
        let shelf = Shelf::with(3);
        let store = shelf.writer();
        if was_listed {
            store.list().unwrap();
        }
        rename(&store, "s1", "Own title");
        rename(&store, "s2", "Own title");
        let text = fs::read_to_string(shelf.path("s1.json")).unwrap().replace("Own title", "The title of another");
        fs::write(shelf.path("s1.json"), text).unwrap();
        fs::remove_file(shelf.path("s2.json")).unwrap();
        assert_eq!(shown(&store.list().unwrap()), shelf.truth(), "{was_listed}");
        assert_eq!(page(&store), shelf.truth(), "{was_listed}");
    }
}

#[test]
fn a_session_that_the_disk_could_not_read_is_listed_as_soon_as_it_can() {
    let looks: [fn(&Store) -> Vec<String>; 2] = [|store| shown(&store.list().unwrap()), page];
    for look in looks {
        let disk = SimDisk::new();
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_800_000_000.0)));
        let open = || {
            let options = Options { clock: clock.clone(), ..Options::default() };
            Store::open_on(Arc::new(disk.clone()), "/data", options).unwrap()
        };
        let store = open();
        store.create(NewSession::titled("x").with_id(sid("s0"))).unwrap();
        let expected = look(&store);
        drop(store);
        // Without the index, each document is read.
        disk.remove_file(Path::new("/data/_sessions.index")).unwrap();
        disk.break_reads("/data/s0.json").unwrap();
        let store = open();
        for _ in 0..2 {
            assert_eq!(look(&store), ["s0: io_error"]);
        }
        disk.mend_reads("/data/s0.json").unwrap();
        assert_eq!(look(&store), expected);
    }
}

#[test]
fn a_deleted_session_is_not_revived_by_an_index_that_knew_it() {
    let shelf = Shelf::with(2);
    let old = fs::read(shelf.index()).unwrap();
    let store = shelf.writer();
    page(&store);
    store.delete(&sid("s0")).unwrap();
    assert_eq!(ids(&store.list_page(None, 9).unwrap().sessions), ["s1"]);
    drop(store);
    fs::write(shelf.index(), old).unwrap();
    assert_eq!(ids(&shelf.writer().list().unwrap()), ["s1"]);
}

#[test]
fn a_reader_lists_without_writing_anything() {
    let shelf = Shelf::with(2);
    fs::remove_file(shelf.index()).unwrap();
    let before = fs::read_dir(&shelf.root).unwrap().count();
    assert_eq!(shown(&shelf.reader().list().unwrap()), shelf.truth());
    assert_eq!(page(&shelf.reader()), shelf.truth());
    assert_eq!(fs::read_dir(&shelf.root).unwrap().count(), before);
}

#[test]
fn a_stale_list_of_the_reference_program_is_out_of_the_way_before_the_first_change() {
    type Change = fn(&Store);
    let changes: [(&str, Change); 4] = [
        ("create", |store| drop(store.create(NewSession::titled("New").with_id(sid("new"))).unwrap())),
        ("save", |store| rename(store, "s0", "Renamed")),
        ("turn", |store| drop(store.begin_run(&sid("s0"), UserTurn::text("x")).unwrap())),
        ("deletion", |store| store.delete(&sid("s0")).unwrap()),
    ];
    for (name, change) in changes {
        let shelf = Shelf::with(1);
        fs::write(shelf.path("_index.json"), b"[]").unwrap();
        let store = shelf.writer();
        store.list().unwrap();
        assert!(shelf.path("_index.json").exists(), "reading moves nothing");
        change(&store);
        assert!(!shelf.path("_index.json").exists(), "{name}");
        let kept: Vec<_> = fs::read_dir(shelf.path("_kept")).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(kept.len(), 1, "{name}");
        assert_eq!(fs::read(&kept[0]).unwrap(), b"[]", "{name}");
    }
}
