//! What the reader of the index owes to any bytes at all: lines whose checksum is right, all of them, and nothing else.

use lastword::format::{read_index_lines, write_index_line};
use lastword::{Revision, SessionId, Summary};

/// Fails if a rule is broken on these bytes, or on the same with the checksums of their lines put right, which no
/// chance would do.
pub(crate) fn check(bytes: &[u8]) {
    check_lines(bytes);
    let mended = with_right_checksums(bytes);
    if mended != bytes {
        check_lines(&mended);
    }
}

fn check_lines(bytes: &[u8]) {
    let expected: Vec<Line<'_>> = bytes.split(|byte| *byte == b'\n').filter_map(Line::read).collect();
    let found: Vec<_> = read_index_lines(bytes).collect();
    let names = |session, revision| format!("{session} of {revision}");
    assert_eq!(
        found.iter().map(|line| names(line.session, line.revision)).collect::<Vec<_>>(),
        expected.iter().map(|line| names(line.session, line.revision)).collect::<Vec<_>>(),
    );
    for (line, found) in expected.iter().zip(&found) {
        let Ok(session) = SessionId::parse(line.session) else { continue };
        let revision = Revision::new(line.revision);
        assert!(found.summary_of(&session, &Revision::new("another")).is_none() || line.revision == "another");
        match (found.summary_of(&session, &revision), line.updated_at.parse::<f64>()) {
            (Some(summary), Ok(updated_at)) => assert_says(&summary, line, updated_at),
            (None, Err(_)) => {}
            (summary, updated_at) => panic!("{summary:?} of {updated_at:?}"),
        }
    }
}

/// A line with a right checksum, taken apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) session: &'a str,
    pub(crate) revision: &'a str,
    updated_at: &'a str,
    noted: &'a str,
}

impl<'a> Line<'a> {
    pub(crate) fn read(line: &'a [u8]) -> Option<Self> {
        let (digits, body) = frame(line)?;
        let stated = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        let body = std::str::from_utf8(body).ok().filter(|body| crc32c::crc32c(body.as_bytes()) == stated)?;
        let parts: Vec<&str> = body.splitn(4, ' ').collect();
        let [session, revision, updated_at, noted] = parts[..] else { return None };
        Some(Line { session, revision, updated_at, noted })
    }
}

/// The digits of a line's checksum, and what it is of.
fn frame(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (digits, body) = line.strip_prefix(b"1 ")?.split_at_checked(8)?;
    Some((digits, body.strip_prefix(b" ")?))
}

/// A summary says what stands on its line: written again, it is the same line.
fn assert_says(summary: &Summary, line: &Line<'_>, updated_at: f64) {
    assert_eq!((summary.id().as_str(), summary.revision().as_str()), (line.session, line.revision));
    assert_eq!(summary.updated_at().to_bits(), updated_at.to_bits());
    let _ = (summary.title(), summary.message_count(), summary.to_json());
    let mut written = Vec::new();
    write_index_line(summary, &mut written);
    if line.revision.is_empty() || line.revision.contains(char::is_whitespace) {
        return assert!(written.is_empty(), "a line that cannot be read was written");
    }
    let written = written.strip_prefix(b"\n").and_then(|line| line.strip_suffix(b"\n"));
    let again = written.and_then(Line::read).expect("what was written can be read");
    assert_eq!((again.session, again.revision, again.noted), (line.session, line.revision, line.noted));
}

fn with_right_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut mended = bytes.to_vec();
    for line in mended.split_mut(|byte| *byte == b'\n') {
        if let Some((_, body)) = frame(line) {
            let digits = format!("{:08x}", crc32c::crc32c(body));
            line[2..10].copy_from_slice(digits.as_bytes());
        }
    }
    mended
}
