//! The lines of the index: one summary each, with a checksum, so that a torn or garbled one counts for nothing.
//!
//! `1 <crc32c of what follows> <session> <revision> <updated_at> <JSON object of what is listed>`, each behind a line feed too: what
//! a crash left of the line before cannot spoil it.

use memchr::memchr;

use crate::model::{Revision, SessionId, Summary};

const VERSION: &str = "1 ";
const CRC_CHARS: usize = 8;

/// Adds the line of a summary. One whose revision would not fit into a line is left out.
pub fn write_index_line(summary: &Summary, out: &mut Vec<u8>) {
    let revision = summary.revision().as_str();
    if revision.is_empty() || revision.contains(char::is_whitespace) {
        return;
    }
    let body = format!("{} {revision} {} {}", summary.id(), summary.updated_at(), summary.noted());
    let crc = crc32c::crc32c(body.as_bytes());
    out.extend_from_slice(format!("\n{VERSION}{crc:08x} {body}\n").as_bytes());
}

/// A line of an index, whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub struct IndexLine<'a> {
    /// The session.
    pub session: &'a str,
    /// The revision of its document.
    pub revision: &'a str,
    updated_at: &'a str,
    noted: &'a str,
}

impl IndexLine<'_> {
    /// The summary, if the line is of this revision of this session.
    pub fn summary_of(&self, session: &SessionId, revision: &Revision) -> Option<Summary> {
        let is_of = self.session == session.as_str() && self.revision == revision.as_str();
        let updated_at = self.updated_at.parse().ok().filter(|_| is_of)?;
        Some(Summary::restore(session.clone(), revision.clone(), updated_at, self.noted))
    }
}

/// The good lines in the bytes of an index, in their order. Of one session the last counts.
pub fn read_index_lines(bytes: &[u8]) -> impl Iterator<Item = IndexLine<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            if let Some(line) = read_line(line) {
                return Some(line);
            }
        }
        None
    })
}

fn read_line(line: &[u8]) -> Option<IndexLine<'_>> {
    let line = line.strip_prefix(VERSION.as_bytes())?;
    let (crc, body) = line.split_at_checked(CRC_CHARS)?;
    let body = body.strip_prefix(b" ")?;
    let noted = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
    if crc32c::crc32c(body) != noted {
        return None;
    }
    let (session, rest) = std::str::from_utf8(body).ok()?.split_once(' ')?;
    let (revision, rest) = rest.split_once(' ')?;
    let (updated_at, noted) = rest.split_once(' ')?;
    Some(IndexLine { session, revision, updated_at, noted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(id: &str, title: &str) -> Summary {
        let json = format!(r#"{{"session_id":"{id}","title":"{title}"}}"#);
        Summary::restore(SessionId::parse(id).unwrap(), Revision::new("1f-2-3"), 17.25, &json)
    }

    fn read(bytes: &[u8]) -> Vec<Summary> {
        let restored = |line: IndexLine<'_>| {
            line.summary_of(&SessionId::parse(line.session).unwrap(), &Revision::new(line.revision)).unwrap()
        };
        read_index_lines(bytes).map(restored).collect()
    }

    fn lines() -> Vec<u8> {
        let mut bytes = Vec::new();
        for at in 0..3 {
            write_index_line(&summary(&format!("s{at}"), "a title"), &mut bytes);
        }
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(read(&lines()), [summary("s0", "a title"), summary("s1", "a title"), summary("s2", "a title")]);
    }

    #[test]
    fn a_line_that_was_cut_or_changed_anywhere_counts_for_nothing_and_spoils_no_other() {
        let whole = lines();
        for at in 0..whole.len() {
            let cut: Vec<u8> = whole[..at].iter().copied().chain(lines()).collect();
            assert!(read_index_lines(&cut).count() >= 3, "cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 1;
            let read = read(&changed);
            assert!(read.len() >= 2 && read.iter().all(|found| found.title() == "a title"), "changed at {at}");
        }
    }
}
