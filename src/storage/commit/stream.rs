//! One journal as the committer knows it: how far it is written, how far it is safe, and where.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sync::Mutex;

use crate::model::{RunId, SessionId};
use crate::storage::disk::{DiskFile, read_full};
use crate::storage::error::{Attempt, StorageError};

/// A journal that is or was open for appending.
#[derive(Debug)]
pub(in crate::storage) struct Stream {
    pub(super) session: SessionId,
    pub(super) run: RunId,
    path: PathBuf,
    /// The file that its lines were written to; none while it rests, when all of them are synced.
    file: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Bytes of whole lines in the file.
    written: AtomicU64,
    /// Bytes that are durable in the file itself.
    synced: AtomicU64,
    /// Held during a sync of the file. A failure is told once to one of two who sync at the same time, so it is kept.
    sync: Mutex<Option<StorageError>>,
    /// Whether the committer has been told of lines that nobody waits for.
    is_noted: AtomicBool,
    /// Bytes that are in the log. Only the committer's own steps change it.
    logged: AtomicU64,
    /// The segment that names it; 0 if the last one does not. Only the committer's own steps touch it.
    named_in: AtomicU64,
}

impl Stream {
    /// A journal all of whose bytes are durable in its file.
    pub(in crate::storage) fn new(session: &SessionId, run: &RunId, path: &Path, extent: u64) -> Self {
        Stream {
            session: session.clone(),
            run: run.clone(),
            path: path.to_owned(),
            file: Mutex::new(None),
            written: AtomicU64::new(extent),
            synced: AtomicU64::new(extent),
            sync: Mutex::new(None),
            is_noted: AtomicBool::new(false),
            logged: AtomicU64::new(extent),
            named_in: AtomicU64::new(0),
        }
    }

    pub(in crate::storage) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes the file that the next lines are written to.
    pub(in crate::storage) fn hold(&self, file: &Arc<dyn DiskFile>) {
        *self.file.lock() = Some(file.clone());
    }

    /// Lets go of the file. To be called when all is synced.
    pub(in crate::storage) fn let_go(&self) {
        *self.file.lock() = None;
    }

    /// Notes that so many bytes are in the file now.
    #[inline]
    pub(in crate::storage) fn note_written(&self, extent: u64) {
        self.written.store(extent, Ordering::Release);
    }

    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Notes that there are lines nobody waits for, and says whether the committer has to be told. The swap is a full
    /// barrier: a committer that has taken the note back sees what was written before it.
    #[inline]
    pub(super) fn note(&self) -> bool {
        !self.is_noted.swap(true, Ordering::SeqCst)
    }

    /// Takes the note back; lines written from now on make another.
    pub(super) fn take_note(&self) {
        self.is_noted.swap(false, Ordering::SeqCst);
    }

    /// Up to where it is in the log or durable in its file.
    pub(super) fn covered(&self) -> u64 {
        self.logged().max(self.synced())
    }

    pub(super) fn logged(&self) -> u64 {
        self.logged.load(Ordering::Acquire)
    }

    pub(super) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Notes that the log holds it up to this place.
    pub(super) fn note_logged(&self, to: u64) {
        self.logged.store(to, Ordering::Release);
    }

    /// Notes the segment that names it, and says whether that is news.
    pub(super) fn note_named(&self, segment: u64) -> bool {
        self.named_in.swap(segment, Ordering::Relaxed) != segment
    }

    /// Notes that this segment names it no more.
    pub(super) fn forget_named(&self, segment: u64) {
        let _ = self.named_in.compare_exchange(segment, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes everything written so far durable in the file itself.
    pub(in crate::storage) fn secure(&self) -> Result<(), StorageError> {
        let written = self.written();
        if self.synced() >= written {
            return Ok(());
        }
        let mut failed = self.sync.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let file = self.file.lock().clone();
        if let Some(file) = file {
            file.sync().synced(&self.path).inspect_err(|error| *failed = Some(error.clone()))?;
            self.synced.fetch_max(written, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Reads lines back that were written. Not if the file was let go meanwhile, because all of it is synced, or if
    /// another program has cut it.
    pub(super) fn read_back(&self, from: u64, to: u64, out: &mut Vec<u8>) -> Result<bool, StorageError> {
        let Some(file) = self.file.lock().clone() else { return Ok(false) };
        out.clear();
        out.resize((to - from) as usize, 0);
        Ok(read_full(&*file, out, from).attempt("read back", &self.path)? == out.len())
    }
}
