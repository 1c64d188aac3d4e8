//! What the scanner of a journal owes to any bytes at all.

use lastword::format::{Damage, DamageKind, EventRef, Ids, LineShape, Record, Scanner};
use lastword::limits::SEQ_MAX;
use lastword::model::{Object, Truth};
use lastword::{RunId, SessionId};
use serde_json::value::RawValue;

/// One finding of the scanner, on its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Seen {
    Event { offset: u64, text: String, checked: bool, seq: Option<u64>, terminal: Truth, ids: Ids },
    Damage(Damage),
}

/// How the bytes reach the scanner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Feed {
    /// So many at a time, and each record is asked for.
    Steps(usize),
    /// The same, and at the end whole lines are asked for again before each record of the last one.
    Asked(usize),
    /// So many at a time, and all records are shown.
    Shown(usize),
}

/// Fails if the scanner breaks a rule on these bytes, or on the same with the checksums of their lines put right, which
/// no chance would do.
pub(crate) fn check(bytes: &[u8]) {
    let shape = LineShape::new(&SessionId::parse("s").unwrap(), &RunId::parse("r").unwrap());
    check_scan(bytes, &shape);
    let mended = with_right_checksums(bytes);
    if mended != bytes {
        check_scan(&mended, &shape);
    }
}

/// Fails if the scanner breaks a rule on these bytes.
pub(crate) fn check_scan(bytes: &[u8], shape: &LineShape) {
    let seen = scan(bytes, 0, shape, Feed::Steps(bytes.len().max(1)));
    let few = if bytes.len() <= 256 { 1 } else { 1 + bytes.len() % 61 };
    for feed in [Feed::Steps(few), Feed::Asked(few), Feed::Shown(few), Feed::Shown(bytes.len().max(1))] {
        assert_eq!(scan(bytes, 0, shape, feed), seen, "it matters how the bytes arrive: {feed:?}");
    }
    assert_eq!(line_by_line(bytes, shape), seen, "it matters what stands around a line");
    scan_with(bytes, 0, shape, Feed::Steps(bytes.len().max(1)), &mut |record| {
        if let Record::Event(event) = record {
            assert_true(bytes, event);
        }
    });
    assert_in_order(bytes, &seen);
    assert_nothing_is_passed_over(bytes, &seen);
}

/// What the scanner finds in bytes that begin at this offset of a file.
pub(crate) fn scan(bytes: &[u8], offset: u64, shape: &LineShape, feed: Feed) -> Vec<Seen> {
    let mut found = Vec::new();
    scan_with(bytes, offset, shape, feed, &mut |record| found.push(seen(record)));
    found
}

fn scan_with(bytes: &[u8], offset: u64, shape: &LineShape, feed: Feed, note: &mut dyn FnMut(&Record<'_>)) {
    let mut scanner = Scanner::new(shape.clone(), offset);
    let (Feed::Steps(step) | Feed::Asked(step) | Feed::Shown(step)) = feed;
    for piece in bytes.chunks(step) {
        let fed = scanner.feed(piece.len(), |room| {
            room.copy_from_slice(piece);
            Ok::<_, ()>(piece.len())
        });
        assert_eq!(fed, Ok(piece.len()));
        match feed {
            Feed::Shown(_) => scanner.show_whole(|record| note(&record)),
            Feed::Steps(_) | Feed::Asked(_) => {
                while let Some(record) = scanner.next_record() {
                    note(&record);
                }
            }
        }
    }
    while let Some(record) = scanner.next_of_tail() {
        note(&record);
        if let Feed::Asked(_) = feed
            && let Some(record) = scanner.next_record()
        {
            note(&record);
        }
    }
    assert_eq!(scanner.fed_to(), offset + bytes.len() as u64);
}

fn line_by_line(bytes: &[u8], shape: &LineShape) -> Vec<Seen> {
    let mut offset = 0;
    let mut found = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        found.extend(scan(line, offset, shape, Feed::Steps(line.len())));
        offset += line.len() as u64;
    }
    found
}

fn seen(record: &Record<'_>) -> Seen {
    match record {
        Record::Damage(damage) => Seen::Damage(*damage),
        Record::Event(event) => {
            let EventRef { offset, checked, seq, terminal, ids, .. } = *event;
            Seen::Event { offset, text: event.text().to_owned(), checked, seq, terminal, ids }
        }
    }
}

/// An event is what stands at its place, checked if its checksum is right, and no event if that is wrong.
fn assert_true(bytes: &[u8], event: &EventRef<'_>) {
    let (text, place) = (event.text(), event.offset as usize);
    assert_eq!(&bytes[place..place + text.len()], text.as_bytes(), "not what stands there");
    assert_eq!(event.checked, is_checksum_right(text.as_bytes()).unwrap_or(false), "wrongly checked, or not: {text:?}");
    assert_ne!(is_checksum_right(text.as_bytes()), Some(false), "an event in spite of its checksum: {text:?}");
    assert!(event.seq.is_none_or(|seq| (1..=SEQ_MAX).contains(&seq)));
    let _ = (event.created_at_seconds(), event.to_fold(), event.is_own_terminal());
    assert_parts(event);
}

/// The parts of an event are those that a JSON reader finds. A line that is no JSON can only be one of ours, whose
/// checksum vouches for it.
fn assert_parts(event: &EventRef<'_>) {
    let Some(fields) = Object::parse(event.text()) else {
        return assert!(event.checked, "no JSON, and yet an event: {:?}", event.text());
    };
    if event.payload.is_some_and(|payload| serde_json::from_str::<&RawValue>(payload).is_err()) {
        return assert!(event.checked, "a payload that is no JSON: {:?}", event.text());
    }
    assert_eq!(event.payload, fields.get("payload"));
    assert_eq!(event.terminal_state, fields.get("terminal_state"));
    assert_eq!(event.terminal == Truth::True, fields.is_true("terminal"));
    let usable = |seq: &u64| (1..=SEQ_MAX).contains(seq);
    assert_eq!(event.seq, fields.get("seq").and_then(|seq| seq.parse().ok()).filter(usable));
    if let Some(name) = fields.text("event").filter(|name| !name.is_empty()) {
        assert_eq!(event.name, name);
    }
}

/// Whether a line ends in a checksum; if so, whether it is right.
pub(crate) fn is_checksum_right(line: &[u8]) -> Option<bool> {
    let (body, tail) = line.split_at(line.len().checked_sub(18)?);
    let stated = tail.strip_prefix(b",\"crc\":\"")?.strip_suffix(b"\"}")?;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    stated.iter().all(is_digit).then(|| stated == format!("{:08x}", crc32c::crc32c(body)).as_bytes())
}

/// Records come in the order of the file, within it, and none stands in another. Of records glued together it is told
/// before them where all of them stand.
fn assert_in_order(bytes: &[u8], seen: &[Seen]) {
    let mut reached = 0;
    for record in seen {
        let (offset, end) = span(record);
        assert!(reached <= offset && offset < end && end <= bytes.len() as u64, "out of order: {record:?}");
        let is_glued = matches!(record, Seen::Damage(damage) if damage.kind == DamageKind::GluedRecords);
        reached = if is_glued { offset } else { end };
    }
}

/// Every byte that is not blank is part of an event or of damage that was told.
fn assert_nothing_is_passed_over(bytes: &[u8], seen: &[Seen]) {
    let mut is_told = vec![false; bytes.len()];
    for (offset, end) in seen.iter().map(span) {
        is_told[offset as usize..end as usize].fill(true);
    }
    let mark = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let missed = (mark..bytes.len()).find(|at| !is_told[*at] && !bytes[*at].is_ascii_whitespace());
    assert_eq!(missed, None, "passed over: {seen:?}");
}

/// Where a record begins and ends.
pub(crate) fn span(record: &Seen) -> (u64, u64) {
    match record {
        Seen::Event { offset, text, .. } => (*offset, offset + text.len() as u64),
        Seen::Damage(damage) => (damage.offset, damage.offset + damage.bytes),
    }
}

fn with_right_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut mended = bytes.to_vec();
    for line in mended.split_mut(|byte| *byte == b'\n') {
        if let Some(false) = is_checksum_right(line) {
            let (body, tail) = line.split_at_mut(line.len() - 18);
            tail[8..16].copy_from_slice(format!("{:08x}", crc32c::crc32c(body)).as_bytes());
        }
    }
    mended
}
