//! Withheld lines: acknowledged events of journals that cannot be written, kept in `_kept/<session>/<run>.records` until
//! they can.
//!
//! One journal that belongs to another user, or lies on a bad sector, must not keep the commit log from being retired, nor
//! the store from being opened. What a crash leaves: the log as it is, until the records and the list of them are durable;
//! then both, and the next opening withholds the same lines again. The list lies beside the log, so that records which are
//! gone are missed. Lines that cannot be kept apart stay in the log, which then is not used any more. A list that cannot be
//! read is never replaced, and every run that has records is refused until it can.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::replay::Patch;
use super::write::open_plain;
use super::{FileStorage, Purpose};
use crate::entropy::uuid4;
use crate::format::{checksum_of, with_checksum};
use crate::model::{RunId, SessionId};
use crate::storage::disk::Disk;
use crate::storage::error::{Attempt, StorageError, optional, with_cause};
use crate::storage::finding::Finding;
use crate::storage::layout::Layout;

/// Bytes of a file of records, or of their list, that are read.
const BYTES_READ_MAX: u64 = 256 * 1024 * 1024;

/// Whose lines: session and run.
pub(super) type RunKey = (SessionId, RunId);

/// Lines of one journal, each with its offset.
pub(super) type Lines = Vec<(u64, Vec<u8>)>;

/// Withheld lines as they are listed; nothing if their file of records is gone, and what is wrong with it otherwise.
pub(super) type Listed = BTreeMap<RunKey, Result<Option<Lines>, StorageError>>;

/// The withheld lines of a store.
#[derive(Debug, Default, Clone)]
pub(super) struct Withheld {
    runs: BTreeMap<RunKey, Arc<WithheldRun>>,
    /// What the list names, if it is known and stands there.
    listed: Option<BTreeSet<RunKey>>,
    /// Why the list cannot be read, and is left as it is.
    list_error: Option<StorageError>,
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

/// A line of the list.
#[derive(Debug, Serialize, Deserialize)]
struct Listing {
    session_id: String,
    run_id: String,
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
    /// None yet, under a list that names these.
    fn under(listed: &Listed) -> Self {
        Withheld { listed: Some(listed.keys().cloned().collect()), ..Withheld::default() }
    }

    /// None yet, under a list that cannot be read.
    fn unlisted(error: StorageError) -> Self {
        Withheld { list_error: Some(error), ..Withheld::default() }
    }

    pub(super) fn list_error(&self) -> Option<&StorageError> {
        self.list_error.as_ref()
    }

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
        if let Some(error) = &withheld.list_error {
            let has_logged = withheld.runs.values().any(|run| run.records == Records::Logged);
            return Ok(has_logged.then(|| error.clone()));
        }
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

    /// Notes which runs have files of records, if the list says something else. One that cannot be read is not replaced: what
    /// it names is not known.
    pub(super) fn write_withheld_list(&self, withheld: &mut Withheld) -> Result<(), StorageError> {
        let kept = withheld.iter().filter(|(_, run)| run.records != Records::Logged);
        let kept: BTreeSet<RunKey> = kept.map(|(key, _)| key.clone()).collect();
        if withheld.list_error.is_some() || withheld.listed.as_ref() == Some(&kept) {
            return Ok(());
        }
        self.ensure_dirs(&self.layout.commit_log())?;
        self.replace(&self.layout.withheld_list(), &encode_list(&kept))?;
        withheld.listed = Some(kept);
        Ok(())
    }

    /// Removes the records of a run that are in its journal by now. Records that stay do no harm: no list names them.
    pub(super) fn forget_records(&self, (session, run): &RunKey) {
        let _ = self.disk.remove_file(&self.layout.kept_records(session, run));
    }

    /// The lines that are listed, and what is known of the list. One that cannot be read may name any run that has records. A
    /// repair makes a damaged one again: it believes every file of records that is whole.
    pub(super) fn listed_records(&self) -> Result<(Listed, Withheld), StorageError> {
        match self.read_listed() {
            Err(StorageError::Damaged { .. }) if self.purpose == Purpose::Repair && self.lock.is_some() => {
                self.keep_damaged_list()?;
                let found = self.found_records()?.into_iter().map(|key| (key.clone(), self.read_records(&key)));
                Ok((found.collect(), Withheld::default()))
            }
            Err(error) if error.is_of_one_object() => {
                // A reader shows what it can. A writer that cannot tell whose events are kept apart must not append to any.
                let found =
                    self.found_records().or_else(|error| self.lock.as_ref().map_or(Ok(Vec::new()), |_| Err(error)))?;
                let found = found.into_iter().map(|key| (key, Err(error.clone()))).collect();
                Ok((found, Withheld::unlisted(error)))
            }
            listed => {
                let listed = listed?;
                let withheld = Withheld::under(&listed);
                Ok((listed, withheld))
            }
        }
    }

    fn read_listed(&self) -> Result<Listed, StorageError> {
        let path = self.layout.withheld_list();
        let Some(list) = read_bytes(&*self.disk, &path)? else { return Ok(Listed::new()) };
        let keys = decode_list(&list).ok_or_else(|| {
            let reason = "a line of it is not as it was written; `repair --apply` makes it again".to_owned();
            StorageError::Damaged { path, reason }
        })?;
        Ok(keys.into_iter().map(|key| (key.clone(), self.read_records(&key))).collect())
    }

    /// Moves a damaged list away, so that the next opening finds the log as it is, and no list.
    fn keep_damaged_list(&self) -> Result<(), StorageError> {
        let folder = self.layout.kept().join("_commit_log");
        self.ensure_dirs(&folder)?;
        let kept = folder.join(format!("{}-withheld", uuid4(&*self.entropy)));
        self.replace(&kept, &read_bytes(&*self.disk, &self.layout.withheld_list())?.unwrap_or_default()).map(drop)
    }

    pub(super) fn read_records(&self, (session, run): &RunKey) -> Result<Option<Lines>, StorageError> {
        let path = self.layout.kept_records(session, run);
        let Some(bytes) = read_bytes(&*self.disk, &path)? else { return Ok(None) };
        let unusable = |reason| StorageError::io("use", &path, std::io::Error::other(reason));
        decode(&bytes, session, run).map(Some).map_err(unusable)
    }

    /// The runs that have a file of records, listed or not.
    fn found_records(&self) -> Result<Vec<RunKey>, StorageError> {
        let names = |path: &std::path::Path| {
            optional(self.disk.read_dir(path)).attempt("list", path).map(Option::unwrap_or_default)
        };
        let mut found = Vec::new();
        for entry in names(&self.layout.kept())?.into_iter().filter(|entry| entry.is_dir) {
            let Some(session) = Layout::session_of_directory(&entry.name) else { continue };
            let runs = names(&self.layout.kept_of(&session))?;
            let runs = runs.iter().filter_map(|entry| Layout::run_of_kept_records(&entry.name));
            found.extend(runs.map(|run| (session.clone(), run)));
        }
        Ok(found)
    }

    /// Why records that are gone cannot be read.
    pub(super) fn missing_records(&self, (session, run): &RunKey) -> StorageError {
        let cause =
            "it is gone: put it back, or give its events up by removing the run's line from _commit_log/withheld";
        StorageError::io("read", &self.layout.kept_records(session, run), std::io::Error::other(cause))
    }

    /// The withheld lines as a reader finds them.
    pub(super) fn read_withheld(&self) -> Result<Withheld, StorageError> {
        let (listed, withheld) = self.listed_records()?;
        Ok(self.with_listed(withheld, listed))
    }

    /// What was withheld, with what the list says, if it can be read by now.
    pub(super) fn with_list_read_again(&self, known: &Withheld) -> Withheld {
        let Ok(listed) = self.read_listed() else { return known.clone() };
        let mut withheld = self.with_listed(Withheld::under(&listed), listed);
        for (key, run) in known.iter().filter(|(_, run)| run.records == Records::Logged) {
            withheld.runs.insert(key.clone(), run.clone());
        }
        withheld
    }

    fn with_listed(&self, mut withheld: Withheld, listed: Listed) -> Withheld {
        for (key, lines) in listed {
            let path = self.layout.journal(&key.0, &key.1);
            let cause = StorageError::io("write", &path, std::io::ErrorKind::PermissionDenied.into());
            let unreadable = |cause| WithheldRun { lines: Lines::new(), cause, records: Records::Unreadable };
            let run = match lines {
                Ok(Some(lines)) => WithheldRun { lines, cause, records: Records::Kept },
                Ok(None) => unreadable(self.missing_records(&key)),
                Err(cause) => unreadable(cause),
            };
            withheld.insert(key, run);
        }
        withheld
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

fn encode_list(keys: &BTreeSet<RunKey>) -> Vec<u8> {
    let line = |(session, run): &RunKey| {
        let listing = Listing { session_id: session.to_string(), run_id: run.to_string() };
        let mut line = with_checksum(serde_json::to_vec(&listing).expect("ids become JSON"));
        line.push(b'\n');
        line
    };
    keys.iter().flat_map(line).collect()
}

/// The runs that a list names; nothing if a line of it is damaged. A line that was removed is missed by no one.
fn decode_list(bytes: &[u8]) -> Option<Vec<RunKey>> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let listing: Listing = serde_json::from_slice(line).ok().filter(|_| checksum_of(line) == Some(true))?;
            Some((SessionId::parse(&listing.session_id).ok()?, RunId::parse(&listing.run_id).ok()?))
        })
        .collect()
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
    fn a_list_is_read_as_it_was_written_and_no_flipped_bit_is_believed() {
        let key = |session, run| (SessionId::parse(session).unwrap(), RunId::parse(run).unwrap());
        let keys = BTreeSet::from([key("s", "r.1"), key("s", "r.2"), key("t", "r")]);
        let bytes = encode_list(&keys);
        let known: Vec<RunKey> = keys.iter().cloned().collect();
        assert_eq!(decode_list(&bytes), Some(known.clone()));
        assert_eq!(decode_list(b""), Some(Vec::new()));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // The last line feed says nothing.
            assert!(
                decode_list(&flipped).is_none_or(|found| found == known && bit / 8 + 1 == bytes.len()),
                "bit {bit}"
            );
        }
    }

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
