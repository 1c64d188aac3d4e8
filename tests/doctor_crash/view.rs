//! A data directory as far as two repairs of the same damage must agree on it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::damage::Files;

/// What must be the same, however often a repair was interrupted.
#[derive(Debug, PartialEq)]
pub(crate) struct View {
    /// Files by their names.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// Files whose names have a time or a random part: their names without it, and their bytes.
    pub(crate) stamped: BTreeMap<(String, Vec<u8>), usize>,
    /// The same for those of which an interrupted repair may leave another copy.
    pub(crate) copied: BTreeSet<(String, Vec<u8>)>,
}

impl View {
    pub(crate) fn of(files: &Files) -> Self {
        View::of_each(files, |_, bytes| bytes.to_vec())
    }

    /// The same of files from which everything was taken that may differ, each by its name.
    pub(crate) fn of_each(files: &Files, plain: impl Fn(&str, &[u8]) -> Vec<u8>) -> Self {
        let mut view = View { files: BTreeMap::new(), stamped: BTreeMap::new(), copied: BTreeSet::new() };
        for (name, bytes) in files.iter().filter(|(name, _)| counts(name)) {
            let bytes = if name.ends_with(".run") { without_boot(bytes) } else { plain(name, bytes) };
            match plain_name(name) {
                None => drop(view.files.insert(name.clone(), bytes)),
                Some(plain) if may_repeat(&plain) => drop(view.copied.insert((plain, bytes))),
                Some(plain) => *view.stamped.entry((plain, bytes)).or_default() += 1,
            }
        }
        view
    }

    /// Where two views differ, in words; empty if nowhere.
    pub(crate) fn differences(&self, other: &View) -> String {
        let names: BTreeSet<&String> = self.files.keys().chain(other.files.keys()).collect();
        let is_other = |name: &&&String| self.files.get(**name) != other.files.get(**name);
        let differ = |name: &String| {
            format!("{name}:\n--- {}\n+++ {}", shown(self.files.get(name)), shown(other.files.get(name)))
        };
        let mut told: Vec<String> = names.iter().filter(is_other).map(|name| differ(name)).collect();
        if self.stamped != other.stamped || self.copied != other.copied {
            let names = |view: &View| {
                let stamped = view.stamped.iter().map(|((name, bytes), times)| (name.clone(), bytes.len(), *times));
                stamped
                    .chain(view.copied.iter().map(|(name, bytes)| (name.clone(), bytes.len(), 0)))
                    .collect::<Vec<_>>()
            };
            told.push(format!("with stamps: {:?}, and {:?}", names(self), names(other)));
        }
        told.join("\n")
    }
}

fn shown(bytes: Option<&Vec<u8>>) -> Cow<'_, str> {
    bytes.map_or("missing".into(), |bytes| String::from_utf8_lossy(bytes))
}

/// The lock and the commit log differ from life to life, and an index only has to be right. A segment of the log whose
/// header was "torn when it was written" is kept.
fn counts(name: &str) -> bool {
    let is_log = name.starts_with("_commit_log/") || name.starts_with("_kept/_commit_log/");
    name != "_lock" && name != "_sessions.index" && !is_log
}

/// A run that was begun, or noted, in one boot of the machine or in another.
fn without_boot(bytes: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<serde_json::Value>(bytes) {
        Ok(mut record) => {
            record["boot_id"] = serde_json::Value::Null;
            record["begun_at"] = serde_json::Value::Null;
            record["crc"] = serde_json::Value::Null;
            record.to_string().into_bytes()
        }
        Err(_) => bytes.to_vec(),
    }
}

/// The name of a kept file without the time and the random part, if it has them.
fn plain_name(name: &str) -> Option<String> {
    let rest = name.strip_prefix("_kept/")?;
    let (folder, file) = rest.rsplit_once('/').unwrap_or(("", rest));
    let (micros, label) = file.split_once('-')?;
    let is_time = micros.len() == 16 && micros.bytes().all(|byte| byte.is_ascii_digit());
    let label = label.split_once('-').filter(|(random, _)| random.len() == 8).map_or(label, |(_, label)| label);
    is_time.then(|| format!("{folder}/{label}"))
}

/// What a replay keeps of a journal's end before it replaces it: "perhaps a kept copy of its end", says a crash there.
fn may_repeat(plain: &str) -> bool {
    plain.contains("-replaced-at-") || plain.contains("-logged-at-")
}
