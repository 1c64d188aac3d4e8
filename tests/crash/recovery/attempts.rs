//! Looks in vain: each counts once, or not at all if it is cut, and the twelfth is the last.

use std::sync::OnceLock;

use lastword::storage::sim::SimDisk;
use serde_json::Value;

use super::files::{add_to_journal, line, put_sidecar, put_waiting_session};
use super::judge::{Files, files};
use super::scenes::{LATER, Scene, read};
use crate::machine::ended;

/// How many looks there are.
const MAX: u64 = 12;

/// How many looks an armed marker has spent; nothing once it is given up.
fn attempts(disk: &SimDisk) -> Option<u64> {
    let session: Value = serde_json::from_str(&files(disk).sidecar).unwrap();
    let rows = session["messages"].as_array().unwrap();
    let markers: Vec<&Value> = rows.iter().filter(|row| row["_error"] == true).collect();
    assert_eq!(markers.len(), 1, "{markers:?}");
    let is_armed = markers[0]["_pending_journal_recovery"] == true;
    is_armed.then(|| markers[0]["_journal_retry_attempts"].as_u64().unwrap())
}

/// A look that nothing cuts counts as one.
fn look(disk: &SimDisk) {
    let before = attempts(disk).expect("there is something to hope for");
    read(disk).unwrap();
    let after = attempts(disk).unwrap_or(MAX);
    assert_eq!(after, before + 1, "a look counts once");
}

/// Reads until nothing is left to hope for.
fn look_until_given_up(disk: &SimDisk) -> Files {
    while attempts(disk).is_some() {
        look(disk);
    }
    files(disk)
}

/// A marker whose journal holds nothing for the transcript.
fn armed() -> SimDisk {
    let disk = SimDisk::new();
    put_waiting_session(&disk);
    read(&disk).unwrap();
    add_to_journal(&disk, &line(1, "metering", &serde_json::json!({"tokens": 0})));
    disk
}

/// The files after so many looks.
fn spent(looks: usize) -> &'static Files {
    static SPENT: OnceLock<Vec<Files>> = OnceLock::new();
    let all = SPENT.get_or_init(|| {
        let disk = armed();
        let after = |looks| {
            if looks > 0 {
                look(&disk);
            }
            files(&disk)
        };
        (0..=MAX).map(after).collect()
    });
    &all[looks]
}

fn lay(disk: &SimDisk, files: &Files) {
    put_sidecar(disk, files.sidecar.as_bytes());
    add_to_journal(disk, files.journal.as_ref().unwrap());
}

/// Cuts a look before each of its operations, in every way, and goes on looking.
fn crash_everywhere(scene: &Scene, looks: u64) {
    let given_up = spent(MAX as usize);
    for (operation, stopped) in scene.stopped() {
        for (end, disk) in ended(&stopped) {
            let what = format!("{looks} looks, operation {operation}, {end:?}\n{}", disk.log().join("\n"));
            let counted = attempts(&disk).unwrap_or(MAX);
            assert!(counted == looks || counted == looks + 1, "{counted} are counted: {what}");
            assert_eq!(&look_until_given_up(&disk), given_up, "{what}");
            scene.expected().check(&disk, LATER, &what);
        }
    }
}

#[test]
fn a_look_that_is_cut_counts_once_or_not_at_all_and_the_last_word_is_the_same() {
    let given_up = spent(MAX as usize);
    assert!(given_up.sidecar.contains("no agent output was recovered"), "{}", given_up.sidecar);
    let scene = |lay| Scene { name: "looks in vain", lay, resolve: read, texts: &[], has_tool: false, markers: 1 };
    crash_everywhere(&scene(|disk| lay(disk, spent(0))), 0);
    crash_everywhere(&scene(|disk| lay(disk, spent(6))), 6);
    crash_everywhere(&scene(|disk| lay(disk, spent(10))), 10);
    crash_everywhere(&scene(|disk| lay(disk, spent(11))), 11);
}
