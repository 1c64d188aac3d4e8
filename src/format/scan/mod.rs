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
    /// Where the line begins that it stands on.
    pub line: u64,
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

impl Record<'_> {
    /// Whether it is an event without a checksum.
    #[inline]
    pub fn lacks_checksum(&self) -> bool {
        matches!(self, Record::Event(event) if !event.checked)
    }

    /// The same in a journal whose lines carry a checksum after the event of this number: one that lost it is damage.
    pub fn in_journal_checked_after(self, checked_after: Option<u64>) -> Self {
        match self {
            Record::Event(event) if event.lacks_checksum(checked_after) => Record::Damage(event.as_damage()),
            record => record,
        }
    }
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
    /// Where the line began that is being given out.
    line_from: u64,
    /// How many line feeds were passed.
    lines: u64,
}

#[derive(Debug, Clone, Copy)]
struct Glued {
    next: usize,
    end: usize,
    reported: bool,
    /// Whether something before it on the line is damaged: then it may be a part of a record that looks like one.
    is_behind_damage: bool,
    /// How often a record behind damage was read beyond the beginning of the next.
    far_looks: u32,
}

/// How often that may be on one line. A record that holds another as part of its payload needs it.
const FAR_LOOKS_MAX: u32 = 64;

impl Glued {
    fn behind_damage(next: usize, end: usize, far_looks: u32) -> Self {
        Glued { next, end, reported: true, is_behind_damage: true, far_looks }
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
            line_from: offset,
            lines: 0,
        }
    }

    /// Begins another journal with the room that it has.
    pub fn begin_again(&mut self, shape: LineShape, offset: u64) {
        let buffer = std::mem::take(&mut self.buffer);
        *self = Scanner { buffer, ..Scanner::new(shape, offset) };
    }

    /// The file offset behind the last byte that was handed in.
    pub fn fed_to(&self) -> u64 {
        self.base + self.end as u64
    }

    /// The file offset at which the first line begins that was not given out yet.
    pub fn line_start(&self) -> u64 {
        self.overlong_from.unwrap_or(self.base + self.at as u64)
    }

    /// How many whole lines it has passed.
    pub fn whole_lines(&self) -> u64 {
        self.lines
    }

    /// The file offset from which to read again so that nothing is missed that was not given out yet. Part of a line with
    /// several records may come again.
    pub fn resume_at(&self) -> u64 {
        match self.overlong_from {
            Some(from) => from,
            None if self.glued.is_some() => self.line_from,
            None => self.offset(self.at),
        }
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
            self.lines += 1;
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
            self.lines += 1;
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
            Found::Damage(damage) if self.is_tail && self.glued.is_none() && !self.keeps_its_kind(&damage) => {
                Found::Damage(self.damage(DamageKind::TornTail, damage.offset, self.end))
            }
            found => found,
        }
    }

    /// A line that is too long is so with or without its end, and zeroes are what a crash leaves of no line at all.
    fn keeps_its_kind(&self, damage: &Damage) -> bool {
        match damage.kind {
            DamageKind::NulRun => {
                self.buffer[(damage.offset - self.base) as usize..self.end].iter().all(|byte| *byte == 0)
            }
            kind => kind == DamageKind::LineTooLong,
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
        Damage { kind, offset, line: self.line_from.min(offset), bytes: self.base + end as u64 - offset }
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
        self.line_from = self.offset(start);
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
                self.glued = Some(Glued { next: start, end, reported: false, is_behind_damage: false, far_looks: 0 });
                self.next_glued()
            }
            None => Some(self.judge_broken(start, end, 0)),
        }
    }

    /// Zeroes where a page was never written, and with them whatever is left of a line that they cut.
    fn skip_nuls(&mut self, start: usize, behind: usize, end: usize) -> Found {
        let far_looks = 0;
        let rest = &self.buffer[behind..end];
        let next = match self.is_own_right(rest) {
            true => Some(behind),
            false => memchr::memmem::find(rest, &self.shape.start).map(|at| behind + at),
        };
        self.glued = next.map(|next| Glued::behind_damage(next, end, far_looks));
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
    fn judge_broken(&mut self, start: usize, end: usize, far_looks: u32) -> Found {
        let line = &self.buffer[start..end];
        let next = memchr::memmem::find(&line[1..], &self.shape.start).map(|at| start + 1 + at);
        // Nothing behind the next record is looked at: a line may hold thousands of them.
        let kind = match next {
            Some(_) => DamageKind::GluedRecords,
            None if std::str::from_utf8(line).is_err() => DamageKind::BadUtf8,
            None if line.contains(&0) => DamageKind::NulRun,
            None => DamageKind::BadJson,
        };
        self.glued = next.map(|next| Glued::behind_damage(next, end, far_looks));
        Found::Damage(self.damage(kind, self.offset(start), next.unwrap_or(end)))
    }

    /// How far a record is read that may be torn: up to where the next one begins, or, some times, to the end.
    fn reach(&self, line: &[u8], far_looks: &mut u32) -> usize {
        let next = memchr::memmem::find(line.get(1..).unwrap_or_default(), &self.shape.start).map(|at| at + 1);
        let Some(next) = next else { return line.len() };
        if first_value(&line[..next]).is_some() || *far_looks >= FAR_LOOKS_MAX {
            return next;
        }
        *far_looks += 1;
        line.len()
    }

    fn next_glued(&mut self) -> Option<Found> {
        let mut glued = self.glued.take()?;
        let (start, end) = self.trimmed(glued.next, glued.end);
        if start == end {
            return None;
        }
        if !glued.reported {
            self.glued = Some(Glued { next: start, end, reported: true, ..glued });
            return Some(Found::Damage(self.damage(DamageKind::GluedRecords, self.offset(start), end)));
        }
        let line = &self.buffer[start..end];
        // Behind damage a line may hold thousands of beginnings, each of which would be read to the line's end.
        let reach = if glued.is_behind_damage { self.reach(line, &mut glued.far_looks) } else { line.len() };
        let value =
            first_value(&line[..reach]).filter(|_| !glued.is_behind_damage || self.is_own_right(&line[..reach]));
        match value {
            Some(len) if len < line.len() => {
                self.glued = Some(Glued { next: start + len, end, ..glued });
                Some(self.judge_object(start, start + len))
            }
            Some(_) => Some(self.judge_object(start, end)),
            None => Some(self.judge_broken(start, end, glued.far_looks)),
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
mod tests;
