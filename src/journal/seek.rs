//! Finding a place in a long journal without reading all of it: the numbers of our own journals ascend, so halves will do.

use std::ops::Range;

use crate::format::{LineShape, Record, Scanner};
use crate::storage::{JournalBytes, StorageError};

/// A part of a journal that is read rather than bisected. Unit tests bisect short journals.
pub(super) const NEAR_BYTES: u64 = if cfg!(test) { 512 } else { 128 * 1024 };

/// Bytes that are read to find an event, to begin with: enough for some events of the usual size.
const PROBE_BYTES: u64 = 4 * 1024;
/// Bytes of the largest piece in which an event is looked for.
const PROBE_BYTES_MAX: u64 = 1024 * 1024;

/// A place where a line begins, such that no event with a greater number than this stands before it, and as a rule at most
/// [`NEAR_BYTES`] before the first of them. Costs a few reads, however long the journal is.
pub(crate) fn place_before(
    bytes: &dyn JournalBytes,
    shape: &LineShape,
    len: u64,
    after_seq: u64,
) -> Result<u64, StorageError> {
    let (mut low, mut high, mut probed) = (0, len, 0);
    // Among long lines a probe costs as much as reading on.
    while high - low > NEAR_BYTES.max(2 * probed) {
        let middle = low + (high - low) / 2;
        let probe = probe(bytes, shape, middle..high)?;
        probed = probe.bytes;
        match probe.event {
            Some((offset, seq)) if seq <= after_seq => low = offset,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// What was found in a part of a journal.
struct Probe {
    /// Where the first event begins that stands in it as a whole, and its number.
    event: Option<(u64, u64)>,
    /// Bytes that were read to find it.
    bytes: u64,
}

/// Looks for an event in pieces that grow, until one was read.
fn probe(bytes: &dyn JournalBytes, shape: &LineShape, part: Range<u64>) -> Result<Probe, StorageError> {
    let (mut scanner, mut at, mut room) = (None, part.start, PROBE_BYTES);
    let mut event = None;
    while event.is_none() && at < part.end {
        let mut piece = vec![0; room.min(part.end - at) as usize];
        let filled = bytes.read_at(&mut piece, at)?;
        if filled == 0 {
            break;
        }
        event = event_in(&mut scanner, shape, &piece[..filled], at);
        at += filled as u64;
        room = (room * 2).min(PROBE_BYTES_MAX);
    }
    Ok(Probe { event, bytes: at - part.start })
}

/// The first event that is complete with this piece. The scanner begins at the first line that begins in one.
fn event_in(scanner: &mut Option<Scanner>, shape: &LineShape, piece: &[u8], at: u64) -> Option<(u64, u64)> {
    let (scanner, lines) = match scanner {
        Some(scanner) => (scanner, piece),
        None => {
            let begin = memchr::memchr(b'\n', piece)? + 1;
            (scanner.insert(Scanner::new(shape.clone(), at + begin as u64)), &piece[begin..])
        }
    };
    let fed: Result<usize, std::convert::Infallible> = scanner.feed(lines.len(), |room| {
        room.copy_from_slice(lines);
        Ok(lines.len())
    });
    fed.expect("bytes in memory can be read");
    while let Some(record) = scanner.next_record() {
        if let Record::Event(event) = record
            && let Some(seq) = event.seq
        {
            return Some((event.offset, seq));
        }
    }
    None
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
            assert!(bytes.read.load(Ordering::Relaxed) as u64 <= 24 * PROBE_BYTES, "seq {seq}");
            let wanted = starts.get(seq.min(99_999) as usize).copied().unwrap_or(0) as u64;
            assert!(wanted - place.min(wanted) <= 4 * PROBE_BYTES, "seq {seq}: {place} is far from {wanted}");
        }
    }

    #[test]
    fn among_long_lines_the_place_is_further_to_the_front() {
        let (bytes, shape, starts) =
            journal((0..40).map(|nth| "x".repeat(if nth == 20 { 8_000_000 } else { 100_000 })));
        for seq in 1..=40 {
            let place = place_before(&bytes, &shape, bytes.bytes.len() as u64, seq).unwrap();
            let nth = starts.binary_search(&(place as usize)).expect("a line begins there") as u64;
            assert!(nth <= seq, "seq {seq}: line {nth}");
        }
    }
}
