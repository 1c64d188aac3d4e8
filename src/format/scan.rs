//! Finds the records of a journal in its bytes: lines framed by LF, and whatever a bad night left between them.
//!
//! Reads no files: the caller hands it bytes. Damage never hides a good record before or behind it, and memory is
//! bounded by the longest line that is allowed.

use serde_json::StreamDeserializer;
use serde_json::de::SliceRead;
use serde_json::value::RawValue;

use super::line::{EventRef, LineShape, OwnLine, OwnParts, decode_any};
use crate::limits::LINE_BYTES_MAX;

/// What is wrong with some bytes of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DamageKind {
    /// The last line is not whole.
    TornTail,
    /// The line's checksum does not fit its bytes.
    ChecksumMismatch,
    /// The line is not UTF-8.
    BadUtf8,
    /// The line is not a JSON object.
    BadJson,
    /// NUL bytes where text should be.
    NulRun,
    /// Two records on one line; both are read.
    GluedRecords,
    /// A line longer than any we write.
    LineTooLong,
}

impl DamageKind {
    /// The code that `check` reports.
    pub fn code(self) -> &'static str {
        match self {
            DamageKind::TornTail => "torn_tail",
            DamageKind::ChecksumMismatch => "checksum_mismatch",
            DamageKind::BadUtf8 => "bad_utf8",
            DamageKind::BadJson => "bad_json",
            DamageKind::NulRun => "nul_run",
            DamageKind::GluedRecords => "glued_records",
            DamageKind::LineTooLong => "line_too_long",
        }
    }
}

/// Damaged bytes of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// What is wrong.
    pub kind: DamageKind,
    /// Where it begins in the file.
    pub offset: u64,
    /// How many bytes it spans.
    pub bytes: u64,
}

/// One finding of the scanner.
#[derive(Debug)]
pub enum Record<'a> {
    /// An event.
    Event(EventRef<'a>),
    /// Bytes that are no event.
    Damage(Damage),
}

/// Takes a journal's bytes in pieces and gives its records in order.
#[derive(Debug)]
pub struct Scanner {
    shape: LineShape,
    /// Bytes that were handed in, and behind them room that is used again and again without clearing it.
    buffer: Vec<u8>,
    /// Where the bytes in `buffer` end.
    end: usize,
    /// The file offset of `buffer[0]`.
    base: u64,
    /// Where the next line begins in `buffer`.
    at: usize,
    /// Bytes of the unfinished line that are known to hold no LF.
    searched: usize,
    /// The line being given out, if it holds more than one record.
    glued: Option<Glued>,
    /// Whether the line being given out is the last one, which lacks its line feed.
    is_tail: bool,
    /// Where an overlong line began, while it is being skipped.
    overlong_from: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Glued {
    next: usize,
    end: usize,
    reported: bool,
    /// Whether something before it on the line is damaged: then it may be a part of a record that looks like one.
    is_behind_damage: bool,
}

impl Glued {
    fn behind_damage(next: usize, end: usize) -> Self {
        Glued { next, end, reported: true, is_behind_damage: true }
    }
}

/// Where something was found in the buffer.
#[derive(Debug)]
pub(crate) enum Found {
    Own { start: usize, end: usize, line: OwnLine },
    Any { start: usize, end: usize },
    Damage(Damage),
}

impl Scanner {
    /// A scanner for a journal's bytes from this file offset on.
    pub fn new(shape: LineShape, offset: u64) -> Self {
        Scanner {
            shape,
            buffer: Vec::new(),
            end: 0,
            base: offset,
            at: 0,
            searched: 0,
            glued: None,
            is_tail: false,
            overlong_from: None,
        }
    }

    /// The file offset behind the last byte that was handed in.
    pub fn fed_to(&self) -> u64 {
        self.base + self.end as u64
    }

    /// The file offset at which the first line begins that was not given out yet.
    pub fn line_start(&self) -> u64 {
        self.overlong_from.unwrap_or(self.base + self.at as u64)
    }

    /// Room for more bytes: the caller fills it and says how many it filled. Records given out so far are let go.
    pub fn feed<E>(&mut self, room: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<usize, E> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        self.base += self.at as u64;
        self.at = 0;
        let needed = self.end + room;
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        self.is_tail = false;
        let filled = fill(&mut self.buffer[self.end..needed])?;
        self.end += filled;
        Ok(filled)
    }

    /// Lets go of the unfinished last line, to be handed in again: a writer may cut it off and write another there.
    pub fn forget_unfinished(&mut self) {
        self.end = self.at;
        self.searched = 0;
    }

    /// The next record among the whole lines that are there. `None` asks for more bytes.
    pub fn next_record(&mut self) -> Option<Record<'_>> {
        self.find_next().map(|found| self.give(found))
    }

    pub(crate) fn find_next(&mut self) -> Option<Found> {
        loop {
            if let Some(found) = self.next_glued() {
                return Some(self.torn_if_tail(found));
            }
            let Some(length) = memchr::memchr(b'\n', &self.buffer[self.at + self.searched..self.end]) else {
                self.wait_for_line_end();
                return None;
            };
            let start = self.at;
            let end = self.at + self.searched + length;
            self.at = end + 1;
            self.searched = 0;
            if let Some(found) = self.judge(start, end) {
                return Some(found);
            }
        }
    }

    /// Shows all records among the whole lines that are there, one after the other. Faster than asking for each.
    pub fn show_whole(&mut self, mut show: impl FnMut(Record<'_>)) {
        loop {
            self.show_own(&mut show);
            match self.find_next() {
                Some(found) => show(self.give(found)),
                None => return,
            }
        }
    }

    /// Shows the lines of exactly our shape, up to the first other one.
    fn show_own(&mut self, show: &mut impl FnMut(Record<'_>)) {
        if self.glued.is_some() || self.overlong_from.is_some() {
            return;
        }
        while let Some(length) = memchr::memchr(b'\n', &self.buffer[self.at + self.searched..self.end]) {
            let end = self.at + self.searched + length;
            let line = &self.buffer[self.at..end];
            let Some(own) = OwnParts::find(line, &self.shape).filter(|_| line.len() <= LINE_BYTES_MAX) else { return };
            show(Record::Event(own.event(line, self.base + self.at as u64)));
            self.at = end + 1;
            self.searched = 0;
        }
    }

    /// The records of the last line when no more bytes will come: it lacks its line feed. A whole record is given like
    /// any other, the rest is a torn tail.
    pub fn next_of_tail(&mut self) -> Option<Record<'_>> {
        self.find_in_tail().map(|found| self.give(found))
    }

    pub(crate) fn find_in_tail(&mut self) -> Option<Found> {
        let found = match self.next_glued() {
            Some(found) => found,
            None => self.judge_tail()?,
        };
        Some(self.torn_if_tail(found))
    }

    /// What is damaged at the very end of the last line is what a crash left of it, whoever asks for it.
    fn torn_if_tail(&self, found: Found) -> Found {
        match found {
            Found::Damage(damage) if self.is_tail && self.glued.is_none() && damage.kind != DamageKind::LineTooLong => {
                Found::Damage(self.damage(DamageKind::TornTail, damage.offset, self.end))
            }
            found => found,
        }
    }

    fn judge_tail(&mut self) -> Option<Found> {
        let (start, end) = (self.at, self.end);
        self.at = end;
        self.searched = 0;
        self.is_tail = true;
        self.judge(start, end)
    }

    fn wait_for_line_end(&mut self) {
        self.searched = self.end - self.at;
        if self.searched > LINE_BYTES_MAX {
            self.overlong_from.get_or_insert(self.base + self.at as u64);
            self.at = self.end;
            self.searched = 0;
        }
    }

    fn damage(&self, kind: DamageKind, offset: u64, end: usize) -> Damage {
        Damage { kind, offset, bytes: self.base + end as u64 - offset }
    }

    fn offset(&self, at: usize) -> u64 {
        self.base + at as u64
    }

    /// The record that was found. Only the last one found is still there.
    pub(crate) fn give(&self, found: Found) -> Record<'_> {
        match found {
            Found::Damage(damage) => Record::Damage(damage),
            Found::Own { start, end, line } => Record::Event(line.event(&self.buffer[start..end], self.offset(start))),
            Found::Any { start, end } => {
                let text = std::str::from_utf8(&self.buffer[start..end]).expect("judged to be UTF-8");
                match decode_any(text, self.offset(start), &self.shape) {
                    Ok(event) => Record::Event(event),
                    Err(kind) => Record::Damage(self.damage(kind, self.offset(start), end)),
                }
            }
        }
    }

    /// What a line is. Nothing for a blank one.
    fn judge(&mut self, start: usize, end: usize) -> Option<Found> {
        if let Some(from) = self.overlong_from.take() {
            return Some(Found::Damage(self.damage(DamageKind::LineTooLong, from, end)));
        }
        if end - start > LINE_BYTES_MAX {
            return Some(Found::Damage(self.damage(DamageKind::LineTooLong, self.offset(start), end)));
        }
        let (start, end) = self.trimmed(start, end);
        if start == end {
            return None;
        }
        if let Some(line) = OwnLine::find(&self.buffer[start..end], &self.shape) {
            return Some(Found::Own { start, end, line });
        }
        self.judge_foreign(start, end)
    }

    fn trimmed(&self, start: usize, end: usize) -> (usize, usize) {
        const BOM: &[u8] = b"\xef\xbb\xbf";
        let line = &self.buffer[start..end];
        let at_start_of_file = self.base + start as u64 == 0;
        let bom = if at_start_of_file && line.starts_with(BOM) { BOM.len() } else { 0 };
        let line = &line[bom..];
        let kept = line.trim_ascii_start();
        let from = start + bom + (line.len() - kept.len());
        (from, from + kept.trim_ascii_end().len())
    }

    fn judge_foreign(&mut self, start: usize, end: usize) -> Option<Found> {
        let line = &self.buffer[start..end];
        let nuls = line.iter().take_while(|byte| **byte == 0).count();
        if nuls > 0 {
            return Some(self.skip_nuls(start, start + nuls, end));
        }
        match first_value(line) {
            Some(len) if len == line.len() => Some(self.judge_object(start, end)),
            Some(_) => {
                self.glued = Some(Glued { next: start, end, reported: false, is_behind_damage: false });
                self.next_glued()
            }
            None => Some(self.judge_broken(start, end)),
        }
    }

    /// Zeroes where a page was never written, and with them whatever is left of a line that they cut.
    fn skip_nuls(&mut self, start: usize, behind: usize, end: usize) -> Found {
        let rest = &self.buffer[behind..end];
        let next = match self.is_own_right(rest) {
            true => Some(behind),
            false => memchr::memmem::find(rest, &self.shape.start).map(|at| behind + at),
        };
        self.glued = next.map(|next| Glued::behind_damage(next, end));
        Found::Damage(self.damage(DamageKind::NulRun, self.offset(start), next.unwrap_or(end)))
    }

    /// Whether the bytes begin with a journal line in its own right, and not with the payload of one that lost its
    /// beginning: it says what it is, and nothing follows it on the line but another one, or damage if its checksum is
    /// right.
    fn is_own_right(&self, bytes: &[u8]) -> bool {
        let bytes = bytes.trim_ascii();
        let Some((len, is_checked)) = self.named_object(bytes) else { return false };
        let rest = bytes[len..].trim_ascii_start();
        let is_part = matches!(rest.first(), Some(b',' | b'}' | b']'));
        rest.is_empty()
            || is_checked && !is_part
            || rest.starts_with(&self.shape.start)
            || self.named_object(rest).is_some()
    }

    /// The length of the JSON object that the bytes begin with, if it has a name, a number or a checksum, and whether
    /// that is right.
    fn named_object(&self, bytes: &[u8]) -> Option<(usize, bool)> {
        let len = first_value(bytes).filter(|_| bytes[0] == b'{')?;
        let text = std::str::from_utf8(&bytes[..len]).ok()?;
        match decode_any(text, 0, &self.shape) {
            Ok(event) if event.checked => Some((len, true)),
            Ok(event) => (event.seq.is_some() || !event.name.is_empty()).then_some((len, false)),
            // It is told as what it is.
            Err(_) => Some((len, false)),
        }
    }

    /// One JSON value that fills its place.
    fn judge_object(&self, start: usize, end: usize) -> Found {
        let bytes = &self.buffer[start..end];
        if std::str::from_utf8(bytes).is_err() {
            return Found::Damage(self.damage(DamageKind::BadUtf8, self.offset(start), end));
        }
        match bytes[0] {
            b'{' => Found::Any { start, end },
            _ => Found::Damage(self.damage(DamageKind::BadJson, self.offset(start), end)),
        }
    }

    /// Bytes that do not begin with a JSON value. A record of ours may still stand at their end, glued to a torn one.
    fn judge_broken(&mut self, start: usize, end: usize) -> Found {
        let line = &self.buffer[start..end];
        let next = memchr::memmem::find(&line[1..], &self.shape.start).map(|at| start + 1 + at);
        // Nothing behind the next record is looked at: a line may hold thousands of them.
        let kind = match next {
            Some(_) => DamageKind::GluedRecords,
            None if std::str::from_utf8(line).is_err() => DamageKind::BadUtf8,
            None if line.contains(&0) => DamageKind::NulRun,
            None => DamageKind::BadJson,
        };
        self.glued = next.map(|next| Glued::behind_damage(next, end));
        Found::Damage(self.damage(kind, self.offset(start), next.unwrap_or(end)))
    }

    fn next_glued(&mut self) -> Option<Found> {
        let glued = self.glued.take()?;
        let (start, end) = self.trimmed(glued.next, glued.end);
        if start == end {
            return None;
        }
        if !glued.reported {
            self.glued = Some(Glued { next: start, end, reported: true, ..glued });
            return Some(Found::Damage(self.damage(DamageKind::GluedRecords, self.offset(start), end)));
        }
        let line = &self.buffer[start..end];
        let value = first_value(line).filter(|_| !glued.is_behind_damage || self.is_own_right(line));
        match value {
            Some(len) if len < line.len() => {
                self.glued = Some(Glued { next: start + len, end, ..glued });
                Some(self.judge_object(start, start + len))
            }
            Some(_) => Some(self.judge_object(start, end)),
            None => Some(self.judge_broken(start, end)),
        }
    }
}

/// The length of the JSON value that the bytes begin with.
fn first_value(bytes: &[u8]) -> Option<usize> {
    let mut values = StreamDeserializer::<_, &RawValue>::new(SliceRead::new(bytes));
    let value = values.next()?.ok()?;
    Some(value.get().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::format::LineEncoder;
    use crate::model::{Event, RunId, SessionId};

    fn ids() -> (SessionId, RunId) {
        (SessionId::parse("s").unwrap(), RunId::parse("r").unwrap())
    }

    fn line(seq: u64) -> Vec<u8> {
        let (session, run) = ids();
        let mut out = Vec::new();
        let event = Event::token(&format!("text {seq}"));
        LineEncoder::new(&session, &run).encode(seq, Timestamp::from_seconds(1.0), &event, &mut out);
        out
    }

    /// What is found when the bytes arrive `step` at a time: `e<seq>` or `<code>@<offset>+<bytes>`.
    fn scan_by(bytes: &[u8], step: usize) -> Vec<String> {
        let (session, run) = ids();
        let mut scanner = Scanner::new(LineShape::new(&session, &run), 0);
        let mut found = Vec::new();
        let note = |record: Record<'_>| match record {
            Record::Event(event) => format!("e{}", event.seq.map_or("?".to_owned(), |seq| seq.to_string())),
            Record::Damage(damage) => format!("{}@{}+{}", damage.kind.code(), damage.offset, damage.bytes),
        };
        let mut rest = bytes;
        loop {
            while let Some(record) = scanner.next_record() {
                found.push(note(record));
            }
            if rest.is_empty() {
                break;
            }
            let fed = scanner
                .feed(step, |room| {
                    let len = room.len().min(rest.len());
                    room[..len].copy_from_slice(&rest[..len]);
                    Ok::<_, ()>(len)
                })
                .unwrap();
            rest = &rest[fed..];
        }
        while let Some(record) = scanner.next_of_tail() {
            found.push(note(record));
        }
        found
    }

    #[track_caller]
    fn check(bytes: &[u8], expected: &[&str]) {
        for step in [1, 7, 64, 100_000] {
            assert_eq!(scan_by(bytes, step), expected, "{step} bytes at a time");
        }
    }

    #[test]
    fn lines_come_out_in_order_and_blank_ones_are_nothing() {
        check(&[&line(1), b"\n  \r\n".as_slice(), &line(2)].concat(), &["e1", "e2"]);
    }

    #[test]
    fn only_a_line_feed_ends_a_line() {
        check("{\"seq\":1,\"event\":\"t\",\"payload\":\"a\u{2028}\u{85}\u{2029}b\"}\r\n".as_bytes(), &["e1"]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        check(&[b"\xef\xbb\xbf".as_slice(), &line(1)].concat(), &["e1"]);
    }

    #[test]
    fn garbage_between_good_lines_hides_neither() {
        let length = line(1).len();
        let bytes = [&line(1), b"garbage\n[1]\n\xff\xfe\n12\n".as_slice(), &line(2)].concat();
        check(
            &bytes,
            &[
                "e1",
                &format!("bad_json@{length}+7"),
                &format!("bad_json@{}+3", length + 8),
                &format!("bad_utf8@{}+2", length + 12),
                &format!("bad_json@{}+2", length + 15),
                "e2",
            ],
        );
    }

    #[test]
    fn a_page_of_nuls_does_not_hide_the_line_behind_it() {
        check(&[vec![0; 50], line(1)].concat(), &["nul_run@0+50", "e1"]);
        check(&[line(1), vec![0; 50]].concat(), &["e1", &format!("torn_tail@{}+50", line(1).len())]);
    }

    #[test]
    fn what_is_left_of_a_line_behind_nuls_is_no_event() {
        let payload = br#"{"text":"x"},"crc":"460648a8"}"#.as_slice();
        let len = 50 + payload.len();
        let nuls = vec![0; 50];
        check(&[&nuls, payload, b"\n", &line(2)].concat(), &[&format!("nul_run@0+{len}"), "e2"]);
        check(&[&nuls, payload].concat(), &[&format!("torn_tail@0+{len}")]);
        check(&[&nuls, payload, &line(2)].concat(), &[&format!("nul_run@0+{len}"), "e2"]);
        for rest in [r#"{"event":"x"},"crc":"460648a8"}"#, r#"{"seq":7}}"#, r#"{"type":"x"},{"seq":1}"#, r#"{"a":1}"#] {
            let bytes = [&nuls, rest.as_bytes(), b"\n", &line(2)].concat();
            check(&bytes, &[&format!("nul_run@0+{}", 50 + rest.len()), "e2"]);
        }
    }

    #[test]
    fn lines_in_their_own_right_behind_nuls_are_read() {
        let (nuls, foreign) = (vec![0; 50], br#"{"seq":7,"type":"token"}"#.as_slice());
        check(&[&nuls, foreign, b" \r\n"].concat(), &["nul_run@0+50", "e7"]);
        check(&[&nuls, foreign, foreign, b"\n"].concat(), &["nul_run@0+50", "e7", "e7"]);
        check(&[&nuls, foreign, &line(8)].concat(), &["nul_run@0+50", "e7", "e8"]);
        check(&[&nuls, br#"{"event":"x"}"#.as_slice(), b"\n"].concat(), &["nul_run@0+50", "e?"]);
        let own = &line(1)[..line(1).len() - 1];
        let rest = format!("nul_run@{}+1", 50 + own.len());
        check(&[&nuls, own, b"\0\n", &line(2)].concat(), &["nul_run@0+50", "e1", &rest, "e2"]);
        let rest = format!("bad_json@50+{}", own.len() + 2);
        check(&[&nuls, own, b",1\n", &line(2)].concat(), &["nul_run@0+50", &rest, "e2"]);
    }

    #[test]
    fn every_page_that_can_be_lost_of_a_line_leaves_no_event_that_was_never_written() {
        let whole = [line(1), line(2), line(3)].concat();
        for from in 0..whole.len() {
            for to in [from + 1, from + 16, from + 64, line(1).len(), 2 * line(1).len(), whole.len()] {
                let mut bytes = whole.clone();
                if from < to && to <= whole.len() {
                    bytes[from..to].fill(0);
                    let found = scan_by(&bytes, 100_000);
                    let events: Vec<_> = found.iter().filter(|one| one.starts_with('e')).collect();
                    let is_known = events.iter().all(|event| ["e1", "e2", "e3"].contains(&event.as_str()));
                    assert!(is_known && events.is_sorted(), "{from}..{to}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn glued_records_are_both_read_and_the_damage_is_told() {
        let one = line(1);
        let both = [&one[..one.len() - 1], &line(2)].concat();
        check(&both, &[&format!("glued_records@0+{}", both.len() - 1), "e1", "e2"]);
    }

    #[test]
    fn a_record_glued_to_a_torn_one_is_read() {
        let torn = &line(1)[..30];
        check(&[torn, &line(2)].concat(), &["glued_records@0+30", "e2"]);
    }

    #[test]
    fn a_last_line_without_its_line_feed_is_whole_or_torn() {
        let two = line(2);
        check(&[&line(1), &two[..two.len() - 1]].concat(), &["e1", "e2"]);
        for cut in 1..two.len() - 1 {
            let expected = format!("torn_tail@{}+{cut}", line(1).len());
            assert_eq!(scan_by(&[&line(1), &two[..cut]].concat(), 64), ["e1", &expected]);
        }
    }

    #[test]
    fn an_overlong_line_is_skipped_with_bounded_memory() {
        let (session, run) = ids();
        let mut scanner = Scanner::new(LineShape::new(&session, &run), 0);
        for _ in 0..100 {
            scanner.feed(1024 * 1024, |room| Ok::<_, ()>(room.iter_mut().map(|byte| *byte = b'x').count())).unwrap();
            assert!(scanner.next_record().is_none());
            assert!(scanner.buffer.len() <= LINE_BYTES_MAX + 2 * 1024 * 1024);
        }
        let rest = [b"\n".as_slice(), &line(1)].concat();
        scanner
            .feed(rest.len(), |room| {
                room.copy_from_slice(&rest);
                Ok::<_, ()>(rest.len())
            })
            .unwrap();
        let expected = Damage { kind: DamageKind::LineTooLong, offset: 0, bytes: 100 * 1024 * 1024 };
        assert!(matches!(scanner.next_record(), Some(Record::Damage(damage)) if damage == expected));
        assert!(matches!(scanner.next_record(), Some(Record::Event(event)) if event.seq == Some(1)));
    }

    #[test]
    fn whether_a_line_is_too_long_does_not_depend_on_the_pieces_it_came_in() {
        let mut line = b"{\"seq\":1,\"payload\":\"".to_vec();
        line.resize(LINE_BYTES_MAX + 10_000, b'x');
        line.extend_from_slice(b"\"}\n");
        for step in [64 * 1024, 1024 * 1024, 64 * 1024 * 1024] {
            assert_eq!(scan_by(&line, step), [format!("line_too_long@0+{}", line.len() - 1)]);
        }
    }

    #[test]
    fn a_checksum_that_does_not_fit_is_damage_and_the_neighbours_stay() {
        let mut bad = line(2);
        let at = bad.len() - 5;
        bad[at] = if bad[at] == b'0' { b'1' } else { b'0' };
        let length = line(1).len();
        let expected = format!("checksum_mismatch@{length}+{}", bad.len() - 1);
        check(&[line(1), bad, line(3)].concat(), &["e1", &expected, "e3"]);
    }
}
