//! A damaged journal written anew: damage is left out, records that were glued together get a line each, an event that
//! stood there twice stands there once, and every other line is copied byte for byte.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::finding::Code;
use super::journal::{JournalLook, Which, look_through, restored, show_all};
use crate::format::{Damage, Record, Scanner, with_checksum_restored};
use crate::limits::{LINE_BYTES_MAX, READ_CHUNK_BYTES};
use crate::model::{RunId, SessionId};
use crate::storage::{FileStorage, JournalBytes, NewJournal, Storage, StorageError};

/// What is to be done to a journal.
#[derive(Debug, Clone)]
pub(super) struct Cure {
    pub(super) run: RunId,
    checked_after: Option<u64>,
    /// The kinds of damage that go.
    pub(super) codes: BTreeSet<Code>,
    /// Where lines begin that need a look: damage, and events to be left out. None if all do.
    suspects: Option<Vec<u64>>,
    /// Events that stood there before, byte for byte.
    repeats: BTreeSet<u64>,
    /// Damaged bytes that are an event but for its checksum.
    restorable: BTreeSet<u64>,
    /// The highest number that may have been given to an event, if the journal will no longer show that.
    pub(super) seq_floor: Option<u64>,
    /// Whether we wrote any of its lines.
    has_our_lines: bool,
}

impl Cure {
    /// What to do about these kinds of damage; nothing if there are none of them.
    pub(super) fn of(which: Which<'_>, look: &JournalLook, wants: impl Fn(Code) -> bool) -> Option<Self> {
        let repeats: BTreeSet<u64> = look
            .repeats
            .iter()
            .filter(|repeat| repeat.is_same && wants(Code::DuplicateSeq))
            .map(|repeat| repeat.offset)
            .collect();
        let mut codes: BTreeSet<Code> = look.damage.iter().map(|damage| damage.kind.into()).collect();
        codes.retain(|code| wants(*code));
        if !repeats.is_empty() {
            codes.insert(Code::DuplicateSeq);
        }
        let spoilt: &[u64] = if wants(Code::ChecksumMismatch) { &look.spoilt } else { &[] };
        if !spoilt.is_empty() {
            codes.insert(Code::ChecksumMismatch);
        }
        if codes.is_empty() {
            return None;
        }
        let are_all_known = look.damaged == look.damage.len() as u64;
        let suspects = are_all_known.then(|| {
            let mut places: Vec<u64> = look.damage.iter().map(|damage| damage.offset).collect();
            places.extend(&repeats);
            places.extend(spoilt);
            places.sort_unstable();
            places
        });
        let is_open = !look.end.seal.is_sealed();
        // Another program may have shown the event whose line is torn.
        let torn = u64::from(look.is_torn() && !look.has_our_lines);
        let floor = look.last_seq + torn;
        let seq_floor = (is_open && floor > look.highest).then_some(floor);
        let restorable = look.restorable.clone();
        let has_our_lines = look.has_our_lines;
        let (run, checked_after) = (which.run.clone(), which.checked_after);
        Some(Cure { run, checked_after, codes, suspects, repeats, restorable, seq_floor, has_our_lines })
    }

    fn which<'a>(&'a self, session: &'a SessionId) -> Which<'a> {
        Which { session, run: &self.run, checked_after: self.checked_after }
    }

    /// An event's bytes, with a checksum that is right if only that was damaged.
    fn mended<'l>(&self, line: &'l [u8]) -> Cow<'l, [u8]> {
        let restored = self.codes.contains(&Code::ChecksumMismatch).then(|| with_checksum_restored(line)).flatten();
        restored.map_or(Cow::Borrowed(line), Cow::Owned)
    }

    fn restores(&self, damage: &Damage) -> bool {
        self.codes.contains(&damage.kind.into()) && self.restorable.contains(&damage.offset)
    }

    fn is_suspect(&self, start: u64, end: u64) -> bool {
        let Some(places) = &self.suspects else { return true };
        let next = places.partition_point(|place| *place < start);
        places.get(next).is_some_and(|place| *place < end)
    }

    /// Writes the journal anew and puts it in place, if it holds what the old one held. Gives the place of the old one.
    ///
    /// A crash leaves the old journal, with a note of its highest number perhaps, or the new one and the old one kept.
    pub(super) fn apply(
        &self,
        storage: &FileStorage,
        scanner: &mut Scanner,
        session: &SessionId,
    ) -> Result<Option<std::path::PathBuf>, CureFailure> {
        let Some(old) = storage.journal_bytes(session, &self.run)? else { return Ok(None) };
        if let Some(floor) = self.seq_floor {
            storage.raise_seq_floor(session, &self.run, floor, self.has_our_lines)?;
        }
        let expected = self.events_of(scanner, &*old, session)?;
        let mut new = storage.rewrite_journal(session, &self.run)?;
        self.rewrite(scanner, &*old, session, &mut new)?;
        let written = new.written()?;
        let as_it_lies = Cure { repeats: BTreeSet::new(), restorable: BTreeSet::new(), ..self.clone() };
        let found = as_it_lies.events_of(scanner, &*written, session)?;
        let look = look_through(scanner, &*written, self.which(session))?;
        let is_mended = look.damage.iter().all(|damage| !self.codes.contains(&damage.kind.into()));
        if found != expected || !is_mended {
            return Err(CureFailure::Differs);
        }
        Ok(Some(new.put_in_place()?))
    }

    /// How many events a journal holds, but for those to be left out, and a checksum over them in their order.
    fn events_of(
        &self,
        scanner: &mut Scanner,
        bytes: &dyn JournalBytes,
        session: &SessionId,
    ) -> Result<(u64, u32), StorageError> {
        let (mut events, mut crc, mut failure) = (0, 0, None);
        let mut add = |line: &[u8]| {
            events += 1;
            crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, line), b"\n");
        };
        show_all(scanner, bytes, self.which(session), |record| match record {
            Record::Event(event) if self.repeats.contains(&event.offset) => {}
            Record::Event(event) => add(&self.mended(event.line)),
            Record::Damage(damage) if self.restores(&damage) => match restored(bytes, &damage) {
                Ok(line) => line.iter().for_each(|line| add(line)),
                Err(error) => failure = Some(error),
            },
            Record::Damage(_) => {}
        })?;
        failure.map_or(Ok((events, crc)), Err)
    }

    fn rewrite(
        &self,
        scanner: &mut Scanner,
        old: &dyn JournalBytes,
        session: &SessionId,
        new: &mut NewJournal<'_>,
    ) -> Result<(), StorageError> {
        let which = self.which(session);
        let mut lines = Lines::new(old);
        while let Some((offset, line)) = lines.next()? {
            match line {
                Line::Part(_) if self.codes.contains(&Code::LineTooLong) => {}
                Line::Part(bytes) => new.write(bytes)?,
                Line::Whole(bytes) if !self.is_suspect(offset, offset + bytes.len() as u64) => new.write(bytes)?,
                Line::Whole(bytes) => self.rewrite_line(scanner, which, offset, bytes, new)?,
            }
        }
        Ok(())
    }

    fn rewrite_line(
        &self,
        scanner: &mut Scanner,
        which: Which<'_>,
        offset: u64,
        line: &[u8],
        new: &mut NewJournal<'_>,
    ) -> Result<(), StorageError> {
        // A line with damage of several kinds is mended for any of them.
        let (mut mended, mut is_whole, mut is_ours) = (Vec::new(), true, false);
        judge(scanner, which, offset, line, |record| match record {
            Record::Damage(damage) => {
                is_whole = false;
                is_ours |= self.codes.contains(&damage.kind.into());
                let start = (damage.offset - offset) as usize;
                let bytes = &line[start..start + damage.bytes as usize];
                if let Some(event) = with_checksum_restored(bytes).filter(|_| self.restores(&damage)) {
                    mended.extend_from_slice(&event);
                    mended.push(b'\n');
                }
            }
            Record::Event(event) if self.repeats.contains(&event.offset) => (is_whole, is_ours) = (false, true),
            Record::Event(event) => {
                let line = self.mended(event.line);
                (is_whole, is_ours) = (is_whole && line == event.line, is_ours || line != event.line);
                mended.extend_from_slice(&line);
                mended.push(b'\n');
            }
        });
        new.write(if is_whole || !is_ours { line } else { &mended })
    }
}

/// Why a journal was not mended. It is as it was.
#[derive(Debug, thiserror::Error)]
pub(super) enum CureFailure {
    #[error("the new journal does not hold what the old one holds; the old one was left alone")]
    Differs,
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Shows what stands on one line, or behind the last line feed.
fn judge(scanner: &mut Scanner, which: Which<'_>, offset: u64, line: &[u8], mut show: impl FnMut(Record<'_>)) {
    let mut show = |record: Record<'_>| show(record.in_journal_checked_after(which.checked_after));
    scanner.begin_again(which.shape(), offset);
    let fed = scanner.feed(line.len(), |room| {
        room.copy_from_slice(line);
        Ok::<_, std::convert::Infallible>(line.len())
    });
    fed.expect("bytes in memory can be read");
    while let Some(record) = scanner.next_record() {
        show(record);
    }
    while let Some(record) = scanner.next_of_tail() {
        show(record);
    }
}

/// The lines of a journal, each with its line feed.
struct Lines<'j> {
    bytes: &'j dyn JournalBytes,
    buffer: Vec<u8>,
    /// Where the next line begins in the buffer.
    at: usize,
    /// The file offset of the buffer.
    base: u64,
    is_overlong: bool,
}

enum Line<'b> {
    Whole(&'b [u8]),
    /// Part of a line that is too long to be held.
    Part(&'b [u8]),
}

impl<'j> Lines<'j> {
    fn new(bytes: &'j dyn JournalBytes) -> Self {
        Lines { bytes, buffer: Vec::new(), at: 0, base: 0, is_overlong: false }
    }

    fn next(&mut self) -> Result<Option<(u64, Line<'_>)>, StorageError> {
        let mut searched = 0;
        loop {
            if let Some(len) = memchr::memchr(b'\n', &self.buffer[self.at + searched..]) {
                return Ok(Some(self.take(searched + len + 1, true)));
            }
            searched = self.buffer.len() - self.at;
            if searched > LINE_BYTES_MAX {
                return Ok(Some(self.take(searched, false)));
            }
            if !self.fill()? {
                return Ok((searched > 0).then(|| self.take(searched, true)));
            }
        }
    }

    fn take(&mut self, len: usize, is_end: bool) -> (u64, Line<'_>) {
        let (offset, start) = (self.base + self.at as u64, self.at);
        self.at += len;
        let bytes = &self.buffer[start..start + len];
        let is_part = self.is_overlong || !is_end || bytes.strip_suffix(b"\n").unwrap_or(bytes).len() > LINE_BYTES_MAX;
        self.is_overlong = !is_end;
        (offset, if is_part { Line::Part(bytes) } else { Line::Whole(bytes) })
    }

    fn fill(&mut self) -> Result<bool, StorageError> {
        self.buffer.drain(..self.at);
        self.base += self.at as u64;
        self.at = 0;
        let len = self.buffer.len();
        self.buffer.resize(len + READ_CHUNK_BYTES, 0);
        let read = self.bytes.read_at(&mut self.buffer[len..], self.base + len as u64)?;
        self.buffer.truncate(len + read);
        Ok(read > 0)
    }
}
