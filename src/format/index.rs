//! The lines of the index: one summary each, with a checksum, so that a torn or garbled one counts for nothing.
//!
//! `1 <crc32c of what follows> <session> <revision> <updated_at> <the summary's JSON>`, each behind a line feed too: what
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
    let body = format!("{} {revision} {} {}", summary.id(), summary.updated_at(), summary.to_json());
    let crc = crc32c::crc32c(body.as_bytes());
    out.extend_from_slice(format!("\n{VERSION}{crc:08x} {body}\n").as_bytes());
}

/// The summaries in the bytes of an index, in their order. Of one session the last counts.
pub fn read_index_lines(bytes: &[u8]) -> impl Iterator<Item = Summary> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            if let Some(summary) = read_line(line) {
                return Some(summary);
            }
        }
        None
    })
}

fn read_line(line: &[u8]) -> Option<Summary> {
    let line = line.strip_prefix(VERSION.as_bytes())?;
    let (crc, body) = line.split_at_checked(CRC_CHARS)?;
    let body = body.strip_prefix(b" ")?;
    let noted = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
    if crc32c::crc32c(body) != noted {
        return None;
    }
    let mut parts = std::str::from_utf8(body).ok()?.splitn(4, ' ');
    let id = SessionId::parse(parts.next()?).ok()?;
    let revision = Revision::new(parts.next()?);
    let updated_at = parts.next()?.parse().ok()?;
    Some(Summary::restore(id, revision, updated_at, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(id: &str, title: &str) -> Summary {
        let json = format!(r#"{{"session_id":"{id}","title":"{title}"}}"#);
        Summary::restore(SessionId::parse(id).unwrap(), Revision::new("1f-2-3"), 17.25, &json)
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
        let read: Vec<Summary> = read_index_lines(&lines()).collect();
        assert_eq!(read, [summary("s0", "a title"), summary("s1", "a title"), summary("s2", "a title")]);
    }

    #[test]
    fn a_line_that_was_cut_or_changed_anywhere_counts_for_nothing_and_spoils_no_other() {
        let whole = lines();
        for at in 0..whole.len() {
            let cut: Vec<u8> = whole[..at].iter().copied().chain(lines()).collect();
            assert!(read_index_lines(&cut).count() >= 3, "cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 1;
            let read: Vec<Summary> = read_index_lines(&changed).collect();
            assert!(read.len() >= 2 && read.iter().all(|found| found.title() == "a title"), "changed at {at}");
        }
    }
}
