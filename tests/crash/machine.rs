//! A simulated machine on which a workload is interrupted at every operation, in every way.

use std::fmt::Debug;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use lastword::clock::{ManualClock, Timestamp};
use lastword::entropy::SeededEntropy;
use lastword::storage::sim::{Crash, SimDisk};
use lastword::storage::{FileStorage, FilesOptions, Mode, StorageError};
use lastword::{CommitOptions, Options, SessionId, Store, StoreError};

use crate::told::Told;

pub(crate) const DATA: &str = "/data";

pub(crate) fn id() -> SessionId {
    SessionId::parse("s").unwrap()
}

/// What every clock shows unless told otherwise.
pub(crate) const NOW: i64 = 1_800_000_000;

/// How a disk and a store on it are made, and how many ways of ending are tried at one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    /// The log of its stores.
    pub(crate) log: CommitOptions,
    /// Bytes of a page of its disk.
    pub(crate) page_bytes: usize,
    /// Choices of a power cut for two places, at the most. Those for one place are always all taken.
    pub(crate) cap: usize,
}

/// A log of a few small segments, because a simulated disk is copied often.
pub(crate) const USUAL: Machine = Machine { log: log_of(4096, 4), page_bytes: 4096, cap: 64 };

/// The same with pages that are shorter than a line.
pub(crate) const SMALL_PAGES: Machine = Machine { page_bytes: 64, ..USUAL };

/// Throws of the die behind the choices that were listed.
const THROWS: u64 = 4;

/// A log of so many segments.
pub(crate) const fn log_of(segment_bytes: u64, segments: u64) -> CommitOptions {
    CommitOptions { background: Some(Duration::from_millis(50)), segment_bytes, log_bytes: segment_bytes * segments }
}

pub(crate) fn open(disk: &SimDisk) -> Result<Store, StoreError> {
    USUAL.open(disk)
}

/// The same by a process whose clock shows this second.
pub(crate) fn open_at(disk: &SimDisk, now: i64) -> Result<Store, StoreError> {
    USUAL.open_at(disk, now)
}

impl Machine {
    pub(crate) fn disk(&self) -> SimDisk {
        SimDisk::new().with_page_bytes(self.page_bytes)
    }

    pub(crate) fn open(&self, disk: &SimDisk) -> Result<Store, StoreError> {
        self.open_at(disk, NOW)
    }

    pub(crate) fn open_at(&self, disk: &SimDisk, now: i64) -> Result<Store, StoreError> {
        Store::open_on(Arc::new(disk.clone()), DATA, self.options(disk, now))
    }

    /// As one of any number of readers.
    pub(crate) fn open_to_read(&self, disk: &SimDisk) -> Result<Store, StorageError> {
        let options = self.options(disk, NOW);
        let files = FilesOptions {
            clock: options.clock.clone(),
            entropy: options.entropy.clone(),
            commit: options.commit,
            meter: options.meter.clone(),
            ..FilesOptions::in_mode(Mode::ReadOnly)
        };
        let storage = FileStorage::open(Arc::new(disk.clone()), DATA.as_ref(), files)?;
        Ok(Store::on_storage(Arc::new(storage), options))
    }

    fn options(&self, disk: &SimDisk, now: i64) -> Options {
        Options {
            clock: Arc::new(ManualClock::at(Timestamp::from_seconds(now as f64))),
            entropy: Arc::new(SeededEntropy::new(disk.operations())),
            commit: self.log,
            ..Options::default()
        }
    }

    /// The ways in which a life can end on this disk, now.
    pub(crate) fn ends(&self, disk: &SimDisk) -> impl Iterator<Item = End> + use<> {
        let (places, turn) = (disk.places(), disk.operations());
        // Where there are too many pairs, the next operation takes others.
        let stride = Crash::pairs(places).count().div_ceil(self.cap).max(1);
        let pairs = Crash::pairs(places).skip(turn as usize % stride).step_by(stride);
        let throws = (turn * THROWS..(turn + 1) * THROWS).map(Crash::Seeded);
        let chosen = [Crash::LoseAll, Crash::KeepAll].into_iter().chain(Crash::singles(places)).chain(pairs);
        iter::once(End::Kill).chain(chosen.chain(throws).map(End::Power))
    }

    /// Lets `work` go on from a disk up to each of its operations once, ends that in every way, and has what was told
    /// until then checked.
    pub(crate) fn crash_everywhere_on<M: Memory>(&self, disk: &SimDisk, memory: &M, work: Work<'_, M>) {
        let whole = disk.copy();
        work(&whole, &mut memory.clone()).unwrap();
        let operations = whole.operations() - disk.operations();
        assert!(operations > 0);
        for operation in 1..=operations {
            let (stopped, mut told) = (disk.copy(), memory.clone());
            stopped.stop_before(disk.operations() + operation);
            let outcome = work(&stopped, &mut told);
            assert!(stopped.has_stopped(), "not stopped before operation {operation} of {operations}: {outcome:?}");
            for end in self.ends(&stopped) {
                let disk = stopped.copy();
                end.strike(&disk);
                told.check(self, &disk, end, &format!("operation {operation} of {operations}, {end:?}"));
            }
        }
    }

    /// The same on a disk on which `before` has run to its end.
    pub(crate) fn crash_everywhere<M: Memory>(&self, before: Work<'_, M>, work: Work<'_, M>) {
        let (disk, mut memory) = (self.disk(), M::default());
        before(&disk, &mut memory).unwrap();
        self.crash_everywhere_on(&disk, &memory, work);
    }
}

/// What a program does on a disk, and notes of it.
pub(crate) type Work<'a, M> = &'a dyn Fn(&SimDisk, &mut M) -> Result<(), StoreError>;

/// What a workload was told, and what must therefore hold after a crash.
pub(crate) trait Memory: Clone + Debug + Default {
    fn check(&self, machine: &Machine, disk: &SimDisk, end: End, what: &str);
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

/// Every way in which a life can end on this disk, now, each on a copy of it.
pub(crate) fn ended(stopped: &SimDisk) -> impl Iterator<Item = (End, SimDisk)> {
    USUAL.ends(stopped).map(|end| {
        let disk = stopped.copy();
        end.strike(&disk);
        (end, disk)
    })
}

pub(crate) type Workload = fn(&Store, &mut Told) -> Result<(), StoreError>;

/// A disk on which `before` has run to its end, and what it was told.
pub(crate) fn prepared(before: Workload) -> (SimDisk, Told) {
    let (disk, mut told) = (SimDisk::new(), Told::default());
    before(&open(&disk).unwrap(), &mut told).unwrap();
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

/// Crashes the workload of one store everywhere, its opening and its closing included.
pub(crate) fn crash_everywhere(before: Workload, work: Workload) {
    USUAL.crash_everywhere(&in_one_store(before), &in_one_store(work));
}

fn in_one_store(work: Workload) -> impl Fn(&SimDisk, &mut Told) -> Result<(), StoreError> {
    move |disk, told| open(disk).and_then(|store| work(&store, told))
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
