//! A simulated machine on which a workload is interrupted at every operation, in every way.

use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::entropy::SeededEntropy;
use lastword::storage::sim::{Crash, SimDisk};
use lastword::{CommitOptions, Options, SessionId, Store, StoreError};

use crate::aftermath::check_aftermath;
use crate::told::Told;

pub(crate) const DATA: &str = "/data";

pub(crate) fn id() -> SessionId {
    SessionId::parse("s").unwrap()
}

/// What every clock shows unless told otherwise.
pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) fn open(disk: &SimDisk) -> Result<Store, StoreError> {
    open_at(disk, NOW)
}

/// The same by a process whose clock shows this second.
pub(crate) fn open_at(disk: &SimDisk, now: i64) -> Result<Store, StoreError> {
    let options = Options {
        clock: Arc::new(ManualClock::at(Timestamp::from_seconds(now as f64))),
        entropy: Arc::new(SeededEntropy::new(disk.operations())),
        commit: small_log(),
        ..Options::default()
    };
    Store::open_on(Arc::new(disk.clone()), DATA, options)
}

/// A log of a few small segments, because a simulated disk is copied often.
pub(crate) fn small_log() -> CommitOptions {
    CommitOptions { segment_bytes: 4096, log_bytes: 16_384, ..CommitOptions::default() }
}

/// What happened to the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum End {
    Power(Crash),
    Kill,
}

impl End {
    pub(crate) fn strike(self, disk: &SimDisk) {
        match self {
            End::Power(crash) => disk.power_cut(crash),
            End::Kill => disk.kill(),
        }
    }

    pub(crate) fn is_power(self) -> bool {
        self != End::Kill
    }
}

/// Every choice at one place, and some throws of the die.
pub(crate) fn ends(unsynced: usize) -> Vec<End> {
    let mut ends = vec![End::Kill, End::Power(Crash::LoseAll), End::Power(Crash::KeepAll)];
    for place in 0..unsynced {
        let choices = [Crash::LoseOnly(place), Crash::KeepOnly(place), Crash::TearOnly(place), Crash::ZeroOnly(place)];
        ends.extend(choices.map(End::Power));
    }
    ends.extend((0..6).map(|seed| End::Power(Crash::Seeded(seed))));
    ends
}

pub(crate) type Workload = fn(&Store, &mut Told) -> Result<(), StoreError>;

/// A disk on which `before` has run to its end, and what it was told.
pub(crate) fn prepared(before: Workload) -> (SimDisk, Told) {
    let (disk, mut told) = (SimDisk::new(), Told::default());
    before(&open(&disk).unwrap(), &mut told).unwrap();
    (disk, told)
}

/// Runs `before`, then `work` up to the operation, and gives what was told until then.
pub(crate) fn run_until(before: Workload, work: Workload, operation: u64) -> (SimDisk, Told) {
    let (disk, mut told) = prepared(before);
    disk.stop_before(disk.operations() + operation);
    let outcome = open(&disk).and_then(|store| work(&store, &mut told));
    assert!(outcome.is_err(), "stopped before operation {operation} and yet done");
    (disk, told)
}

/// How many operations `open` and `work` take. Writing the index down when the store closes is not one of them: that may
/// fail without anybody being told (tests/index/crash.rs).
pub(crate) fn operations_of(before: Workload, work: Workload) -> u64 {
    let (disk, mut told) = prepared(before);
    let first = disk.operations();
    let store = open(&disk).unwrap();
    work(&store, &mut told).unwrap();
    disk.operations() - first
}

pub(crate) fn crash_everywhere(before: Workload, work: Workload) {
    let operations = operations_of(before, work);
    assert!(operations > 0);
    for operation in 1..=operations {
        let choices = ends(run_until(before, work, operation).0.unsynced());
        for end in choices {
            let (disk, told) = run_until(before, work, operation);
            end.strike(&disk);
            check_aftermath(&disk, &told, end, &format!("operation {operation} of {operations}, {end:?}"));
        }
    }
}

pub(crate) fn nothing(_: &Store, _: &mut Told) -> Result<(), StoreError> {
    Ok(())
}

pub(crate) fn created(store: &Store, told: &mut Told) -> Result<(), StoreError> {
    told.create(store)
}

pub(crate) fn begun(store: &Store, told: &mut Told) -> Result<(), StoreError> {
    told.create(store)?;
    told.begin(store, "r1").map(drop)
}
