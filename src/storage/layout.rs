//! The only speller of file names in a data directory.

use std::path::{Path, PathBuf};

use crate::model::{RunId, SessionId};

/// Where everything lies in a data directory.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

/// What the files that are being written are called until they are whole.
pub(super) const TEMP_PREFIX: &str = "_tmp-";

impl Layout {
    /// The layout of this data directory.
    pub fn new(root: &Path) -> Self {
        Layout { root: root.to_owned() }
    }

    /// The data directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A session's sidecar.
    pub fn sidecar(&self, session: &SessionId) -> PathBuf {
        self.root.join(format!("{session}.json"))
    }

    /// The backup that the reference program may have left beside a sidecar.
    pub fn backup(&self, session: &SessionId) -> PathBuf {
        self.root.join(format!("{session}.json.bak"))
    }

    /// The transcript that an agent keeps of a session in a folder of its own.
    pub fn core_transcript(folder: &Path, session: &SessionId) -> PathBuf {
        folder.join(format!("session_{session}.json"))
    }

    /// The session whose sidecar has this file name.
    pub fn session_of(name: &str) -> Option<SessionId> {
        SessionId::parse(name.strip_suffix(".json")?).ok()
    }

    /// The folder of all journals.
    pub fn journals(&self) -> PathBuf {
        self.root.join("_run_journal")
    }

    /// The folder of a session's journals.
    pub fn journals_of(&self, session: &SessionId) -> PathBuf {
        self.journals().join(session.as_str())
    }

    /// A run's journal.
    pub fn journal(&self, session: &SessionId, run: &RunId) -> PathBuf {
        self.journals_of(session).join(format!("{run}.jsonl"))
    }

    /// What we note of a run beside its journal.
    pub fn run_record(&self, session: &SessionId, run: &RunId) -> PathBuf {
        self.journals_of(session).join(format!("_{run}.run"))
    }

    /// The run whose journal has this file name.
    pub fn run_of(name: &str) -> Option<RunId> {
        RunId::parse(name.strip_suffix(".jsonl")?).ok()
    }

    /// The run whose record has this file name.
    pub fn run_of_record(name: &str) -> Option<RunId> {
        RunId::parse(name.strip_prefix('_')?.strip_suffix(".run")?).ok()
    }

    /// The store's identity.
    pub fn identity(&self) -> PathBuf {
        self.root.join("_lastword.json")
    }

    /// What the index noted of the sessions.
    pub fn index(&self) -> PathBuf {
        self.root.join("_sessions.index")
    }

    /// The reference program's list of the sessions.
    pub fn foreign_index(&self) -> PathBuf {
        self.root.join("_index.json")
    }

    /// The folder of the commit log.
    pub fn commit_log(&self) -> PathBuf {
        self.root.join("_commit_log")
    }

    /// A file of the commit log.
    pub fn segment(&self, index: u32) -> PathBuf {
        self.commit_log().join(format!("segment-{index:04}"))
    }

    /// The number in the name of a file of the commit log.
    pub fn segment_index_of(name: &str) -> Option<u32> {
        let digits = name.strip_prefix("segment-").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        digits.parse().ok().filter(|index| name == format!("segment-{index:04}"))
    }

    /// What was kept of this commit log.
    pub fn kept_log(&self) -> PathBuf {
        self.kept().join("_commit_log")
    }

    /// The lock that a writer holds.
    pub fn lock(&self) -> PathBuf {
        self.root.join("_lock")
    }

    /// What says that sessions were deleted.
    pub fn tombstones(&self) -> PathBuf {
        self.root.join("_tombstones")
    }

    /// What says that this session was deleted.
    pub fn tombstone(&self, session: &SessionId) -> PathBuf {
        self.tombstones().join(format!("{session}.json"))
    }

    /// The folder of what was deleted.
    pub fn trash(&self) -> PathBuf {
        self.root.join("_trash")
    }

    /// Where the parts of a deleted session go.
    pub fn trash_of(&self, session: &SessionId, generation: &str) -> PathBuf {
        self.trash().join(format!("{session}.{generation}"))
    }

    /// The folder of versions and fragments that something replaced.
    pub fn kept(&self) -> PathBuf {
        self.root.join("_kept")
    }

    /// What was kept of this session.
    pub fn kept_of(&self, session: &SessionId) -> PathBuf {
        self.kept().join(session.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_kinds_are_no_sessions() {
        assert!(Layout::session_of("abc.json").is_some());
        for name in ["_index.json", "_lastword.json", "abc.json.bak", ".DS_Store", "._abc.json", "_tmp-1", "a b.json"] {
            assert!(Layout::session_of(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_run_whose_id_looks_like_a_record_is_told_from_one() {
        let (layout, session) = (Layout::new(Path::new("d")), SessionId::parse("s").unwrap());
        let odd = RunId::parse("_a.run").unwrap();
        assert_eq!(layout.journal(&session, &odd).file_name().unwrap(), "_a.run.jsonl");
        assert_eq!(Layout::run_of_record("__a.run.run"), Some(odd));
    }
}
