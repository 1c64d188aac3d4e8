//! What the reader of the commit log owes to any bytes at all: records that were written so, at their places, and nothing
//! else.

use lastword::format::commit::{
    FoundInLog, HEADER_BYTES, LogRecord, Logged, RECORD_HEAD_BYTES, SegmentHeader, read_segment, record_bytes,
};

/// Fails if a rule is broken on these bytes, or on the same with right checksums, which no chance would give them.
pub(crate) fn check(bytes: &[u8]) {
    check_segment(bytes);
    let mended = with_right_checksums(bytes);
    if mended != bytes {
        check_segment(&mended);
    }
}

fn check_segment(bytes: &[u8]) {
    let Ok(header) = SegmentHeader::decode(bytes) else { return };
    assert_eq!(SegmentHeader::decode(&header.encode()).as_ref(), Ok(&header), "a header is read as it was written");
    let mut at = HEADER_BYTES;
    for found in read_segment(&header, bytes) {
        match found {
            FoundInLog::Damage { place } => {
                assert_eq!(place, at as u64, "damage begins where no record does");
            }
            FoundInLog::Record(record) => at = end_of(&record, &header, bytes, at),
        }
    }
}

/// Finds the place that the record stands at, at this one or behind it, and gives its end.
fn end_of(record: &LogRecord<'_>, header: &SegmentHeader, bytes: &[u8], from: usize) -> usize {
    let lines = match record.logged {
        Logged::Lines(lines) => lines.len(),
        Logged::Reference(_) => 8,
    };
    let len = record_bytes(&record.session, &record.run, lines);
    let unpadded = RECORD_HEAD_BYTES + record.session.as_str().len() + record.run.as_str().len() + lines;
    let stands_at = |place: &usize| {
        let mut written = Vec::new();
        record.encode(header.seed(), *place as u64, &mut written);
        bytes[*place..].starts_with(&written[..unpadded])
    };
    let place = (from..bytes.len()).step_by(8).find(stands_at);
    place.unwrap_or_else(|| panic!("this was never written: {record:?}")) + len
}

fn with_right_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut mended = bytes.to_vec();
    if mended.len() < HEADER_BYTES {
        return mended;
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&mended[8..12]), &mended[16..HEADER_BYTES]);
    mended[12..16].copy_from_slice(&crc.to_le_bytes());
    let Ok(header) = SegmentHeader::decode(&mended) else { return mended };
    let mut place = HEADER_BYTES;
    while place + RECORD_HEAD_BYTES <= mended.len() {
        let length = u32::from_le_bytes(mended[place + 4..place + 8].try_into().expect("four bytes")) as usize;
        let end = (place + RECORD_HEAD_BYTES).saturating_add(length);
        if length == 0 || end > mended.len() {
            place += 8;
            continue;
        }
        let seed = crc32c::crc32c_append(header.seed(), &(place as u64).to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &mended[place + 4..end]);
        mended[place..place + 4].copy_from_slice(&crc.to_le_bytes());
        place = end.next_multiple_of(8);
    }
    mended
}
