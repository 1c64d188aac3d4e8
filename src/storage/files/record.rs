//! The record of a run, beside its journal: the boot in which it began, its lease, its number floor, its removal,
//! the end of its stderr.
//!
//! After a reboot, lines that readers had seen may be gone from an unsynced journal. Their numbers must not be given
//! to other events, so a run is only ever appended to in the boot that it began in. A record is put in place whole and
//! carries a checksum: one that cannot be read is damaged, never torn, and its run's id stays taken.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::FileStorage;
use super::write::open_plain;
use crate::format::{checksum_of, with_checksum};
use crate::limits::RECORD_BYTES_MAX;
use crate::model::{RunId, SessionId, TurnNote};
use crate::storage::contract::{Birth, Continuation};
use crate::storage::disk::Disk;
use crate::storage::error::{Attempt, StorageError};

/// The contents of a run's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RunRecord {
    pub(super) version: u32,
    pub(super) boot_id: String,
    pub(super) begun_at: f64,
    #[serde(default)]
    pub(super) lease_seconds: Option<f64>,
    /// The highest number that may have been given to an event although the journal does not show it.
    #[serde(default)]
    pub(super) last_seq_floor: u64,
    /// When the journal was removed; its id stays taken.
    #[serde(default)]
    pub(super) removed_at: Option<f64>,
    /// Whether it says nothing but that floor: the run is another program's still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_foreign: bool,
    /// Whether the run takes no more events, whatever the boot: it is not known any more in which one it began.
    #[serde(default, rename = "closed", skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_closed: bool,
    /// The last event that another program wrote before we took the run over. Each later line carries a checksum. Absent
    /// from records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) foreign_until: Option<u64>,
    /// The place of the run's first segment. Absent from records of earlier versions, and of runs that were taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) order: Option<u64>,
    /// The places of its later segments, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) continued: Vec<Continuation>,
    /// What is noted of the turn that the run answers. Absent where there is nothing to note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turn: Option<TurnNote>,
    /// The end of what the run's commands printed on stderr. Absent where they printed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stderr_tail: Option<String>,
}

/// The keys of records that were written before they had a checksum.
const KEYS_WITHOUT_CHECKSUM: [&str; 7] =
    ["version", "boot_id", "begun_at", "lease_seconds", "last_seq_floor", "removed_at", "is_foreign"];

impl RunRecord {
    /// The number after which every line carries a checksum; none if another program still writes the run.
    pub(super) fn checked_after(&self) -> Option<u64> {
        (!self.is_foreign).then(|| self.foreign_until.unwrap_or(self.last_seq_floor))
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = with_checksum(serde_json::to_vec(self).expect("numbers and text become JSON"));
        bytes.push(b'\n');
        bytes
    }

    /// A record without a checksum is believed if it has no key but those that such records had: the checksum's own key
    /// may be what is damaged.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let line = bytes.trim_ascii_end();
        let is_known = |object: serde_json::Map<String, serde_json::Value>| {
            object.keys().all(|key| KEYS_WITHOUT_CHECKSUM.contains(&key.as_str()))
        };
        match checksum_of(line) {
            Some(true) => {}
            Some(false) => return Err("its checksum does not fit".to_owned()),
            None if serde_json::from_slice(line).is_ok_and(is_known) => {}
            None => return Err("it has no checksum".to_owned()),
        }
        serde_json::from_slice(line).map_err(|cause| cause.to_string())
    }
}

/// Reads a run's record; nothing if there is none. An empty file is one that an earlier version could not finish.
pub(super) fn read(disk: &dyn Disk, path: &Path) -> Result<Option<RunRecord>, StorageError> {
    let Some((file, stat)) = open_plain(disk, path)? else { return Ok(None) };
    if stat.len > RECORD_BYTES_MAX {
        return Err(StorageError::TooLarge { path: path.to_owned(), bytes: stat.len, max: RECORD_BYTES_MAX });
    }
    let bytes = file.into_bytes(stat.len as usize).attempt("read", path)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let damaged = |reason| StorageError::Damaged { path: path.to_owned(), reason };
    RunRecord::parse(&bytes).map(Some).map_err(damaged)
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
            is_closed: false,
            foreign_until: Some(0),
            order: birth.order,
            continued: Vec::new(),
            turn: birth.turn.clone(),
            stderr_tail: None,
        }
    }

    /// What is known of a run that this program began or has taken over.
    pub(super) fn recorded_birth(&self, session: &SessionId, run: &RunId) -> Result<Option<Birth>, StorageError> {
        let Some(record) = self.readable_record(session, run)?.filter(|record| !record.is_foreign) else {
            return Ok(None);
        };
        let renewed_at = match record.lease_seconds {
            Some(_) => self.renewed_at(session, run)?,
            None => None,
        };
        Ok(Some(Birth {
            begun_at: record.begun_at,
            lease_seconds: record.lease_seconds,
            order: record.order,
            takes_appends: !self.is_taken_by(&record),
            renewed_at,
            continued: record.continued,
            turn: record.turn,
        }))
    }

    /// The record of a run. A damaged one is an error: the run may have been removed.
    pub(super) fn read_record(&self, session: &SessionId, run: &RunId) -> Result<Option<RunRecord>, StorageError> {
        read(&*self.disk, &self.layout.run_record(session, run))
    }

    /// The record of a run for those who can do without: a damaged one says nothing.
    pub(super) fn readable_record(&self, session: &SessionId, run: &RunId) -> Result<Option<RunRecord>, StorageError> {
        match self.read_record(session, run) {
            Err(StorageError::Damaged { .. } | StorageError::TooLarge { .. }) => Ok(None),
            found => found,
        }
    }

    /// Puts a run's record in place, whole and durable.
    pub(super) fn write_record(
        &self,
        session: &SessionId,
        run: &RunId,
        record: &RunRecord,
    ) -> Result<(), StorageError> {
        self.replace(&self.layout.run_record(session, run), &record.to_bytes()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RunRecord {
        let bytes =
            br#"{"version":1,"boot_id":"b","begun_at":1.5,"lease_seconds":null,"last_seq_floor":7,"removed_at":9.0}"#;
        RunRecord::parse(bytes).expect("a record of an earlier version")
    }

    #[test]
    fn what_was_written_is_read_and_no_flipped_bit_is_believed() {
        let continued = vec![Continuation { after_seq: 3, order: 9 }];
        let numbered = RunRecord { order: Some(7), continued, ..record() };
        for record in [record(), RunRecord { foreign_until: Some(0), is_closed: true, ..record() }, numbered] {
            let bytes = record.to_bytes();
            assert_eq!(RunRecord::parse(&bytes), Ok(record));
            for bit in 0..(bytes.len() - 1) * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(RunRecord::parse(&flipped).is_err(), "bit {bit}: {}", String::from_utf8_lossy(&flipped));
            }
        }
    }

    #[test]
    fn a_record_without_numbers_is_written_as_before() {
        let bytes = RunRecord { foreign_until: Some(0), ..record() }.to_bytes();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.contains(r#""removed_at":9.0,"foreign_until":0,"crc":"#), "{text}");
        assert_eq!((record().order, record().continued), (None, Vec::new()));
    }

    #[test]
    fn records_of_earlier_versions_are_lenient_up_to_their_floor() {
        assert_eq!(record().checked_after(), Some(7));
        assert_eq!(RunRecord { foreign_until: Some(3), ..record() }.checked_after(), Some(3));
        assert_eq!(RunRecord { is_foreign: true, ..record() }.checked_after(), None);
    }
}
