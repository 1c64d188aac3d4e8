//! One journal line: how ours is written, and how ours and everybody else's are read.
//!
//! Our line is the reference program's, with a CRC32C of everything before it as the last key:
//! `{"version":1,"event_id":"<run>:<seq>","seq":<seq>,...,"payload":<json>,"crc":"xxxxxxxx"}`.
//! A line of exactly this shape is taken apart by comparing bytes; any other line goes through the JSON reader.

use std::borrow::Cow;

use crate::clock::Timestamp;
use crate::limits::SEQ_MAX;
use crate::model::fold::FoldEvent;
use crate::model::{Event, Fields, RunId, SessionId, TerminalState, Truth, is_truthy, python_text, quote, text_of};

use super::scan::DamageKind;

const CRC_KEY: &[u8] = b",\"crc\":\"";
/// `,"crc":"xxxxxxxx"}`
const CRC_BYTES: usize = 18;

/// The parts of a run's lines that are the same on each of them.
#[derive(Debug, Clone)]
pub struct LineShape {
    run: RunId,
    session: SessionId,
    /// Up to the number within the event id.
    start: Box<[u8]>,
    /// From behind `"seq":N` up to the event's name.
    middle: Box<[u8]>,
}

impl LineShape {
    /// The shape of the lines of this run.
    pub fn new(session: &SessionId, run: &RunId) -> Self {
        LineShape {
            start: format!("{{\"version\":1,\"event_id\":\"{run}:").into_bytes().into(),
            middle: format!(",\"run_id\":\"{run}\",\"session_id\":\"{session}\",\"event\":\"").into_bytes().into(),
            run: run.clone(),
            session: session.clone(),
        }
    }

    /// How every line of this run that we wrote begins.
    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }
}

/// Writes a run's lines without building anything in between.
#[derive(Debug)]
pub struct LineEncoder {
    shape: LineShape,
}

impl LineEncoder {
    /// The encoder of this run's lines.
    pub fn new(session: &SessionId, run: &RunId) -> Self {
        LineEncoder { shape: LineShape::new(session, run) }
    }

    /// Appends the event's line, line feed included.
    pub fn encode(&self, seq: u64, now: Timestamp, event: &Event, out: &mut Vec<u8>) {
        let begin = out.len();
        let mut digits = [0; 20];
        let digits = decimal(seq, &mut digits);
        for part in [&*self.shape.start, digits, b"\",\"seq\":", digits, &self.shape.middle] {
            out.extend_from_slice(part);
        }
        push_name(event.name(), out);
        out.extend_from_slice(b"\",\"type\":\"");
        push_name(event.name(), out);
        out.extend_from_slice(b"\",\"created_at\":");
        push_moment(event.moment().unwrap_or(now), out);
        push_terminal(event.terminal_state(), out);
        out.extend_from_slice(b",\"payload\":");
        out.extend_from_slice(event.payload().as_bytes());
        push_checksum(begin, out);
    }
}

fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &buffer[at..];
        }
    }
}

fn push_name(name: &str, out: &mut Vec<u8>) {
    if name.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        return out.extend_from_slice(name.as_bytes());
    }
    let mut literal = String::new();
    quote(name, &mut literal);
    out.extend_from_slice(&literal.as_bytes()[1..literal.len() - 1]);
}

fn push_moment(moment: Timestamp, out: &mut Vec<u8>) {
    let micros = moment.micros().unsigned_abs();
    let mut buffer = [0; 20];
    out.extend_from_slice(decimal(micros / 1_000_000, &mut buffer));
    // A leading one keeps the zeroes of the fraction; it is then overwritten by the point.
    let at = out.len();
    out.extend_from_slice(decimal(1_000_000 + micros % 1_000_000, &mut buffer));
    out[at] = b'.';
}

fn push_terminal(state: Option<TerminalState>, out: &mut Vec<u8>) {
    match state {
        None => out.extend_from_slice(b",\"terminal\":false,\"terminal_state\":null"),
        Some(state) => {
            out.extend_from_slice(b",\"terminal\":true,\"terminal_state\":\"");
            out.extend_from_slice(state.as_str().as_bytes());
            out.push(b'"');
        }
    }
}

fn push_checksum(begin: usize, out: &mut Vec<u8>) {
    let crc = crc32c::crc32c(&out[begin..]);
    out.extend_from_slice(CRC_KEY);
    for shift in (0..32).step_by(4).rev() {
        out.push(b"0123456789abcdef"[(crc >> shift & 0xf) as usize]);
    }
    out.extend_from_slice(b"\"}\n");
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
    /// The whole object, without the line feed.
    pub text: &'a str,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its number, if that is an integer from 1 to [`SEQ_MAX`].
    pub seq: Option<u64>,
    /// Its name: the key `event`, else `type`.
    pub name: Cow<'a, str>,
    /// When it was written, as JSON text.
    pub created_at: Option<&'a str>,
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

impl EventRef<'_> {
    /// When it was written, in seconds.
    pub fn created_at_seconds(&self) -> Option<f64> {
        self.created_at?.parse().ok().filter(|seconds: &f64| seconds.is_finite())
    }

    /// Whether it ends the run in the sense of whoever wrote it.
    pub fn is_terminal(&self) -> bool {
        self.terminal != Truth::False
    }

    /// Whether this run of this session surely ends with it.
    pub fn is_own_terminal(&self) -> bool {
        self.terminal == Truth::True && self.ids == Ids::Own && self.seq.is_some()
    }

    /// What the reducer takes of it.
    pub fn to_fold(&self) -> FoldEvent<'_> {
        FoldEvent {
            seq: self.seq,
            name: &self.name,
            payload: self.payload.unwrap_or_default(),
            created_at: self.created_at_seconds(),
        }
    }
}

/// Whether the bytes end in a checksum; if so, whether it is right.
pub(super) fn checksum_of(line: &[u8]) -> Option<bool> {
    let body = line.len().checked_sub(CRC_BYTES)?;
    let (body, tail) = line.split_at(body);
    let digits = tail.strip_prefix(CRC_KEY)?.strip_suffix(b"\"}")?;
    let mut stated = 0;
    for digit in digits {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        stated = stated << 4 | u32::from(value);
    }
    Some(stated == crc32c::crc32c(body))
}

/// Takes apart a line of exactly our shape whose checksum is right. Anything else is for the JSON reader.
pub(super) fn decode_own<'a>(line: &'a [u8], offset: u64, shape: &LineShape) -> Option<EventRef<'a>> {
    let mut rest = Rest(line.strip_prefix(&*shape.start)?);
    let digits = rest.digits()?;
    rest.skip(b"\",\"seq\":")?;
    rest.skip(digits)?;
    rest.skip(&shape.middle)?;
    let name = rest.plain_text()?;
    rest.skip(b"\",\"type\":\"")?;
    rest.skip(name)?;
    rest.skip(b"\",\"created_at\":")?;
    let created_at = rest.moment()?;
    rest.skip(b",\"terminal\":")?;
    let (terminal, state) = rest.terminal()?;
    rest.skip(b",\"payload\":")?;
    let payload = rest.0.get(..rest.0.len().checked_sub(CRC_BYTES)?)?;
    if payload.is_empty() || checksum_of(line) != Some(true) || has_control_byte(line) {
        return None;
    }
    let text = std::str::from_utf8(line).ok()?;
    let within = |part: &'a [u8]| {
        let at = part.as_ptr() as usize - line.as_ptr() as usize;
        &text[at..at + part.len()]
    };
    Some(EventRef {
        text,
        offset,
        seq: Some(within(digits).parse().ok().filter(is_usable)?),
        name: Cow::Borrowed(within(name)),
        created_at: Some(within(created_at)),
        terminal,
        terminal_state: Some(within(state)),
        payload: Some(within(payload)),
        ids: Ids::Own,
        checked: true,
    })
}

fn is_usable(seq: &u64) -> bool {
    (1..=SEQ_MAX).contains(seq)
}

fn has_control_byte(line: &[u8]) -> bool {
    line.iter().fold(false, |found, byte| found | (*byte < 0x20))
}

/// What is left of a line while it is taken apart.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn skip(&mut self, expected: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn digits(&mut self) -> Option<&'a [u8]> {
        let len = self.0.iter().position(|byte| !byte.is_ascii_digit())?;
        let fits = (1..=19).contains(&len) && self.0[0] != b'0';
        fits.then(|| self.take(len))
    }

    fn plain_text(&mut self) -> Option<&'a [u8]> {
        let len = memchr::memchr2(b'"', b'\\', self.0)?;
        (self.0[len] == b'"').then(|| self.take(len))
    }

    fn moment(&mut self) -> Option<&'a [u8]> {
        let len = self.0.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        (len > 0).then(|| self.take(len))
    }

    /// The value of `terminal`, and the text of `terminal_state`, which are `false` and `null` on most lines.
    fn terminal(&mut self) -> Option<(Truth, &'a [u8])> {
        if self.skip(b"false,\"terminal_state\":").is_some() {
            let state = self.0.get(..4).filter(|state| *state == b"null")?;
            self.0 = &self.0[4..];
            return Some((Truth::False, state));
        }
        self.skip(b"true,\"terminal_state\":")?;
        let end = self.0.strip_prefix(b"\"").and_then(|inside| memchr::memchr2(b'"', b'\\', inside))?;
        Some((Truth::True, self.take(end + 2)))
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
        text,
        offset,
        seq,
        name: name.map(python_text).unwrap_or_default(),
        created_at: fields.get("created_at"),
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
    fn a_line_of_ours_is_the_reference_line_and_a_checksum() {
        let line = String::from_utf8(encode(7, &Event::token("a\u{2028}\"b"))).unwrap();
        let body = concat!(
            r#"{"version":1,"event_id":"r.1:7","seq":7,"run_id":"r.1","session_id":"s-1","event":"token","type":"token","#,
            r#""created_at":1800000000.050000,"terminal":false,"terminal_state":null,"payload":{"text":"a"#,
            "\u{2028}",
            r#"\"b"}"#
        );
        assert_eq!(line, format!("{body},\"crc\":\"{:08x}\"}}\n", crc32c::crc32c(body.as_bytes())));
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
        push_checksum(0, &mut line);
        let line = line.strip_suffix(b"\n").unwrap();
        assert_eq!(checksum_of(line), Some(true));
        assert!(decode_own(line, 0, &shape).is_none());
        assert!(decode_any(std::str::from_utf8(line).unwrap(), 0, &shape).is_err());
    }
}
