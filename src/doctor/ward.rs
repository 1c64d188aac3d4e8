//! What every examination needs: the files, the time, and whether somebody is at work on them.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::finding::{Code, Finding, Severity};
use super::meter::Meter;
use super::options::DoctorOptions;
use super::rewrite::Cure;
use crate::clock::Timestamp;
use crate::format::read_index_lines;
use crate::limits::SIDECAR_BYTES_MAX;
use crate::model::{Branch, Revision, Session, SessionId, Summary};
use crate::recovery::{Evidence, fold_limit, look_within};
use crate::storage::{FileStorage, Storage, StorageError};

/// A data directory under examination.
#[derive(Debug)]
pub(super) struct Ward<'o> {
    pub(super) files: Arc<FileStorage>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) options: &'o DoctorOptions,
    pub(super) now: Timestamp,
    /// Whether a writer is at work: then what it is just doing is no finding.
    pub(super) is_live: bool,
    pub(super) meter: Meter,
    /// What the index notes of each session: revision and summary.
    notes: Option<HashMap<SessionId, Noted>>,
}

#[derive(Debug)]
struct Noted {
    revision: Revision,
    summary: Option<Summary>,
}

impl<'o> Ward<'o> {
    pub(super) fn new(
        files: Arc<FileStorage>,
        options: &'o DoctorOptions,
        is_live: bool,
    ) -> Result<Self, StorageError> {
        // An index that cannot be read says nothing.
        let notes = files.index_notes().ok().flatten().map(|bytes| read_notes(&bytes));
        let (storage, now) = (files.clone() as Arc<dyn Storage>, options.clock.now());
        let meter = Meter::new(options.on_progress.clone());
        Ok(Ward { files, storage, options, now, is_live, meter, notes })
    }

    /// A file's name as it is told.
    pub(super) fn relative(&self, path: PathBuf) -> PathBuf {
        self.files.layout().relative(&path)
    }

    /// What a run's journal tells of its answer, and no more of it than fits into the session.
    pub(super) fn look(&self, session: &Session, run: &str) -> Evidence {
        look_within(&self.storage, session.id(), run, fold_limit(session, run, SIDECAR_BYTES_MAX))
    }

    /// Whether a repair would see to findings with this code.
    pub(super) fn wants(&self, code: Code) -> bool {
        self.options.only.is_empty() || self.options.only.contains(&code)
    }

    /// What the index notes of a session.
    pub(super) fn noted(&self, session: &SessionId, revision: &Revision) -> IndexSays<'_> {
        match self.notes.as_ref().map(|notes| notes.get(session)) {
            None => IndexSays::Nothing,
            Some(Some(noted)) if noted.revision == *revision => IndexSays::Summary(noted.summary.as_ref()),
            Some(_) => IndexSays::Outdated,
        }
    }
}

/// What the index says of a session.
#[derive(Debug, PartialEq)]
pub(super) enum IndexSays<'n> {
    /// There is no index.
    Nothing,
    /// Nothing of this version.
    Outdated,
    /// This.
    Summary(Option<&'n Summary>),
}

fn read_notes(bytes: &[u8]) -> HashMap<SessionId, Noted> {
    let mut notes = HashMap::new();
    for line in read_index_lines(bytes) {
        if let Ok(session) = SessionId::parse(line.session) {
            let revision = Revision::new(line.revision);
            let summary = line.summary_of(&session, &revision);
            notes.insert(session, Noted { revision, summary });
        }
    }
    notes
}

/// What a repair would do.
#[derive(Debug)]
pub(super) enum Treatment {
    /// Write a journal anew.
    Journal(Cure),
    /// Replace a session's document.
    Document(NewDocument),
    /// Store again what these tool cards refer to, from the journals.
    Values(Vec<String>),
    /// Keep a file that somebody did not finish writing.
    Temp(PathBuf),
    /// Take the permissions of others from a file with this mode.
    Private(PathBuf, u32),
}

/// A session's document as it should be.
#[derive(Debug)]
pub(super) struct NewDocument {
    pub(super) bytes: Vec<u8>,
    pub(super) replaces: Option<Revision>,
    pub(super) codes: BTreeSet<Code>,
    /// What that means.
    pub(super) words: Vec<String>,
    /// Rows that leave the document, or never come into it: stored before it.
    pub(super) branch: Option<Branch>,
}

/// What an examination of one session, or of the directory itself, gave.
#[derive(Debug, Default)]
pub(super) struct Examined {
    pub(super) findings: Vec<Finding>,
    /// Findings that are only counted.
    pub(super) untold: Untold,
    pub(super) treatments: Vec<Treatment>,
    pub(super) journals: u64,
    pub(super) bytes: u64,
    pub(super) events: u64,
    /// Whether the index knows an older version, or none.
    pub(super) is_index_behind: bool,
}

/// How many findings of each severity are only counted.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Untold {
    pub(super) damage: u64,
    pub(super) warning: u64,
    pub(super) info: u64,
}

impl Untold {
    pub(super) fn add(&mut self, severity: Severity, count: u64) {
        match severity {
            Severity::Damage => self.damage += count,
            Severity::Warning => self.warning += count,
            Severity::Info => self.info += count,
        }
    }
}

impl Examined {
    pub(super) fn tell(&mut self, finding: Finding) {
        self.findings.push(finding);
    }
}
