//! The bytes of the commit log: a segment's header, and its records.
//!
//! Numbers are little-endian. A segment begins with a header of [`HEADER_BYTES`]; records follow, each at a multiple of
//! eight. The checksum of a record also covers the store, the segment's number and the record's place, so that what an
//! earlier use of the same file left behind is never taken for a record.
//!
//! ```text
//! header   magic 8 | version 4 | crc 4 | number 8 | live_from 8 | store length 1 | store 95
//! record   crc 4 | body length 4 | batch 8 | seq 8 | offset 8 | kind 1 | session length 1 | run length 1 | zeroes 5
//!          body: session | run | lines, or the length of the lines in 8 bytes
//! ```

use crate::model::{RunId, SessionId};

/// Bytes of a segment's header.
pub const HEADER_BYTES: usize = 128;
/// Bytes of a record before its body.
pub const RECORD_HEAD_BYTES: usize = 40;

const MAGIC: &[u8; 8] = b"LWCOMMIT";
const LOG_VERSION: u32 = 1;
const STORE_BYTES_MAX: usize = HEADER_BYTES - 33;
const KIND_LINES: u8 = 1;
const KIND_REFERENCE: u8 = 2;

/// What a segment says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The store that it belongs to.
    pub store: String,
    /// Its place in the order of segments; a file that is used again gets another.
    pub number: u64,
    /// The oldest segment that was needed when this one was begun.
    pub live_from: u64,
}

/// Why a header says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoHeader {
    /// It was never written, or is damaged.
    Unreadable,
    /// A newer program wrote it.
    Newer(u32),
}

impl SegmentHeader {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let store = &self.store.as_bytes()[..self.store.len().min(STORE_BYTES_MAX)];
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&LOG_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.live_from.to_le_bytes());
        bytes[32] = store.len() as u8;
        bytes[33..33 + store.len()].copy_from_slice(store);
        let crc = header_checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header.
    pub fn decode(bytes: &[u8]) -> Result<Self, NoHeader> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(NoHeader::Unreadable)?;
        if &bytes[..8] != MAGIC || header_checksum(bytes) != u32_at(bytes, 12) {
            return Err(NoHeader::Unreadable);
        }
        match u32_at(bytes, 8) {
            LOG_VERSION => {}
            newer => return Err(NoHeader::Newer(newer)),
        }
        let store = bytes.get(33..33 + bytes[32] as usize).and_then(|store| std::str::from_utf8(store).ok());
        let store = store.ok_or(NoHeader::Unreadable)?.to_owned();
        Ok(SegmentHeader { store, number: u64_at(bytes, 16), live_from: u64_at(bytes, 24) })
    }

    /// Where the checksums of this segment's records begin.
    pub fn seed(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(self.store.as_bytes()), &self.number.to_le_bytes())
    }
}

fn header_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[8..12]), &bytes[16..HEADER_BYTES])
}

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logged<'a> {
    /// Whole lines of a journal.
    Lines(&'a [u8]),
    /// So many bytes of the journal are durable in its own file.
    Reference(u64),
}

/// One record: part of a run's journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// The sync that it was written for.
    pub batch: u64,
    /// Whose.
    pub session: SessionId,
    /// Which.
    pub run: RunId,
    /// The number of its first event; 0 if it has none.
    pub seq: u64,
    /// Where the lines begin in the journal.
    pub offset: u64,
    /// The lines.
    pub logged: Logged<'a>,
}

/// Bytes that a record with so many bytes of lines takes.
pub fn record_bytes(session: &SessionId, run: &RunId, lines: usize) -> usize {
    (RECORD_HEAD_BYTES + session.as_str().len() + run.as_str().len() + lines).next_multiple_of(8)
}

impl LogRecord<'_> {
    /// Appends the record, which will stand at this place of its segment.
    pub fn encode(&self, seed: u32, place: u64, out: &mut Vec<u8>) {
        let (kind, length);
        let payload = match self.logged {
            Logged::Lines(lines) => {
                kind = KIND_LINES;
                lines
            }
            Logged::Reference(bytes) => {
                kind = KIND_REFERENCE;
                length = bytes.to_le_bytes();
                &length[..]
            }
        };
        let (session, run) = (self.session.as_str().as_bytes(), self.run.as_str().as_bytes());
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&((session.len() + run.len() + payload.len()) as u32).to_le_bytes());
        out.extend_from_slice(&self.batch.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&[kind, session.len() as u8, run.len() as u8, 0, 0, 0, 0, 0]);
        for part in [session, run, payload] {
            out.extend_from_slice(part);
        }
        let crc = checksum(seed, place, &out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        out.resize(start + (out.len() - start).next_multiple_of(8), 0);
    }
}

fn checksum(seed: u32, place: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &place.to_le_bytes()), bytes)
}

/// What stands in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundInLog<'a> {
    /// A record.
    Record(LogRecord<'a>),
    /// Bytes at this place that are no record, with records behind them.
    Damage {
        /// Where they begin.
        place: u64,
    },
}

/// Reads the records of a segment that begins with this header. What is behind the last of them is not reported: it is
/// what an earlier use left, or what a crash cut off.
pub fn read_segment<'a>(header: &SegmentHeader, bytes: &'a [u8]) -> Vec<FoundInLog<'a>> {
    let seed = header.seed();
    let (mut place, mut found, mut damage) = (HEADER_BYTES, Vec::new(), None);
    while place + RECORD_HEAD_BYTES <= bytes.len() {
        match record_at(seed, place, bytes) {
            Some((record, len)) => {
                found.extend(damage.take().map(|place| FoundInLog::Damage { place }));
                found.push(FoundInLog::Record(record));
                place += len;
            }
            None => {
                damage.get_or_insert(place as u64);
                place += 8;
            }
        }
    }
    found
}

/// The record at this place, and how many bytes it takes.
fn record_at(seed: u32, place: usize, bytes: &[u8]) -> Option<(LogRecord<'_>, usize)> {
    let head = &bytes[place..place + RECORD_HEAD_BYTES];
    let (kind, session_len, run_len) = (head[32], head[33] as usize, head[34] as usize);
    let body_len = u32_at(head, 4) as usize;
    if !matches!(kind, KIND_LINES | KIND_REFERENCE) || head[35..].iter().any(|byte| *byte != 0) {
        return None;
    }
    let body = bytes.get(place + RECORD_HEAD_BYTES..)?.get(..body_len)?;
    let whole = &bytes[place + 4..place + RECORD_HEAD_BYTES + body_len];
    if body_len < session_len + run_len || checksum(seed, place as u64, whole) != u32_at(head, 0) {
        return None;
    }
    let (session, rest) = body.split_at(session_len);
    let (run, payload) = rest.split_at(run_len);
    let logged = match kind {
        KIND_LINES => Logged::Lines(payload),
        _ => Logged::Reference(u64::from_le_bytes(payload.try_into().ok()?)),
    };
    let record = LogRecord {
        batch: u64_at(head, 8),
        session: SessionId::parse(std::str::from_utf8(session).ok()?).ok()?,
        run: RunId::parse(std::str::from_utf8(run).ok()?).ok()?,
        seq: u64_at(head, 16),
        offset: u64_at(head, 24),
        logged,
    };
    Some((record, (RECORD_HEAD_BYTES + body_len).next_multiple_of(8)))
}

/// The number of the first event in lines of ours; 0 if they are not.
pub fn first_seq(lines: &[u8]) -> u64 {
    const KEY: &[u8] = b"\"seq\":";
    let line = &lines[..memchr::memchr(b'\n', lines).unwrap_or(lines.len())];
    let Some(at) = memchr::memmem::find(line, KEY) else { return 0 };
    let digits = line[at + KEY.len()..].iter().take_while(|byte| byte.is_ascii_digit()).take(16);
    digits.fold(0, |seq, digit| seq * 10 + u64::from(digit - b'0'))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes are four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes are eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(number: u64) -> SegmentHeader {
        SegmentHeader { store: "0d5f2c1e-aaaa-4bbb-8ccc-123456789abc".to_owned(), number, live_from: 1 }
    }

    fn record(offset: u64, logged: Logged<'_>) -> LogRecord<'_> {
        let (session, run) = (SessionId::parse("s").unwrap(), RunId::parse("r.1").unwrap());
        LogRecord { batch: 7, session, run, seq: 3, offset, logged }
    }

    fn segment(header: &SegmentHeader, records: &[LogRecord<'_>]) -> Vec<u8> {
        let mut bytes = header.encode().to_vec();
        for record in records {
            let place = bytes.len() as u64;
            record.encode(header.seed(), place, &mut bytes);
        }
        bytes.resize(4096, 0);
        bytes
    }

    fn records<'a>(header: &SegmentHeader, bytes: &'a [u8]) -> Vec<LogRecord<'a>> {
        let found = read_segment(header, bytes).into_iter();
        found.filter_map(|found| if let FoundInLog::Record(record) = found { Some(record) } else { None }).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let header = header(9);
        let written = [record(0, Logged::Lines(b"one\n")), record(4, Logged::Reference(5_000_000))];
        let bytes = segment(&header, &written);
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header.clone()));
        assert_eq!(records(&header, &bytes), written);
        for (record, lines) in written.iter().zip([4, 8]) {
            let mut alone = Vec::new();
            record.encode(1, 2, &mut alone);
            assert_eq!(alone.len(), record_bytes(&record.session, &record.run, lines));
        }
    }

    #[test]
    fn what_an_earlier_use_left_is_no_record() {
        let (old, new) = (header(9), header(10));
        let mut bytes = segment(&old, &[record(0, Logged::Lines(b"one\n")), record(4, Logged::Lines(b"two\n"))]);
        bytes[..HEADER_BYTES].copy_from_slice(&new.encode());
        assert_eq!(read_segment(&new, &bytes), []);
    }

    #[test]
    fn a_record_that_was_moved_is_no_record() {
        let header = header(9);
        let mut bytes = segment(&header, &[record(0, Logged::Lines(b"one\n"))]);
        bytes.splice(HEADER_BYTES..HEADER_BYTES, [0; 8]);
        assert_eq!(read_segment(&header, &bytes), []);
    }

    #[test]
    fn damage_hides_one_record_and_is_told_if_others_follow() {
        let header = header(9);
        let written = [b"one\n", b"two\n", b"odd\n"].map(|line| record(0, Logged::Lines(line)));
        let whole = segment(&header, &written);
        let record_len = record_bytes(&written[0].session, &written[0].run, 4);
        for number in 0..3 {
            let mut bytes = whole.clone();
            bytes[HEADER_BYTES + number * record_len + 20] ^= 1;
            let found = read_segment(&header, &bytes);
            let damage = FoundInLog::Damage { place: (HEADER_BYTES + number * record_len) as u64 };
            assert_eq!(found.contains(&damage), number < 2, "{number}");
            let left: Vec<_> = written.iter().enumerate().filter(|(at, _)| *at != number).map(|(_, one)| one).collect();
            assert_eq!(records(&header, &bytes).iter().collect::<Vec<_>>(), left);
        }
    }

    #[test]
    fn no_flipped_bit_of_a_header_is_believed() {
        let bytes = header(9).encode();
        for at in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[at / 8] ^= 1 << (at % 8);
            assert_eq!(SegmentHeader::decode(&flipped), Err(NoHeader::Unreadable), "bit {at}");
        }
    }

    #[test]
    fn a_header_of_a_newer_program_is_told_as_such() {
        let mut bytes = header(9).encode();
        bytes[8..12].copy_from_slice(&(LOG_VERSION + 1).to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(NoHeader::Unreadable), "its checksum covers the version");
        let crc = header_checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(NoHeader::Newer(LOG_VERSION + 1)));
    }

    #[test]
    fn the_number_of_a_line_is_found_where_we_write_it() {
        assert_eq!(first_seq(b"{\"version\":1,\"event_id\":\"r:41\",\"seq\":41,\"x\":\"\\\"seq\\\":9\"}\n"), 41);
        assert_eq!(first_seq(b"{}\n{\"seq\":3}\n"), 0);
        assert_eq!(first_seq(b""), 0);
    }
}
