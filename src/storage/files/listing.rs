//! A listing of the data directory for the doctor: sessions, journals, temp files, permissions. Changes nothing.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use super::FileStorage;
use crate::model::{RunId, SessionId};
use crate::storage::contract::ObjectKind;
use crate::storage::disk::{DirEntry, FileKind, FileStat};
use crate::storage::error::{Attempt, StorageError, optional};
use crate::storage::layout::{Layout, TEMP_PREFIX};

/// Files that are not as they should be, whatever they hold. Paths from the data directory on.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Strays {
    /// Files that somebody did not finish writing.
    pub temps: Vec<PathBuf>,
    /// What others than the owner may look at or change.
    pub open: Vec<OpenToOthers>,
}

/// A file or directory that others than its owner may look at or change. Never a link, nor what lies beyond one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenToOthers {
    /// The path, from the data directory on.
    pub file: PathBuf,
    /// Its permission bits.
    pub mode: u32,
    /// Whether it is of our making. The others are left alone.
    pub is_ours: bool,
}

/// All that lies in a data directory.
#[derive(Debug, Default)]
pub struct DirectoryListing {
    /// Every session of which anything is there, but for deleted ones.
    pub sessions: BTreeSet<SessionId>,
    /// Parts of deleted sessions that are not in the trash.
    pub leftovers: Vec<(SessionId, PathBuf)>,
    /// What is wrong with the files outside the sessions' own folders.
    pub strays: Strays,
    /// What could not be looked at, and why.
    pub troubles: Vec<(PathBuf, String)>,
}

/// What a run's record says.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum RecordFound {
    /// There is none: another program began the run.
    #[default]
    Missing,
    /// It cannot be read.
    Damaged(String),
    /// When the run began, for how long after its last event its producer counts as alive, and the highest number that
    /// was given to an event before.
    Read {
        /// In seconds.
        begun_at: f64,
        /// In seconds; none if it never does.
        lease_seconds: Option<f64>,
        /// When the producer last renewed its lease without an event, in seconds.
        renewed_at: Option<f64>,
        /// 0 if nothing is known.
        last_seq_floor: u64,
        /// The number after which every line carries a checksum, because we wrote it.
        checked_after: Option<u64>,
        /// Whether the journal was removed on purpose.
        is_removed: bool,
    },
}

impl RecordFound {
    /// The number after which every line of the run's journal carries a checksum, because we wrote it.
    pub fn checked_after(&self) -> Option<u64> {
        match self {
            RecordFound::Read { checked_after, .. } => *checked_after,
            RecordFound::Missing | RecordFound::Damaged(_) => None,
        }
    }
}

/// A run of a session.
#[derive(Debug)]
pub struct RunFound {
    /// Its id.
    pub run: RunId,
    /// Whether its journal is there, in its file or in the commit log.
    pub has_journal: bool,
    /// What its record says.
    pub record: RecordFound,
}

/// The files of one session.
#[derive(Debug, Default)]
pub struct SessionFound {
    /// Whether something has the name of its sidecar.
    pub has_sidecar: bool,
    /// Its runs, in order.
    pub runs: Vec<RunFound>,
    /// What is wrong with its files.
    pub strays: Strays,
    /// What could not be looked at, and why.
    pub troubles: Vec<(PathBuf, String)>,
}

impl FileStorage {
    /// Looks at all of the directory but into the folders of the sessions' journals.
    pub fn listing(&self) -> Result<DirectoryListing, StorageError> {
        let mut found = DirectoryListing::default();
        // If that cannot be told, it is told below.
        let deleted = self.deleted_sessions().unwrap_or_default();
        self.note_root(&deleted, &mut found)?;
        self.note_folders(&self.layout.journals(), &deleted, &mut found);
        self.note_folders(&self.layout.kept(), &HashSet::new(), &mut found);
        self.note_objects(&deleted, &mut found);
        for folder in [self.layout.tombstones(), self.layout.commit_log(), self.layout.trash()] {
            let names = or_trouble(&mut found.troubles, &self.layout, &folder, self.look_into(&folder));
            let folder = Folder::at(&folder);
            names.iter().for_each(|(entry, stat)| self.note_stray(&mut found.strays, &folder, entry, stat));
        }
        // What was kept of a session that was deleted is no session.
        found.sessions.retain(|session| !deleted.contains(session));
        Ok(found)
    }

    fn note_root(&self, deleted: &HashSet<SessionId>, found: &mut DirectoryListing) -> Result<(), StorageError> {
        let root = self.layout.root();
        let stat = optional(self.disk.stat(root)).attempt("look at", root)?;
        let is_linked = || self.disk.is_link(root).unwrap_or(true);
        found.strays.open.extend(self.open_to_others(stat, root, is_linked));
        let folder = Folder::at(root);
        for (entry, stat) in self.look_into(root)? {
            let path = root.join(&entry.name);
            self.note_stray(&mut found.strays, &folder, &entry, &stat);
            let session = Layout::session_of(&entry.name).or_else(|| Layout::session_of_backup(&entry.name));
            found.note_session(session, deleted, self.layout.relative(&path));
        }
        Ok(())
    }

    /// Folders named after sessions.
    fn note_folders(&self, above: &Path, deleted: &HashSet<SessionId>, found: &mut DirectoryListing) {
        let folder = Folder::at(above);
        for (entry, stat) in or_trouble(&mut found.troubles, &self.layout, above, self.look_into(above)) {
            let path = above.join(&entry.name);
            self.note_stray(&mut found.strays, &folder, &entry, &stat);
            let session = Layout::session_of_directory(&entry.name).filter(|_| entry.is_dir);
            found.note_session(session, deleted, self.layout.relative(&path));
        }
    }

    /// The directories of objects. Objects alone make no session.
    fn note_objects(&self, deleted: &HashSet<SessionId>, found: &mut DirectoryListing) {
        let mut objects = DirectoryListing::default();
        for folder in self.layout.directories_of_objects() {
            self.note_folders(&folder, deleted, &mut objects);
        }
        found.leftovers.append(&mut objects.leftovers);
        found.strays.temps.append(&mut objects.strays.temps);
        found.strays.open.append(&mut objects.strays.open);
        found.troubles.append(&mut objects.troubles);
    }

    /// The files of one session.
    pub fn look_at_session(&self, session: &SessionId) -> Result<SessionFound, StorageError> {
        let sidecar = self.layout.sidecar(session);
        let has_sidecar = optional(self.disk.stat(&sidecar)).attempt("look at", &sidecar)?.is_some();
        let mut found = SessionFound { has_sidecar, ..SessionFound::default() };
        let (mut with_journal, mut with_record) = (BTreeSet::new(), BTreeSet::new());
        let folder = self.layout.journals_of(session);
        let names = or_trouble(&mut found.troubles, &self.layout, &folder, self.look_into(&folder));
        let folder = Folder::at(&folder);
        for (entry, stat) in names {
            self.note_stray(&mut found.strays, &folder, &entry, &stat);
            with_journal.extend(Layout::run_of(&entry.name));
            with_record.extend(Layout::run_of_record(&entry.name));
        }
        with_journal.extend(self.overlay()?.runs_of(session).cloned());
        for run in with_journal.union(&with_record) {
            let record =
                if with_record.contains(run) { self.look_at_record(session, run)? } else { RecordFound::Missing };
            found.runs.push(RunFound { has_journal: with_journal.contains(run), record, run: run.clone() });
        }
        for kind in [ObjectKind::Attachment, ObjectKind::Branch] {
            let objects = self.layout.objects_of(session, kind);
            let names = or_trouble(&mut found.troubles, &self.layout, &objects, self.look_into(&objects));
            let objects = Folder::at(&objects);
            names.iter().for_each(|(entry, stat)| self.note_stray(&mut found.strays, &objects, entry, stat));
        }
        let kept = self.layout.kept_of(session);
        let names = or_trouble(&mut found.troubles, &self.layout, &kept, self.look_into(&kept));
        let kept = Folder::at(&kept);
        for (entry, stat) in names {
            // What was kept has the name of what it was, whatever that sounds like.
            let is_dir = entry.is_dir || !entry.name.starts_with(TEMP_PREFIX);
            let entry = DirEntry { is_dir, ..entry };
            self.note_stray(&mut found.strays, &kept, &entry, &stat);
        }
        Ok(found)
    }

    fn look_at_record(&self, session: &SessionId, run: &RunId) -> Result<RecordFound, StorageError> {
        Ok(match self.read_record(session, run) {
            Ok(None) => RecordFound::Missing,
            Ok(Some(record)) if record.is_foreign => RecordFound::Missing,
            Ok(Some(record)) => RecordFound::Read {
                begun_at: record.begun_at,
                lease_seconds: record.lease_seconds,
                renewed_at: record.lease_seconds.and_then(|_| self.renewed_at(session, run).ok().flatten()),
                last_seq_floor: record.last_seq_floor,
                checked_after: record.checked_after(),
                is_removed: record.removed_at.is_some(),
            },
            Err(error) => RecordFound::Damaged(error.to_string()),
        })
    }

    fn note_stray(&self, strays: &mut Strays, folder: &Folder<'_>, entry: &DirEntry, stat: &io::Result<FileStat>) {
        // A name that is no text cannot be told, nor opened.
        if entry.name.contains(char::REPLACEMENT_CHARACTER) {
            return;
        }
        let path = folder.path.join(&entry.name);
        if !entry.is_dir && Layout::is_temp(&entry.name) {
            strays.temps.push(self.layout.relative(&path));
        }
        let is_beyond_link = || *folder.is_beyond_link.get_or_init(|| self.is_beyond_link(folder.path));
        let is_linked = || entry.is_link || is_beyond_link();
        strays.open.extend(self.open_to_others(stat.as_ref().ok().copied(), &path, is_linked));
    }

    /// What others may do with a file or directory of ours, or of a program whose files we know. Other files are not looked
    /// at, nor are those that a link leads to.
    fn open_to_others(
        &self,
        stat: Option<FileStat>,
        path: &Path,
        is_linked: impl FnOnce() -> bool,
    ) -> Option<OpenToOthers> {
        let stat = stat.filter(|stat| stat.kind != FileKind::Other && stat.open_to_others() != 0)?;
        let relative = self.layout.relative(path);
        let file = if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative };
        let is_ours = match stat.kind {
            FileKind::Directory => Layout::is_our_directory(&file),
            _ => Layout::is_our_file(&file),
        };
        let is_known = is_ours || Layout::session_of_backup(&file.to_string_lossy()).is_some();
        (is_known && !is_linked()).then_some(OpenToOthers { file, mode: stat.mode, is_ours })
    }

    /// Whether a path from the data directory on leads over a link. The directory itself may be named by one.
    fn is_beyond_link(&self, path: &Path) -> bool {
        let root = self.layout.root();
        path.ancestors().take_while(|part| *part != root).any(|part| self.disk.is_link(part).unwrap_or(true))
    }

    /// What a folder holds; nothing if it is not there.
    fn look_into(&self, folder: &Path) -> Result<Names, StorageError> {
        Ok(optional(self.disk.read_dir_stats(folder)).attempt("list", folder)?.unwrap_or_default())
    }

    /// Whether a writer holds the directory.
    pub fn is_held(&self) -> Result<bool, StorageError> {
        let path = self.layout.lock();
        self.disk.is_locked(&path).attempt("look at", &path)
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// A directory whose entries are looked at.
struct Folder<'a> {
    path: &'a Path,
    is_beyond_link: OnceCell<bool>,
}

impl<'a> Folder<'a> {
    fn at(path: &'a Path) -> Self {
        Folder { path, is_beyond_link: OnceCell::new() }
    }
}

type Names = Vec<(DirEntry, io::Result<FileStat>)>;

/// What could not be looked at, and why.
type Troubles = Vec<(PathBuf, String)>;

/// What a folder holds, or a note of why that cannot be told.
fn or_trouble(troubles: &mut Troubles, layout: &Layout, folder: &Path, names: Result<Names, StorageError>) -> Names {
    names.unwrap_or_else(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        troubles.push((layout.relative(folder), format!("{error}{cause}")));
        Vec::new()
    })
}

impl DirectoryListing {
    fn note_session(&mut self, session: Option<SessionId>, deleted: &HashSet<SessionId>, path: PathBuf) {
        match session {
            Some(session) if deleted.contains(&session) => self.leftovers.push((session, path)),
            session => self.sessions.extend(session),
        }
    }
}
