//! Checks of the files that belong to no session: identity, tombstones, commit log. Changes nothing.

use std::path::PathBuf;

use super::FileStorage;
use super::identity::{FORMAT_VERSION, Identity};
use super::log_scan::{LogContents, LogScan};
use super::replay::Patch;
use super::trash::Tombstone;
use super::withheld::{Records, RunKey};
use super::write::{open_plain, read_small};
use crate::model::{RunId, SessionId};
use crate::storage::disk::{DiskFile, read_full};
use crate::storage::error::{StorageError, with_cause};

/// What the store's identity says. Paths from the data directory on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityFound {
    /// There is none: no program of ours has written here.
    Missing,
    /// It can be read and written.
    Fine,
    /// A newer program wrote it.
    Newer {
        /// Its version.
        version: u32,
    },
    /// It cannot be read.
    Damaged {
        /// Why.
        reason: String,
    },
}

/// Something about the commit log. Paths from the data directory on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFound {
    /// It holds events, and the journals hold them all.
    NotRetired {
        /// A file of the log.
        file: PathBuf,
    },
    /// It holds events that this journal's own file lacks.
    Behind {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
        /// The journal.
        file: PathBuf,
        /// Where the first of them belongs.
        offset: u64,
    },
    /// Acknowledged events are kept apart from this journal, because it could not be written.
    Withheld {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
        /// The journal.
        file: PathBuf,
        /// Where the first of them belongs.
        offset: u64,
        /// Where they are kept.
        kept: PathBuf,
        /// Why that cannot be read, if it cannot.
        unreadable: Option<String>,
    },
    /// The list of runs whose events are kept apart cannot be read.
    Unlisted {
        /// The list.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// Other bytes stand in a journal where events belong that it holds.
    Conflict {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
        /// The journal.
        file: PathBuf,
        /// Where.
        offset: u64,
    },
    /// Bytes of it are damaged.
    Damaged {
        /// The file of the log.
        file: PathBuf,
        /// Where, if not everywhere.
        offset: Option<u64>,
    },
    /// It belongs to another store.
    Foreign {
        /// The file of the log.
        file: PathBuf,
    },
    /// A newer program wrote it.
    Newer {
        /// The file of the log.
        file: PathBuf,
    },
}

impl FileStorage {
    /// What the store's identity says.
    pub fn look_at_identity(&self) -> IdentityFound {
        match read_small::<Identity>(&*self.disk, &self.layout.identity()) {
            Ok(None) => IdentityFound::Missing,
            Ok(Some(found)) if found.format > FORMAT_VERSION => IdentityFound::Newer { version: found.format },
            Ok(Some(_)) => IdentityFound::Fine,
            Err(error) => IdentityFound::Damaged { reason: error.to_string() },
        }
    }

    /// The deleted sessions whose tombstones cannot be read, each with the reason.
    pub fn look_at_tombstones(&self) -> Result<Vec<(SessionId, PathBuf, String)>, StorageError> {
        let mut damaged = Vec::new();
        for session in self.deleted_sessions()? {
            let path = self.layout.tombstone(&session);
            if let Err(error) = read_small::<Tombstone>(&*self.disk, &path) {
                damaged.push((session, self.layout.relative(&path), error.to_string()));
            }
        }
        damaged.sort();
        Ok(damaged)
    }

    /// What is to be said of the commit log, for somebody who only reads.
    pub fn look_at_log(&self) -> Result<Vec<LogFound>, StorageError> {
        let store = self.store.clone().unwrap_or_default();
        let scan = match LogScan::of(&*self.disk, &self.layout, &store) {
            Err(StorageError::NewerFormat { path, .. }) => {
                return Ok(vec![LogFound::Newer { file: self.layout.relative(&path) }]);
            }
            scan => scan?,
        };
        let segment = |index| self.layout.relative(&self.layout.segment(index));
        let mut found: Vec<LogFound> =
            scan.foreign.iter().map(|file| LogFound::Foreign { file: segment(file.index) }).collect();
        let damaged = |file, offset| LogFound::Damaged { file: segment(file), offset };
        found.extend(scan.damaged.iter().map(|file| damaged(file.index, None)));
        let contents = scan.contents();
        found.extend(contents.damage.iter().map(|(index, place)| damaged(*index, Some(*place))));
        let (before, mut is_live) = (found.len(), false);
        for (session, run) in contents.runs.keys() {
            // What lies there and is no file is told by whoever reads that run.
            if !self.is_removed(session, run).unwrap_or(false) {
                is_live = true;
                found.extend(self.compare_with_log(session, run, &contents));
            }
        }
        found.extend(self.look_at_withheld()?);
        if is_live && found.len() == before {
            let newest = scan.own.last().map_or(0, |file| file.index);
            found.push(LogFound::NotRetired { file: segment(newest) });
        }
        Ok(found)
    }

    /// The events that are kept apart from their journals.
    pub fn look_at_withheld(&self) -> Result<Vec<LogFound>, StorageError> {
        let mut withheld = self.read_withheld()?;
        if withheld.iter().any(|(_, run)| run.records == Records::Unreadable) {
            // A writer may just have put them back: it changes the list first.
            withheld = self.read_withheld()?;
        }
        let is_there = |((session, run), _): &(&RunKey, _)| !self.is_removed(session, run).unwrap_or(false);
        let found = withheld.iter().filter(is_there).map(|((session, run), withheld)| LogFound::Withheld {
            file: self.layout.relative(&self.layout.journal(session, run)),
            kept: self.layout.relative(&self.layout.kept_records(session, run)),
            unreadable: (withheld.records == Records::Unreadable).then(|| with_cause(&withheld.cause)),
            offset: withheld.lines.first().map_or(0, |(offset, _)| *offset),
            session: session.clone(),
            run: run.clone(),
        });
        let list_error = withheld.list_error().map(|error| LogFound::Unlisted {
            file: self.layout.relative(&self.layout.withheld_list()),
            why: with_cause(error),
        });
        Ok(found.chain(list_error).collect())
    }

    fn compare_with_log(&self, session: &SessionId, run: &RunId, contents: &LogContents<'_>) -> Option<LogFound> {
        let path = self.layout.journal(session, run);
        let found = open_plain(&*self.disk, &path).unwrap_or_default();
        let len = found.as_ref().map_or(0, |(_, stat)| stat.len);
        let records = &contents.runs[&(session.clone(), run.clone())];
        let patch = Patch { session, run, lines: contents.lines_of(records, len) };
        let (session, run, file) = (session.clone(), run.clone(), self.layout.relative(&path));
        let Some((open, _)) = found else {
            let first = patch.lines.first().map(|(offset, _)| *offset);
            return first.map(|offset| LogFound::Behind { session, run, file, offset });
        };
        // One that cannot be read is reported with its run.
        let rebuilt = patch.rebuilt(&*open, len).ok()?;
        if let Some(rebuilt) = rebuilt {
            return Some(LogFound::Conflict { session, run, file, offset: rebuilt.conflict() });
        }
        let missing = first_missing(&patch, &*open).unwrap_or_default();
        missing.map(|offset| LogFound::Behind { session, run, file, offset })
    }
}

/// Where the first lines belong that are not in the journal's file.
fn first_missing(patch: &Patch<'_>, file: &dyn DiskFile) -> std::io::Result<Option<u64>> {
    let mut there = Vec::new();
    for (offset, lines) in &patch.lines {
        there.resize(lines.len(), 0);
        let len = read_full(file, &mut there, *offset)?;
        let differs = there[..len].iter().zip(*lines).position(|(found, logged)| found != logged);
        if let Some(at) = differs.or((len < lines.len()).then_some(len)) {
            let line = memchr::memrchr(b'\n', &lines[..at]).map_or(0, |line_feed| line_feed + 1);
            return Ok(Some(offset + line as u64));
        }
    }
    Ok(None)
}
