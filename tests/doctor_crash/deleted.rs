//! A deleted session that came back beside its remains, as from a backup or from a program that knows no tombstones.

use std::fs;
use std::path::Path;

use lastword::doctor::{DoctorOptions, repair};
use lastword::{Options, Store};

use crate::damage::{populate, session};

/// The one folder in the trash.
fn trash(root: &Path) -> std::path::PathBuf {
    let mut folders = fs::read_dir(root.join("_trash")).unwrap();
    folders.next().unwrap().unwrap().path()
}

#[test]
fn what_came_back_goes_to_the_trash_beside_what_is_there_and_keeps_nobody_out() {
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = home.path().join("data");
    let store = Store::open(&root, Options::default()).unwrap();
    populate(&store);
    store.delete(&session("gone")).unwrap();
    drop(store);
    fs::create_dir(root.join("_run_journal/gone")).unwrap();
    fs::write(root.join("_run_journal/gone/again.jsonl"), "{}\n").unwrap();
    fs::write(root.join("gone.json"), "{\"title\":\"again\"}").unwrap();
    let repaired = repair(&root, &DoctorOptions::default()).unwrap();
    assert!(!repaired.has_failed(), "{:#?}", repaired.actions);
    let trash = trash(&root);
    assert!(
        fs::read_to_string(trash.join("session.json")).unwrap().contains("About gone"),
        "the first one was replaced"
    );
    assert!(fs::read_to_string(trash.join("session.json-2")).unwrap().contains("again"));
    assert!(trash.join("run_journal/r1.jsonl").exists() && trash.join("run_journal-2/again.jsonl").exists());
    assert!(!root.join("gone.json").exists() && !root.join("_run_journal/gone").exists());
}
