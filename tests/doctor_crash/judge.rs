//! What must hold after a repair was interrupted, and after the next one.

use lastword::storage::sim::{Crash, SimDisk};

use crate::damage::Files;
use crate::scene::{Scene, files_of, repair};
use crate::view::View;

impl Scene {
    /// Nothing that lay there is lost, and what was sound is as it was.
    pub(crate) fn check_interrupted(&self, disk: &SimDisk) -> Result<(), String> {
        check_nothing_lost(&self.files, &self.sound, &files_of(disk))
    }

    /// The next repair leads to where one leads that was not interrupted, for good, and then there is nothing to do.
    pub(crate) fn check_finished(&self, disk: &SimDisk) -> Result<(), String> {
        let finished = repair(disk).map_err(|error| format!("the next repair fails: {error}"))?;
        if finished.has_failed() {
            return Err(format!("the next repair fails: {:#?}", finished.actions));
        }
        self.check_repaired(&files_of(disk))?;
        check_quiet(disk)
    }

    /// These are the files of a repaired directory.
    pub(crate) fn check_repaired(&self, files: &Files) -> Result<(), String> {
        check_no_temps(files)?;
        match self.repaired.differences(&View::of(files)) {
            wrong if wrong.is_empty() => Ok(()),
            wrong => Err(wrong),
        }
    }

    /// If the power goes now, nothing is lost, and one more repair leads to the same.
    pub(crate) fn check_survives_power_cut(&self, disk: &SimDisk) -> Result<(), String> {
        let disk = disk.copy();
        disk.power_cut(Crash::LoseAll);
        self.check_interrupted(&disk)?;
        self.check_finished(&disk)
    }
}

/// Everything that lay in a directory is still there, and what was sound is as it was.
pub(crate) fn check_nothing_lost(before: &Files, sound: &[&str], now: &Files) -> Result<(), String> {
    if let Some(name) = sound.iter().find(|name| now.get(**name) != before.get(**name)) {
        return Err(format!("{name} was sound and is another now"));
    }
    let is_lost = |(name, bytes): &(&String, &Vec<u8>)| must_stay(name) && !is_somewhere(now, name, bytes);
    before.iter().find(is_lost).map_or(Ok(()), |(name, _)| Err(format!("what lay in {name} is lost")))
}

/// A repair of what is repaired finds nothing to do, and does nothing.
pub(crate) fn check_quiet(disk: &SimDisk) -> Result<(), String> {
    let (operations, files) = (disk.operations(), files_of(disk));
    let again = repair(disk).map_err(|error| format!("repairing again fails: {error}"))?;
    if !again.actions.is_empty() {
        return Err(format!("repairing again finds more to do: {:#?}", again.actions));
    }
    match disk.operations() == operations && files_of(disk) == files {
        true => Ok(()),
        false => Err("repairing again changed something".to_owned()),
    }
}

/// Nothing is left that a repair, or anybody else, had not finished writing.
pub(crate) fn check_no_temps(files: &Files) -> Result<(), String> {
    let is_temp = |name: &&String| name.rsplit('/').next().unwrap().starts_with("_tmp-");
    let left = files.keys().filter(|name| !name.starts_with("_kept/_temp/")).find(is_temp);
    left.map_or(Ok(()), |temp| Err(format!("{temp} is still there")))
}

/// Whether these bytes are anybody's words: not the lock, not the log, not a list, not what an earlier repair had begun.
fn must_stay(name: &str) -> bool {
    let is_derived = ["_lock", "_sessions.index"].contains(&name) || name.starts_with("_commit_log/");
    !is_derived && !name.contains("_tmp-repair-")
}

/// Whether the bytes of a file are still in its place, among the kept files or in the trash. A journal into which the
/// log was replayed may have given its lines to two files.
fn is_somewhere(now: &Files, name: &str, bytes: &[u8]) -> bool {
    let may_hold = |other: &str| other == name || other.starts_with("_kept/") || other.starts_with("_trash/");
    let places: Vec<&Vec<u8>> = now.iter().filter(|(other, _)| may_hold(other)).map(|(_, bytes)| bytes).collect();
    let holds = |part: &[u8]| places.iter().any(|place| place.windows(part.len().max(1)).any(|there| there == part));
    match name {
        "_run_journal/clash/r2.jsonl" => bytes.split_inclusive(|byte| *byte == b'\n').all(holds),
        "_run_journal/behind/r2.jsonl" => bytes.is_empty() || holds(bytes),
        _ if name.ends_with(".run") && !name.contains("/gone/") => is_noted(now.get(name), bytes),
        _ => places.iter().any(|place| *place == bytes),
    }
}

/// Whether a run's record is still there. A repair may have noted in it that higher numbers were given, and no more.
fn is_noted(now: Option<&Vec<u8>>, before: &[u8]) -> bool {
    let parse = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    let (Some(mut now), mut before) = (now.map(|bytes| parse(bytes)), parse(before)) else { return false };
    now["crc"].take();
    before["crc"].take();
    let floors = (now["last_seq_floor"].take().as_u64(), before["last_seq_floor"].take().as_u64());
    now == before && floors.0 >= floors.1
}
