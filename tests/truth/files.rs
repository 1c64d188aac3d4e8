//! The sidecars and journals of a folder at one moment, and what a step did to them. A file that was rewritten with
//! equal bytes counts as changed; every other file of ours counts as nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

/// A file as it was seen: which one it is, when it was written, and its bytes.
#[derive(Clone, PartialEq)]
struct Seen {
    inode: u64,
    written_at: (i64, i64),
    bytes: Vec<u8>,
}

/// All sidecars and journals, by their paths as scenarios spell them.
#[derive(Clone, Default)]
pub(crate) struct Snapshot(BTreeMap<String, Seen>);

impl Snapshot {
    /// Looks at the folder that holds `sessions`.
    pub(crate) fn of(root: &Path) -> Self {
        let mut snapshot = Snapshot::default();
        snapshot.add_files(root, "sessions", ".json");
        for session in names_in(&root.join("sessions/_run_journal")) {
            snapshot.add_files(root, &format!("sessions/_run_journal/{session}"), ".jsonl");
        }
        snapshot
    }

    fn add_files(&mut self, root: &Path, folder: &str, ending: &str) {
        let is_ours = |name: &str| name.starts_with('_') || !name.ends_with(ending);
        for name in names_in(&root.join(folder)).into_iter().filter(|name| !is_ours(name)) {
            let path = format!("{folder}/{name}");
            if let Some(seen) = see(&root.join(&path)) {
                self.0.insert(path, seen);
            }
        }
    }

    pub(crate) fn bytes(&self, path: &str) -> Option<&[u8]> {
        self.0.get(path).map(|seen| seen.bytes.as_slice())
    }

    /// The ids of the sessions that have a sidecar.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &str> {
        self.0.keys().filter_map(|path| path.strip_prefix("sessions/")?.strip_suffix(".json"))
    }

    /// What became of the files since an earlier moment, as scenarios write it down.
    pub(crate) fn changes_since(&self, before: &Snapshot) -> Value {
        let (old, new) = (&before.0, &self.0);
        let created: Vec<_> = new.keys().filter(|path| !old.contains_key(*path)).collect();
        let deleted: Vec<_> = old.keys().filter(|path| !new.contains_key(*path)).collect();
        let is_changed = |path: &String, seen: &Seen| old.get(path).is_some_and(|before| before != seen);
        let changed: Vec<_> = new.iter().filter(|(path, seen)| is_changed(path, seen)).map(|(path, _)| path).collect();
        json!({"created": created, "changed": changed, "deleted": deleted})
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn see(path: &Path) -> Option<Seen> {
    let known = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let bytes = fs::read(path).ok()?;
    Some(Seen { inode: known.ino(), written_at: (known.mtime(), known.mtime_nsec()), bytes })
}

#[test]
fn a_rewrite_with_equal_bytes_is_a_change_and_a_look_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = folder.path().join("sessions/abc.json");
    fs::create_dir(folder.path().join("sessions")).unwrap();
    fs::write(&sidecar, "{}").unwrap();
    let before = Snapshot::of(folder.path());
    let nothing = json!({"created": [], "changed": [], "deleted": []});
    assert_eq!(Snapshot::of(folder.path()).changes_since(&before), nothing);
    fs::write(folder.path().join("sessions/_index.json"), "[]").unwrap();
    assert_eq!(Snapshot::of(folder.path()).changes_since(&before), nothing);
    fs::write(folder.path().join("new"), "{}").unwrap();
    fs::rename(folder.path().join("new"), &sidecar).unwrap();
    assert_eq!(Snapshot::of(folder.path()).changes_since(&before)["changed"], json!(["sessions/abc.json"]));
}
