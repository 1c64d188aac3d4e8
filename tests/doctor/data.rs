//! A data directory of its own for each test, with a clock that stands still: filled by a store or by hand, looked at and
//! repaired by the doctor.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use lastword::clock::{ManualClock, Timestamp};
use lastword::doctor::{self, Action, Code, DoctorOptions, Finding, Repair, Report, Severity};
use lastword::{Event, NewSession, Options, Outcome, RunId, Session, SessionId, Store, UserTurn};
use serde_json::Value;
use tempfile::TempDir;

/// When the first run began, in seconds.
pub(crate) const BEGAN: i64 = 1_800_000_000;
/// What the clock shows.
pub(crate) const NOW: i64 = BEGAN + 3_600;

/// The journal that most tests damage.
pub(crate) const JOURNAL: &str = "_run_journal/talk/run-1.jsonl";

pub(crate) struct Data {
    _temp: TempDir,
    pub(crate) root: PathBuf,
    clock: Arc<ManualClock>,
}

/// Every file below a folder, by its path from there on.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

pub(crate) fn sid(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

pub(crate) fn rid(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

impl Data {
    /// An empty directory.
    pub(crate) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("data");
        make_folder(&root);
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(BEGAN as f64)));
        Data { _temp: temp, root, clock }
    }

    /// Three sessions whose runs have all ended, after a clean close and with an index. The clock shows [`NOW`].
    pub(crate) fn healthy() -> Self {
        // Written once; an index knows the files themselves, so each copy gets its own.
        static WRITTEN: OnceLock<Files> = OnceLock::new();
        let data = Data::new();
        WRITTEN.get_or_init(Data::write_healthy).iter().for_each(|(name, bytes)| data.put(name, bytes));
        data.set_clock(NOW);
        assert_eq!(data.store().list().unwrap().len(), 3);
        data
    }

    fn write_healthy() -> Files {
        let data = Data::new();
        let store = data.store();
        for id in ["calm", "empty", "talk"] {
            store.create(NewSession::titled(id).with_id(sid(id))).unwrap();
        }
        data.answer(&store, "calm", "run-c", &["all ", "is ", "well"]);
        data.answer(&store, "talk", "run-1", &["to ", "the ", "sea", "side"]);
        data.answer(&store, "talk", "run-2", &["by ", "train"]);
        drop(store);
        data.files()
    }

    fn answer(&self, store: &Store, session: &str, run: &str, words: &[&str]) {
        self.set_clock(BEGAN + if run == "run-2" { 100 } else { 0 });
        let run = store.begin_run(&sid(session), UserTurn::text("a question").with_run(rid(run))).unwrap();
        words.iter().for_each(|word| drop(run.append(Event::token(word)).unwrap()));
        run.finish(Outcome::Completed).unwrap();
    }

    /// A directory that only another program has written: one session, no journal.
    pub(crate) fn foreign(sidecar: &Value) -> Self {
        let data = Data::new();
        data.set_clock(NOW);
        data.put("talk.json", &serde_json::to_vec_pretty(sidecar).unwrap());
        data
    }

    pub(crate) fn set_clock(&self, seconds: i64) {
        self.clock.set(Timestamp::from_seconds(seconds as f64));
    }

    pub(crate) fn options(&self) -> Options {
        Options { clock: self.clock.clone(), ..Options::default() }
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.root, self.options()).unwrap()
    }

    pub(crate) fn reader(&self) -> Store {
        Store::open_read_only(&self.root, self.options()).unwrap()
    }

    pub(crate) fn doctor(&self) -> DoctorOptions {
        DoctorOptions { clock: self.clock.clone(), threads: 1, ..DoctorOptions::default() }
    }

    pub(crate) fn only(&self, code: Code) -> DoctorOptions {
        DoctorOptions { only: vec![code], ..self.doctor() }
    }

    pub(crate) fn check(&self) -> Report {
        doctor::check(&self.root, &self.doctor()).unwrap()
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.check().findings
    }

    pub(crate) fn repair(&self) -> Repair {
        self.repair_with(&self.doctor())
    }

    /// A repair of which nothing fails.
    pub(crate) fn repair_with(&self, options: &DoctorOptions) -> Repair {
        let repair = doctor::repair(&self.root, options).unwrap();
        assert!(!repair.has_failed(), "{:?}", repair.actions);
        repair
    }

    /// What is still worse than worth knowing.
    pub(crate) fn bad_codes(&self) -> Vec<Code> {
        let findings = self.findings().into_iter();
        findings.filter(|finding| finding.severity != Severity::Info).map(|finding| finding.code).collect()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Writes a file that is its owner's alone, with the folders above it.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        make_folder(path.parent().unwrap());
        fs::write(&path, bytes).unwrap();
        allow(&path, 0o600);
    }

    /// Puts an empty file where a folder is, if there is one.
    pub(crate) fn replace_by_file(&self, name: &str) {
        let _ = fs::remove_dir_all(self.path(name));
        self.put(name, b"");
    }

    /// Puts a folder where a file is, if there is one.
    pub(crate) fn replace_by_folder(&self, name: &str) {
        let _ = fs::remove_file(self.path(name));
        make_folder(&self.path(name));
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// The lines of a file, each with its line feed.
    pub(crate) fn lines(&self, name: &str) -> Vec<Vec<u8>> {
        self.read(name).split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    }

    /// Where the given line begins.
    pub(crate) fn offset(&self, name: &str, line: usize) -> Option<u64> {
        Some(self.lines(name)[..line].iter().map(|line| line.len() as u64).sum())
    }

    /// Replaces the lines of a file by others.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        let mut lines = self.lines(name);
        change(&mut lines);
        self.put(name, &lines.concat());
    }

    /// Changes a sidecar as another program would.
    pub(crate) fn edit_sidecar(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut stored = serde_json::from_slice(&self.read(name)).unwrap();
        change(&mut stored);
        self.put(name, &serde_json::to_vec_pretty(&stored).unwrap());
    }

    pub(crate) fn sidecar(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).unwrap()
    }

    pub(crate) fn files(&self) -> Files {
        files_in(&self.root)
    }

    /// What was kept: everything below `_kept`.
    pub(crate) fn kept(&self) -> Files {
        self.files().into_iter().filter(|(name, _)| name.starts_with("_kept/")).collect()
    }

    /// Whether these bytes were kept as a whole.
    pub(crate) fn has_kept(&self, bytes: &[u8]) -> bool {
        self.kept().values().any(|kept| kept == bytes)
    }

    /// Everything that can be told of the files from outside: bytes, inodes, times.
    pub(crate) fn stamps(&self) -> BTreeMap<String, (u64, i64, i64, Vec<u8>)> {
        let stamp = |name: String, bytes: Vec<u8>| {
            let metadata = fs::metadata(self.path(&name)).unwrap();
            (name, (metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), bytes))
        };
        self.files().into_iter().map(|(name, bytes)| stamp(name, bytes)).collect()
    }
}

pub(crate) fn make_folder(path: &Path) {
    if !path.is_dir() {
        if let Some(above) = path.parent() {
            make_folder(above);
        }
        fs::create_dir(path).unwrap();
        allow(path, 0o700);
    }
}

pub(crate) fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn files_in(root: &Path) -> Files {
    let mut files = Files::new();
    gather(root, root, &mut files);
    files
}

fn gather(root: &Path, folder: &Path, files: &mut Files) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => gather(root, &entry.path(), files),
            false => {
                let name = entry.path().strip_prefix(root).unwrap().to_string_lossy().into_owned();
                files.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
}

/// Copies a directory, each file its owner's alone.
pub(crate) fn copy(from: &Path, to: &Path) {
    make_folder(to);
    for (name, bytes) in files_in(from) {
        let target = to.join(name);
        make_folder(target.parent().unwrap());
        fs::write(&target, bytes).unwrap();
        allow(&target, 0o600);
    }
}

/// A copy of a directory as it is at this moment, whoever writes it.
pub(crate) fn copy_of(data: &Data) -> Data {
    let copied = Data::new();
    copied.set_clock(NOW);
    copy(&data.root, &copied.root);
    copied
}

/// Who says what.
pub(crate) fn said(session: &Session) -> Vec<(String, String)> {
    session.messages().map(|row| (row.role().into_owned(), row.content().into_owned())).collect()
}

/// The contents of a sidecar's rows.
pub(crate) fn contents(sidecar: &Value) -> Vec<String> {
    let rows = sidecar["messages"].as_array().unwrap().iter();
    rows.map(|row| row["content"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The codes that a repair treated.
pub(crate) fn treated(repair: &Repair) -> Vec<Code> {
    repair.actions.iter().flat_map(|action: &Action| action.codes.clone()).collect()
}
