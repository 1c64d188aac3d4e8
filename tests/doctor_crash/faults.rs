//! A repair on a disk that is full, or that does not sync.

use std::path::PathBuf;

use lastword::doctor::{Action, Code, Outcome, Repair};
use lastword::storage::sim::{Fault, SimDisk};

use crate::judge::check_quiet;
use crate::scene::{EVERYTHING, Scene, files_of, repair};
use crate::view::View;

/// The files of the actions that failed, but for the lists of the sessions, which are moved away before anything is
/// changed.
fn failed(repair: &Repair) -> Vec<PathBuf> {
    let is_failed = |action: &&Action| matches!(action.outcome, Some(Outcome::Failed { .. }));
    let is_list = |action: &&Action| action.codes == [Code::IndexDrift];
    let failed = repair.actions.iter().filter(|action| is_failed(action) && !is_list(action));
    failed.map(|action| action.file.clone()).collect()
}

/// Repairs a disk on which something goes wrong, and says whether anything failed. Whatever is said to have failed is as
/// it was; or it is the new file, if only its name could not be made durable.
fn fails(scene: &Scene, disk: &SimDisk, may_be_new: bool) -> bool {
    let outcome = repair(disk);
    scene.check_interrupted(disk).unwrap();
    let Ok(repair) = outcome else { return true };
    let now = files_of(disk);
    for file in failed(&repair) {
        let name = file.to_string_lossy().into_owned();
        let is_new = may_be_new && now.get(&name) == scene.repaired.files.get(&name);
        let is_old = now.get(&name) == scene.files.get(&name);
        assert!(is_old || is_new, "{name} failed and is not as it was: {:#?}", repair.actions);
    }
    repair.has_failed()
}

#[test]
fn a_disk_that_is_full_from_any_operation_on_fails_the_repair_and_one_with_room_makes_it() {
    let (scene, mut failures) = (&*EVERYTHING, 0);
    for operation in 1..=scene.operations {
        let disk = scene.start.copy();
        disk.fill(disk.operations() + operation);
        let has_failed = fails(scene, &disk, false);
        failures += u64::from(has_failed);
        if !has_failed {
            scene.check_repaired(&files_of(&disk)).unwrap_or_else(|wrong| panic!("full from {operation} on: {wrong}"));
        }
        disk.make_room();
        scene.check_finished(&disk).unwrap_or_else(|wrong| panic!("full from {operation} on: {wrong}"));
        scene.check_survives_power_cut(&disk).unwrap();
    }
    assert!(failures * 2 > scene.operations, "{failures} failures of {}", scene.operations);
}

#[test]
fn a_single_write_that_finds_no_room_fails_one_action_and_the_others_are_made() {
    let scene = &*EVERYTHING;
    let is_write = |line: &String| line.contains(" write ") || line.contains(" create ");
    for operation in operations(scene, is_write) {
        let disk = scene.start.copy();
        disk.fail(disk.operations() + operation, Fault::Enospc);
        let outcome = repair(&disk);
        assert!(outcome.is_err() || failed(&outcome.unwrap()).len() <= 1, "operation {operation}");
        scene.check_interrupted(&disk).unwrap();
        repair(&disk).unwrap();
        let plain = |files| View::of_each(&files, |_, bytes| without_noted_length(bytes));
        let (found, expected) = (plain(files_of(&disk)), plain(scene.repaired.files.clone()));
        let wrong = expected.files.iter().find(|(name, bytes)| found.files.get(*name) != Some(*bytes));
        assert!(wrong.is_none(), "no room at {operation}: {:?}", wrong.map(|(name, _)| name));
        check_quiet(&disk).unwrap();
    }
}

/// A document without the length that its journal had when the answer was taken from it: the document may have been made
/// although its journal could not be mended, and the journal is shorter now.
fn without_noted_length(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    match text.split_once("\"_recovered_records\":") {
        Some((before, after)) => [before, after.trim_start_matches(|digit: char| digit.is_ascii_digit())].concat(),
        None => text,
    }
    .into_bytes()
}

/// The operations of an undisturbed repair whose line in the log is such a one, counted from 1.
fn operations(scene: &Scene, wants: impl Fn(&String) -> bool) -> Vec<u64> {
    let disk = scene.start.copy();
    let before = disk.log().len();
    repair(&disk).unwrap();
    let log = disk.log().split_off(before);
    (1..).zip(&log).filter(|(_, line)| wants(line)).map(|(operation, _)| operation).collect()
}

#[test]
fn a_sync_that_fails_fails_the_repair_and_changes_nothing_sound() {
    let scene = &*EVERYTHING;
    let syncs = operations(scene, |line| line.contains(" sync "));
    assert!(syncs.len() > 40, "{} syncs", syncs.len());
    for operation in syncs {
        let disk = scene.start.copy();
        disk.fail(disk.operations() + operation, Fault::Eio);
        assert!(fails(scene, &disk, true), "sync {operation} failed, and nobody was told");
        for is_same_boot in [true, false] {
            let disk = disk.copy();
            match is_same_boot {
                true => disk.kill(),
                false => disk.reboot(),
            }
            let what = |wrong| format!("sync {operation} failed, in the same boot: {is_same_boot}: {wrong}");
            scene.check_interrupted(&disk).map_err(what).unwrap();
            scene.check_finished(&disk).map_err(what).unwrap();
            scene.check_survives_power_cut(&disk).map_err(what).unwrap();
        }
    }
}

#[test]
fn a_device_that_no_longer_syncs_is_repaired_once_it_does() {
    let scene = &*EVERYTHING;
    for operation in operations(scene, |line| line.contains(" sync ")) {
        let disk = scene.start.copy();
        disk.break_syncs(disk.operations() + operation);
        assert!(fails(scene, &disk, true), "sync {operation} failed, and nobody was told");
        disk.mend_syncs();
        disk.reboot();
        scene.check_finished(&disk).unwrap_or_else(|wrong| panic!("no sync from {operation} on: {wrong}"));
    }
}
