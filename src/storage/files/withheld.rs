//! Withheld lines: acknowledged events of journals that cannot be written, kept in `_kept/<session>/<run>.records` until
//! they can.
//!
//! One journal that belongs to another user, or lies on a bad sector, must not keep the commit log from being retired, nor
//! the store from being opened. What a crash leaves: the log as it is, until the records and the list of them are durable;
//! then both, and the next opening withholds the same lines again. The list lies beside the log, so that records which are
//! gone are missed. Lines that cannot be kept apart stay in the log, which then is not used any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::FileStorage;
use super::replay::Patch;
use super::write::open_plain;
use crate::format::{checksum_of, with_checksum};
use crate::model::{RunId, SessionId};
use crate::storage::disk::Disk;
use crate::storage::error::{Attempt, StorageError, with_cause};
use crate::storage::finding::Finding;
use crate::storage::layout::Layout;

/// Bytes of a file of records, or of their list, that are read.
const BYTES_READ_MAX: u64 = 256 * 1024 * 1024;

/// Whose lines: session and run.
pub(super) type RunKey = (SessionId, RunId);

/// Lines of one journal, each with its offset.
pub(super) type Lines = Vec<(u64, Vec<u8>)>;

/// Withheld lines as they are listed, or what is wrong with their file of records.
pub(super) type Listed = BTreeMap<RunKey, Result<Lines, StorageError>>;

/// The withheld lines of a store.
#[derive(Debug, Default, Clone)]
pub(super) struct Withheld {
    runs: BTreeMap<RunKey, Arc<WithheldRun>>,
}

/// The withheld lines of one run, and what prevented writing them.
#[derive(Debug, Clone)]
pub(super) struct WithheldRun {
    pub(super) lines: Lines,
    pub(super) cause: StorageError,
    pub(super) records: Records,
}

/// Where withheld lines are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Records {
    /// In the commit log alone.
    Logged,
    /// In a file of their own.
    Kept,
    /// In a file that cannot be read, and is left as it is.
    Unreadable,
}

/// The first line of a file of records. The lines of the journal follow, one record after the other.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    version: u32,
    session_id: String,
    run_id: String,
    /// CRC32C of all that follows this line.
    body_crc: u32,
    /// Offset in the journal and length of each record.
    records: Vec<(u64, u64)>,
}

impl Withheld {
    pub(super) fn get(&self, key: &RunKey) -> Option<&Arc<WithheldRun>> {
        self.runs.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&RunKey, &Arc<WithheldRun>)> {
        self.runs.iter()
    }

    pub(super) fn insert(&mut self, key: RunKey, run: WithheldRun) {
        self.runs.insert(key, Arc::new(run));
    }

    /// The same without this run.
    pub(super) fn without(&self, key: &RunKey) -> Self {
        let mut rest = self.clone();
        rest.runs.remove(key);
        rest
    }
}

impl WithheldRun {
    pub(super) fn patch<'a>(&'a self, (session, run): &'a RunKey) -> Patch<'a> {
        Patch { session, run, lines: self.lines.iter().map(|(offset, bytes)| (*offset, bytes.as_slice())).collect() }
    }
}

impl FileStorage {
    /// Moves lines out of the commit log, durably: first the records of each run, then the list of these runs. Returns why
    /// some could not be moved.
    pub(super) fn keep_withheld(&self, withheld: &mut Withheld) -> Result<Option<StorageError>, StorageError> {
        let mut refusal = None;
        for (key, run) in withheld.runs.iter_mut().filter(|(_, run)| run.records == Records::Logged) {
            match self.keep_records(key, &run.lines) {
                Ok(()) => Arc::make_mut(run).records = Records::Kept,
                Err(error) => refusal = Some(or_fatal(error)?),
            }
        }
        match self.write_withheld_list(withheld) {
            Ok(()) => Ok(refusal),
            Err(error) => or_fatal(error).map(Some),
        }
    }

    fn keep_records(&self, key: &RunKey, lines: &Lines) -> Result<(), StorageError> {
        self.ensure_dirs(&self.layout.kept_of(&key.0))?;
        self.replace(&self.layout.kept_records(&key.0, &key.1), &encode(key, lines)).map(drop)
    }

    /// Notes which runs have files of records. A list that cannot be read is not replaced: it may name some.
    pub(super) fn write_withheld_list(&self, withheld: &Withheld) -> Result<(), StorageError> {
        let path = self.layout.withheld_list();
        let kept = withheld.iter().filter(|(_, run)| run.records != Records::Logged);
        let list: String = kept.map(|((session, run), _)| format!("{session} {run}\n")).collect();
        match read_bytes(&*self.disk, &path) {
            Ok(old) if old.as_deref().unwrap_or_default() == list.as_bytes() => return Ok(()),
            Err(error) if list.is_empty() && error.is_of_one_object() => return Ok(()),
            old => old.map(drop)?,
        }
        self.ensure_dirs(&self.layout.commit_log())?;
        self.replace(&path, list.as_bytes()).map(drop)
    }

    /// Removes the records of a run that are in its journal by now. Records that stay do no harm: no list names them.
    pub(super) fn forget_records(&self, (session, run): &RunKey) {
        let _ = self.disk.remove_file(&self.layout.kept_records(session, run));
    }

    /// The withheld lines as a reader finds them. A list that cannot be read is the writer's to report.
    pub(super) fn read_withheld(&self) -> Result<Withheld, StorageError> {
        let mut withheld = Withheld::default();
        let listed = match read_listed(&*self.disk, &self.layout) {
            Err(error) if error.is_of_one_object() => Listed::default(),
            listed => listed?,
        };
        for (key, lines) in listed {
            let path = self.layout.journal(&key.0, &key.1);
            let cause = StorageError::io("write", &path, std::io::ErrorKind::PermissionDenied.into());
            let run = match lines {
                Ok(lines) => WithheldRun { lines, cause, records: Records::Kept },
                Err(cause) => WithheldRun { lines: Lines::new(), cause, records: Records::Unreadable },
            };
            withheld.insert(key, run);
        }
        Ok(withheld)
    }

    /// A finding about withheld lines.
    pub(super) fn withheld_finding(&self, (session, run): &RunKey, withheld: &WithheldRun) -> Finding {
        let file = self.layout.relative(&self.layout.journal(session, run));
        let kept = self.layout.relative(&self.layout.kept_records(session, run));
        let (cause, kept) = (with_cause(&withheld.cause), kept.display());
        let message = match withheld.records {
            Records::Unreadable => format!(
                "acknowledged events of this journal are in {kept}, which cannot be read, and its run takes no more: {cause}"
            ),
            Records::Kept => format!(
                "acknowledged events could not be put into this journal ({cause}); they are kept in {kept}, and put there when \
                 it can be written"
            ),
            Records::Logged => format!(
                "acknowledged events could not be put into this journal ({cause}), nor be kept in {kept}; they stay in the \
                 commit log, which is not used until they are put there"
            ),
        };
        let first = withheld.lines.first().map_or(0, |(offset, _)| *offset);
        Finding::new("log_not_replayed", file, message).of_run(session, run).at(first)
    }

    /// Why a run with withheld lines takes no events.
    pub(super) fn withheld_refusal(&self, (session, run): &RunKey, withheld: &WithheldRun) -> StorageError {
        let path = self.layout.journal(session, run);
        StorageError::Withheld { run: run.clone(), path, source: Box::new(withheld.cause.clone()) }
    }
}

/// Reads the withheld lines that a directory lists, each with what is wrong with its file of records, if anything is.
pub(super) fn read_listed(disk: &dyn Disk, layout: &Layout) -> Result<Listed, StorageError> {
    let mut found = Listed::new();
    let Some(list) = read_bytes(disk, &layout.withheld_list())? else { return Ok(found) };
    for line in String::from_utf8_lossy(&list).lines() {
        let Some((session, run)) = line.split_once(' ') else { continue };
        let (Ok(session), Ok(run)) = (SessionId::parse(session), RunId::parse(run)) else { continue };
        let path = layout.kept_records(&session, &run);
        let lines = match read_bytes(disk, &path) {
            Ok(None) => Err(StorageError::Damaged { path, reason: "it is gone: put it back".to_owned() }),
            Ok(Some(bytes)) => decode(&bytes, &session, &run)
                .map_err(|reason| StorageError::Damaged { path, reason: reason.to_owned() }),
            Err(error) => Err(error),
        };
        found.insert((session, run), lines);
    }
    Ok(found)
}

/// The reason why lines cannot be kept apart, if that is not the end of everything.
fn or_fatal(error: StorageError) -> Result<StorageError, StorageError> {
    if error.is_of_one_object() || error.is_no_space() { Ok(error) } else { Err(error) }
}

fn read_bytes(disk: &dyn Disk, path: &std::path::Path) -> Result<Option<Vec<u8>>, StorageError> {
    match open_plain(disk, path)? {
        None => Ok(None),
        Some((_, stat)) if stat.len > BYTES_READ_MAX => {
            Err(StorageError::TooLarge { path: path.to_owned(), bytes: stat.len, max: BYTES_READ_MAX })
        }
        Some((file, stat)) => file.into_bytes(stat.len as usize).attempt("read", path).map(Some),
    }
}

fn encode((session, run): &RunKey, lines: &Lines) -> Vec<u8> {
    let body: Vec<u8> = lines.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
    let head = Head {
        version: 1,
        session_id: session.to_string(),
        run_id: run.to_string(),
        body_crc: crc32c::crc32c(&body),
        records: lines.iter().map(|(offset, bytes)| (*offset, bytes.len() as u64)).collect(),
    };
    let mut bytes = with_checksum(serde_json::to_vec(&head).expect("numbers and text become JSON"));
    bytes.push(b'\n');
    bytes.extend_from_slice(&body);
    bytes
}

fn decode(bytes: &[u8], session: &SessionId, run: &RunId) -> Result<Lines, &'static str> {
    let end = memchr::memchr(b'\n', bytes).ok_or("it has no first line")?;
    let (line, mut body) = (&bytes[..end], &bytes[end + 1..]);
    if checksum_of(line) != Some(true) {
        return Err("the checksum of its first line does not fit");
    }
    let head: Head = serde_json::from_slice(line).map_err(|_| "its first line is not what it should be")?;
    if (head.session_id.as_str(), head.run_id.as_str()) != (session.as_str(), run.as_str()) {
        return Err("it belongs to another run");
    }
    if crc32c::crc32c(body) != head.body_crc {
        return Err("the checksum of its records does not fit");
    }
    let mut lines = Lines::new();
    for (offset, len) in head.records {
        let (record, rest) = body.split_at_checked(len as usize).ok_or("it is shorter than it says")?;
        lines.push((offset, record.to_vec()));
        body = rest;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_and_no_flipped_bit_is_believed() {
        let key = (SessionId::parse("s").unwrap(), RunId::parse("r.1").unwrap());
        let lines: Lines = vec![(0, b"one\n".to_vec()), (40, b"two\nthree\n".to_vec())];
        let bytes = encode(&key, &lines);
        assert_eq!(decode(&bytes, &key.0, &key.1), Ok(lines));
        assert!(decode(&bytes, &key.0, &RunId::parse("other").unwrap()).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped, &key.0, &key.1).is_err(), "bit {bit}");
        }
        assert!((0..bytes.len()).all(|len| decode(&bytes[..len], &key.0, &key.1).is_err()));
    }
}
