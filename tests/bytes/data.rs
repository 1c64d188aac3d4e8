//! A data directory with every kind of file in it, on as many simulated disks as are wanted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::entropy::SeededEntropy;
use lastword::storage::sim::SimDisk;
use lastword::storage::{Access, Disk, FileStorage, FilesOptions, Mode};
use lastword::{CommitOptions, Event, NewSession, Options, Outcome, RunId, SessionId, Store, StoreError, UserTurn};

pub(crate) const ROOT: &str = "/data";
pub(crate) const NOW: f64 = 1_800_000_000.0;

pub(crate) fn sid(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

pub(crate) fn rid(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

/// The files of a data directory, by their paths in it.
///
/// Session `good` has one whole turn. Session `bad` has a whole turn, a run that was removed (`removed`), one that another
/// program began (`adopted`) and one that has not ended (`open`). Session `gone` was deleted.
#[derive(Debug, Clone)]
pub(crate) struct Data {
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Data {
    pub(crate) fn new() -> Self {
        let disk = SimDisk::new();
        fill(&open(&disk, NOW).unwrap(), &disk).unwrap();
        Data { files: files_of(&disk, Path::new(ROOT)) }
    }

    pub(crate) fn bytes(&self, path: &str) -> &[u8] {
        &self.files[Path::new(path)]
    }

    /// The one path that begins and ends like this.
    pub(crate) fn path(&self, begins: &str, ends: &str) -> String {
        let paths = self.files.keys().map(|path| path.to_str().unwrap());
        let found: Vec<&str> = paths.filter(|path| path.starts_with(begins) && path.ends_with(ends)).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].to_owned()
    }

    /// A disk with these files, one of them with other bytes.
    pub(crate) fn disk_with(&self, path: &str, bytes: &[u8]) -> SimDisk {
        let disk = SimDisk::new();
        disk.create_dir(Path::new(ROOT)).unwrap();
        for (known, content) in &self.files {
            put(&disk, known, if known == Path::new(path) { bytes } else { content });
        }
        disk
    }
}

fn fill(store: &Store, disk: &SimDisk) -> Result<(), StoreError> {
    for id in ["good", "bad", "gone"] {
        store.create(NewSession::titled(&format!("Session {id}")).with_id(sid(id)))?;
        whole_turn(store, id, "first")?;
    }
    whole_turn(store, "bad", "removed")?;
    store.remove_run(&sid("bad"), &rid("removed"))?;
    put(disk, Path::new("_run_journal/bad/adopted.jsonl"), b"{\"seq\":1,\"event\":\"token\"}\n{\"seq\":2,\"ev");
    store.adopt_run(&sid("bad"), &rid("adopted"))?.append(Event::token("theirs"))?;
    let turn = UserTurn { lease_seconds: Some(30.0), ..UserTurn::text("and then?").with_run(rid("open")) };
    let run = store.begin_run(&sid("bad"), turn)?;
    for word in ["w\u{f6}rter ", "\u{1f600}\u{2028} ", "\"quoted\" \\ ", "J*\n", "end"] {
        run.append(Event::token(word))?;
    }
    store.list()?;
    store.delete(&sid("gone"))
}

fn whole_turn(store: &Store, id: &str, run: &str) -> Result<(), StoreError> {
    let run = store.begin_run(&sid(id), UserTurn::text("hello").with_run(rid(run)))?;
    run.append(Event::token("an answer"))?;
    run.finish(Outcome::Completed).map(drop)
}

fn put(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let path = Path::new(ROOT).join(path);
    let folders: Vec<&Path> = path.ancestors().skip(1).collect();
    for folder in folders.into_iter().rev().filter(|folder| disk.stat(folder).is_err()) {
        disk.create_dir(folder).unwrap();
    }
    disk.open(&path, Access::CreateNew).unwrap().write_at(bytes, 0).unwrap();
}

pub(crate) fn files_of(disk: &SimDisk, folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in disk.read_dir(folder).unwrap() {
        let path = folder.join(&entry.name);
        match entry.is_dir {
            true => files.extend(files_of(disk, &path)),
            false => drop(files.insert(path.strip_prefix(ROOT).unwrap().to_owned(), read(disk, &path))),
        }
    }
    files
}

/// The bytes of a file on a disk.
pub(crate) fn read(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let path = Path::new(ROOT).join(path);
    let len = disk.stat(&path).unwrap().len as usize;
    disk.open(&path, Access::Read).unwrap().into_bytes(len).unwrap()
}

fn options(disk: &SimDisk, now: f64) -> Options {
    Options {
        clock: Arc::new(ManualClock::at(Timestamp::from_seconds(now))),
        entropy: Arc::new(SeededEntropy::new(disk.operations())),
        commit: CommitOptions { segment_bytes: 4096, log_bytes: 16_384, ..CommitOptions::default() },
        ..Options::default()
    }
}

/// Opens the directory as its writer, at this second.
pub(crate) fn open(disk: &SimDisk, now: f64) -> Result<Store, StoreError> {
    Store::open_on(Arc::new(disk.clone()), ROOT, options(disk, now))
}

/// Opens the directory to read it.
pub(crate) fn open_to_read(disk: &SimDisk) -> Result<Store, StoreError> {
    let options = options(disk, NOW);
    let files = FilesOptions {
        clock: options.clock.clone(),
        entropy: options.entropy.clone(),
        commit: options.commit,
        meter: options.meter.clone(),
        ..FilesOptions::in_mode(Mode::ReadOnly)
    };
    let storage = FileStorage::open(Arc::new(disk.clone()), Path::new(ROOT), files)?;
    Ok(Store::on_storage(Arc::new(storage), options))
}

/// The recorded files of the reference program with this ending, each content once, in order.
pub(crate) fn recorded(ending: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    collect(Path::new("fixtures/truth"), ending, &mut found);
    found.sort();
    let mut seen = Vec::new();
    found.retain(|(_, bytes)| {
        let is_new = !bytes.is_empty() && !seen.contains(bytes);
        seen.push(bytes.clone());
        is_new
    });
    assert!(!found.is_empty());
    found
}

fn collect(folder: &Path, ending: &str, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let is_wanted = || entry.iter().any(|part| part == "before") && entry.to_str().unwrap().ends_with(ending);
        match entry.is_dir() {
            true => collect(&entry, ending, found),
            false if is_wanted() => found.push((entry.clone(), fs::read(&entry).unwrap())),
            false => {}
        }
    }
}
