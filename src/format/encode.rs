//! Writing a run's journal lines, without building anything in between.

use std::borrow::Cow;
use std::ops::Range;

use super::checksum::{CRC_KEY, checksum_digits};
use super::line::LineShape;
use crate::clock::Timestamp;
use crate::model::{Event, RunEnd, RunId, SessionId, quote};

/// Writes the lines of one run.
#[derive(Debug)]
pub struct LineEncoder {
    shape: LineShape,
    draft: Draft,
}

/// A line up to its payload, kept from one event to the next: most of the time only numbers change in it.
#[derive(Debug, Default)]
struct Draft {
    name: Cow<'static, str>,
    terminal: Option<RunEnd>,
    bytes: Vec<u8>,
    /// Where the event's number stands, twice.
    seqs: [Range<usize>; 2],
    /// The second that is written, and where its fraction stands.
    second: u64,
    fraction: Range<usize>,
}

impl LineEncoder {
    /// The encoder of this run's lines.
    pub fn new(session: &SessionId, run: &RunId) -> Self {
        LineEncoder { shape: LineShape::new(session, run), draft: Draft::default() }
    }

    /// The shape of the lines.
    pub(crate) fn shape(&self) -> &LineShape {
        &self.shape
    }

    /// Appends the event's line, line feed included.
    pub fn encode(&mut self, seq: u64, now: Timestamp, event: &Event, out: &mut Vec<u8>) {
        let micros = event.moment().unwrap_or(now).micros().unsigned_abs();
        if !self.draft.fits(seq, micros, event) {
            self.draft = Draft::new(&self.shape, seq, micros, event);
        }
        self.draft.set(seq, micros);
        let begin = out.len();
        out.extend_from_slice(&self.draft.bytes);
        out.extend_from_slice(event.payload().as_bytes());
        let behind_start = &out[begin + self.shape.start.len()..];
        push_checksum(crc32c::crc32c_append(self.shape.start_crc, behind_start), out);
    }
}

const MICROS_PER_SECOND: u64 = 1_000_000;

impl Draft {
    fn new(shape: &LineShape, seq: u64, micros: u64, event: &Event) -> Self {
        let mut bytes = shape.start.to_vec();
        let first = push_decimal(seq, &mut bytes);
        bytes.extend_from_slice(b"\",\"seq\":");
        let second = push_decimal(seq, &mut bytes);
        bytes.extend_from_slice(&shape.middle);
        let name = spelt(event.name());
        for part in [&name, "\",\"type\":\"", &name, "\",\"created_at\":"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        push_decimal(micros / MICROS_PER_SECOND, &mut bytes);
        bytes.extend_from_slice(b".000000");
        let fraction = bytes.len() - 6..bytes.len();
        push_terminal(event.terminal_state(), &mut bytes);
        bytes.extend_from_slice(b",\"payload\":");
        Draft {
            name: Cow::Owned(event.name().to_owned()),
            terminal: event.terminal_state(),
            bytes,
            seqs: [first, second],
            second: micros / MICROS_PER_SECOND,
            fraction,
        }
    }

    /// Whether an event's line differs from this one in nothing but digits that have their places already.
    fn fits(&self, seq: u64, micros: u64, event: &Event) -> bool {
        self.seqs[0].len() == digits_of(seq)
            && self.second == micros / MICROS_PER_SECOND
            && self.terminal == event.terminal_state()
            && self.name == event.name()
    }

    fn set(&mut self, seq: u64, micros: u64) {
        let [first, second] = self.seqs.clone();
        put_decimal(seq, &mut self.bytes[first.clone()]);
        self.bytes.copy_within(first, second.start);
        let [_, _, fraction @ ..] = eight_digits(micros % MICROS_PER_SECOND).to_be_bytes();
        self.bytes[self.fraction.clone()].copy_from_slice(&fraction);
    }
}

/// The digits of a number below 100,000,000, the first in the highest byte. Each step splits all parts of the word at
/// once: into halves of four digits, quarters of two, and digits. Shifted products stand for divisions by 100 and 10.
fn eight_digits(number: u64) -> u64 {
    let halves = ((number / 10_000) << 32) | (number % 10_000);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let quarters = (hundreds << 16) | (halves - hundreds * 100);
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = (tens << 8) | (quarters - tens * 10);
    digits | 0x3030_3030_3030_3030
}

fn digits_of(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Writes a number's digits and says where.
fn push_decimal(number: u64, out: &mut Vec<u8>) -> Range<usize> {
    let start = out.len();
    out.resize(start + digits_of(number), b'0');
    put_decimal(number, &mut out[start..]);
    start..out.len()
}

/// Fills a place with a number's last digits.
fn put_decimal(number: u64, place: &mut [u8]) {
    const EIGHT_DIGITS: u64 = 100_000_000;
    let digits = eight_digits(number % EIGHT_DIGITS).to_be_bytes();
    match place.len().checked_sub(8) {
        None | Some(0) => place.copy_from_slice(&digits[8 - place.len()..]),
        Some(higher) => {
            put_decimal(number / EIGHT_DIGITS, &mut place[..higher]);
            place[higher..].copy_from_slice(&digits);
        }
    }
}

/// A name as it stands between quotes.
fn spelt(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        return Cow::Borrowed(name);
    }
    let mut literal = String::new();
    quote(name, &mut literal);
    Cow::Owned(literal[1..literal.len() - 1].to_owned())
}

fn push_terminal(state: Option<RunEnd>, out: &mut Vec<u8>) {
    match state {
        None => out.extend_from_slice(b",\"terminal\":false,\"terminal_state\":null"),
        Some(state) => {
            out.extend_from_slice(b",\"terminal\":true,\"terminal_state\":\"");
            out.extend_from_slice(state.as_str().as_bytes());
            out.push(b'"');
        }
    }
}

pub(super) fn push_checksum(crc: u32, out: &mut Vec<u8>) {
    let mut tail = *b",\"crc\":\"xxxxxxxx\"}\n";
    tail[CRC_KEY.len()..][..8].copy_from_slice(&checksum_digits(crc));
    out.extend_from_slice(&tail);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoder() -> LineEncoder {
        LineEncoder::new(&SessionId::parse("s-1").unwrap(), &RunId::parse("r.1").unwrap())
    }

    fn encode_with(encoder: &mut LineEncoder, seq: u64, at: f64, event: &Event) -> String {
        let mut out = Vec::new();
        encoder.encode(seq, Timestamp::from_seconds(at), event, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_of_ours_is_the_reference_line_and_a_checksum() {
        let line = encode_with(&mut encoder(), 7, 1_800_000_000.05, &Event::token("a\u{2028}\"b"));
        let body = concat!(
            r#"{"version":1,"event_id":"r.1:7","seq":7,"run_id":"r.1","session_id":"s-1","event":"token","type":"token","#,
            r#""created_at":1800000000.050000,"terminal":false,"terminal_state":null,"payload":{"text":"a"#,
            "\u{2028}",
            r#"\"b"}"#
        );
        assert_eq!(line, format!("{body},\"crc\":\"{:08x}\"}}\n", crc32c::crc32c(body.as_bytes())));
    }

    #[test]
    fn what_is_kept_from_one_line_to_the_next_never_shows() {
        let events = [
            (1, 5.0, Event::token("a")),
            (2, 5.25, Event::token("b")),
            (9, 5.999_999, Event::token("c")),
            (10, 6.0, Event::token("d")),
            (11, 6.5, Event::reasoning("e")),
            (12, 1_800_000_000.000_001, Event::reasoning("f")),
            (99_999, 1_800_000_000.5, Event::token("g")),
            (100_000, 1_800_000_000.5, Event::new("odd \"name\"", "null").unwrap()),
            (100_001, 1_800_000_000.5, Event::error("interrupted", "x")),
            (100_002, 1_800_000_000.5, Event::error("other", "x")),
            (u64::MAX, 1_800_000_000.5, Event::done()),
            (1, 0.0, Event::token("again").at(Timestamp::from_seconds(7.0))),
        ];
        let mut kept = encoder();
        for (seq, at, event) in &events {
            assert_eq!(encode_with(&mut kept, *seq, *at, event), encode_with(&mut encoder(), *seq, *at, event));
        }
    }

    #[test]
    fn numbers_are_written_with_all_their_digits_and_no_others() {
        let around = |power: u32| [10_u64.pow(power) - 1, 10_u64.pow(power), 7 * 10_u64.pow(power) + 305];
        let numbers = (0..=18).flat_map(around).chain(0..=20_000).chain([99_999_999, u64::MAX]);
        for number in numbers {
            let mut out = b"x".to_vec();
            push_decimal(number, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("x{number}"));
        }
    }
}
