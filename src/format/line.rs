//! One journal line: the shape of ours, and how ours and everybody else's are read.
//!
//! Our line is the reference program's, with a CRC32C of everything before it as the last key:
//! `{"version":1,"event_id":"<run>:<seq>","seq":<seq>,...,"payload":<json>,"crc":"xxxxxxxx"}`.
//! A line of exactly this shape is taken apart by comparing bytes; any other line goes through the JSON reader.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::IgnoredAny;

use crate::limits::SEQ_MAX;
use crate::model::fold::FoldEvent;
use crate::model::{Fields, RunId, SessionId, Truth, is_truthy, python_text, seconds_of, text_of};

use super::checksum::{CRC_BYTES, CRC_KEY, checksum_behind, checksum_of, looks_checked};
use super::scan::{Damage, DamageKind};

/// What every line of ours begins with.
const OUR_START: &[u8] = b"{\"version\":1,\"event_id\":\"";

/// The parts of a run's lines that are the same on each of them.
#[derive(Debug, Clone)]
pub struct LineShape {
    run: RunId,
    session: SessionId,
    /// Up to the number within the event id.
    pub(super) start: Box<[u8]>,
    /// From behind `"seq":N` up to the event's name.
    pub(super) middle: Box<[u8]>,
    /// The checksum of `start`, from which that of a line goes on.
    pub(super) start_crc: u32,
}

impl LineShape {
    /// The shape of the lines of this run.
    pub fn new(session: &SessionId, run: &RunId) -> Self {
        let start = [OUR_START, run.as_str().as_bytes(), b":"].concat();
        LineShape {
            start_crc: crc32c::crc32c(&start),
            start: start.into(),
            middle: format!(",\"run_id\":\"{run}\",\"session_id\":\"{session}\",\"event\":\"").into_bytes().into(),
            run: run.clone(),
            session: session.clone(),
        }
    }
}

/// Whose ids a line carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// Session, run and event id are those of the journal that the line stands in.
    Own,
    /// Some of them are missing, none is another's.
    Incomplete,
    /// At least one belongs to another run or session.
    Foreign,
}

/// An event as it stands on its line.
#[derive(Debug, Clone)]
pub struct EventRef<'a> {
    /// The bytes of the whole object, without the line feed. They are UTF-8.
    pub(crate) line: &'a [u8],
    /// Where it begins in the file.
    pub offset: u64,
    /// Its number, if that is an integer from 1 to [`SEQ_MAX`].
    pub seq: Option<u64>,
    /// Its name: the key `event`, else `type`.
    pub name: Cow<'a, str>,
    /// When it was written, as JSON text.
    pub(crate) created_at: Option<&'a [u8]>,
    /// Whether it says that it ends the run.
    pub terminal: Truth,
    /// How it says that the run ended, as JSON text.
    pub terminal_state: Option<&'a str>,
    /// Its payload as JSON text.
    pub payload: Option<&'a str>,
    /// Whose it is.
    pub ids: Ids,
    /// Whether it carries a checksum, which then is right.
    pub checked: bool,
}

impl<'a> EventRef<'a> {
    /// The whole object, without the line feed.
    pub fn text(&self) -> &'a str {
        utf8(self.line)
    }

    /// When it was written, in seconds, if it has a usable time: a number above 0.
    pub fn created_at_seconds(&self) -> Option<f64> {
        self.created_at.and_then(seconds_of)
    }

    /// Whether it ends the run in the sense of whoever wrote it.
    pub fn is_terminal(&self) -> bool {
        self.terminal != Truth::False
    }

    /// Whether this run of this session surely ends with it.
    pub fn is_own_terminal(&self) -> bool {
        self.terminal == Truth::True && self.ids == Ids::Own && self.seq.is_some()
    }

    /// Whether it should carry a checksum and does not: after the event of this number each line of ours does, and this one
    /// has our ids and begins like ours, or ends in what is left of a checksum. Any other line is another program's.
    pub fn lacks_checksum(&self, checked_after: Option<u64>) -> bool {
        let is_later = |after| self.seq.is_none_or(|seq| seq > after);
        let is_like_ours = || self.ids == Ids::Own && self.line.starts_with(OUR_START);
        !self.checked && checked_after.is_some_and(is_later) && (is_like_ours() || looks_checked(self.line))
    }

    /// The damage that it is then.
    pub(crate) fn as_damage(&self) -> Damage {
        let (kind, offset) = (DamageKind::ChecksumMismatch, self.offset);
        Damage { kind, offset, line: offset, bytes: self.line.len() as u64 }
    }

    /// What the reducer takes of it.
    pub fn to_fold(&self) -> FoldEvent<'_> {
        FoldEvent {
            seq: self.seq,
            is_foreign: self.ids == Ids::Foreign,
            name: &self.name,
            payload: self.payload.unwrap_or_default(),
            created_at: self.created_at,
        }
    }
}

/// The parts of a line of exactly our shape whose checksum is right, or that has none and is JSON all the same: so the
/// reference program writes it. They are UTF-8 without control bytes, and so is all that stands between them.
#[derive(Debug, Clone)]
pub(super) struct OwnParts<'a> {
    seq: u64,
    name: &'a [u8],
    created_at: &'a [u8],
    terminal: Truth,
    terminal_state: &'a [u8],
    payload: &'a [u8],
    checked: bool,
}

impl<'a> OwnParts<'a> {
    /// Takes a line apart. Anything but a line of ours is for the JSON reader.
    #[inline]
    pub(super) fn find(line: &'a [u8], shape: &LineShape) -> Option<Self> {
        let end = line.get(line.len().checked_sub(CRC_BYTES)?..)?;
        match end.starts_with(CRC_KEY) {
            true => Self::find_checked(line, shape),
            false => Self::find_plain(line, shape),
        }
    }

    #[inline]
    fn find_checked(line: &'a [u8], shape: &LineShape) -> Option<Self> {
        let behind_start = line.strip_prefix(&*shape.start)?;
        let (parts, rest) = Self::head(behind_start, shape)?;
        let payload = rest.get(..rest.len().checked_sub(CRC_BYTES)?)?;
        let is_right = checksum_behind(shape.start_crc, behind_start) == Some(true);
        let is_clean = is_clean_text(parts.name) && is_clean_text(payload) && is_clean_text(parts.terminal_state);
        let is_ours = !payload.is_empty() && is_right && is_clean;
        is_ours.then_some(OwnParts { payload, checked: true, ..parts })
    }

    /// The same without a checksum, so that each part has to be JSON by itself.
    fn find_plain(line: &'a [u8], shape: &LineShape) -> Option<Self> {
        let (parts, rest) = Self::head(line.strip_prefix(&*shape.start)?, shape)?;
        let payload = rest.strip_suffix(b"}")?;
        let is_clean = is_clean_text(parts.name) && is_clean_text(parts.terminal_state) && is_number(parts.created_at);
        (is_clean && is_json(payload)).then_some(OwnParts { payload, ..parts })
    }

    /// Everything before the payload, which is still to be found in the rest.
    #[inline(always)]
    fn head(behind_start: &'a [u8], shape: &LineShape) -> Option<(Self, &'a [u8])> {
        let mut rest = Rest(behind_start);
        let digits = rest.digits()?;
        rest.skip(b"\",\"seq\":")?;
        rest.skip(digits)?;
        rest.skip(&shape.middle)?;
        let name = rest.name()?;
        let created_at = rest.moment()?;
        let (terminal, terminal_state) = rest.terminal()?;
        let seq = Some(number_of(digits)).filter(is_usable)?;
        Some((OwnParts { seq, name, created_at, terminal, terminal_state, payload: b"", checked: false }, rest.0))
    }

    /// The event on the line that was taken apart.
    #[inline]
    pub(super) fn event(&self, line: &'a [u8], offset: u64) -> EventRef<'a> {
        // Each part on its own, and the usual ones by heart: together they are a fraction of the line.
        EventRef {
            line,
            offset,
            seq: Some(self.seq),
            name: Cow::Borrowed(if self.name == b"token" { "token" } else { utf8(self.name) }),
            created_at: Some(self.created_at),
            terminal: self.terminal,
            terminal_state: Some(if self.terminal_state == b"null" { "null" } else { utf8(self.terminal_state) }),
            payload: Some(utf8(self.payload)),
            ids: Ids::Own,
            checked: self.checked,
        }
    }
}

/// The same, told by the places of the parts in the line.
#[derive(Debug, Clone)]
pub(crate) struct OwnLine {
    seq: u64,
    terminal: Truth,
    checked: bool,
    places: [Range<usize>; 4],
}

impl OwnLine {
    pub(super) fn find(line: &[u8], shape: &LineShape) -> Option<Self> {
        let parts = OwnParts::find(line, shape)?;
        let within = |part: &[u8]| {
            let start = part.as_ptr() as usize - line.as_ptr() as usize;
            start..start + part.len()
        };
        let places = [parts.name, parts.created_at, parts.terminal_state, parts.payload].map(within);
        Some(OwnLine { seq: parts.seq, terminal: parts.terminal, checked: parts.checked, places })
    }

    /// The event on the line that was taken apart.
    pub(super) fn event<'a>(&self, line: &'a [u8], offset: u64) -> EventRef<'a> {
        let [name, created_at, terminal_state, payload] = self.places.each_ref().map(|place| &line[place.clone()]);
        let OwnLine { seq, terminal, checked, .. } = *self;
        OwnParts { seq, name, created_at, terminal, terminal_state, payload, checked }.event(line, offset)
    }
}

fn utf8(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the line was found to be UTF-8")
}

fn is_usable(seq: &u64) -> bool {
    (1..=SEQ_MAX).contains(seq)
}

/// The number that at most 19 digits stand for.
fn number_of(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

/// Whether bytes are UTF-8 without control bytes. Most are ASCII, which one look tells.
fn is_clean_text(bytes: &[u8]) -> bool {
    let (lowest, all) = bytes.iter().fold((u8::MAX, 0), |(lowest, all), byte| (lowest.min(*byte), all | byte));
    lowest >= 0x20 && (all < 0x80 || std::str::from_utf8(bytes).is_ok())
}

/// Whether digits with at most one point among them are a JSON number.
fn is_number(bytes: &[u8]) -> bool {
    let mut parts = bytes.split(|byte| *byte == b'.');
    let whole = parts.next().unwrap_or_default();
    let is_whole = !whole.is_empty() && (whole[0] != b'0' || whole.len() == 1);
    is_whole && parts.next().is_none_or(|part| !part.is_empty()) && parts.next().is_none()
}

/// Whether bytes are one JSON value on one line, without blanks around it. Most are a token's, which a look tells.
fn is_json(bytes: &[u8]) -> bool {
    let lone_text = bytes.strip_prefix(b"{\"text\":\"").and_then(|rest| rest.strip_suffix(b"\"}"));
    if lone_text.is_some_and(|text| memchr::memchr2(b'"', b'\\', text).is_none() && is_clean_text(text)) {
        return true;
    }
    let is_bare = |byte: Option<&u8>| byte.is_some_and(|byte| !byte.is_ascii_whitespace());
    is_bare(bytes.first())
        && is_bare(bytes.last())
        && is_clean_text(bytes)
        && std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// What is left of a line while it is taken apart.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    #[inline]
    fn skip(&mut self, expected: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    #[inline]
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    #[inline]
    fn digits(&mut self) -> Option<&'a [u8]> {
        let len = self.0.iter().position(|byte| !byte.is_ascii_digit())?;
        let fits = (1..=19).contains(&len) && self.0[0] != b'0';
        fits.then(|| self.take(len))
    }

    /// The event's name, which is there twice, and most often is the same.
    #[inline]
    fn name(&mut self) -> Option<&'a [u8]> {
        const USUAL: &[u8] = b"token\",\"type\":\"token\",\"created_at\":";
        if let Some(rest) = self.0.strip_prefix(USUAL) {
            let name = &self.0[..b"token".len()];
            self.0 = rest;
            return Some(name);
        }
        let len = memchr::memchr2(b'"', b'\\', self.0)?;
        let name = (self.0[len] == b'"').then(|| self.take(len))?;
        self.skip(b"\",\"type\":\"")?;
        self.skip(name)?;
        self.skip(b"\",\"created_at\":")?;
        Some(name)
    }

    #[inline]
    fn moment(&mut self) -> Option<&'a [u8]> {
        /// `1800000000.000000`
        const USUAL_BYTES: usize = 17;
        let is_part = |byte: &u8| byte.is_ascii_digit() | (*byte == b'.');
        let usual = self
            .0
            .first_chunk::<USUAL_BYTES>()
            .is_some_and(|part| part.iter().fold(true, |all, byte| all & is_part(byte)));
        let known = if usual { USUAL_BYTES } else { 0 };
        let len = known + self.0[known..].iter().position(|byte| !is_part(byte))?;
        (len > 0).then(|| self.take(len))
    }

    /// The value of `terminal` and the text of `terminal_state`, up to the payload. Most lines end nothing.
    #[inline]
    fn terminal(&mut self) -> Option<(Truth, &'a [u8])> {
        const USUAL: &[u8] = b",\"terminal\":false,\"terminal_state\":null,\"payload\":";
        const NULL_AT: usize = b",\"terminal\":false,\"terminal_state\":".len();
        if let Some(rest) = self.0.strip_prefix(USUAL) {
            let state = &self.0[NULL_AT..NULL_AT + b"null".len()];
            self.0 = rest;
            return Some((Truth::False, state));
        }
        self.skip(b",\"terminal\":true,\"terminal_state\":")?;
        let end = self.0.strip_prefix(b"\"").and_then(|inside| memchr::memchr2(b'"', b'\\', inside))?;
        let state = self.take(end + 2);
        self.skip(b",\"payload\":")?;
        Some((Truth::True, state))
    }
}

/// Reads one JSON object as an event, whoever wrote it.
pub(super) fn decode_any<'a>(text: &'a str, offset: u64, shape: &LineShape) -> Result<EventRef<'a>, DamageKind> {
    let fields = Fields::parse(text).ok_or(DamageKind::BadJson)?;
    let checked = match checksum_of(text.as_bytes()) {
        Some(false) => return Err(DamageKind::ChecksumMismatch),
        right => right.is_some(),
    };
    let seq = fields.get("seq").and_then(|raw| raw.parse().ok()).filter(is_usable);
    let name = ["event", "type"].iter().filter_map(|key| fields.get(key)).find(|raw| is_truthy(raw));
    let terminal = match fields.get("terminal") {
        Some("true") => Truth::True,
        Some(raw) if is_truthy(raw) => Truth::Truthy,
        _ => Truth::False,
    };
    let ids = whose(&fields, seq, shape);
    Ok(EventRef {
        line: text.as_bytes(),
        offset,
        seq,
        name: name.map(python_text).unwrap_or_default(),
        created_at: fields.get("created_at").map(str::as_bytes),
        terminal,
        terminal_state: fields.get("terminal_state"),
        payload: fields.get("payload"),
        ids,
        checked,
    })
}

fn whose(fields: &Fields<'_>, seq: Option<u64>, shape: &LineShape) -> Ids {
    let event_id = seq.map(|seq| format!("{}:{seq}", shape.run));
    let expected = [
        ("session_id", Some(shape.session.as_str())),
        ("run_id", Some(shape.run.as_str())),
        ("event_id", event_id.as_deref()),
    ];
    let mut ids = Ids::Own;
    for (key, own) in expected {
        match fields.get(key).and_then(text_of) {
            None => ids = Ids::Incomplete,
            Some(text) if Some(&*text) == own => {}
            Some(_) => return Ids::Foreign,
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::format::LineEncoder;
    use crate::format::checksum::{checksum_digits, with_checksum_restored};
    use crate::format::encode::push_checksum;
    use crate::model::Event;

    fn decode_own<'a>(line: &'a [u8], offset: u64, shape: &LineShape) -> Option<EventRef<'a>> {
        OwnLine::find(line, shape).map(|own| own.event(line, offset))
    }

    fn ids() -> (SessionId, RunId) {
        (SessionId::parse("s-1").unwrap(), RunId::parse("r.1").unwrap())
    }

    fn encode(seq: u64, event: &Event) -> Vec<u8> {
        let (session, run) = ids();
        let mut out = Vec::new();
        LineEncoder::new(&session, &run).encode(seq, Timestamp::from_seconds(1_800_000_000.05), event, &mut out);
        out
    }

    #[test]
    fn a_checksum_is_stated_in_eight_digits() {
        for crc in [0, 1, 0x0123_4567, 0x89ab_cdef, 0xfedc_ba98, 0x9a9a_a9a9, u32::MAX] {
            assert_eq!(checksum_digits(crc), format!("{crc:08x}").as_bytes());
        }
    }

    #[test]
    fn both_readers_understand_our_lines_alike() {
        let (session, run) = ids();
        let shape = LineShape::new(&session, &run);
        let events = [
            Event::token("x"),
            Event::done(),
            Event::error("interrupted", "gone"),
            Event::new("odd \"name\" \\", "[1, null]").unwrap(),
            Event::new("n", "null").unwrap(),
        ];
        for event in events {
            let line = encode(12, &event);
            let line = line.strip_suffix(b"\n").unwrap();
            let any = decode_any(std::str::from_utf8(line).unwrap(), 5, &shape).unwrap();
            assert!(any.checked && any.ids == Ids::Own && any.seq == Some(12));
            assert_eq!(any.name, event.name());
            assert_eq!(any.is_terminal(), event.terminal_state().is_some());
            assert_eq!(any.payload, Some(event.payload()));
            if event.name().contains('"') {
                continue;
            }
            let own = decode_own(line, 5, &shape).expect("our own shape");
            assert_eq!(format!("{own:?}"), format!("{any:?}"));
            let plain = [&line[..line.len() - CRC_BYTES], b"}"].concat();
            let own = decode_own(&plain, 5, &shape).expect("the reference program's shape");
            let any = decode_any(std::str::from_utf8(&plain).unwrap(), 5, &shape).unwrap();
            assert!(!own.checked);
            assert_eq!(format!("{own:?}"), format!("{any:?}"));
        }
    }

    #[test]
    fn a_checksum_that_is_spoilt_in_one_bit_is_known_from_the_rest() {
        let good = encode(3, &Event::token("some text"));
        let good = good.strip_suffix(b"\n").unwrap();
        assert_eq!(with_checksum_restored(good), None);
        for bit in (good.len() - CRC_BYTES) * 8..good.len() * 8 {
            let mut line = good.to_vec();
            line[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(with_checksum_restored(&line).as_deref(), Some(good), "bit {bit}");
        }
        let mut elsewhere = good.to_vec();
        elsewhere[40] ^= 1;
        assert_eq!(with_checksum_restored(&elsewhere), None);
        assert_eq!(with_checksum_restored(b"{}"), None);
    }

    #[test]
    fn a_plain_line_that_is_no_json_is_not_taken_by_its_shape() {
        let (session, run) = ids();
        let shape = LineShape::new(&session, &run);
        let good = encode(3, &Event::token("some \\ text"));
        let good = [&good[..good.len() - 1 - CRC_BYTES], b"}"].concat();
        let any = |line: &[u8]| {
            let text = std::str::from_utf8(line).ok()?;
            decode_any(text, 0, &shape).ok().map(|event| format!("{event:?}"))
        };
        for at in 0..good.len() {
            for change in (0..8).map(|bit| good[at] ^ (1 << bit)).chain([b'"', b'\\', b'}', b'.', b' ', 0]) {
                let mut line = good.clone();
                line[at] = change;
                if let Some(own) = decode_own(&line, 0, &shape) {
                    assert_eq!(Some(format!("{own:?}")), any(&line), "{change} at {at}");
                }
            }
        }
    }

    #[test]
    fn a_line_with_one_changed_bit_is_never_taken_for_checked() {
        let (session, run) = ids();
        let shape = LineShape::new(&session, &run);
        let good = encode(3, &Event::token("some text"));
        for bit in 0..(good.len() - 1) * 8 {
            let mut line = good[..good.len() - 1].to_vec();
            line[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_own(&line, 0, &shape).is_none(), "bit {bit}");
            if let Ok(text) = std::str::from_utf8(&line) {
                let accepted = decode_any(text, 0, &shape).is_ok_and(|event| event.checked);
                assert!(!accepted, "bit {bit}: {text}");
            }
        }
    }

    #[test]
    fn a_raw_control_byte_is_refused_although_the_checksum_is_right() {
        let (session, run) = ids();
        let shape = LineShape::new(&session, &run);
        let mut line = encode(3, &Event::token("a b"));
        let at = line.windows(3).position(|w| w == b"a b").unwrap();
        line[at + 1] = 0x01;
        let body = line.len() - CRC_BYTES - 1;
        line.truncate(body);
        push_checksum(crc32c::crc32c(&line), &mut line);
        let line = line.strip_suffix(b"\n").unwrap();
        assert_eq!(checksum_of(line), Some(true));
        assert!(decode_own(line, 0, &shape).is_none());
        assert!(decode_any(std::str::from_utf8(line).unwrap(), 0, &shape).is_err());
    }
}
