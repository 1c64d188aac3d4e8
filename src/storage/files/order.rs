//! The store-wide counter of runs: numbers that only grow, across restarts and whatever the clock says.
//!
//! `_run_order` says up to which number a writer may have given numbers out. A writer reserves a range in it, durably,
//! before it gives out the first of them. A crash loses the rest of a range: numbers have gaps and never repeat.

use serde::{Deserialize, Serialize};

use super::record::RunRecord;
use super::write::open_plain;
use super::{FileStorage, Storage};
use crate::format::{checksum_of, with_checksum};
use crate::limits::{RECORD_BYTES_MAX, SEQ_MAX};
use crate::model::{RunId, SessionId};
use crate::storage::contract::Continuation;
use crate::storage::disk::DirEntry;
use crate::storage::error::{Attempt, StorageError, optional};
use crate::storage::layout::Layout;

/// How many numbers one write of the file reserves.
const RESERVED_AT_ONCE: u64 = 1024;

/// How many numbers are left out if the file is lost and not every record can be read: more than runs were ever begun.
const LEFT_OUT_IF_UNSURE: u64 = 1 << 32;

/// How many continuations one run's record holds.
pub(super) const CONTINUATIONS_MAX: usize = 64;

/// The numbers that this writer may give out without another write.
#[derive(Debug, Default)]
pub(super) struct OrderRange {
    /// The last number that was given out; before the first call nothing is reserved and both are 0.
    last: u64,
    reserved_until: u64,
}

/// The contents of `_run_order`.
#[derive(Debug, Serialize, Deserialize)]
struct Reservation {
    reserved_until: u64,
}

impl Reservation {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = with_checksum(serde_json::to_vec(self).expect("a number becomes JSON"));
        bytes.push(b'\n');
        bytes
    }

    /// Nothing if it is damaged.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let line = bytes.trim_ascii_end();
        let found = (checksum_of(line) == Some(true)).then(|| serde_json::from_slice::<Reservation>(line).ok())?;
        found.filter(|found| found.reserved_until <= SEQ_MAX)
    }
}

impl FileStorage {
    /// The next number, greater than `after`. A crash at any operation leaves the old reservation or the new one, whole, and no number was
    /// given out above the one that is durable.
    pub(super) fn take_order(&self, after: u64) -> Result<u64, StorageError> {
        let mut range = self.order.lock();
        if range.last.max(after) >= range.reserved_until {
            let last = if range.reserved_until == 0 { self.last_reserved()? } else { range.reserved_until };
            *range = self.reserve_after(last.max(after))?;
        }
        range.last = range.last.max(after) + 1;
        Ok(range.last)
    }

    fn reserve_after(&self, last: u64) -> Result<OrderRange, StorageError> {
        let reserved_until = last + RESERVED_AT_ONCE;
        self.replace(&self.layout.run_order(), &Reservation { reserved_until }.to_bytes())?;
        Ok(OrderRange { last, reserved_until })
    }

    /// The highest number that may have been given out. If the file is missing or damaged, all records are read for it
    /// once, and the next reservation replaces the file.
    fn last_reserved(&self) -> Result<u64, StorageError> {
        match self.read_reservation() {
            Ok(Some(found)) => Ok(found.reserved_until),
            Ok(None) => self.highest_recorded(),
            Err(error) if error.is_of_one_object() => self.highest_recorded(),
            Err(error) => Err(error),
        }
    }

    fn read_reservation(&self) -> Result<Option<Reservation>, StorageError> {
        let path = self.layout.run_order();
        let Some((file, stat)) = open_plain(&*self.disk, &path)? else { return Ok(None) };
        let bytes = file.into_bytes(stat.len.min(RECORD_BYTES_MAX) as usize).attempt("read", &path)?;
        Ok(Reservation::parse(&bytes))
    }

    /// The highest number in any run's record. In a directory without journals that is one failed listing.
    fn highest_recorded(&self) -> Result<u64, StorageError> {
        let mut search = OrderSearch { storage: self, highest: 0, has_read_all: true };
        search.visit_sessions()?;
        Ok(if search.has_read_all { search.highest } else { search.highest + LEFT_OUT_IF_UNSURE })
    }

    /// Adds a continuation to a run's record. A crash leaves the old record or the new one, whole.
    pub(super) fn record_continuation(
        &self,
        session: &SessionId,
        run: &RunId,
        continuation: Continuation,
    ) -> Result<(), StorageError> {
        let _one_at_a_time = self.put_gate(session);
        if self.is_deleted(session)? {
            return Ok(());
        }
        match self.readable_record(session, run)?.and_then(|record| record.continued_by(continuation)) {
            Some(record) => self.write_record(session, run, &record),
            None => Ok(()),
        }
    }
}

impl RunRecord {
    /// This record with another continuation; nothing if it cannot have it. One after which nothing was appended is
    /// replaced by the next: it has no events.
    fn continued_by(mut self, continuation: Continuation) -> Option<RunRecord> {
        if self.is_foreign || self.removed_at.is_some() {
            return None;
        }
        let last = self.continued.last().copied();
        let follows = last.is_none_or(|last| last.after_seq <= continuation.after_seq);
        let is_later = self.highest_order().is_none_or(|highest| highest < continuation.order);
        if last.is_some_and(|last| last.after_seq == continuation.after_seq) {
            self.continued.pop();
        }
        let has_room = self.continued.len() < CONTINUATIONS_MAX;
        self.continued.push(continuation);
        (follows && is_later && has_room).then_some(self)
    }

    /// The highest number in this record.
    fn highest_order(&self) -> Option<u64> {
        self.continued.iter().map(|continuation| continuation.order).chain(self.order).max()
    }
}

/// A search of all records for the highest number. What cannot be read is passed over.
struct OrderSearch<'s> {
    storage: &'s FileStorage,
    highest: u64,
    has_read_all: bool,
}

impl OrderSearch<'_> {
    fn visit_sessions(&mut self) -> Result<(), StorageError> {
        let (disk, layout) = (&self.storage.disk, &self.storage.layout);
        let folder = layout.journals();
        let names = self.read_or_pass(optional(disk.read_dir(&folder)).attempt("list", &folder))?;
        let is_directory = |entry: &DirEntry| entry.is_dir || entry.is_link;
        for entry in names.unwrap_or_default().into_iter().filter(is_directory) {
            if let Some(session) = Layout::session_of_directory(&entry.name) {
                self.visit_records(&session)?;
            }
        }
        Ok(())
    }

    fn visit_records(&mut self, session: &SessionId) -> Result<(), StorageError> {
        let folder = self.storage.layout.journals_of(session);
        let names = self.read_or_pass(optional(self.storage.disk.read_dir(&folder)).attempt("list", &folder))?;
        for run in names.unwrap_or_default().iter().filter_map(|entry| Layout::run_of_record(&entry.name)) {
            let record = self.read_or_pass(self.storage.read_record(session, &run))?;
            self.highest = self.highest.max(record.and_then(|record| record.highest_order()).unwrap_or(0));
        }
        Ok(())
    }

    fn read_or_pass<T>(&mut self, read: Result<Option<T>, StorageError>) -> Result<Option<T>, StorageError> {
        match read {
            Err(error) if error.is_of_one_object() => {
                self.has_read_all = false;
                Ok(None)
            }
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::storage::contract::Birth;
    use crate::storage::files::{FilesOptions, Mode};
    use crate::storage::sim::SimDisk;
    use crate::storage::sim::schedule::{Explorer, spawn};

    fn open(disk: &SimDisk) -> Arc<FileStorage> {
        let storage = FileStorage::open(Arc::new(disk.clone()), Path::new("/data"), FilesOptions::in_mode(Mode::Write));
        Arc::new(storage.unwrap())
    }

    /// After a crash the next writer goes on after the durable reservation.
    #[test]
    fn no_number_is_given_out_above_the_durable_reservation() {
        let disk = SimDisk::new();
        let storage = open(&disk);
        let mut last = 0;
        let mut take = |after: u64| {
            let number = storage.next_order(after).unwrap();
            let durable = Reservation::parse(&disk.files()[Path::new("/data/_run_order")]).unwrap().reserved_until;
            assert!(
                number > last.max(after) && number <= durable,
                "{number} after {last} and {after}, until {durable}"
            );
            last = number;
            durable
        };
        for _ in 0..2 * RESERVED_AT_ONCE {
            take(0);
        }
        // A number from elsewhere is below, at and above the end of the range.
        for above in [0, 1, 2] {
            let reserved_until = take(0);
            take(reserved_until - 1 + above);
        }
        disk.kill();
        assert!(open(&disk).next_order(0).unwrap() > last);
    }

    /// Two threads change the record of one run. Each reads it, changes it, and writes it whole.
    fn with_a_run() -> (Arc<FileStorage>, SessionId, RunId) {
        let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
        let storage = open(&SimDisk::new());
        storage.create_journal(&session, &run, &Birth::default()).unwrap();
        (storage, session, run)
    }

    fn explorer() -> Explorer {
        Explorer { singles_max: 120, pairs_max: 40, seeds: 20, ..Explorer::default() }
    }

    #[test]
    fn a_removal_beside_a_continuation_stays_recorded() {
        let work = || {
            let (storage, session, run) = with_a_run();
            let (noting, key) = (storage.clone(), (session.clone(), run.clone()));
            let noted = Continuation { after_seq: 1, order: 9 };
            let thread = spawn("noting", move || noting.note_continuation(&key.0, &key.1, noted).unwrap());
            assert!(storage.remove_journal(&session, &run).unwrap());
            thread.join();
            storage.read_record(&session, &run).unwrap().unwrap().removed_at
        };
        explorer().explore(work, |removed_at| assert!(removed_at.is_some(), "the id is free again"));
    }

    #[test]
    fn of_two_continuations_at_once_the_later_one_stays_recorded() {
        let work = || {
            let (storage, session, run) = with_a_run();
            let (noting, key) = (storage.clone(), (session.clone(), run.clone()));
            let first = Continuation { after_seq: 1, order: 8 };
            let thread = spawn("noting", move || noting.note_continuation(&key.0, &key.1, first).unwrap());
            storage.note_continuation(&session, &run, Continuation { after_seq: 2, order: 9 }).unwrap();
            thread.join();
            storage.read_record(&session, &run).unwrap().unwrap().highest_order()
        };
        explorer().explore(work, |highest| assert_eq!(highest, Some(9)));
    }

    #[test]
    fn no_flipped_bit_of_a_reservation_is_believed() {
        let bytes = Reservation { reserved_until: 2048 }.to_bytes();
        assert_eq!(String::from_utf8_lossy(&bytes), "{\"reserved_until\":2048,\"crc\":\"04ae1cd9\"}\n");
        assert_eq!(Reservation::parse(&bytes).map(|found| found.reserved_until), Some(2048));
        for bit in 0..(bytes.len() - 1) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Reservation::parse(&flipped).is_none(), "bit {bit}");
        }
        for len in 0..bytes.len() - 1 {
            assert!(Reservation::parse(&bytes[..len]).is_none(), "{len} bytes");
        }
    }

    fn record(order: Option<u64>, continued: &[(u64, u64)]) -> RunRecord {
        let continued = continued.iter().map(|&(after_seq, order)| Continuation { after_seq, order }).collect();
        RunRecord {
            version: 1,
            boot_id: "b".to_owned(),
            begun_at: 1.0,
            lease_seconds: None,
            last_seq_floor: 0,
            removed_at: None,
            is_foreign: false,
            is_closed: false,
            foreign_until: Some(0),
            order,
            continued,
            turn: None,
            stderr_tail: None,
        }
    }

    #[test]
    fn continuations_rise_and_an_empty_one_is_replaced() {
        let check = |before: &[(u64, u64)], noted: (u64, u64), expected: Option<&[(u64, u64)]>| {
            let noted = Continuation { after_seq: noted.0, order: noted.1 };
            let found = record(Some(2), before).continued_by(noted);
            assert_eq!(found, expected.map(|expected| record(Some(2), expected)), "{before:?} and {noted:?}");
        };
        check(&[], (4, 3), Some(&[(4, 3)]));
        check(&[(4, 3)], (6, 9), Some(&[(4, 3), (6, 9)]));
        check(&[(4, 3)], (4, 9), Some(&[(4, 9)]));
        check(&[(4, 3)], (3, 9), None);
        check(&[(4, 3)], (6, 3), None);
        check(&[(4, 3)], (4, 3), None);
        check(&[], (4, 2), None);
    }

    #[test]
    fn a_record_holds_a_bounded_number_of_continuations() {
        let mut full = record(None, &[]);
        for at in 1..=CONTINUATIONS_MAX as u64 {
            full = full.continued_by(Continuation { after_seq: at, order: at }).expect("there is room");
        }
        let last = CONTINUATIONS_MAX as u64;
        assert!(full.to_bytes().len() < RECORD_BYTES_MAX as usize / 8);
        assert_eq!(full.clone().continued_by(Continuation { after_seq: last + 1, order: last + 1 }), None);
        let replaced = full.continued_by(Continuation { after_seq: last, order: last + 1 });
        assert_eq!(replaced.expect("the last one is empty").continued.len(), CONTINUATIONS_MAX);
    }

    #[test]
    fn foreign_and_removed_runs_have_no_continuations() {
        let noted = Continuation { after_seq: 1, order: 9 };
        assert_eq!(RunRecord { is_foreign: true, ..record(None, &[]) }.continued_by(noted), None);
        assert_eq!(RunRecord { removed_at: Some(1.0), ..record(None, &[]) }.continued_by(noted), None);
    }
}
