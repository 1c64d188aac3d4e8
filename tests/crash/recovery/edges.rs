//! Recoveries whose journal does not stay as it was: it loses its unsynced end, or it is closed for a follower.

use lastword::storage::sim::{Crash, SimDisk};
use lastword::{After, Event, RunId, StoreError};

use super::files::RUN;
use super::judge::files;
use super::scenes::{HALF, LATER, Scene, begun, interrupted, read};
use crate::machine::{End, ended, id, open, open_at};

/// A turn whose last event is not durable.
fn buffered(disk: &SimDisk) {
    let run = begun(&open(disk).unwrap());
    run.append(Event::token("sea.")).unwrap();
}

/// What was saved or can still be read is there once; what a power cut took before that is not made up.
fn check_unsynced_end(disk: &SimDisk, scene: &Scene, what: &str) {
    let left = files(disk);
    let is_left =
        left.sidecar.contains("sea.") || left.journal.is_some_and(|text| text.contains("{\"text\":\"sea.\"},\"crc"));
    read(disk).unwrap();
    let mut expected = scene.expected();
    expected.texts.extend(is_left.then(|| "sea.".to_owned()));
    expected.check(disk, LATER, what);
    assert_eq!(files(disk).sidecar.contains("sea."), is_left, "{what}");
}

#[test]
fn rows_stay_although_a_power_cut_takes_the_events_that_they_came_from() {
    let scene = Scene::read("an event that is not durable", buffered, HALF, 1);
    for (operation, stopped) in scene.stopped() {
        for (end, disk) in ended(&stopped) {
            check_unsynced_end(&disk, &scene, &format!("operation {operation}, {end:?}\n{}", disk.log().join("\n")));
        }
    }
    let recovered = scene.laid();
    read(&recovered).unwrap();
    for (end, disk) in ended(&recovered) {
        assert!(files(&disk).sidecar.contains("sea."), "a recovery that was told is durable: {end:?}");
        check_unsynced_end(&disk, &scene, &format!("recovered, then {end:?}"));
    }
}

/// Somebody waits for the run to end, and reads the session then.
fn follow(disk: &SimDisk) -> Result<(), StoreError> {
    let store = open_at(disk, LATER)?;
    store.follow(&id(), &RunId::parse(RUN).unwrap(), After::Start)?.try_for_each(|event| event.map(drop))?;
    store.get_session(&id()).map(drop)
}

/// A restart of the machine closes the run for good, so that its end cannot be written; the rows are the same.
#[test]
fn a_dead_run_that_is_closed_for_a_follower_is_folded_once_wherever_that_is_cut() {
    let scene = Scene { resolve: follow, ..Scene::read("a follower of a dead run", interrupted, HALF, 1) };
    let calm = scene.laid();
    follow(&calm).unwrap();
    let undisturbed = files(&calm);
    for (operation, stopped) in scene.stopped() {
        for end in [End::Kill, End::Power(Crash::LoseAll)] {
            let disk = stopped.copy();
            end.strike(&disk);
            follow(&disk).unwrap();
            assert!(end.is_power() || files(&disk) == undisturbed, "operation {operation}: {:?}", files(&disk));
            scene.expected().check(&disk, LATER, &format!("operation {operation}, {end:?}"));
        }
    }
}
