//! One writer a data directory: an advisory lock, and a note of who holds it.

use serde::{Deserialize, Serialize};

use super::disk::{Access, Disk, DiskLock, read_full, write_full};
use super::error::StorageError;
use super::layout::Layout;
use crate::clock::Timestamp;
use crate::limits::RECORD_BYTES_MAX;

/// The length of the note, without its line feed.
const NOTE_BYTES: usize = 255;

/// Who holds a data directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process.
    pub pid: u32,
    /// When it took the lock, in seconds since 1970.
    pub started_at: f64,
    /// In which boot of the machine.
    pub boot_id: String,
    /// Whether a sync failed in that boot, so that pages that look written may never reach the medium.
    #[serde(default, rename = "unsure", skip_serializing_if = "std::ops::Not::not")]
    pub is_unsure: bool,
}

impl Holder {
    /// Always as long, so that one write replaces the note of an earlier holder, and takes no room on a full disk.
    fn note(&self) -> Vec<u8> {
        let note = serde_json::to_string(self).expect("numbers and text become JSON");
        format!("{note:<NOTE_BYTES$}\n").into_bytes()
    }
}

/// The right to write a data directory, for as long as this value lives.
#[derive(Debug)]
pub(crate) struct WriterLock {
    _lock: Box<dyn DiskLock>,
    is_unsure: bool,
}

impl WriterLock {
    /// Takes the lock and notes who took it. The kernel lets it go when the process ends, however it ends, so a note
    /// that is found without a held lock is history.
    pub(crate) fn take(disk: &dyn Disk, layout: &Layout, now: Timestamp) -> Result<Self, StorageError> {
        let path = layout.lock();
        let lock = match disk.lock(&path) {
            Ok(lock) => lock,
            Err(cause) if cause.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(StorageError::Busy { path: layout.root().to_owned(), holder: holder(disk, layout) });
            }
            Err(cause) => return Err(StorageError::io("lock", &path, cause)),
        };
        let boot_id = disk.boot_id();
        let is_unsure = holder(disk, layout).is_some_and(|last| last.is_unsure && last.boot_id == boot_id);
        let own = Holder { pid: std::process::id(), started_at: now.seconds(), boot_id, is_unsure };
        write_full(lock.file(), &own.note(), 0).map_err(|(_, cause)| StorageError::io("write", &path, cause))?;
        Ok(WriterLock { _lock: lock, is_unsure })
    }

    /// Whether a sync failed in this boot, by this holder or one before it. After a restart of the machine every page
    /// is what the medium holds.
    pub(crate) fn is_unsure(&self) -> bool {
        self.is_unsure
    }
}

/// Who last took the lock. Whether it is still held only the lock itself tells.
pub(crate) fn holder(disk: &dyn Disk, layout: &Layout) -> Option<Holder> {
    let file = disk.open(&layout.lock(), Access::Read).ok()?;
    let mut note = vec![0; RECORD_BYTES_MAX as usize];
    let len = read_full(&*file, &mut note, 0).ok()?;
    serde_json::from_slice(&note[..len]).ok()
}

/// Notes that a sync failed. It has to survive this process, not a power cut. If even this fails, nothing more can be
/// done here.
pub(crate) fn mark_unsure(disk: &dyn Disk, layout: &Layout) {
    if let (Some(holder), Ok(file)) = (holder(disk, layout), disk.open(&layout.lock(), Access::Write)) {
        let _ = write_full(&*file, &Holder { is_unsure: true, ..holder }.note(), 0);
    }
}
