//! Finding a place in a long journal without reading all of it: the numbers of our own journals ascend, so halves will do.

use crate::format::{LineShape, Record, Scanner};
use crate::storage::{JournalBytes, StorageError};

/// A part of a journal that is read rather than halved.
const READ_BYTES: u64 = 1024 * 1024;

/// Bytes that are looked at to find an event.
const PROBE_BYTES: usize = 64 * 1024;

/// A place where a line begins, such that no event with a greater number than this stands before it. Costs a few looks,
/// however long the journal is; where no event can be found, the place is further to the front than it could be.
pub(crate) fn place_before(
    bytes: &dyn JournalBytes,
    shape: &LineShape,
    len: u64,
    after_seq: u64,
) -> Result<u64, StorageError> {
    let (mut low, mut high) = (0, len);
    let mut probe = vec![0; PROBE_BYTES];
    while high - low > READ_BYTES {
        let middle = low + (high - low) / 2;
        match first_event(bytes, shape, middle, &mut probe)? {
            Some((offset, seq)) if seq <= after_seq => low = offset,
            Some(_) => high = middle,
            None => break,
        }
    }
    Ok(low)
}

/// Where the first event behind a place begins, and its number, if it is near.
fn first_event(
    bytes: &dyn JournalBytes,
    shape: &LineShape,
    from: u64,
    probe: &mut [u8],
) -> Result<Option<(u64, u64)>, StorageError> {
    let filled = bytes.read_at(probe, from)?;
    let Some(end) = memchr::memchr(b'\n', &probe[..filled]) else { return Ok(None) };
    let lines = &probe[end + 1..filled];
    let mut scanner = Scanner::new(shape.clone(), from + end as u64 + 1);
    let fed: Result<usize, std::convert::Infallible> = scanner.feed(lines.len(), |room| {
        room.copy_from_slice(lines);
        Ok(lines.len())
    });
    fed.expect("bytes in memory can be read");
    while let Some(record) = scanner.next_record() {
        if let Record::Event(event) = record
            && let Some(seq) = event.seq
        {
            return Ok(Some((event.offset, seq)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use crate::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::clock::Timestamp;
    use crate::format::LineEncoder;
    use crate::model::{Event, RunId, SessionId};

    /// A journal in memory that counts how much of it is read.
    #[derive(Debug)]
    struct Counted {
        bytes: Vec<u8>,
        read: AtomicUsize,
    }

    impl JournalBytes for Counted {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, StorageError> {
            let rest = &self.bytes[(offset as usize).min(self.bytes.len())..];
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            self.read.fetch_add(count, Ordering::Relaxed);
            Ok(count)
        }
    }

    fn journal(texts: impl Iterator<Item = String>) -> (Counted, LineShape, Vec<usize>) {
        let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap());
        let mut encoder = LineEncoder::new(&session, &run);
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        for (at, text) in texts.enumerate() {
            starts.push(bytes.len());
            encoder.encode(at as u64 + 1, Timestamp::from_seconds(1.0), &Event::token(&text), &mut bytes);
        }
        (Counted { bytes, read: AtomicUsize::new(0) }, LineShape::new(&session, &run), starts)
    }

    #[test]
    fn a_place_is_found_with_a_few_looks_and_nothing_behind_the_number_stands_before_it() {
        let (bytes, shape, starts) = journal((0..100_000).map(|nth| format!("word {nth} ")));
        let len = bytes.bytes.len() as u64;
        for seq in [1, 2, 500, 49_999, 50_000, 99_998, 99_999, 100_000, u64::MAX] {
            bytes.read.store(0, Ordering::Relaxed);
            let place = place_before(&bytes, &shape, len, seq).unwrap();
            let nth = starts.binary_search(&(place as usize)).expect("a line begins there");
            assert!(nth as u64 <= seq, "event {} stands before the place for {seq}", nth);
            assert!(bytes.read.load(Ordering::Relaxed) <= 8 * PROBE_BYTES, "seq {seq}");
            let wanted = starts.get(seq.min(99_999) as usize).copied().unwrap_or(0) as u64;
            assert!(wanted - place.min(wanted) <= 2 * READ_BYTES, "seq {seq}: {place} is far from {wanted}");
        }
    }

    #[test]
    fn where_no_event_is_near_the_place_is_further_to_the_front() {
        let (bytes, shape, starts) =
            journal((0..40).map(|nth| "x".repeat(if nth == 20 { 8_000_000 } else { 100_000 })));
        for seq in 1..=40 {
            let place = place_before(&bytes, &shape, bytes.bytes.len() as u64, seq).unwrap();
            let nth = starts.binary_search(&(place as usize)).expect("a line begins there");
            assert!(nth as u64 <= seq);
        }
    }
}
