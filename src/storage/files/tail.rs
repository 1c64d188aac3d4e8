//! How a journal ends: what its next writer has to know, read from the end where that is enough.

use std::io;

use crate::format::{Damage, DamageKind, LineShape, Record, Scanner};
use crate::limits::{READ_CHUNK_BYTES, TAIL_BYTES};
use crate::storage::contract::{Seal, Tail};
use crate::storage::disk::{DiskFile, read_full};

/// A journal's end, and what a crash left behind its last whole line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FoundTail {
    pub(super) tail: Tail,
    pub(super) rest: Rest,
    /// Whether we wrote any of its lines.
    pub(super) has_our_lines: bool,
}

/// What stands behind the last line feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rest {
    /// A whole line is there that lacks only its line feed. It counts already.
    pub(super) lacks_line_feed: bool,
    /// Bytes behind that, part of a line, to be cut off.
    pub(super) torn_bytes: u64,
}

/// Looks at the end of a journal of this length, whose lines carry a checksum after the event of this number.
pub(super) fn find_tail(
    file: &dyn DiskFile,
    len: u64,
    shape: &LineShape,
    checked_after: Option<u64>,
) -> io::Result<FoundTail> {
    match tail_by_last_line(file, len, shape)? {
        Some(found) => Ok(found),
        None => tail_by_scan(file, shape, checked_after),
    }
}

/// A last line of ours tells all: we number without gaps and write nothing behind an end.
fn tail_by_last_line(file: &dyn DiskFile, len: u64, shape: &LineShape) -> io::Result<Option<FoundTail>> {
    let window = len.min(TAIL_BYTES);
    let mut bytes = vec![0; window as usize];
    if read_full(file, &mut bytes, len - window)? < bytes.len() || bytes.last() != Some(&b'\n') {
        return Ok(None);
    }
    let before = &bytes[..bytes.len() - 1];
    let start = match memchr::memrchr(b'\n', before) {
        Some(at) => at + 1,
        None if window == len => 0,
        None => return Ok(None),
    };
    let mut scanner = Scanner::new(shape.clone(), len - window + start as u64);
    let line = &bytes[start..];
    scanner.feed(line.len(), |room| {
        room.copy_from_slice(line);
        io::Result::Ok(line.len())
    })?;
    Ok(match scanner.next_record() {
        Some(Record::Event(event)) if event.checked => event.seq.map(|last_seq| FoundTail {
            tail: Tail { last_seq, seal: Seal::Open.after_found(&event), extent: len },
            rest: Rest::default(),
            has_our_lines: true,
        }),
        _ => None,
    })
}

fn tail_by_scan(file: &dyn DiskFile, shape: &LineShape, checked_after: Option<u64>) -> io::Result<FoundTail> {
    let mut scanner = Scanner::new(shape.clone(), 0);
    let mut scan = TailScan { checked_after, ..TailScan::default() };
    loop {
        while let Some(record) = scanner.next_record() {
            scan.note(&record);
        }
        let offset = scanner.fed_to();
        if scanner.feed(READ_CHUNK_BYTES, |room| read_full(file, room, offset))? == 0 {
            break;
        }
    }
    scan.found.tail.extent = scanner.line_start();
    while let Some(record) = scanner.next_of_tail() {
        scan.note_unfinished(&record);
    }
    Ok(scan.finish(scanner.fed_to()))
}

#[derive(Default)]
struct TailScan {
    checked_after: Option<u64>,
    found: FoundTail,
    /// Damaged lines behind the last good one, each of which may have had a number.
    unknown: u64,
}

impl TailScan {
    fn note(&mut self, record: &Record<'_>) {
        match record {
            Record::Damage(Damage { kind: DamageKind::GluedRecords, .. }) => {}
            Record::Damage(_) => self.unknown += 1,
            Record::Event(event) if event.lacks_checksum(self.checked_after) => self.unknown += 1,
            Record::Event(event) => {
                self.found.has_our_lines |= event.checked;
                self.found.tail.seal = self.found.tail.seal.after_found(event);
                if let Some(seq) = event.seq {
                    self.found.tail.last_seq = self.found.tail.last_seq.max(seq);
                    self.unknown = 0;
                }
            }
        }
    }

    fn note_unfinished(&mut self, record: &Record<'_>) {
        if let Record::Event(event) = record
            && !event.lacks_checksum(self.checked_after)
        {
            self.note(record);
            self.found.rest.lacks_line_feed = true;
            self.found.tail.extent = event.offset + event.line.len() as u64;
        }
    }

    fn finish(mut self, end: u64) -> FoundTail {
        self.found.tail.last_seq += self.unknown;
        self.found.rest.torn_bytes = end - self.found.tail.extent;
        self.found
    }
}
