//! Permissions: a repair changes those of our own files, never through a link, and reports what they were.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use lastword::doctor::{self, Code};

use crate::data::{Data, JOURNAL, allow};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Everything of ours is left to its owner; all that others put beside it stays as it is.
#[test]
fn a_repair_changes_the_permissions_of_our_own_files_alone() {
    let data = Data::healthy();
    let lease_note = "_run_journal/talk/_run-1.lease";
    data.put("_run_order", b"x");
    data.put(lease_note, b"x");
    let ours = [
        "talk.json",
        JOURNAL,
        lease_note,
        "_run_journal",
        "_run_journal/talk",
        "_lastword.json",
        "_sessions.index",
        "_run_order",
    ];
    let theirs = ["notes.txt", "talk.json.bak", "_run_journal/talk/notes.txt", "_run_journal/README", "tool.sh"];
    theirs.iter().for_each(|name| data.put(name, b"x"));
    for name in ours {
        allow(&data.path(name), if data.path(name).is_dir() { 0o755 } else { 0o644 });
    }
    theirs.iter().for_each(|name| allow(&data.path(name), 0o754));
    let repair = data.repair();
    for name in ours {
        let wanted = if data.path(name).is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&data.path(name)), wanted, "{name}");
        let action = repair.actions.iter().find(|action| action.file == Path::new(name));
        let words = action.unwrap_or_else(|| panic!("{name}: {:#?}", repair.actions)).words.clone();
        assert!(words.contains("mode 0644") || words.contains("mode 0755"), "the old mode is told: {words}");
    }
    for name in theirs {
        assert_eq!(mode(&data.path(name)), 0o754, "{name}");
    }
    // A second one has nothing to do.
    assert!(data.repair().actions.is_empty());
}

/// A link in the place of a file or directory of ours leads elsewhere, and what is there is not ours.
#[test]
fn a_repair_changes_no_permissions_through_a_link() {
    let data = Data::healthy();
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = |name: &str| elsewhere.path().join(name);
    for (name, is_dir) in [("talk.json", false), ("_run_journal", true)] {
        fs::rename(data.path(name), outside(name)).unwrap();
        symlink(outside(name), data.path(name)).unwrap();
        allow(&outside(name), if is_dir { 0o755 } else { 0o644 });
    }
    allow(&outside("_run_journal/talk/run-1.jsonl"), 0o666);
    let found = data.findings();
    assert!(!found.iter().any(|finding| finding.code == Code::OpenPermissions), "{found:#?}");
    drop(doctor::repair(&data.root, &data.doctor()).unwrap());
    assert_eq!(mode(&outside("talk.json")), 0o644);
    assert_eq!(mode(&outside("_run_journal")), 0o755);
    assert_eq!(mode(&outside("_run_journal/talk/run-1.jsonl")), 0o666);
}

/// The data directory may be named by a link; what lies in it is ours all the same.
#[test]
fn a_data_directory_that_is_named_by_a_link_is_repaired() {
    let data = Data::healthy();
    let beside = tempfile::tempdir().unwrap();
    let link = beside.path().join("data");
    symlink(&data.root, &link).unwrap();
    allow(&data.path("talk.json"), 0o644);
    doctor::repair(&link, &data.doctor()).unwrap();
    assert_eq!(mode(&data.path("talk.json")), 0o600);
}
