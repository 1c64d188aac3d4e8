//! The recorded directories of the reference program: a repair leaves the transcripts that a full read would leave, and
//! what is healthy as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword::clock::{ManualClock, Timestamp};
use lastword::doctor::{self, DoctorOptions};
use lastword::{List, Options, Session, Store};
use serde_json::Value;

use crate::data::{Data, copy, files_in, sid};
use crate::repairs::assert_nothing_is_gone;

/// Where a repair brings more back than a read: the reference program's marker names no run, and there is one of that time.
const GOES_FURTHER: &[&str] = &["f050_legacy_marker_without_flag"];

/// Where a read spends what an armed marker may spend, or puts its notes right, and a repair leaves the marker to hope:
/// there is nothing to bring in.
const LEAVES_THE_MARKER: &[&str] = &[
    "f004_sealed_empty_13_reads",
    "f005_attempts_11_sealed",
    "f012_stream_id_missing",
    "f015_attempts_missing",
    "f018_newest_gives_up_then_older_resolves",
    "f040_bad_meta",
    "f041_bad_meta",
    "f042_bad_meta",
    "f045_bad_meta",
    "f057_scan_read_uses_budget",
    "f061_clock_far_back",
];

struct Recorded {
    name: String,
    folder: PathBuf,
    clock: Arc<ManualClock>,
}

impl Recorded {
    fn all() -> Vec<Recorded> {
        let mut folders: Vec<PathBuf> =
            fs::read_dir("fixtures/truth").unwrap().map(|entry| entry.unwrap().path()).collect();
        folders.retain(|folder| folder.join("before/sessions").is_dir());
        folders.sort();
        folders.into_iter().map(Recorded::read).collect()
    }

    fn read(folder: PathBuf) -> Recorded {
        let steps: Value = serde_json::from_slice(&fs::read(folder.join("steps.json")).unwrap()).unwrap();
        let now = steps["steps"][0]["now"].as_f64().unwrap_or(0.0);
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(now)));
        Recorded { name: folder.file_name().unwrap().to_string_lossy().into_owned(), folder, clock }
    }

    fn copy(&self) -> Data {
        let data = Data::new();
        copy(&self.folder.join("before/sessions"), &data.root);
        data
    }

    fn core(&self) -> Option<PathBuf> {
        Some(self.folder.join("before/core")).filter(|core| core.is_dir())
    }

    fn doctor(&self) -> DoctorOptions {
        DoctorOptions { clock: self.clock.clone(), core_dir: self.core(), ..DoctorOptions::default() }
    }

    fn options(&self) -> Options {
        Options { clock: self.clock.clone(), core_dir: self.core(), ..Options::default() }
    }

    fn sessions(&self) -> Vec<String> {
        let files = files_in(&self.folder.join("before/sessions")).into_keys();
        let named = files.filter_map(|name| name.strip_suffix(".json").map(str::to_owned));
        named.filter(|name| lastword::SessionId::parse(name).is_ok()).collect()
    }
}

/// The rows and cards of a session.
fn transcript(session: &Session) -> Vec<Vec<Value>> {
    let list = |list| session.texts(list).map(|text| without_length(serde_json::from_str(text).unwrap())).collect();
    vec![list(List::Messages), list(List::ToolCalls)]
}

/// A marker notes how long its journal is, and a repair makes a damaged one shorter.
fn without_length(mut row: Value) -> Value {
    if let Some(row) = row.as_object_mut() {
        row.remove("_recovered_records");
    }
    row
}

fn transcript_of(options: Options, root: &Path, session: &str, read_only: bool) -> Option<Vec<Vec<Value>>> {
    let open = if read_only { Store::open_read_only } else { Store::open };
    let found = open(root.to_path_buf(), options).unwrap().get_session(&sid(session));
    found.ok().map(|session| transcript(&session))
}

#[test]
fn a_repair_leaves_the_transcripts_that_a_full_read_leaves() {
    let all = Recorded::all();
    assert!(all.len() > 100, "only {} directories were found", all.len());
    let mut different = Vec::new();
    for recorded in &all {
        let (repaired, served) = (recorded.copy(), recorded.copy());
        doctor::repair(&repaired.root, &recorded.doctor()).unwrap();
        for session in recorded.sessions() {
            let ours = transcript_of(recorded.options(), &repaired.root, &session, true);
            let theirs = transcript_of(recorded.options(), &served.root, &session, false);
            if ours != theirs {
                different.push(recorded.name.clone());
                let is_same = ours.map(without_markers) == theirs.map(without_markers);
                assert_eq!(is_same, !GOES_FURTHER.contains(&&*recorded.name), "{}", recorded.name);
            }
        }
    }
    let mut expected = [GOES_FURTHER, LEAVES_THE_MARKER].concat();
    expected.sort();
    assert_eq!(different, expected);
}

fn without_markers(transcript: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    let is_row = |row: &Value| row["_error"] != true;
    transcript.into_iter().map(|rows| rows.into_iter().filter(is_row).collect()).collect()
}

#[test]
fn a_recorded_directory_is_looked_at_without_change_repaired_once_and_nothing_is_gone() {
    for recorded in Recorded::all() {
        let data = recorded.copy();
        let before = data.stamps();
        let report = doctor::check(&data.root, &recorded.doctor()).unwrap();
        let plan = doctor::plan(&data.root, &recorded.doctor()).unwrap();
        assert!(before == data.stamps(), "{}", recorded.name);
        let files = data.files();
        let done = doctor::repair(&data.root, &recorded.doctor()).unwrap();
        assert!(!done.has_failed(), "{}: {:?}", recorded.name, done.actions);
        assert_eq!(done.actions.len(), plan.actions.len(), "{}", recorded.name);
        if report.findings.is_empty() || plan.actions.is_empty() {
            assert!(before == data.stamps(), "{}: a healthy directory changed", recorded.name);
        }
        assert_nothing_is_gone(&files, &data.files(), &recorded.name);
        let mended = data.stamps();
        let again = doctor::repair(&data.root, &recorded.doctor()).unwrap();
        assert!(again.actions.is_empty(), "{}: {:?}", recorded.name, again.actions);
        assert!(mended == data.stamps(), "{}: the second repair changed something", recorded.name);
    }
}
