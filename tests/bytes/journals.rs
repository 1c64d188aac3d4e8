//! Journals, by the scanner alone.

use lastword::Event;
use lastword::clock::Timestamp;
use lastword::format::{Damage, DamageKind, LineEncoder, LineShape};

use crate::data::{recorded, rid, sid};
use crate::journal_rules::{Feed, Seen, check_scan, is_checksum_right, scan, span};
use crate::mutations::{ALL_BYTES_MAX, Mutation, cuts, flips, sample};

/// A journal before the accident.
struct Journal {
    name: String,
    shape: LineShape,
    bytes: Vec<u8>,
    /// Where each line begins, and where the last one ends.
    starts: Vec<usize>,
    /// What the scanner finds in each line.
    found: Vec<Vec<Seen>>,
}

impl Journal {
    fn new(name: &str, shape: LineShape, bytes: Vec<u8>) -> Self {
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let mut starts = vec![0];
        lines.for_each(|line| starts.push(starts.last().unwrap() + line.len()));
        let all = scan(&bytes, 0, &shape, Feed::Steps(bytes.len()));
        let within = |range: &[usize]| {
            let is_in = |record: &&Seen| (range[0]..range[1]).contains(&(span(record).0 as usize));
            all.iter().filter(is_in).cloned().collect()
        };
        let found = starts.windows(2).map(within).collect();
        check_scan(&bytes, &shape);
        Journal { name: name.to_owned(), shape, bytes, starts, found }
    }

    /// Events of ours, of about so many bytes.
    fn ours(len: usize) -> Self {
        let mut encoder = LineEncoder::new(&sid("s"), &rid("r"));
        let mut bytes = Vec::new();
        for seq in 1.. {
            let event = match seq % 5 {
                0 => Event::new("tool", "{\"name\":\"J*\",\"args\":[1,-2.5e3,null]}").unwrap(),
                1 => Event::reasoning("w\u{f6}rter \u{1f600}\u{2028}"),
                _ => Event::token(&format!("text {seq}, \"quoted\" \\ ")),
            };
            encoder.encode(seq, Timestamp::from_micros(1_800_000_000_000_000 + seq as i64), &event, &mut bytes);
            if bytes.len() + 600 > len {
                encoder.encode(seq + 1, Timestamp::from_micros(1_800_000_001_000_000), &Event::done(), &mut bytes);
                break;
            }
        }
        Self::new(&format!("ours, {} bytes", bytes.len()), LineShape::new(&sid("s"), &rid("r")), bytes)
    }

    fn recorded() -> Vec<Self> {
        let journal = |(path, bytes): (std::path::PathBuf, Vec<u8>)| {
            let name = |part: &std::path::Path| part.file_stem().unwrap().to_str().unwrap().to_owned();
            let (run, session) = (name(&path), name(path.parent().unwrap()));
            Self::new(&path.display().to_string(), LineShape::new(&sid(&session), &rid(&run)), bytes)
        };
        recorded(".jsonl").into_iter().map(journal).collect()
    }

    fn line_at(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    fn line(&self, line: usize) -> &[u8] {
        &self.bytes[self.starts[line]..self.starts[line + 1]]
    }

    /// The lines that an accident touches: one that loses its line feed also the next.
    fn touched(&self, mutation: Mutation) -> std::ops::Range<usize> {
        let first = self.line_at(mutation.at());
        let loses_line_feed = matches!(mutation, Mutation::Flip(at, _) if self.bytes[at] == b'\n');
        first..(first + 1 + usize::from(loses_line_feed)).min(self.found.len())
    }

    /// Fails if an accident does more than it must. What stands around the lines it touches is read from so many lines
    /// before and behind them.
    fn check(&self, mutation: Mutation, around: usize) {
        let touched = self.touched(mutation);
        let first = touched.start.saturating_sub(around);
        let behind = touched.end.saturating_add(around).min(self.found.len());
        let from = self.starts[first];
        let mut bytes = self.bytes[from..self.starts[behind]].to_vec();
        match mutation {
            Mutation::Cut(len) => bytes.truncate(len - from),
            Mutation::Flip(at, bit) => bytes[at - from] ^= 1 << bit,
        }
        let found = scan(&bytes, from as u64, &self.shape, Feed::Steps(bytes.len().max(1)));
        let behind = if matches!(mutation, Mutation::Cut(_)) { touched.end } else { behind };
        let before: Vec<&Seen> = self.found[first..touched.start].iter().flatten().collect();
        let after: Vec<&Seen> = self.found[touched.end..behind].iter().flatten().collect();
        let told = || format!("{}: {mutation:?} gives {found:#?}", self.name);
        assert!(found.len() >= before.len() + after.len(), "{}", told());
        let (kept, rest) = found.split_at(before.len());
        let (hit, follow) = rest.split_at(rest.len() - after.len());
        assert!(kept.iter().eq(before), "what stands before is lost, {}", told());
        assert!(follow.iter().eq(after), "what stands behind is lost, {}", told());
        assert!(self.is_honest(mutation, &touched, hit), "{}", told());
    }

    /// Whether what was found in the lines that were hit is what was written there, or is told to be damaged.
    fn is_honest(&self, mutation: Mutation, touched: &std::ops::Range<usize>, hit: &[Seen]) -> bool {
        let written: Vec<&Seen> = self.found[touched.clone()].iter().flatten().collect();
        let texts: Vec<&str> = written.iter().copied().filter_map(text).collect();
        let is_written = |text: &str| texts.contains(&text);
        let is_damage_told = hit.iter().any(|record| matches!(record, Seen::Damage(_)));
        let are_all_there = texts.iter().all(|line| hit.iter().filter_map(text).any(|found| found == *line));
        let no_lie = hit.iter().filter(|record| is_checked(record)).filter_map(text).all(is_written);
        let is_ours = |line: usize| is_checksum_right(self.line(line).trim_ascii_end()) == Some(true);
        no_lie
            && match mutation {
                // A part of an object is no object.
                Mutation::Cut(at) => {
                    let end = hit.last().map_or(self.starts[touched.start], |last| span(last).1 as usize);
                    hit.iter().filter_map(text).all(is_written) && (is_damage_told || self.is_blank(end, at))
                }
                Mutation::Flip(at, _) if self.bytes[at] == b'\n' => {
                    !touched.clone().all(is_ours) || (are_all_there && is_damage_told)
                }
                Mutation::Flip(at, _) if is_ours(touched.start) => {
                    is_damage_told || self.is_only_the_checksum_gone(touched.start, at, hit)
                }
                Mutation::Flip(..) => true,
            }
    }

    fn is_blank(&self, start: usize, end: usize) -> bool {
        let bytes = &self.bytes[start..end];
        bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii().is_empty()
    }

    /// Whether a line lost its checksum and nothing else: it reads like one of a program that writes none.
    fn is_only_the_checksum_gone(&self, line: usize, at: usize, hit: &[Seen]) -> bool {
        let body = self.starts[line + 1] - b",\"crc\":\"xxxxxxxx\"}\n".len();
        let whole = std::str::from_utf8(&self.bytes[self.starts[line]..body]).unwrap();
        let is_same = |record: &Seen| !is_checked(record) && text(record).is_some_and(|text| text.starts_with(whole));
        at >= body && hit.len() == 1 && is_same(&hit[0])
    }
}

fn text(record: &Seen) -> Option<&str> {
    match record {
        Seen::Event { text, .. } => Some(text),
        Seen::Damage(_) => None,
    }
}

fn is_checked(record: &Seen) -> bool {
    matches!(record, Seen::Event { checked: true, .. })
}

/// Lines are read one by one (`check_scan` makes sure of it), so the neighbours tell as much as the whole file.
const NEIGHBOURS: usize = 1;

/// Where the recorded journals are that have more than plain lines in them. Of the others a sample is enough.
const ODD: &str = "fixtures/truth/b";

#[test]
fn a_journal_of_ours_cut_anywhere_has_every_whole_line_and_a_torn_one_is_told() {
    let journal = Journal::ours(ALL_BYTES_MAX);
    assert!(journal.bytes.len() > ALL_BYTES_MAX - 1_200 && journal.bytes.len() <= ALL_BYTES_MAX);
    for len in 0..journal.bytes.len() {
        journal.check(Mutation::Cut(len), NEIGHBOURS);
        let start = journal.starts[journal.line_at(len)];
        let found = scan(&journal.bytes[start..len], start as u64, &journal.shape, Feed::Steps(len.max(1)));
        let is_whole = start == len || journal.bytes[len] == b'\n';
        let torn = Damage {
            kind: DamageKind::TornTail,
            offset: start as u64,
            line: start as u64,
            bytes: (len - start) as u64,
        };
        assert!(is_whole || found == [Seen::Damage(torn)], "cut at {len}: {found:?}");
    }
}

#[test]
fn a_journal_of_ours_with_any_bit_changed_loses_one_line_at_most_and_tells_where() {
    let journal = Journal::ours(ALL_BYTES_MAX);
    flips(journal.bytes.len()).for_each(|flip| journal.check(flip, NEIGHBOURS));
}

#[test]
fn a_recorded_journal_cut_anywhere_has_every_whole_line_and_no_other() {
    for journal in Journal::recorded().iter().filter(|journal| journal.bytes.len() <= ALL_BYTES_MAX) {
        cuts(journal.bytes.len()).for_each(|cut| journal.check(cut, NEIGHBOURS));
    }
}

#[test]
fn a_recorded_journal_with_any_bit_changed_keeps_the_lines_around_it() {
    for journal in Journal::recorded().iter().filter(|journal| journal.bytes.len() <= ALL_BYTES_MAX) {
        match journal.name.starts_with(ODD) {
            true => flips(journal.bytes.len()).for_each(|flip| journal.check(flip, NEIGHBOURS)),
            false => sample(journal.bytes.len(), 100).for_each(|mutation| journal.check(mutation, NEIGHBOURS)),
        }
    }
}

#[test]
fn a_large_journal_with_an_accident_anywhere_keeps_all_other_lines() {
    let recorded = Journal::recorded().into_iter().filter(|journal| journal.bytes.len() > ALL_BYTES_MAX);
    for journal in recorded.chain([Journal::ours(ALL_BYTES_MAX), Journal::ours(10 * ALL_BYTES_MAX)]) {
        sample(journal.bytes.len(), 24).for_each(|mutation| journal.check(mutation, usize::MAX));
    }
}

#[test]
fn the_rules_for_any_bytes_hold_after_any_accident() {
    let journal = Journal::ours(3_000);
    for mutation in sample(journal.bytes.len(), 300) {
        check_scan(&mutation.of(&journal.bytes), &journal.shape);
    }
}
