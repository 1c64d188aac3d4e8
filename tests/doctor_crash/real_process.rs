//! `lastword repair --apply` on real files, killed before each of its system calls that change the disk, answer or end.
//!
//! A first run under strace tells which calls there are; then a fresh copy of the damaged directory is put through one
//! death each, and repaired again.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lastword::{Event, Options, Store};
use serde_json::Value;
use tempfile::TempDir;

use crate::damage::{Files, SOUND, begin, damage, populate};
use crate::judge::{check_no_temps, check_nothing_lost};
use crate::process::{Ended, Process};
use crate::view::View;

const LASTWORD: &str = env!("CARGO_BIN_EXE_lastword");
const SIGKILL: i32 = 9;
/// How many repairs are killed at the same time, each on a directory of its own.
const WORKERS: usize = 4;

/// A system call of a repair: its name, and how many of that name came before it, and itself.
type Step = (String, usize);

/// The system calls that change what lies there, answer or end. Those that this machine does not have are passed over.
/// A file that was only created is seen before the first write to it.
const CALLS: &str = "trace=?write,?pwrite64,?writev,?rename,?renameat,?renameat2,?fsync,?fdatasync,?mkdir,?mkdirat,\
                     ?ftruncate,?utimensat,?unlink,?unlinkat,?chmod,?fchmod,?fchmodat,?exit_group";

/// A data directory that goes with the test.
struct Data {
    root: PathBuf,
    home: TempDir,
}

impl Data {
    fn nowhere() -> Self {
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Data { root: home.path().join("data"), home }
    }

    /// The damaged directory, with a commit log that was not replayed and a file that others may read.
    fn damaged() -> Self {
        let original = Data::nowhere();
        populate(&Store::open(&original.root, Options::default()).unwrap());
        let store = Store::open(&original.root, Options::default()).unwrap();
        for name in ["behind", "clash"] {
            let run = begin(&store, name, "r2", 2);
            run.append_durable(Event::token("the last word")).unwrap().wait().unwrap();
        }
        let data = original.copy();
        drop(store);
        let mut files = data.files();
        damage(&mut files);
        files.insert("_run_journal/behind/r2.jsonl".to_owned(), Vec::new());
        files.insert("_run_journal/clash/r2.jsonl".to_owned(), b"something else stands here\n".to_vec());
        data.put(&files);
        fs::set_permissions(data.root.join("foreign.json"), Permissions::from_mode(0o644)).unwrap();
        data
    }

    fn put(&self, files: &Files) {
        for gone in self.files().keys().filter(|name| !files.contains_key(*name)) {
            fs::remove_file(self.root.join(gone)).unwrap();
        }
        for (name, bytes) in files {
            let path = self.root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o700)).unwrap();
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        }
        fs::set_permissions(self.root.join("_kept"), Permissions::from_mode(0o700)).unwrap();
    }

    fn copy(&self) -> Self {
        let copy = Data::nowhere();
        copy_folder(&self.root, &copy.root);
        copy
    }

    fn files(&self) -> Files {
        let mut files = Files::new();
        note_files(&self.root, "", &mut files);
        files
    }

    fn repair(&self) -> Ended {
        let mut command = Command::new(LASTWORD);
        command.arg("--data").arg(&self.root).args(["repair", "--apply"]);
        let ended = Process::start(command).end();
        assert_eq!(ended.code(), Some(0), "the repair fails: {:?} {}", ended.lines, ended.stderr);
        ended
    }

    fn repair_under_strace(&self, inject: Option<String>) -> (Ended, String) {
        let log = self.home.path().join("strace");
        let mut traced = Command::new("strace");
        traced.arg("-f").arg("-o").arg(&log).args(["-e", CALLS]);
        if let Some(inject) = inject {
            traced.args(["-e", &inject]);
        }
        traced.arg(LASTWORD).arg("--data").arg(&self.root).args(["repair", "--apply"]);
        let ended = Process::start(traced).end();
        (ended, fs::read_to_string(&log).unwrap())
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

fn note_files(folder: &Path, above: &str, files: &mut Files) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{above}{}", entry.file_name().to_str().unwrap());
        match entry.path().is_dir() {
            true => note_files(&entry.path(), &format!("{name}/"), files),
            false => drop(files.insert(name, fs::read(entry.path()).unwrap())),
        }
    }
}

/// The calls in strace's log, whose lines begin with the thread.
fn steps_in(log: &str) -> BTreeSet<Step> {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let mut steps = BTreeSet::new();
    for line in log.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((name, _)) = call.trim_start().split_once('(') else { continue };
        seen.push((thread, name));
        steps.insert((name.to_owned(), seen.iter().filter(|known| **known == (thread, name)).count()));
    }
    steps
}

/// The directory without the moments at which rows and documents were made.
fn view(files: &Files) -> View {
    View::of_each(files, |name, bytes| {
        let is_sidecar = name.ends_with(".json") && !name.contains('/');
        match serde_json::from_slice::<Value>(bytes).ok().filter(|_| is_sidecar) {
            Some(mut document) => {
                forget_times(&mut document);
                document.to_string().into_bytes()
            }
            None => bytes.to_vec(),
        }
    })
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for time in ["timestamp", "updated_at", "_journal_retry_first_seen_ts"] {
                fields.remove(time);
            }
            fields.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}

/// What a repair must lead to, and that it leads to an end.
fn check_repaired(data: &Data, expected: &View) -> Result<(), String> {
    let files = data.files();
    check_no_temps(&files)?;
    let wrong = expected.differences(&view(&files));
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let again = data.repair();
    let is_quiet = data.files() == files && again.lines.iter().any(|line| line == "nothing to repair");
    if is_quiet { Ok(()) } else { Err(format!("repairing again finds more to do: {:?}", again.lines)) }
}

#[test]
fn a_process_that_is_killed_at_any_system_call_is_made_up_for_by_the_next_one() {
    let found = Command::new("strace").arg("--version").output();
    assert!(found.is_ok(), "this test needs strace: install it (apt-get install strace)");
    let damaged = Data::damaged();
    let before = damaged.files();
    let whole = damaged.copy();
    let (ended, log) = whole.repair_under_strace(None);
    assert_eq!(ended.code(), Some(0), "{:?} {}", ended.lines, ended.stderr);
    let expected = view(&whole.files());
    check_repaired(&whole, &expected).unwrap();
    let steps = steps_in(&log);
    for call in ["pwrite64", "rename", "fsync", "fdatasync", "unlink", "mkdir", "write", "exit_group"] {
        assert!(steps.iter().any(|(name, _)| name == call), "no {call} was seen in {steps:?}");
    }
    // Most of the time goes by in waiting for the device.
    let steps: Vec<Step> = steps.into_iter().collect();
    std::thread::scope(|scope| {
        for some in steps.chunks(steps.len().div_ceil(WORKERS)) {
            scope.spawn(|| some.iter().for_each(|step| kill_at(step, &damaged, &before, &expected)));
        }
    });
}

fn kill_at((call, count): &Step, damaged: &Data, before: &Files, expected: &View) {
    let data = damaged.copy();
    let (ended, _) = data.repair_under_strace(Some(format!("inject={call}:signal=KILL:when={count}")));
    assert_eq!(ended.status.signal(), Some(SIGKILL), "not killed at {call} number {count}: {ended:?}");
    check_nothing_lost(before, SOUND, &data.files()).unwrap_or_else(|wrong| panic!("{call} {count}: {wrong}"));
    data.repair();
    check_repaired(&data, expected).unwrap_or_else(|wrong| panic!("killed at {call} number {count}: {wrong}"));
}
