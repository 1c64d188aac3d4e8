//! The events that a producer repeats, found in its run's journal without reading what comes before them.
//!
//! The numbers of a journal of ours ascend, so the place of a number is found by bisection. What is read there counts only
//! if it is exactly the numbers that were asked for, each once and in order; otherwise the whole journal is read. Another
//! program's journal is always read whole.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::event::JournalEvent;
use super::reader::JournalReader;
use crate::format::Record;
use crate::limits::FOLLOW_CHUNK_BYTES;
use crate::model::{RunId, SeenSeqs, SessionId};
use crate::storage::{Storage, StorageError};

/// The events with these numbers, those included that followers are not shown yet. An event without a number is none of them.
pub(crate) fn own_events(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    run: &RunId,
    seqs: RangeInclusive<u64>,
) -> Result<Vec<JournalEvent>, StorageError> {
    if storage.birth(session, run)?.is_some() {
        let after_seq = seqs.start().saturating_sub(1);
        let reader = JournalReader::open_before(storage, session, run, after_seq)?;
        let found = read_up_to(reader, &seqs)?;
        if found.iter().map(|event| event.seq).eq(seqs.clone().map(Some)) {
            return Ok(found);
        }
    }
    read_all(JournalReader::open(storage, session, run)?, &seqs)
}

/// Reads until the last of these numbers, or a greater one, has come.
fn read_up_to(reader: Option<JournalReader>, seqs: &RangeInclusive<u64>) -> Result<Vec<JournalEvent>, StorageError> {
    let mut found = Vec::new();
    let Some(mut reader) = reader.map(|reader| reader.in_chunks_of(FOLLOW_CHUNK_BYTES)) else { return Ok(found) };
    while let Some(record) = reader.next_record()? {
        let Record::Event(event) = record else { continue };
        let Some(seq) = event.seq else { continue };
        if seqs.contains(&seq) {
            found.push((&event).into());
        }
        if seq >= *seqs.end() {
            break;
        }
    }
    Ok(found)
}

/// Reads everything. Of several events with one number the first counts.
fn read_all(reader: Option<JournalReader>, seqs: &RangeInclusive<u64>) -> Result<Vec<JournalEvent>, StorageError> {
    let (mut found, mut seen) = (Vec::new(), SeenSeqs::default());
    let Some(mut reader) = reader else { return Ok(found) };
    while let Some(record) = reader.next_record()? {
        let Record::Event(event) = record else { continue };
        if event.seq.is_some_and(|seq| seqs.contains(&seq) && seen.insert(seq)) {
            found.push((&event).into());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
