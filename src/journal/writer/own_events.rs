//! What a run's writer reads of its own journal: the events that a producer repeats, found through the marks.

use std::sync::Arc;

use super::RunJournal;
use crate::format::Record;
use crate::journal::event::JournalEvent;
use crate::journal::marks::{Survey, is_complete};
use crate::journal::reader::{JournalReader, ReadOptions};
use crate::limits::FOLLOW_CHUNK_BYTES;
use crate::model::SeenSeqs;
use crate::storage::{Storage, StorageError};

impl RunJournal {
    /// The run's events with numbers after `after_seq` and up to `max_seq`, as its writer knows them: the same as a read of
    /// the whole journal gives. Where the order of the events is known, only the part of the journal is read that holds
    /// them; if anything else is found there than exactly these events, all of it.
    pub(crate) fn own_events(
        &self,
        storage: &Arc<dyn Storage>,
        options: ReadOptions,
    ) -> Result<Vec<JournalEvent>, StorageError> {
        let (place, last_seq) = {
            let pen = self.pen.lock();
            (pen.marks.place_before(options.after_seq), pen.position.last_seq)
        };
        if let Some(place) = place {
            let found = self.events_from(storage, place, options)?;
            if is_complete(&found, options.after_seq, last_seq.min(options.max_seq)) {
                return Ok(found);
            }
        }
        self.all_events(storage, options)
    }

    /// Reads from a place in a journal whose numbers ascend.
    fn events_from(
        &self,
        storage: &Arc<dyn Storage>,
        place: u64,
        options: ReadOptions,
    ) -> Result<Vec<JournalEvent>, StorageError> {
        let mut found = Vec::new();
        let reader = JournalReader::open_at(storage, &self.session, &self.run, place)?;
        let Some(mut reader) = reader.map(|reader| reader.in_chunks_of(FOLLOW_CHUNK_BYTES)) else { return Ok(found) };
        while let Some(record) = reader.next_record()? {
            let Record::Event(event) = record else { continue };
            if event.seq.is_some_and(|seq| seq > options.max_seq) {
                break;
            }
            if options.wants(event.seq) {
                found.push((&event).into());
            }
            if event.seq == Some(options.max_seq) {
                break;
            }
        }
        Ok(found)
    }

    /// Reads all of the journal, and notes in which order its events are.
    fn all_events(&self, storage: &Arc<dyn Storage>, options: ReadOptions) -> Result<Vec<JournalEvent>, StorageError> {
        let (mut found, mut seen, mut survey) = (Vec::new(), SeenSeqs::default(), Survey::new());
        let Some(mut reader) = JournalReader::open(storage, &self.session, &self.run)? else { return Ok(found) };
        while let Some(record) = reader.next_record()? {
            let Record::Event(event) = record else { continue };
            survey.add(event.seq, event.offset, event.line.len());
            if event.seq.is_none_or(|seq| seen.insert(seq)) && options.wants(event.seq) {
                found.push((&event).into());
            }
        }
        let mut pen = self.pen.lock();
        let last_seq = pen.position.last_seq;
        pen.marks.take(survey, last_seq);
        Ok(found)
    }
}
