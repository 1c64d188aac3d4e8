//! Reading a journal from its beginning or from a place in it, in bounded memory.

use std::sync::Arc;

use super::checksums::ChecksumRule;
use super::event::JournalEvent;
use super::seek::place_before;
use crate::format::{Damage, LineShape, Record, Scanner};
use crate::limits::{FOLLOW_CHUNK_BYTES, READ_CHUNK_BYTES};
use crate::model::{RunId, SeenSeqs, SessionId};
use crate::storage::{JournalBytes, Storage, StorageError};

/// Reads a journal's records in order.
#[derive(Debug)]
pub struct JournalReader {
    bytes: Box<dyn JournalBytes>,
    scanner: Scanner,
    rule: ChecksumRule,
    /// Bytes of one read.
    chunk_bytes: usize,
    /// Whether what stands behind the last line feed was judged. What is written to it since is nobody's line.
    is_at_end: bool,
}

impl JournalReader {
    /// A reader at the journal's beginning, if there is a journal.
    pub fn open(storage: &Arc<dyn Storage>, session: &SessionId, run: &RunId) -> Result<Option<Self>, StorageError> {
        Self::open_at(storage, session, run, 0)
    }

    /// A reader at a place of the journal where a line begins, if there is a journal.
    pub fn open_at(
        storage: &Arc<dyn Storage>,
        session: &SessionId,
        run: &RunId,
        offset: u64,
    ) -> Result<Option<Self>, StorageError> {
        let bytes = storage.journal_bytes(session, run)?;
        let scanner = Scanner::new(LineShape::new(session, run), offset);
        let rule = ChecksumRule::new(storage, session, run);
        Ok(bytes.map(|bytes| JournalReader { bytes, scanner, rule, chunk_bytes: READ_CHUNK_BYTES, is_at_end: false }))
    }

    /// The same reader, asking for so many bytes in one read: what it keeps in memory.
    pub fn in_chunks_of(self, chunk_bytes: usize) -> Self {
        JournalReader { chunk_bytes, ..self }
    }

    /// A reader of a journal of ours at a place before every event with a greater number than this, near the first of them.
    pub(crate) fn open_before(
        storage: &Arc<dyn Storage>,
        session: &SessionId,
        run: &RunId,
        after_seq: u64,
    ) -> Result<Option<Self>, StorageError> {
        let Some(mut reader) = Self::open(storage, session, run)? else { return Ok(None) };
        let (shape, len) = (LineShape::new(session, run), storage.journal_len(session, run)?.unwrap_or(0));
        let place = place_before(&*reader.bytes, &shape, len, after_seq)?;
        reader.scanner = Scanner::new(shape, place);
        Ok(Some(reader))
    }

    /// The next record of a whole line, looking no further than this offset. `None` when there is none yet.
    pub fn next_whole(&mut self, extent: u64) -> Result<Option<Record<'_>>, StorageError> {
        loop {
            if let Some(found) = self.scanner.find_next() {
                return Ok(Some(self.rule.judged(self.scanner.give(found))));
            }
            if !self.read_on(extent)? {
                return Ok(None);
            }
        }
    }

    /// The next record of a whole line among what was read already. `None` asks to [`JournalReader::read_on`].
    pub fn next_read(&mut self) -> Option<Record<'_>> {
        self.scanner.next_record().map(|record| self.rule.judged(record))
    }

    /// Reads on, no further than this offset. `false` when there is no more yet.
    pub fn read_on(&mut self, extent: u64) -> Result<bool, StorageError> {
        let offset = self.scanner.fed_to();
        let room = extent.saturating_sub(offset).min(self.chunk_bytes as u64) as usize;
        let bytes = &self.bytes;
        if room == 0 || self.scanner.feed(room, |room| bytes.read_at(room, offset))? == 0 {
            self.scanner.forget_unfinished();
            return Ok(false);
        }
        Ok(true)
    }

    /// The next record of all that is there, what stands behind the last line feed included: as it was when that was
    /// reached, also if somebody is just writing it.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, StorageError> {
        loop {
            if let Some(found) = self.scanner.find_next() {
                return Ok(Some(self.rule.judged(self.scanner.give(found))));
            }
            let offset = self.scanner.fed_to();
            let bytes = &self.bytes;
            if self.is_at_end || self.scanner.feed(self.chunk_bytes, |room| bytes.read_at(room, offset))? == 0 {
                self.is_at_end = true;
                return Ok(self.scanner.find_in_tail().map(|found| self.rule.judged(self.scanner.give(found))));
            }
        }
    }

    /// The next record up to this offset, or of all that is there.
    pub(super) fn next_within(&mut self, extent: Option<u64>) -> Result<Option<Record<'_>>, StorageError> {
        match extent {
            Some(extent) => self.next_whole(extent),
            None => self.next_record(),
        }
    }

    /// Shows every record of all that is there, in order.
    pub fn show_all(&mut self, mut show: impl FnMut(Record<'_>)) -> Result<(), StorageError> {
        loop {
            // A record is large: as a rule it is passed on where it is.
            self.scanner.show_whole(|record| match record.lacks_checksum() {
                false => show(record),
                true => show(self.rule.judged(record)),
            });
            let (offset, bytes) = (self.scanner.fed_to(), &self.bytes);
            if self.scanner.feed(self.chunk_bytes, |room| bytes.read_at(room, offset))? == 0 {
                break;
            }
        }
        while let Some(record) = self.next_record()? {
            show(record);
        }
        Ok(())
    }

    /// How far the journal was read.
    pub fn read_to(&self) -> u64 {
        self.scanner.fed_to()
    }

    /// From where another reader would go on without missing anything.
    pub fn resume_at(&self) -> u64 {
        self.scanner.resume_at()
    }

    /// How many whole lines it has passed.
    pub fn whole_lines(&self) -> u64 {
        self.scanner.whole_lines()
    }
}

/// How many whole lines a run's journal has; nothing if it has none. Reads it, and takes nothing apart.
pub fn count_lines(storage: &Arc<dyn Storage>, session: &SessionId, run: &RunId) -> Result<Option<u64>, StorageError> {
    let Some(bytes) = storage.journal_bytes(session, run)? else { return Ok(None) };
    let (mut chunk, mut offset, mut lines) = (vec![0; FOLLOW_CHUNK_BYTES], 0, 0);
    loop {
        match bytes.read_at(&mut chunk, offset)? {
            0 => return Ok(Some(lines)),
            len => {
                lines += memchr::memchr_iter(b'\n', &chunk[..len]).count() as u64;
                offset += len as u64;
            }
        }
    }
}

/// Which events of a run are wanted.
#[derive(Debug, Clone, Copy)]
pub struct ReadOptions {
    /// Only events with a greater number.
    pub after_seq: u64,
    /// Only events with no greater number.
    pub max_seq: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { after_seq: 0, max_seq: u64::MAX }
    }
}

impl ReadOptions {
    /// An event without a usable number is only given to those who ask for all.
    pub(super) fn wants(&self, seq: Option<u64>) -> bool {
        let seq = seq.unwrap_or(0);
        (self.after_seq == 0 || seq > self.after_seq) && seq <= self.max_seq
    }
}

/// What stands in a journal.
#[derive(Debug, Clone)]
pub enum Found {
    /// An event that was asked for.
    Event(JournalEvent),
    /// Damage, wherever it is.
    Damage(Damage),
}

/// A run's events as they stand in its journal, each once, one at a time.
#[derive(Debug)]
pub struct RunReader {
    reader: Option<JournalReader>,
    options: ReadOptions,
    seen: SeenSeqs,
    /// How far it may look, if it may not look everywhere.
    extent: Option<u64>,
}

impl RunReader {
    /// Opens a run's journal; nothing if it has none.
    pub fn open(
        storage: &Arc<dyn Storage>,
        session: &SessionId,
        run: &RunId,
        options: ReadOptions,
    ) -> Result<Option<Self>, StorageError> {
        let reader = JournalReader::open(storage, session, run)?;
        Ok(reader.map(|reader| RunReader { reader: Some(reader), options, seen: SeenSeqs::default(), extent: None }))
    }

    /// The same, looking no further than this offset.
    pub(crate) fn up_to(self, extent: Option<u64>) -> Self {
        RunReader { extent, ..self }
    }

    fn find_next(&mut self) -> Result<Option<Found>, StorageError> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        while let Some(record) = reader.next_within(self.extent)? {
            match record {
                Record::Damage(damage) => return Ok(Some(Found::Damage(damage))),
                Record::Event(event) => {
                    let is_new = event.seq.is_none_or(|seq| self.seen.insert(seq));
                    if is_new && self.options.wants(event.seq) {
                        return Ok(Some(Found::Event((&event).into())));
                    }
                }
            }
        }
        Ok(None)
    }
}

impl Iterator for RunReader {
    type Item = Result<Found, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.find_next().transpose();
        if !matches!(found, Some(Ok(_))) {
            self.reader = None;
        }
        found
    }
}

/// The events of a run, and what is damaged in its journal.
#[derive(Debug, Clone, Default)]
pub struct RunEvents {
    /// The events that were asked for, each once.
    pub events: Vec<JournalEvent>,
    /// The damage in the whole journal.
    pub damage: Vec<Damage>,
}

/// Reads a run's events, up to an offset if one is given. A run without a journal has none.
pub fn read_events(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    run: &RunId,
    options: ReadOptions,
    extent: Option<u64>,
) -> Result<RunEvents, StorageError> {
    let mut all = RunEvents::default();
    let reader = RunReader::open(storage, session, run, options)?.map(|reader| reader.up_to(extent));
    for found in reader.into_iter().flatten() {
        match found? {
            Found::Event(event) => all.events.push(event),
            Found::Damage(damage) => all.damage.push(damage),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
