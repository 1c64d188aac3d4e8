//! Lease notes: when an outside producer last renewed the lease of its run without an event.
//!
//! A note has to survive the death of the process and nothing more: after a power cut the boot is another one, and the
//! run takes no more events. It has a fixed length and is written in place with one write and no fsync. What a crash
//! leaves: no note, the old one, the new one, or a garbled one, which reads as none.

use std::io;
use std::path::Path;

use serde::Deserialize;

use super::write::open_plain;
use super::{FileStorage, Storage};
use crate::format::{checksum_of, with_checksum};
use crate::model::{RunId, SessionId};
use crate::storage::disk::{Access, DiskFile, write_full};
use crate::storage::error::{Attempt, StorageError, optional};

/// Bytes of a note, line feed included.
const NOTE_BYTES: usize = 50;

/// How often a note that is garbled is read: it may be read in the middle of a write.
const READS_MAX: usize = 2;

#[derive(Debug, Deserialize)]
struct LeaseNote {
    renewed_at: f64,
}

impl FileStorage {
    /// Notes a renewal. Does nothing for a session that is deleted or a run without a journal.
    pub(super) fn write_lease_note(
        &self,
        session: &SessionId,
        run: &RunId,
        at_seconds: f64,
    ) -> Result<(), StorageError> {
        let Some(bytes) = to_bytes(at_seconds) else { return Ok(()) };
        let path = self.layout.lease_note(session, run);
        let known = optional(self.disk.open(&path, Access::Write)).attempt("open", &path)?;
        let Some(file) = known.map_or_else(|| self.create_lease_note(session, run, &path), |file| Ok(Some(file)))?
        else {
            return Ok(());
        };
        write_full(&*file, &bytes, 0).map_err(|(_, cause)| StorageError::io("write", &path, cause))
    }

    fn create_lease_note(
        &self,
        session: &SessionId,
        run: &RunId,
        path: &Path,
    ) -> Result<Option<Box<dyn DiskFile>>, StorageError> {
        let journal = self.layout.journal(session, run);
        let has_journal = optional(self.disk.stat(&journal)).attempt("look at", &journal)?.is_some();
        if !has_journal || self.is_deleted(session)? {
            return Ok(None);
        }
        match self.disk.open(path, Access::CreateNew) {
            // Another renewal of the same run created it.
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                optional(self.disk.open(path, Access::Write)).attempt("open", path)
            }
            // The session was deleted meanwhile.
            created => optional(created).attempt("create", path),
        }
    }

    /// Removes a run's note, if it has one.
    pub(super) fn remove_lease_note(&self, session: &SessionId, run: &RunId) -> Result<(), StorageError> {
        let path = self.layout.lease_note(session, run);
        optional(self.disk.remove_file(&path)).attempt("remove", &path).map(drop)
    }

    /// When a run's lease was last renewed without an event. A note that cannot be read is none.
    pub(super) fn renewed_at(&self, session: &SessionId, run: &RunId) -> Result<Option<f64>, StorageError> {
        let path = self.layout.lease_note(session, run);
        for _ in 0..READS_MAX {
            match self.read_lease_note(&path) {
                Ok(Some(bytes)) => match parse(&bytes) {
                    None => {}
                    renewed_at => return Ok(renewed_at),
                },
                Ok(None) => return Ok(None),
                Err(error) if error.is_of_one_object() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The bytes where a note stands. What another hand put after them does not count.
    fn read_lease_note(&self, path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
        let Some((file, stat)) = open_plain(&*self.disk, path)? else { return Ok(None) };
        let bytes = file.into_bytes(stat.len.min(NOTE_BYTES as u64) as usize).attempt("read", path)?;
        Ok(Some(bytes))
    }
}

/// A note of this time; nothing if the time has no room in it.
fn to_bytes(at_seconds: f64) -> Option<Vec<u8>> {
    let mut bytes = with_checksum(format!("{{\"renewed_at\":{at_seconds:17.6}}}").into_bytes());
    bytes.push(b'\n');
    (at_seconds.is_finite() && bytes.len() == NOTE_BYTES).then_some(bytes)
}

fn parse(bytes: &[u8]) -> Option<f64> {
    let line = bytes.strip_suffix(b"\n").filter(|_| bytes.len() == NOTE_BYTES)?;
    let note: LeaseNote = (checksum_of(line) == Some(true)).then(|| serde_json::from_slice(line).ok())??;
    Some(note.renewed_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_one_length_and_is_read_as_it_was_written() {
        for at in [0.0, 1.5, 1_800_000_000.25, 9_999_999_999.999999] {
            let bytes = to_bytes(at).expect("there is room");
            assert_eq!((bytes.len(), parse(&bytes)), (NOTE_BYTES, Some(at)), "{}", String::from_utf8_lossy(&bytes));
        }
        let usual = to_bytes(1_800_000_000.25).unwrap();
        assert_eq!(usual, b"{\"renewed_at\":1800000000.250000,\"crc\":\"3e0a4e8a\"}\n");
    }

    #[test]
    fn a_time_without_room_is_not_noted() {
        for at in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e11, -1e10] {
            assert_eq!(to_bytes(at), None, "{at}");
        }
    }

    #[test]
    fn no_flipped_bit_and_no_part_of_a_note_is_believed() {
        let bytes = to_bytes(1_800_000_000.25).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&flipped), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len]), None, "{len} bytes");
        }
        assert_eq!(parse(&[bytes, b"x".to_vec()].concat()), None);
    }
}
