//! What we note of a run beside its journal: in which boot of the machine it began, its lease, and its removal.
//!
//! After a reboot, lines that readers had seen may be gone from an unsynced journal. Their numbers must not be given
//! to other events, so a run is only ever appended to in the boot that it began in.

use serde::{Deserialize, Serialize};

use super::{FileStorage, write};
use crate::model::{RunId, SessionId};
use crate::storage::contract::Birth;
use crate::storage::error::{Attempt, StorageError, optional};

/// The contents of a run's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RunRecord {
    pub(super) version: u32,
    pub(super) boot_id: String,
    pub(super) begun_at: f64,
    #[serde(default)]
    pub(super) lease_seconds: Option<f64>,
    /// The highest number that another program may have given to an event before we took the run over.
    #[serde(default)]
    pub(super) last_seq_floor: u64,
    /// When the journal was removed; its id stays taken.
    #[serde(default)]
    pub(super) removed_at: Option<f64>,
    /// Whether it says nothing but that floor: the run is another program's still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_foreign: bool,
}

impl FileStorage {
    pub(super) fn new_record(&self, birth: &Birth) -> RunRecord {
        RunRecord {
            version: 1,
            boot_id: self.boot_id.clone(),
            begun_at: birth.begun_at,
            lease_seconds: birth.lease_seconds,
            last_seq_floor: 0,
            removed_at: None,
            is_foreign: false,
        }
    }

    /// The record of a run. A torn one is as good as none: its run was never acknowledged.
    pub(super) fn read_record(&self, session: &SessionId, run: &RunId) -> Result<Option<RunRecord>, StorageError> {
        match write::read_small(&*self.disk, &self.layout.run_record(session, run)) {
            Err(StorageError::Damaged { .. }) => Ok(None),
            found => found,
        }
    }

    /// Creates a run's record, or replaces the one it has. The folder is still to be synced after a creation.
    pub(super) fn write_record(
        &self,
        session: &SessionId,
        run: &RunId,
        record: &RunRecord,
    ) -> Result<(), StorageError> {
        let path = self.layout.run_record(session, run);
        let bytes = write::to_json_line(record);
        match optional(self.disk.stat(&path)).attempt("look at", &path)? {
            None => write::create(&*self.disk, &path, &bytes),
            Some(_) => self.replace(&path, &bytes).map(drop),
        }
    }
}
