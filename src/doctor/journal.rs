//! One journal, looked through once: what is damaged in it, which numbers are missing or were given twice, how it ends.
//! Reads, and changes nothing. Memory does not grow with the journal, nor with what is wrong with it.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

use crate::format::{Damage, DamageKind, EventRef, Ids, LineShape, Record, Scanner, with_checksum_restored};
use crate::journal::TerminalScan;
use crate::limits::{DOCTOR_PLACES_MAX, LINE_BYTES_MAX, READ_CHUNK_BYTES};
use crate::model::{RunEnd, RunId, SeenSeqs, SessionId};
use crate::storage::{JournalBytes, StorageError};

/// Numbers that are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) numbers: RangeInclusive<u64>,
    /// Where the line behind them begins.
    pub(super) offset: u64,
}

/// A number that was there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeat {
    pub(super) seq: u64,
    pub(super) offset: u64,
    /// Where the line begins that it stands on.
    pub(super) line: u64,
    /// Whether it is the same event, byte for byte.
    pub(super) is_same: bool,
}

/// Where the first of several stands, and how many there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Several {
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Several {
    fn add(&mut self, offset: u64) {
        if self.count == 0 {
            self.first = offset;
        }
        self.count += 1;
    }
}

/// Which journal is looked at, and what is known of its lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Which<'a> {
    pub(super) session: &'a SessionId,
    pub(super) run: &'a RunId,
    /// The number after which every line carries a checksum, because we wrote it.
    pub(super) checked_after: Option<u64>,
}

impl Which<'_> {
    pub(super) fn shape(&self) -> LineShape {
        LineShape::new(self.session, self.run)
    }
}

/// Length and checksum of an event's bytes.
type Sum = (usize, u32);

/// What was seen in a journal. Of each kind of thing only so many places are remembered.
#[derive(Debug, Default)]
pub(super) struct JournalLook {
    pub(super) bytes: u64,
    /// Whole lines.
    pub(super) lines: u64,
    pub(super) events: u64,
    pub(super) damage: Vec<Damage>,
    /// How many places are damaged, remembered or not.
    pub(super) damaged: u64,
    pub(super) gaps: Vec<Gap>,
    pub(super) repeats: Vec<Repeat>,
    pub(super) repeated: u64,
    /// Events that are read although their checksum is damaged, and nothing else of them.
    pub(super) spoilt: Vec<u64>,
    /// The same, of those that are not read because of that.
    pub(super) restorable: BTreeSet<u64>,
    /// Events with another's ids.
    pub(super) foreign: Several,
    /// Events without a number that can be used.
    pub(super) unnumbered: Several,
    /// Events without a checksum, but for those whose checksum is damaged.
    pub(super) unchecked: Several,
    /// Events that lack something that every event has.
    pub(super) incomplete: Several,
    /// All numbers.
    pub(super) seen: SeenSeqs,
    pub(super) end: TerminalScan,
    /// The highest number that was ever given to an event, as far as can be known.
    pub(super) last_seq: u64,
    /// The highest number that an event here has.
    pub(super) highest: u64,
    pub(super) has_our_lines: bool,
    pub(super) first_at: Option<f64>,
    pub(super) last_at: Option<f64>,
}

impl JournalLook {
    /// Whether its last line is not whole.
    pub(super) fn is_torn(&self) -> bool {
        self.damage.last().is_some_and(|damage| self.is_tail(damage))
    }

    /// Whether damage stands behind the last line feed.
    pub(super) fn is_tail(&self, damage: &Damage) -> bool {
        damage.offset + damage.bytes == self.bytes
    }
}

impl JournalLook {
    /// Without a checksum, damage may have left an event that is JSON and says less than it did.
    fn note_unchecked(&mut self, event: &EventRef<'_>) {
        match with_checksum_restored(event.line).is_some() && self.spoilt.len() < DOCTOR_PLACES_MAX {
            true => self.spoilt.push(event.offset),
            false => self.unchecked.add(event.offset),
        }
        let says_end = || RunEnd::of(&event.name, event.payload.unwrap_or("null")).is_some();
        if event.payload.is_none() || event.name.is_empty() || !event.is_terminal() && says_end() {
            self.incomplete.add(event.offset);
        }
    }
}

/// A jump in the numbers, which later lines may still fill.
struct Jump {
    numbers: RangeInclusive<u64>,
    offset: u64,
    /// Damage right before it, which may be what was lost.
    damaged: u64,
    damaged_bytes: u64,
}

/// Fewer bytes hardly any line has.
const LINE_BYTES_MIN: u64 = 120;

impl Jump {
    fn is_explained(&self, numbers: u64) -> bool {
        self.damaged >= numbers || self.damaged_bytes / LINE_BYTES_MIN >= numbers
    }
}

#[derive(Default)]
struct Looking {
    look: JournalLook,
    jumps: Vec<Jump>,
    damaged_since: u64,
    damaged_bytes_since: u64,
    /// Where the last glued records end.
    glued_to: u64,
    /// Where the line of the last damage began, and where that damage ended.
    damaged_line: Option<(u64, u64)>,
    /// Damaged lines behind the last good one, each of which may have had a number.
    unknown: u64,
}

/// Looks through a journal.
pub(super) fn look_through(
    scanner: &mut Scanner,
    bytes: &dyn JournalBytes,
    which: Which<'_>,
) -> Result<JournalLook, StorageError> {
    let mut looking = Looking::default();
    (looking.look.bytes, looking.look.lines) = show_all(scanner, bytes, which, |record| looking.note(&record))?;
    let mut look = looking.finish();
    for damage in &look.damage {
        if restored(bytes, damage)?.is_some() {
            look.restorable.insert(damage.offset);
        }
    }
    if !look.repeats.is_empty() {
        tell_repeats_apart(scanner, bytes, which, &mut look)?;
    }
    Ok(look)
}

/// The event that damaged bytes were, if only their checksum is damaged.
pub(super) fn restored(bytes: &dyn JournalBytes, damage: &Damage) -> Result<Option<Vec<u8>>, StorageError> {
    use DamageKind::{BadJson, BadUtf8, ChecksumMismatch, NulRun};
    let may_be_one = matches!(damage.kind, ChecksumMismatch | BadJson | BadUtf8 | NulRun);
    if !may_be_one || damage.bytes > LINE_BYTES_MAX as u64 {
        return Ok(None);
    }
    let (mut line, mut filled) = (vec![0; damage.bytes as usize], 0);
    while filled < line.len() {
        match bytes.read_at(&mut line[filled..], damage.offset + filled as u64)? {
            0 => return Ok(None),
            len => filled += len,
        }
    }
    Ok(with_checksum_restored(&line))
}

/// Shows every record of a journal, in order, and returns how many bytes and whole lines that were.
pub(super) fn show_all(
    scanner: &mut Scanner,
    bytes: &dyn JournalBytes,
    which: Which<'_>,
    mut show: impl FnMut(Record<'_>),
) -> Result<(u64, u64), StorageError> {
    // A record is large: as a rule it is passed on where it is.
    let mut show = |record: Record<'_>| match record.lacks_checksum() {
        false => show(record),
        true => show(record.in_journal_checked_after(which.checked_after)),
    };
    scanner.begin_again(which.shape(), 0);
    loop {
        scanner.show_whole(&mut show);
        let offset = scanner.fed_to();
        if scanner.feed(READ_CHUNK_BYTES, |room| bytes.read_at(room, offset))? == 0 {
            break;
        }
    }
    let lines = scanner.whole_lines();
    while let Some(record) = scanner.next_of_tail() {
        show(record);
    }
    Ok((scanner.fed_to(), lines))
}

impl Looking {
    fn note(&mut self, record: &Record<'_>) {
        match record {
            Record::Event(event) => self.note_event(event),
            Record::Damage(damage) => self.note_damage(damage),
        }
    }

    fn note_damage(&mut self, damage: &Damage) {
        let is_last = matches!(damage.kind, DamageKind::TornTail);
        if self.look.damage.len() < DOCTOR_PLACES_MAX || is_last {
            self.look.damage.push(*damage);
        }
        self.look.damaged += 1;
        self.damaged_line = Some((damage.line, damage.offset + damage.bytes));
        // Whole records on a glued line are read; a part of one is not, and may have had a number.
        if damage.kind == DamageKind::GluedRecords {
            self.glued_to = damage.offset + damage.bytes;
            return;
        }
        self.damaged_since += 1;
        self.damaged_bytes_since += damage.bytes;
        self.unknown += 1;
    }

    /// Where the line of an event begins. Before one that shares its line with others damage was told.
    fn line_of(&self, event: u64) -> u64 {
        self.damaged_line.filter(|(_, end)| event <= *end).map_or(event, |(line, _)| line)
    }

    fn note_event(&mut self, event: &EventRef<'_>) {
        let line = self.line_of(event.offset);
        self.damaged_since += u64::from(self.glued_to > 0 && event.offset >= self.glued_to);
        self.glued_to = 0;
        let look = &mut self.look;
        look.events += 1;
        look.has_our_lines |= event.checked;
        if !event.checked {
            look.note_unchecked(event);
        }
        look.end.add(event);
        match event.seq {
            None => look.unnumbered.add(line),
            Some(_) if event.ids == Ids::Foreign => look.foreign.add(line),
            Some(seq) => self.note_number(seq, event.offset, line),
        }
        if let Some(moment) = event.created_at_seconds() {
            self.look.first_at.get_or_insert(moment);
            self.look.last_at = Some(moment);
        }
        (self.damaged_since, self.damaged_bytes_since) = (0, 0);
    }

    fn note_number(&mut self, seq: u64, offset: u64, line: u64) {
        self.unknown = 0;
        if !self.look.seen.insert(seq) {
            self.look.repeated += 1;
            if self.look.repeats.len() < DOCTOR_PLACES_MAX {
                self.look.repeats.push(Repeat { seq, offset, line, is_same: false });
            }
            return;
        }
        if seq > self.look.highest + 1 && self.jumps.len() < DOCTOR_PLACES_MAX {
            let numbers = self.look.highest + 1..=seq - 1;
            let (damaged, damaged_bytes) = (self.damaged_since, self.damaged_bytes_since);
            self.jumps.push(Jump { numbers, offset: line, damaged, damaged_bytes });
        }
        self.look.highest = self.look.highest.max(seq);
    }

    fn finish(mut self) -> JournalLook {
        // Both are in order.
        let mut jumps = self.jumps.iter().peekable();
        for numbers in self.look.seen.gaps() {
            while jumps.next_if(|jump| jump.numbers.end() < numbers.start()).is_some() {}
            let len = numbers.end() - numbers.start() + 1;
            let jump = jumps.peek().filter(|jump| jump.numbers.contains(numbers.start()));
            if let Some(jump) = jump.filter(|jump| !jump.is_explained(len)) {
                self.look.gaps.push(Gap { numbers, offset: jump.offset });
            }
        }
        // A line that was never whole had no number.
        self.look.last_seq = self.look.highest + self.unknown.saturating_sub(u64::from(self.look.is_torn()));
        self.look
    }
}

fn sum_of(line: &[u8]) -> Sum {
    (line.len(), crc32c::crc32c(line))
}

/// Finds out which repeated numbers belong to the same event. A second reading, which hardly any journal needs.
fn tell_repeats_apart(
    scanner: &mut Scanner,
    bytes: &dyn JournalBytes,
    which: Which<'_>,
    look: &mut JournalLook,
) -> Result<(), StorageError> {
    let mut firsts: HashMap<u64, Sum> = HashMap::new();
    let mut repeats: HashMap<u64, &mut Repeat> =
        look.repeats.iter_mut().map(|repeat| (repeat.offset, repeat)).collect();
    let wanted: Vec<u64> = {
        let mut wanted: Vec<u64> = repeats.values().map(|repeat| repeat.seq).collect();
        wanted.sort_unstable();
        wanted
    };
    show_all(scanner, bytes, which, |record| {
        let Record::Event(event) = record else { return };
        let Some(seq) = event.seq.filter(|seq| event.ids != Ids::Foreign && wanted.binary_search(seq).is_ok()) else {
            return;
        };
        let sum = sum_of(event.line);
        let first = *firsts.entry(seq).or_insert(sum);
        if let Some(repeat) = repeats.get_mut(&event.offset) {
            repeat.is_same = first == sum;
        }
    })?;
    Ok(())
}
