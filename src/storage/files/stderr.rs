//! The end of a run's stderr, in the run's record: kept in the place of what was kept before, and read.
//!
//! The record is put in place whole (a temporary file, its fsync, a rename, the directory's fsync). What a crash leaves: the
//! record as it was before, or with the new text. A temporary file that is left is removed by the next writer.

use super::record::RunRecord;
use super::{FileStorage, Storage};
use crate::limits::{RECORD_BYTES_MAX, STDERR_BYTES_MAX};
use crate::model::{RunId, SessionId};
use crate::storage::error::StorageError;

/// Bytes of a record that stay free for what is noted in it later: continuations, a removal.
const RESERVED_BYTES: u64 = 8 * 1024;

impl FileStorage {
    /// Keeps the end of a text. One at a time with the other changes of the session's records.
    pub(super) fn record_stderr(&self, session: &SessionId, run: &RunId, text: &str) -> Result<(), StorageError> {
        let _one_at_a_time = self.put_gate(session);
        if self.is_deleted(session)? {
            return Ok(());
        }
        match self.readable_record(session, run)?.and_then(|record| record.with_stderr(text)) {
            Some(record) => self.write_record(session, run, &record),
            None => Ok(()),
        }
    }

    /// What is kept of a run's stderr.
    pub(super) fn recorded_stderr(&self, session: &SessionId, run: &RunId) -> Result<Option<String>, StorageError> {
        if self.is_deleted(session)? {
            return Ok(None);
        }
        Ok(self.readable_record(session, run)?.and_then(|record| record.stderr_tail))
    }
}

impl RunRecord {
    /// This record with as much of the end of a text as it has room for; nothing if it cannot have it. A text of many control
    /// characters takes six times its bytes, so that less of it may fit beside a long note of the turn.
    fn with_stderr(self, text: &str) -> Option<RunRecord> {
        if self.is_foreign || self.removed_at.is_some() {
            return None;
        }
        let mut bytes_max = STDERR_BYTES_MAX;
        let mut record = RunRecord { stderr_tail: Some(end_of(text, bytes_max).to_owned()), ..self };
        while record.to_bytes().len() as u64 > RECORD_BYTES_MAX - RESERVED_BYTES {
            bytes_max /= 2;
            if bytes_max == 0 {
                return None;
            }
            record.stderr_tail = Some(end_of(text, bytes_max).to_owned());
        }
        Some(record)
    }
}

/// The end of a text, of at most this number of bytes.
fn end_of(text: &str, bytes_max: usize) -> &str {
    let from = text.len().saturating_sub(bytes_max);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MESSAGE_METADATA_BYTES_MAX;
    use crate::model::TurnNote;
    use crate::storage::contract::Continuation;

    fn record() -> RunRecord {
        let bytes = br#"{"version":1,"boot_id":"b","begun_at":1.5}"#;
        serde_json::from_slice(bytes).expect("a record of an earlier version")
    }

    #[test]
    fn the_end_is_kept_and_no_character_is_cut() {
        assert_eq!((end_of("abc", 2), end_of("abc", 3), end_of("abc", 9), end_of("", 2)), ("bc", "abc", "abc", ""));
        assert_eq!(end_of("\u{e9}\u{e9}", 3), "\u{e9}");
    }

    #[test]
    fn a_record_with_stderr_beside_the_longest_note_has_room_for_what_comes_later() {
        let metadata = Some(format!("{{\"x\":\"{}\"}}", "y".repeat(MESSAGE_METADATA_BYTES_MAX - 8)));
        let noted = RunRecord { turn: Some(TurnNote { metadata, ..TurnNote::default() }), ..record() };
        for text in ["\u{1b}", "a", "\u{fffd}"] {
            let mut kept = noted.clone().with_stderr(&text.repeat(100_000)).expect("there is room");
            let tail = kept.stderr_tail.clone().expect("it is kept");
            assert!(tail.len() <= STDERR_BYTES_MAX && tail.len() >= 2 * 1024, "{text:?}: {} bytes", tail.len());
            kept.continued =
                (0..64).map(|at| Continuation { after_seq: u64::MAX - at, order: u64::MAX - at }).collect();
            kept.removed_at = Some(1_800_000_000.25);
            assert!(kept.to_bytes().len() as u64 <= RECORD_BYTES_MAX, "{text:?}");
        }
    }

    #[test]
    fn a_run_that_is_removed_or_another_programs_keeps_nothing() {
        assert_eq!(RunRecord { removed_at: Some(1.0), ..record() }.with_stderr("x"), None);
        assert_eq!(RunRecord { is_foreign: true, ..record() }.with_stderr("x"), None);
    }
}
