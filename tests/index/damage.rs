//! An index that is lost, torn, garbled, stale or somebody else's costs time and nothing else.

use std::fs;

use crate::shelf::{Shelf, rename, shown, sid};

#[test]
fn without_its_index_the_list_is_the_same() {
    let shelf = Shelf::with(12);
    assert!(shelf.index().exists());
    let before = shown(&shelf.writer().list().unwrap());
    fs::remove_file(shelf.index()).unwrap();
    assert_eq!(shown(&shelf.reader().list().unwrap()), before);
    assert_eq!(shown(&shelf.writer().list().unwrap()), before);
    assert_eq!(before, shelf.truth());
}

#[test]
fn an_index_cut_or_changed_anywhere_gives_the_same_list() {
    let shelf = Shelf::with(3);
    let (whole, truth) = (fs::read(shelf.index()).unwrap(), shelf.truth());
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x15;
        for bytes in [&whole[..at], &changed, &[&whole[..at], &whole[at / 2..]].concat()] {
            fs::write(shelf.index(), bytes).unwrap();
            assert_eq!(shown(&shelf.reader().list().unwrap()), truth, "at {at}");
        }
    }
}

#[test]
fn an_index_that_lies_is_not_believed() {
    let shelf = Shelf::with(4);
    let old = fs::read(shelf.index()).unwrap();
    let store = shelf.writer();
    rename(&store, "s3", "Renamed");
    store.delete(&sid("s2")).unwrap();
    drop(store);
    fs::write(shelf.index(), old).unwrap();
    assert_eq!(shown(&shelf.reader().list().unwrap()), shelf.truth());
}

#[test]
fn the_index_of_another_store_is_not_believed() {
    let (shelf, other) = (Shelf::with(3), Shelf::with(5));
    fs::copy(other.index(), shelf.index()).unwrap();
    assert_eq!(shown(&shelf.reader().list().unwrap()), shelf.truth());
    assert_eq!(shelf.truth().len(), 3);
}

#[test]
fn what_lies_in_the_place_of_the_index_stops_no_list_and_no_save() {
    let shelf = Shelf::with(2);
    fs::remove_file(shelf.index()).unwrap();
    fs::create_dir(shelf.index()).unwrap();
    let store = shelf.writer();
    rename(&store, "s1", "Renamed");
    assert_eq!(shown(&store.list().unwrap()), shelf.truth());
    drop(store);
    assert!(shelf.index().is_dir());
}

#[test]
fn an_index_is_used_and_not_only_kept() {
    let shelf = Shelf::with(5);
    let store = shelf.writer();
    rename(&store, "s4", "Renamed");
    drop(store);
    let text = fs::read_to_string(shelf.index()).unwrap();
    assert!(text.contains("Renamed"), "the change was written down when the store closed");
    let told = text.replace("Session 2", "Session X");
    let redone: String = told.lines().map(|line| format!("{}\n", with_checksum(line))).collect();
    fs::write(shelf.index(), redone).unwrap();
    let listed = shown(&shelf.reader().list().unwrap()).join("\n");
    assert!(listed.contains("Session X"), "a line whose document did not change is taken as it is");
    assert!(listed.contains("Renamed"));
}

fn with_checksum(line: &str) -> String {
    match line.get(11..) {
        Some(body) => format!("1 {:08x} {body}", crc32c::crc32c(body.as_bytes())),
        None => line.to_owned(),
    }
}

#[test]
fn an_index_that_holds_mostly_old_lines_is_written_anew() {
    let shelf = Shelf::with(3);
    let line = fs::read(shelf.index()).unwrap();
    fs::write(shelf.index(), line.repeat(3 * 1024 * 1024 / line.len())).unwrap();
    assert_eq!(shown(&shelf.writer().list().unwrap()), shelf.truth());
    assert!(fs::metadata(shelf.index()).unwrap().len() < 4_000);
    assert_eq!(shown(&shelf.reader().list().unwrap()), shelf.truth());
}
