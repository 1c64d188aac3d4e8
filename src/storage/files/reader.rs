//! Journal files as readers see them: with the lines that the overlay adds, and never ahead of a durable writer.
//!
//! A writer whose note says `durable` shows nothing that a power cut could take back. A reader in another process cannot
//! know what that writer has synced, so it calls fdatasync itself on the journal before it shows what it read. That costs
//! the writer nothing. Until a restart of the machine it makes no difference whether the writer is still alive. A durable
//! writer does the same with journals that it has not opened: an earlier process may have left lines in them.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use crate::sync::Mutex;

use super::overlay::Patches;
use super::suspect_files::SuspectFiles;
use super::withheld::RunKey;
use crate::storage::commit::Latch;
use crate::storage::contract::{Durability, JournalBytes};
use crate::storage::disk::{DiskFile, SharedDisk, read_full};
use crate::storage::error::{Attempt, StorageError};
use crate::storage::layout::Layout;
use crate::storage::lock;

/// A journal's own file.
#[derive(Debug)]
pub(super) struct JournalFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    /// What must be synced before anything is shown.
    guard: Option<SyncGuard>,
}

/// Syncs a journal that a durable writer of another process may not have synced yet.
#[derive(Debug)]
pub(super) struct SyncGuard {
    writer: LastWriter,
    /// Up to here it was synced by this reader, in whole lines: a writer may take back part of one.
    synced_to: AtomicU64,
}

/// Who may have written a journal without syncing it.
#[derive(Debug)]
enum LastWriter {
    /// Another process, of which the lock's note tells.
    Noted { disk: SharedDisk, layout: Layout, boot_id: String },
    /// An earlier one, unless this process has opened the run: then it knows how far it may be shown.
    Earlier { own_runs: Arc<OwnRuns>, run: RunKey, latch: Arc<Latch>, suspects: Arc<SuspectFiles> },
}

/// The runs whose journals this process has opened to write.
#[derive(Debug, Default)]
pub(super) struct OwnRuns {
    runs: Mutex<HashMap<RunKey, Weak<()>>>,
}

impl OwnRuns {
    /// Notes a run for as long as what is returned lives.
    pub(super) fn note(&self, run: RunKey) -> Arc<()> {
        let mut runs = self.runs.lock();
        if runs.len() == runs.capacity() {
            runs.retain(|_, known| known.strong_count() > 0);
        }
        let own = Arc::new(());
        runs.insert(run, Arc::downgrade(&own));
        own
    }

    fn has(&self, run: &RunKey) -> bool {
        self.runs.lock().get(run).is_some_and(|known| known.strong_count() > 0)
    }
}

impl SyncGuard {
    /// For a reader beside whatever process the lock's note names.
    pub(super) fn beside(disk: &SharedDisk, layout: &Layout, boot_id: &str) -> Self {
        let (disk, layout, boot_id) = (disk.clone(), layout.clone(), boot_id.to_owned());
        SyncGuard { writer: LastWriter::Noted { disk, layout, boot_id }, synced_to: AtomicU64::new(0) }
    }

    /// For a durable writer.
    pub(super) fn of_writer(
        own_runs: &Arc<OwnRuns>,
        run: RunKey,
        latch: &Arc<Latch>,
        suspects: &Arc<SuspectFiles>,
    ) -> Self {
        let (own_runs, latch, suspects) = (own_runs.clone(), latch.clone(), suspects.clone());
        SyncGuard { writer: LastWriter::Earlier { own_runs, run, latch, suspects }, synced_to: AtomicU64::new(0) }
    }

    /// Makes what was read durable, if a durable writer may not have. The file may be longer by now, and is synced whole.
    fn cover(&self, file: &JournalFile, read: &[u8], offset: u64) -> Result<(), StorageError> {
        let end = offset + read.len() as u64;
        if end <= self.synced_to.load(Ordering::Acquire) || !self.is_needed()? {
            return Ok(());
        }
        let len = file.file.stat().attempt("look at", &file.path)?.len;
        let mut last = [0];
        let is_whole = len > end && file.file.read_at(&mut last, len - 1).attempt("read", &file.path)? == 1;
        file.file.sync().synced(&file.path).inspect_err(|error| self.note_failure(file, error))?;
        let in_lines = memchr::memrchr(b'\n', read).map_or(0, |at| offset + at as u64 + 1);
        let synced_to = if is_whole && last == *b"\n" { len } else { in_lines };
        self.synced_to.fetch_max(synced_to, Ordering::AcqRel);
        Ok(())
    }

    /// A writer whose fsync fails stops, whatever it was for. A full disk is reported to the reader; what the fsync could not
    /// write is written again before anything is added to the journal.
    fn note_failure(&self, file: &JournalFile, error: &StorageError) {
        if let LastWriter::Earlier { latch, suspects, .. } = &self.writer {
            suspects.note(&file.path);
            match error.is_no_space() {
                true => latch.leave_doubt(),
                false => latch.stop(error),
            }
        }
    }

    /// Whether the last writer was a durable one of this boot: after a restart of the machine every page is what the medium
    /// holds. One that has stopped because an fsync failed leaves pages that a later fsync proves nothing of.
    fn is_needed(&self) -> Result<bool, StorageError> {
        let (disk, layout, boot_id) = match &self.writer {
            LastWriter::Noted { disk, layout, boot_id } => (disk, layout, boot_id),
            LastWriter::Earlier { own_runs, run, .. } => return Ok(!own_runs.has(run)),
        };
        let last = match lock::read_note(&**disk, layout) {
            // It is being written, or says nothing.
            Err(StorageError::Damaged { .. }) => return Ok(true),
            // It may not be read by this user.
            Err(StorageError::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(true);
            }
            read => read?,
        };
        let Some(last) = last else { return Ok(false) };
        let is_needed = last.durability == Durability::Durable && last.boot_id == *boot_id;
        match is_needed && last.is_stopped {
            true => Err(StorageError::WriterStopped { path: layout.root().to_owned() }),
            false => Ok(is_needed),
        }
    }
}

impl JournalFile {
    pub(super) fn new(file: Box<dyn DiskFile>, path: PathBuf, guard: Option<SyncGuard>) -> Self {
        JournalFile { file, path, guard }
    }

    /// Nothing is shown of what was read if it could not be made as durable as it must be.
    fn show(&self, read: &[u8], offset: u64) -> Result<usize, StorageError> {
        match &self.guard {
            Some(guard) if !read.is_empty() => guard.cover(self, read, offset)?,
            _ => {}
        }
        Ok(read.len())
    }
}

impl JournalBytes for JournalFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StorageError> {
        let len = self.file.read_at(buffer, offset).attempt("read", &self.path)?;
        self.show(&buffer[..len], offset)
    }
}

/// A journal's bytes as a replay of the log would leave them.
#[derive(Debug)]
pub(super) struct PatchedBytes {
    pub(super) file: Option<JournalFile>,
    pub(super) patches: Arc<Patches>,
}

impl JournalBytes for PatchedBytes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StorageError> {
        let from_file = match &self.file {
            Some(file) => match read_full(&*file.file, buffer, offset).attempt("read", &file.path) {
                // What is laid over it can be shown without it.
                Err(error) if error.is_of_one_object() && self.patches.starts() => 0,
                len => file.show(&buffer[..len?], offset)?,
            },
            None => 0,
        };
        Ok(self.patches.lay_over(buffer, from_file, offset))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::{RunId, SessionId};
    use crate::storage::disk::{Access, Disk, FileStat};
    use crate::storage::sim::{Crash, SimDisk};

    const JOURNAL: &str = "/journal";

    /// A file to which its writer appends as soon as a reader has synced it.
    #[derive(Debug)]
    struct GrowsAfterSync {
        file: Box<dyn DiskFile>,
        line: &'static [u8],
    }

    impl DiskFile for GrowsAfterSync {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.file.read_at(buffer, offset)
        }
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
            self.file.write_at(bytes, offset)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.file.set_len(len)
        }
        fn sync(&self) -> io::Result<()> {
            self.file.sync()?;
            self.write_at(self.line, self.stat()?.len).map(drop)
        }
        fn set_modified(&self, nanos: i128) -> io::Result<()> {
            self.file.set_modified(nanos)
        }
        fn stat(&self) -> io::Result<FileStat> {
            self.file.stat()
        }
    }

    /// A disk with a journal whose name is durable and whose bytes are not.
    fn unsynced(bytes: &[u8]) -> SimDisk {
        let disk = SimDisk::new();
        disk.open(Path::new(JOURNAL), Access::CreateNew).unwrap().write_at(bytes, 0).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk
    }

    /// The journal as a durable writer shows it that has not opened it: alone, and with lines laid over it.
    fn readers(disk: &SimDisk, line: &'static [u8]) -> [Box<dyn JournalBytes>; 2] {
        let journal = || {
            let run = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
            let guard = SyncGuard::of_writer(&Arc::default(), run, &Arc::default(), &Arc::default());
            let file = disk.open(Path::new(JOURNAL), Access::Write).unwrap();
            JournalFile::new(Box::new(GrowsAfterSync { file, line }), PathBuf::from(JOURNAL), Some(guard))
        };
        [Box::new(journal()), Box::new(PatchedBytes { file: Some(journal()), patches: Arc::default() })]
    }

    /// Reads, and checks that a power cut could not take back what was shown.
    #[track_caller]
    fn check_shown(disk: &SimDisk, journal: &dyn JournalBytes, offset: u64, most: usize, expected: &[u8]) {
        let mut buffer = vec![0; most];
        let len = journal.read_at(&mut buffer, offset).unwrap();
        assert_eq!(buffer[..len].escape_ascii().to_string(), expected.escape_ascii().to_string());
        let lost = disk.copy();
        lost.power_cut(Crash::LoseAll);
        let durable = &lost.files()[Path::new(JOURNAL)];
        let at = offset as usize;
        assert_eq!(durable.get(at..at + len), Some(expected), "it was shown, and a power cut takes it back");
    }

    #[test]
    fn what_is_written_after_the_fsync_is_not_shown_without_another() {
        for which in 0..2 {
            let disk = unsynced(b"one\n");
            let journal = &readers(&disk, b"two\n")[which];
            check_shown(&disk, &**journal, 0, 64, b"one\n");
            check_shown(&disk, &**journal, 4, 4, b"two\n");
            check_shown(&disk, &**journal, 0, 8, b"one\ntwo\n");
        }
    }

    /// Its writer takes part of a line back and writes another in its place.
    #[test]
    fn part_of_a_line_does_not_count_as_synced() {
        for (which, first_read) in [(0, 4), (0, 6), (1, 4), (1, 6)] {
            let disk = unsynced(b"one\ntw");
            let journal = &readers(&disk, b"")[which];
            check_shown(&disk, &**journal, 0, first_read, &b"one\ntw"[..first_read]);
            let writer = disk.open(Path::new(JOURNAL), Access::Write).unwrap();
            writer.set_len(4).unwrap();
            writer.write_at(b"2\n", 4).unwrap();
            check_shown(&disk, &**journal, 4, 64, b"2\n");
        }
    }

    /// After that no writer knows how far the journal may be shown.
    #[test]
    fn a_run_counts_as_opened_for_as_long_as_its_writer_lives() {
        let key = |name: &str| (SessionId::parse("s").unwrap(), RunId::parse(name).unwrap());
        let runs = OwnRuns::default();
        let (first, other) = (runs.note(key("r")), runs.note(key("other")));
        drop(other);
        assert!(runs.has(&key("r")) && !runs.has(&key("other")) && !runs.has(&key("never")));
        let again = runs.note(key("r"));
        drop(first);
        assert!(runs.has(&key("r")), "a later writer lives");
        drop(again);
        assert!(!runs.has(&key("r")));
        // What is forgotten to make room is not a writer that lives.
        let many: Vec<_> = (0..100).map(|number| runs.note(key(&format!("r{number}")))).collect();
        assert!((0..100).all(|number| runs.has(&key(&format!("r{number}")))));
        drop(many);
    }

    #[test]
    fn whole_lines_that_were_synced_cost_no_second_fsync() {
        for which in 0..2 {
            let disk = unsynced(b"one\ntwo\nthree\n");
            let journal = &readers(&disk, b"")[which];
            check_shown(&disk, &**journal, 0, 4, b"one\n");
            let before = disk.operations();
            check_shown(&disk, &**journal, 4, 64, b"two\nthree\n");
            assert_eq!(disk.operations(), before);
        }
    }
}
