//! The damaged directory on a simulated disk, and the repair of it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use lastword::clock::{ManualClock, Timestamp};
use lastword::doctor::{DoctorError, DoctorOptions, Repair, repair_on};
use lastword::entropy::SeededEntropy;
use lastword::storage::sim::{Crash, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{CommitOptions, Event, Options, Store};

use crate::damage::{Files, SOUND, begin, damage, lying, populate};
use crate::view::View;

pub(crate) const DATA: &str = "/data";

/// When the directory was written, and when it is repaired.
const WRITTEN: i64 = 1_800_000_000;
const REPAIRED: i64 = WRITTEN + 3600;

/// A damaged disk, all of it durable, and what a repair that nothing disturbs makes of it.
pub(crate) struct Scene {
    pub(crate) start: SimDisk,
    pub(crate) files: Files,
    /// The files that a repair has no reason to touch.
    pub(crate) sound: Vec<&'static str>,
    pub(crate) repaired: View,
    pub(crate) operations: u64,
}

/// Every kind of damage at once.
pub(crate) static EVERYTHING: LazyLock<Scene> = LazyLock::new(|| Scene::new(damaged(), SOUND.to_vec()));

/// The same with an identity that cannot be read.
pub(crate) static NAMELESS: LazyLock<Scene> = LazyLock::new(|| {
    let disk = damaged();
    put(&disk, "_lastword.json", b"{\"store\":\"01");
    Scene::new(disk, SOUND.iter().copied().filter(|name| *name != "_lastword.json").collect())
});

impl Scene {
    fn new(start: SimDisk, sound: Vec<&'static str>) -> Self {
        let disk = start.copy();
        let repair = repair(&disk).unwrap();
        assert!(!repair.has_failed(), "{:#?}", repair.actions);
        let operations = disk.operations() - start.operations();
        Scene { sound, files: files_of(&start), repaired: View::of(&files_of(&disk)), start, operations }
    }

    /// The disk with a repair that was stopped before this operation, counted from 1. If it says that all was done, all
    /// but its tidying up was done.
    pub(crate) fn stopped_before(&self, operation: u64) -> SimDisk {
        let disk = self.start.copy();
        disk.stop_before(disk.operations() + operation);
        let outcome = repair(&disk);
        assert!(disk.has_stopped(), "not stopped before operation {operation} of {}", self.operations);
        if outcome.is_ok_and(|repair| !repair.has_failed()) {
            let mut files = files_of(&disk);
            files.retain(|name, _| !name.contains("_tmp-repair-"));
            self.check_repaired(&files).unwrap_or_else(|wrong| panic!("stopped before {operation}, untold: {wrong}"));
        }
        disk
    }
}

/// Repairs the directory, as a process whose random names are not those of an earlier one.
pub(crate) fn repair(disk: &SimDisk) -> Result<Repair, DoctorError> {
    repair_on(Arc::new(disk.clone()), Path::new(DATA), &doctor(disk))
}

pub(crate) fn doctor(disk: &SimDisk) -> DoctorOptions {
    DoctorOptions {
        clock: clock_at(REPAIRED),
        entropy: Arc::new(SeededEntropy::new(disk.operations())),
        ..DoctorOptions::default()
    }
}

fn clock_at(seconds: i64) -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_seconds(seconds as f64)))
}

/// The files below the data directory, as programs see them.
pub(crate) fn files_of(disk: &SimDisk) -> Files {
    let relative = |path: PathBuf| path.strip_prefix(DATA).unwrap().to_string_lossy().into_owned();
    disk.files().into_iter().map(|(path, bytes)| (relative(path), bytes)).collect()
}

/// The directory, as a program opens it to write it.
pub(crate) fn open(disk: &SimDisk) -> Store {
    let options = Options {
        clock: clock_at(WRITTEN),
        entropy: Arc::new(SeededEntropy::new(disk.operations())),
        commit: CommitOptions { segment_bytes: 4096, log_bytes: 16_384, ..CommitOptions::default() },
        ..Options::default()
    };
    Store::open_on(Arc::new(disk.clone()), DATA, options).unwrap()
}

fn damaged() -> SimDisk {
    let disk = SimDisk::new();
    populate(&open(&disk));
    let index = files_of(&disk).remove("_sessions.index").unwrap();
    lose_what_was_logged(&disk);
    let before = files_of(&disk);
    let mut after = before.clone();
    damage(&mut after);
    after.insert("_sessions.index".to_owned(), lying(&index));
    for gone in before.keys().filter(|name| !after.contains_key(*name)) {
        disk.remove_file(&Path::new(DATA).join(gone)).unwrap();
    }
    for (name, bytes) in after.iter().filter(|(name, bytes)| before.get(*name) != Some(*bytes)) {
        put(&disk, name, bytes);
    }
    disk.reboot();
    disk
}

/// Two runs whose last events are only in the commit log. In the place of one of them other bytes stand.
fn lose_what_was_logged(disk: &SimDisk) {
    let store = open(disk);
    for name in ["behind", "clash"] {
        let run = begin(&store, name, "r2", 2);
        store.commit().unwrap();
        run.append_durable(Event::token("the last word")).unwrap().wait().unwrap();
    }
    let written = files_of(disk);
    disk.power_cut(Crash::LoseAll);
    drop(store);
    let start = &written["_run_journal/clash/r2.jsonl"][..50];
    put(disk, "_run_journal/clash/r2.jsonl", &[start, b"something else stands here\n"].concat());
}

/// Writes a file, durably.
pub(crate) fn put(disk: &SimDisk, name: &str, bytes: &[u8]) {
    let path = Path::new(DATA).join(name);
    make_folders(disk, path.parent().unwrap());
    let file = disk.open(&path, Access::Write).or_else(|_| disk.open(&path, Access::CreateNew)).unwrap();
    file.set_len(0).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(path.parent().unwrap()).unwrap();
}

fn make_folders(disk: &SimDisk, folder: &Path) {
    if disk.stat(folder).is_err() {
        make_folders(disk, folder.parent().unwrap());
        disk.create_dir(folder).unwrap();
        disk.sync_dir(folder.parent().unwrap()).unwrap();
    }
}
