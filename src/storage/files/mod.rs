//! Local files as storage: a data directory that the reference program can read too.

mod checks;
mod documents;
mod groups;
mod identity;
mod index;
mod journals;
mod lease;
mod listing;
mod log_scan;
mod objects;
mod options;
mod order;
mod overlay;
mod reader;
mod record;
mod repair_ops;
mod replay;
mod stderr;
mod suspect_files;
mod tail;
mod tombstone_filter;
mod trash;
mod watched;
mod withheld;
mod write;

use crate::sync::atomic::AtomicBool;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sync::{Mutex, MutexGuard};

pub use self::checks::{IdentityFound, LogFound};
use self::documents::{is_revision_of, revision_of};
pub use self::listing::{DirectoryListing, OpenToOthers, RecordFound, RunFound, SessionFound, Strays};
use self::log_scan::store_of_log;
pub use self::options::{FilesOptions, Mode, Purpose};
use self::order::OrderRange;
use self::overlay::Overlay;
use self::reader::OwnRuns;
pub use self::repair_ops::NewJournal;
use self::suspect_files::SuspectFiles;
use self::tombstone_filter::TombstoneFilter;
use self::watched::WatchedDisk;
use self::withheld::{RunKey, Withheld};
use self::write::Stamp;
use super::commit::{CommitOptions, Committer, Latch, Parts};
use super::contract::{
    Birth, Continuation, Document, DocumentEntry, DocumentHead, Durability, JournalBytes, ObjectKind, OpenedJournal,
    ProcessGroup, Put, PutObject, PutOutcome, Storage,
};
use super::directories::{Directories, create_root};
use super::disk::{Disk, FileStat, SharedDisk};
use super::error::{Attempt, StorageError, optional, with_cause};
use super::finding::{Finding, LiveFindings};
use super::layout::{Layout, REPAIR_TEMP_PREFIX, TEMP_PREFIX};
use super::lock::{self, Holder, WriterLock};
use crate::clock::Clock;
use crate::entropy::{Entropy, uuid4};
use crate::limits::LEFT_JOURNALS;
use crate::meter::Meter;
use crate::model::{Revision, RunId, SessionId};

/// How many documents can be put at the same time without waiting for each other, more or less.
const PUT_GATES: usize = 64;

/// How many folders are remembered to be durable.
const KNOWN_DIRS_MAX: usize = 4096;

/// A data directory on a disk.
#[derive(Debug)]
pub struct FileStorage {
    /// Where a failed sync stops everything.
    disk: SharedDisk,
    /// The same without that, for those who see to it themselves.
    raw: SharedDisk,
    layout: Layout,
    purpose: Purpose,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    put_gates: Vec<Mutex<()>>,
    /// The numbers that were reserved for runs.
    order: Mutex<OrderRange>,
    directories: Arc<Directories>,
    /// Directories that are known to be durable in the one above.
    durable_dirs: Mutex<HashSet<PathBuf>>,
    suspects: Arc<SuspectFiles>,
    own_runs: Arc<OwnRuns>,
    latch: Arc<Latch>,
    /// None for a reader.
    committer: Option<Arc<Committer>>,
    /// What a reader has to see beside the journals, and the lock's note when that was found out.
    overlay: Mutex<Option<(Option<Holder>, Arc<Overlay>)>>,
    /// Acknowledged lines of journals that cannot be written.
    withheld: Mutex<Withheld>,
    /// The runs that a commit log names which could not be retired.
    still_logged: BTreeSet<RunKey>,
    findings: Vec<Finding>,
    live_findings: Arc<LiveFindings>,
    store: Option<String>,
    deleted_filter: TombstoneFilter,
    boot_id: String,
    core_dir: Option<PathBuf>,
    /// Whether another program's list of the sessions is known to be out of the way.
    is_listed_by_us: AtomicBool,
    lock: Option<Arc<WriterLock>>,
}

impl FileStorage {
    /// Opens a data directory.
    ///
    /// A writer that dies here leaves, in this order: an empty directory; a lock file, which says nothing unless it is
    /// held; the store's identity, whole or not there. The next writer goes on from each of them.
    pub fn open(disk: SharedDisk, root: &Path, options: FilesOptions) -> Result<Self, StorageError> {
        let layout = Layout::new(root);
        if options.mode == Mode::Write {
            create_root(&*disk, root)?;
        } else if optional(disk.stat(root)).attempt("open", root)?.is_none() {
            return Err(StorageError::NoDirectory { path: root.to_owned() });
        }
        let latch = Arc::new(Latch::default());
        let watched: SharedDisk = Arc::new(WatchedDisk::new(disk.clone(), latch.clone()));
        let mut storage = FileStorage {
            boot_id: disk.boot_id(),
            directories: Arc::new(Directories::new(watched.clone(), root)),
            order: Mutex::default(),
            durable_dirs: Mutex::default(),
            suspects: Arc::default(),
            own_runs: Arc::default(),
            committer: None,
            overlay: Mutex::default(),
            withheld: Mutex::default(),
            still_logged: BTreeSet::new(),
            findings: Vec::new(),
            live_findings: Arc::new(LiveFindings::new(options.on_finding)),
            store: None,
            deleted_filter: TombstoneFilter::unknown(),
            put_gates: (0..PUT_GATES).map(|_| Mutex::new(())).collect(),
            clock: options.clock,
            entropy: options.entropy,
            core_dir: options.core_dir,
            is_listed_by_us: AtomicBool::new(false),
            lock: None,
            layout,
            purpose: options.purpose,
            disk: watched,
            raw: disk,
            latch,
        };
        if options.mode == Mode::Write {
            let lock = Arc::new(storage.take_lock(options.allow_network_fs, options.durability)?);
            if lock.is_unsure() {
                storage.suspects.note_all();
            }
            storage.latch.guard(&lock);
            storage.lock = Some(lock);
        }
        storage.store = storage.check_identity()?;
        if let Some(lock) = storage.lock.clone() {
            storage.tidy()?;
            storage.begin_committing(options.commit, options.meter)?;
            if storage.still_logged.is_empty() {
                // Without it, readers look into the log themselves.
                let _ = lock.mark_replayed();
            }
        }
        Ok(storage)
    }

    /// Puts back what a crash took from the journals, and is ready to make more durable.
    fn begin_committing(&mut self, options: CommitOptions, meter: Arc<Meter>) -> Result<(), StorageError> {
        let store = self.store.clone().unwrap_or_default();
        let reopened = self.reopen_log(&self.raw, &store, options)?;
        self.findings.extend(reopened.findings);
        self.still_logged = reopened.still_logged;
        let parts = Parts {
            log: reopened.log,
            last_batch: reopened.last_batch,
            options,
            latch: self.latch.clone(),
            left_max: left_journals_max(self.raw.open_files_max()),
            findings: self.live_findings.clone(),
            meter,
        };
        self.committer = Some(Committer::new(parts, self.raw.is_by_hand()));
        Ok(())
    }

    /// What a reader has to see beside the journals' own files. A writer has put it there, or withholds it.
    ///
    /// The lock's note changes whenever a writer takes the directory and again when it has replayed the log. From then on
    /// the journals of a writer at work hold all that the log does. Found out once for each note.
    fn overlay(&self) -> Result<Arc<Overlay>, StorageError> {
        let mut cached = self.overlay.lock();
        if self.lock.is_some() {
            return Ok(cached.as_ref().map(|(_, overlay)| overlay.clone()).unwrap_or_default());
        }
        if let Some((_, overlay)) = cached.as_ref().filter(|_| self.purpose == Purpose::Repair) {
            // A check looks at one state of the directory.
            return Ok(overlay.clone());
        }
        let holder = lock::holder(&*self.disk, &self.layout);
        if let Some((_, overlay)) = cached.as_ref().filter(|(known, _)| *known == holder) {
            return Ok(overlay.clone());
        }
        let is_current = |holder: &Holder| holder.has_replayed && holder.boot_id == self.boot_id;
        let has_replayed = holder.as_ref().is_some_and(is_current) && !self.boot_id.is_empty();
        let mut overlay = match has_replayed && self.disk.is_locked(&self.layout.lock()).unwrap_or(false) {
            true => Overlay::default(),
            false => self.read_overlay()?,
        };
        overlay.add_withheld(&*self.disk, &self.layout, &self.read_withheld()?);
        let (_, overlay) = cached.insert((holder, Arc::new(overlay)));
        Ok(overlay.clone())
    }

    fn read_overlay(&self) -> Result<Overlay, StorageError> {
        let Some(store) = &self.store else { return Ok(Overlay::default()) };
        match Overlay::of(&*self.disk, &self.layout, store) {
            // A log of a newer program cannot be read; the journals can.
            Err(StorageError::NewerFormat { .. }) => Ok(Overlay::default()),
            // The doctor reports what is wrong with the log, and examines everything else.
            Err(_) if self.purpose == Purpose::Repair => Ok(Overlay::default()),
            overlay => overlay,
        }
    }

    /// Who last took the writer's lock of a data directory.
    pub fn last_holder(disk: &dyn Disk, root: &Path) -> Option<Holder> {
        lock::holder(disk, &Layout::new(root))
    }

    fn take_lock(&self, allow_network_fs: bool, durability: Durability) -> Result<WriterLock, StorageError> {
        let root = self.layout.root();
        let network = self.disk.network_file_system(root).attempt("look at the file system of", root)?;
        if let Some(kind) = network.filter(|_| !allow_network_fs) {
            return Err(StorageError::NetworkFileSystem { path: root.to_owned(), kind });
        }
        WriterLock::take(&self.disk, &self.layout, self.clock.now(), durability)
    }

    /// Removes what earlier writers had not finished writing, and finishes what they had not finished deleting.
    fn tidy(&mut self) -> Result<(), StorageError> {
        let root = self.layout.root();
        let names = self.disk.read_dir(root).attempt("list", root)?;
        let prefix = self.temp_prefix();
        for stale in names.iter().filter(|entry| entry.name.starts_with(prefix) && !entry.is_dir) {
            // One that cannot be removed does no harm, and must not keep a writer out.
            let _ = self.disk.remove_file(&root.join(&stale.name));
        }
        match self.deleted_sessions() {
            Ok(deleted) => {
                self.deleted_filter = TombstoneFilter::only(&deleted);
                self.findings = self.finish_deletions(&deleted, &names)?;
            }
            // Without an answer to whether a session was deleted, none can be used.
            Err(error) if self.purpose == Purpose::Serve && !self.can_tell_deleted() => return Err(error),
            // Each session is asked about by itself then.
            Err(error) => self.findings.push(self.trouble(&self.layout.tombstones(), &error)),
        }
        Ok(())
    }

    /// Whether tombstones can be looked for although they cannot be listed.
    fn can_tell_deleted(&self) -> bool {
        optional(self.disk.stat(&self.layout.tombstones().join("any"))).is_ok()
    }

    /// A finding about something that could not be looked at or changed, and that keeps nothing else from being done.
    fn trouble(&self, path: &Path, error: &StorageError) -> Finding {
        Finding::new("bad_json", self.layout.relative(path), with_cause(error))
    }

    /// Whether this store may change anything now. Costs a stat of the lock file.
    fn must_write(&self) -> Result<(), StorageError> {
        self.must_hold_lock()?;
        self.latch.check_lock()
    }

    fn must_hold_lock(&self) -> Result<(), StorageError> {
        if self.lock.is_some() { Ok(()) } else { Err(StorageError::ReadOnly) }
    }

    /// Makes everything durable in place that was appended to a session's journals, because they are to be moved.
    fn secure_journals_of(&self, session: &SessionId) -> Result<(), StorageError> {
        self.committer.as_ref().map_or(Ok(()), |committer| committer.secure_session(session))
    }

    fn put_gate(&self, session: &SessionId) -> MutexGuard<'_, ()> {
        let hash = crc32c::crc32c(session.as_str().as_bytes()) as usize;
        self.put_gates[hash % PUT_GATES].lock()
    }

    /// A directory that is there and durable, and so are those above it: their creator may have died before that. The
    /// directory above is synced once a process, not once a call.
    fn ensure_dirs(&self, path: &Path) -> Result<(), StorageError> {
        let is_known = self.durable_dirs.lock().contains(path);
        if is_known && optional(self.disk.stat(path)).attempt("open", path)?.is_some() {
            return Ok(());
        }
        if let Some(above) = path.parent().filter(|above| *above != self.layout.root()) {
            self.ensure_dirs(above)?;
        }
        self.directories.ensure(path)?;
        let mut known = self.durable_dirs.lock();
        if known.len() >= KNOWN_DIRS_MAX {
            known.clear();
        }
        known.insert(path.to_owned());
        Ok(())
    }

    /// Puts a file in place, durably, whole or not at all.
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<FileStat, StorageError> {
        write::replace(&*self.disk, &self.directories, &self.temp_beside(path), path, bytes, None)
    }

    /// The same for a document, which gets a later modification time than its predecessor, so that its revision is new.
    fn replace_document(
        &self,
        path: &Path,
        bytes: &[u8],
        predecessor: Option<&FileStat>,
    ) -> Result<Revision, StorageError> {
        let now_nanos = i128::from(self.clock.now().micros()) * 1_000;
        let stamp = Stamp { now_nanos, after: predecessor.map(|stat| stat.modified_nanos) };
        let temp = self.temp_beside(path);
        let stat = write::replace(&*self.disk, &self.directories, &temp, path, bytes, Some(stamp))?;
        Ok(revision_of(&stat))
    }

    fn temp_prefix(&self) -> &'static str {
        match self.purpose {
            Purpose::Serve => TEMP_PREFIX,
            Purpose::Repair => REPAIR_TEMP_PREFIX,
        }
    }

    /// What a file is called until it is whole and gets its name.
    fn temp_beside(&self, path: &Path) -> PathBuf {
        let folder = path.parent().expect("a file lies in a directory");
        folder.join(format!("{}{}", self.temp_prefix(), uuid4(&*self.entropy)))
    }

    /// Keeps bytes of a session that something is about to replace.
    fn keep(&self, session: &SessionId, label: &str, bytes: &[u8]) -> Result<(), StorageError> {
        let folder = self.layout.kept_of(session);
        self.ensure_dirs(&folder)?;
        let micros = self.clock.now().micros();
        let unique = uuid4(&*self.entropy);
        self.replace(&folder.join(format!("{micros}-{}-{label}", &unique[..8])), bytes).map(drop)
    }
}

impl Storage for FileStorage {
    fn can_write(&self) -> bool {
        self.lock.is_some() && !self.latch.is_stopped()
    }

    fn stopped_by(&self) -> Option<StorageError> {
        self.latch.check().err()
    }

    fn commit(&self) -> Result<(), StorageError> {
        self.must_write()?;
        self.committer.as_ref().map_or(Ok(()), |committer| committer.commit())
    }

    fn findings(&self) -> Vec<Finding> {
        self.findings.clone()
    }

    fn live_findings(&self) -> Vec<Finding> {
        if let Some(committer) = &self.committer {
            committer.retry_thread();
        }
        self.live_findings.current()
    }

    fn is_by_hand(&self) -> bool {
        self.raw.is_by_hand()
    }

    fn held_since(&self) -> Option<f64> {
        let is_held = self.is_held().unwrap_or(false);
        lock::holder(&*self.disk, &self.layout).filter(|_| is_held).map(|holder| holder.started_at)
    }

    fn boot_id(&self) -> String {
        self.boot_id.clone()
    }

    fn note_group(&self, group: &ProcessGroup) -> Result<(), StorageError> {
        self.write_group(group)
    }

    fn forget_group(&self, token: &str) -> Result<(), StorageError> {
        self.remove_group(token)
    }

    fn noted_groups(&self) -> Result<Vec<ProcessGroup>, StorageError> {
        self.read_groups()
    }

    fn core_transcript(&self, session: &SessionId) -> Result<Option<Vec<u8>>, StorageError> {
        match &self.core_dir {
            Some(folder) => self.read_core(&Layout::core_transcript(folder, session)),
            None => Ok(None),
        }
    }

    fn document(&self, session: &SessionId) -> Result<Option<Document>, StorageError> {
        self.read_document(session)
    }

    fn document_head(&self, session: &SessionId, bytes: usize) -> Result<Option<DocumentHead>, StorageError> {
        self.read_document_head(session, bytes)
    }

    fn document_revision(&self, session: &SessionId) -> Result<Option<Revision>, StorageError> {
        self.stat_document(session)
    }

    fn document_bytes(&self, session: &SessionId) -> Result<Option<u64>, StorageError> {
        let path = self.layout.sidecar(session);
        Ok(optional(self.disk.stat(&path)).attempt("look at", &path)?.map(|stat| stat.len))
    }

    fn is_current(&self, session: &SessionId, revision: &Revision) -> Result<bool, StorageError> {
        let path = self.layout.sidecar(session);
        let Some(stat) = optional(self.disk.stat(&path)).attempt("look at", &path)? else { return Ok(false) };
        Ok(is_revision_of(&stat, revision) && !self.is_deleted(session)?)
    }

    fn put_document(&self, session: &SessionId, bytes: &[u8], put: &Put) -> Result<PutOutcome, StorageError> {
        self.must_write()?;
        self.write_document(session, bytes, put)
    }

    fn documents(&self) -> Result<Vec<DocumentEntry>, StorageError> {
        self.list_documents()
    }

    fn documents_token(&self) -> Result<Option<u128>, StorageError> {
        self.folder_token()
    }

    fn index_notes(&self) -> Result<Option<Vec<u8>>, StorageError> {
        self.read_index()
    }

    fn append_index_notes(&self, lines: &[u8]) -> Result<u64, StorageError> {
        self.must_write()?;
        self.append_index(lines)
    }

    fn replace_index_notes(&self, lines: &[u8]) -> Result<(), StorageError> {
        self.must_write()?;
        self.replace_index(lines)
    }

    fn has_foreign_backup(&self, session: &SessionId) -> Result<bool, StorageError> {
        let path = self.layout.backup(session);
        Ok(optional(self.disk.stat(&path)).attempt("look at", &path)?.is_some())
    }

    fn delete_session(&self, session: &SessionId) -> Result<bool, StorageError> {
        self.must_write()?;
        self.move_session_to_trash(session)
    }

    fn is_deleted(&self, session: &SessionId) -> Result<bool, StorageError> {
        if !self.deleted_filter.may_hold(session) {
            return Ok(false);
        }
        let path = self.layout.tombstone(session);
        Ok(optional(self.disk.stat(&path)).attempt("look at", &path)?.is_some())
    }

    fn put_object(
        &self,
        session: &SessionId,
        kind: ObjectKind,
        key: &str,
        bytes: &[u8],
    ) -> Result<PutObject, StorageError> {
        self.must_write()?;
        self.write_object(session, kind, key, bytes)
    }

    fn object(&self, session: &SessionId, kind: ObjectKind, key: &str) -> Result<Option<Vec<u8>>, StorageError> {
        self.read_object(session, kind, key)
    }

    fn object_len(&self, session: &SessionId, kind: ObjectKind, key: &str) -> Result<Option<u64>, StorageError> {
        self.stat_object(session, kind, key)
    }

    fn objects(&self, session: &SessionId, kind: ObjectKind) -> Result<Vec<String>, StorageError> {
        self.list_objects(session, kind)
    }

    fn remove_object(&self, session: &SessionId, kind: ObjectKind, key: &str) -> Result<bool, StorageError> {
        self.must_write()?;
        self.unlink_object(session, kind, key)
    }

    fn create_journal(&self, session: &SessionId, run: &RunId, birth: &Birth) -> Result<OpenedJournal, StorageError> {
        self.must_write()?;
        self.create_run_file(session, run, birth)
    }

    fn open_journal(&self, session: &SessionId, run: &RunId) -> Result<OpenedJournal, StorageError> {
        self.must_write()?;
        self.open_run_file(session, run)
    }

    fn journal_bytes(&self, session: &SessionId, run: &RunId) -> Result<Option<Box<dyn JournalBytes>>, StorageError> {
        self.read_run_file(session, run)
    }

    fn journal_len(&self, session: &SessionId, run: &RunId) -> Result<Option<u64>, StorageError> {
        self.run_file_len(session, run)
    }

    fn birth(&self, session: &SessionId, run: &RunId) -> Result<Option<Birth>, StorageError> {
        self.recorded_birth(session, run)
    }

    fn checked_after(&self, session: &SessionId, run: &RunId) -> Result<Option<u64>, StorageError> {
        Ok(self.readable_record(session, run)?.and_then(|record| record.checked_after()))
    }

    fn discard_journal(&self, session: &SessionId, run: &RunId) -> Result<(), StorageError> {
        self.must_write()?;
        self.discard_run_file(session, run)
    }

    fn journals(&self, session: &SessionId) -> Result<Vec<RunId>, StorageError> {
        self.list_run_files(session)
    }

    fn remove_journal(&self, session: &SessionId, run: &RunId) -> Result<bool, StorageError> {
        self.must_write()?;
        self.move_run_to_trash(session, run)
    }

    fn next_order(&self, after: u64) -> Result<u64, StorageError> {
        self.must_write()?;
        self.take_order(after)
    }

    fn note_continuation(&self, session: &SessionId, run: &RunId, noted: Continuation) -> Result<(), StorageError> {
        self.must_write()?;
        self.record_continuation(session, run, noted)
    }

    fn keep_stderr(&self, session: &SessionId, run: &RunId, text: &str) -> Result<(), StorageError> {
        self.must_write()?;
        self.record_stderr(session, run, text)
    }

    fn kept_stderr(&self, session: &SessionId, run: &RunId) -> Result<Option<String>, StorageError> {
        self.recorded_stderr(session, run)
    }

    fn note_renewal(&self, session: &SessionId, run: &RunId, at_seconds: f64) -> Result<(), StorageError> {
        self.must_write()?;
        self.write_lease_note(session, run, at_seconds)
    }

    fn forget_renewal(&self, session: &SessionId, run: &RunId) -> Result<(), StorageError> {
        self.must_write()?;
        self.remove_lease_note(session, run)
    }
}

impl Drop for FileStorage {
    /// The lock is released after this.
    fn drop(&mut self) {
        let was_stopped = self.latch.is_stopped();
        if let Some(committer) = &self.committer {
            committer.close();
        }
        // One that has stopped may not even write this.
        if let Some(lock) = self.lock.as_ref().filter(|_| !was_stopped) {
            lock.mark_closed();
        }
    }
}

/// How many abandoned journals keep a file open, in a process that may open `open_files_max` files.
fn left_journals_max(open_files_max: usize) -> usize {
    const PART: usize = 32;
    (open_files_max / PART).clamp(*LEFT_JOURNALS.start(), *LEFT_JOURNALS.end())
}
