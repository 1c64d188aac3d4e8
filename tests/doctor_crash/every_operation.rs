//! A repair that is interrupted before each of its operations, in every way.

use std::iter;
use std::path::Path;
use std::sync::Arc;

use lastword::doctor::{Code, check_on, plan_on};
use lastword::storage::sim::{Crash, SimDisk};

use crate::judge::check_quiet;
use crate::scene::{DATA, EVERYTHING, NAMELESS, Scene, doctor, files_of, repair};

/// Choices of a power cut that are tried before one operation, at the most, and throws of the die behind them.
const CHOICES: usize = 16;
const THROWS: u64 = 2;

/// Interrupts the repair before each of its operations, and lets somebody judge what is left.
fn interrupt_everywhere(scene: &Scene, ends: impl Fn(&SimDisk) -> Vec<Crash>, is_power: bool) {
    for operation in 1..=scene.operations {
        let stopped = scene.stopped_before(operation);
        for end in ends(&stopped) {
            let disk = stopped.copy();
            match is_power {
                true => disk.power_cut(end),
                false => disk.kill(),
            }
            judge(scene, &disk, !is_power || end == Crash::LoseAll).unwrap_or_else(|wrong| {
                let log = disk.log().split_off(scene.start.log().len());
                panic!("before operation {operation} of {}, {end:?}: {wrong}\n{}", scene.operations, log.join("\n"));
            });
        }
    }
}

fn judge(scene: &Scene, disk: &SimDisk, is_cut_again: bool) -> Result<(), String> {
    scene.check_interrupted(disk)?;
    scene.check_finished(disk)?;
    if is_cut_again { scene.check_survives_power_cut(disk) } else { Ok(()) }
}

/// Nothing kept, everything kept, every choice for one place, and throws of the die. The first file is the lock, whose
/// note means nothing.
fn power_cuts(stopped: &SimDisk) -> Vec<Crash> {
    let seeds = stopped.operations() * THROWS..(stopped.operations() + 1) * THROWS;
    let singles = Crash::singles(stopped.places()).filter(|crash| !matches!(crash, Crash::One { place: 0, .. }));
    let chosen = [Crash::LoseAll, Crash::KeepAll].into_iter().chain(singles).take(CHOICES);
    chosen.chain(seeds.map(Crash::Seeded)).collect()
}

#[test]
fn a_repair_that_a_power_cut_interrupts_is_finished_by_the_next_one_with_the_same_result() {
    interrupt_everywhere(&EVERYTHING, power_cuts, true);
}

#[test]
fn a_repair_that_is_killed_is_finished_by_the_next_one_with_the_same_result() {
    interrupt_everywhere(&EVERYTHING, |_| vec![Crash::KeepAll], false);
    interrupt_everywhere(&NAMELESS, |_| vec![Crash::KeepAll], false);
}

#[test]
fn a_repair_of_a_directory_without_a_readable_identity_survives_power_cuts() {
    interrupt_everywhere(&NAMELESS, |disk| disk.crashes(3).collect(), true);
}

/// While the old identity is kept and the new one is not there yet, the log still tells whose it is.
#[test]
fn a_check_in_the_middle_of_a_repair_does_not_take_the_log_for_that_of_another_store() {
    for operation in 1..=NAMELESS.operations {
        let disk = NAMELESS.stopped_before(operation);
        disk.kill();
        let found = check_on(Arc::new(disk.clone()), Path::new(DATA), &doctor(&disk)).unwrap();
        let foreign = found.findings.iter().find(|finding| finding.code == Code::ForeignLog);
        assert!(foreign.is_none(), "before operation {operation}: {foreign:#?}");
    }
}

/// What was interrupted may be interrupted again, and again.
#[test]
fn repairs_that_are_interrupted_one_after_the_other_lose_nothing_and_come_to_an_end() {
    let scene = &*EVERYTHING;
    for seed in 0..40 {
        let disk = scene.start.copy();
        for step in iter::successors(Some(3 + seed % 5), |step| Some(step + 4)).take(30) {
            disk.stop_before(disk.operations() + step);
            let _ = repair(&disk);
            match seed % 2 {
                0 => disk.kill(),
                _ => disk.power_cut(Crash::Seeded(seed * 100 + step)),
            }
            scene.check_interrupted(&disk).unwrap_or_else(|wrong| panic!("seed {seed}, step {step}: {wrong}"));
        }
        scene.check_finished(&disk).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn the_scene_has_every_kind_of_damage_that_is_meant_to_be_in_it() {
    let found = check_on(Arc::new(EVERYTHING.start.copy()), Path::new(DATA), &doctor(&EVERYTHING.start)).unwrap();
    for code in [
        Code::ChecksumMismatch,
        Code::GluedRecords,
        Code::NulRun,
        Code::DuplicateSeq,
        Code::TornTail,
        Code::PendingTurn,
        Code::SidecarUnreadable,
        Code::OrphanJournal,
        Code::GaveUpButReadable,
        Code::DeletedLeftover,
        Code::StaleTemp,
        Code::IndexDrift,
        Code::LogNotReplayed,
    ] {
        assert!(found.findings.iter().any(|finding| finding.code == code), "no {code} in {:#?}", found.findings);
    }
}

#[test]
fn a_repair_that_nothing_disturbs_leaves_nothing_to_do_and_is_durable() {
    for scene in [&*EVERYTHING, &*NAMELESS] {
        let disk = scene.start.copy();
        let planned = plan_on(Arc::new(disk.clone()), Path::new(DATA), &doctor(&disk)).unwrap();
        assert_eq!((disk.operations(), planned.is_applied), (scene.start.operations(), false), "planning does nothing");
        assert!(!repair(&disk).unwrap().has_failed());
        scene.check_interrupted(&disk).unwrap();
        check_quiet(&disk).unwrap();
        disk.power_cut(Crash::LoseAll);
        let mut files = files_of(&disk);
        // Their removal is made again by whoever comes next.
        files.retain(|name, _| !name.contains("_tmp-repair-"));
        scene.check_repaired(&files).unwrap();
    }
}
