//! Server-sent events out of bytes: id, name and data of each event, however the bytes were cut. Bounded, pure.
//!
//! As the HTML standard has it: an id counts until the next one and takes effect with the blank line behind it; `retry` is
//! taken wherever it stands. Names are taken without the white space around them.

use std::time::Duration;

use crate::limits::LINE_BYTES_MAX;

/// Bytes of an event's data with the name of its field: as long as anything that could be journalled.
const FIELD_BYTES_MAX: usize = LINE_BYTES_MAX + "data: ".len();

/// An event's data is longer than anything that could be journalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {LINE_BYTES_MAX} bytes")]
pub struct TooLong;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sent {
    /// The last id that was said, by this event or one before it; empty if there was none.
    pub id: String,
    /// Whether this event said its id itself.
    pub has_own_id: bool,
    /// Empty if it has none.
    pub name: String,
    /// What it says, lines divided by line feeds.
    pub data: String,
}

/// Reads a stream of events.
#[derive(Debug, Default)]
pub struct EventStream {
    line: Vec<u8>,
    id: Vec<u8>,
    has_id: bool,
    last_id: String,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    retry: Option<Duration>,
    /// Whether the last byte was a carriage return, so that a line feed behind it ends nothing.
    is_behind_return: bool,
    has_begun: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl EventStream {
    /// Takes bytes and gives the events that they complete.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Vec<Sent>, TooLong> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.line.extend_from_slice(rest);
                self.is_behind_return = false;
                break;
            };
            let is_second_half = rest[end] == b'\n' && end == 0 && self.is_behind_return;
            self.is_behind_return = rest[end] == b'\r';
            if !is_second_half {
                self.line.extend_from_slice(&rest[..end]);
                events.extend(self.end_line());
            }
            rest = &rest[end + 1..];
        }
        match self.line.len() + self.data.len() > FIELD_BYTES_MAX {
            true => Err(TooLong),
            false => Ok(events),
        }
    }

    /// The last id that took effect, also one that no event came with; empty if there was none.
    pub fn last_id(&self) -> &str {
        &self.last_id
    }

    /// How long the server asks to wait before a new connection.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The data of an event that the stream ended in, if its line is whole. Not to be relied on.
    pub fn rest(mut self) -> String {
        self.end_line();
        text(self.data)
    }

    fn end_line(&mut self) -> Option<Sent> {
        let line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let line = if is_first { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line) } else { &line };
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        self.take_field(field, value.strip_prefix(b" ").unwrap_or(value));
        None
    }

    fn take_field(&mut self, field: &[u8], value: &[u8]) {
        match field {
            b"event" => self.name = value.trim_ascii().to_vec(),
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"id" if !value.contains(&0) => {
                self.has_id = true;
                self.id = value.to_vec();
            }
            b"retry" => self.retry = milliseconds(value).or(self.retry),
            _ => {}
        }
    }

    fn end_event(&mut self) -> Option<Sent> {
        let has_own_id = std::mem::take(&mut self.has_id);
        if has_own_id {
            self.last_id = String::from_utf8_lossy(&self.id).into_owned();
        }
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        let has_data = std::mem::take(&mut self.has_data);
        has_data.then(|| Sent { id: self.last_id.clone(), has_own_id, name: text(name), data: text(data) })
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|broken| String::from_utf8_lossy(broken.as_bytes()).into_owned())
}

/// Digits alone are a time.
fn milliseconds(value: &[u8]) -> Option<Duration> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    number.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(stream: &str, expected: &[&str]) {
        for size in 1..=stream.len() {
            let mut events = EventStream::default();
            let found: Vec<String> = stream
                .as_bytes()
                .chunks(size)
                .flat_map(|piece| events.take(piece).unwrap())
                .map(|sent| sent.data)
                .collect();
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn lines_end_in_any_of_three_ways_and_pieces_end_anywhere() {
        check("data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n", &["a", "b", "c"]);
        check("\u{feff}data: Gr\u{fc}\u{df}e \u{1f600}\n\n", &["Gr\u{fc}\u{df}e \u{1f600}"]);
    }

    #[test]
    fn comments_and_other_fields_are_no_data() {
        check(": keep-alive\n\nevent: x\nid: 7\nretry: 5\n\ndata:a\ndata\ndata:  b\n\n:\n\n", &["a\n\n b"]);
    }

    #[test]
    fn a_name_belongs_to_its_own_event_only() {
        let found = EventStream::default().take(b"event: lost\n\nevent: error\ndata: a\n\ndata: b\n\n").unwrap();
        let sent = |name: &str, data: &str| Sent { name: name.to_owned(), data: data.to_owned(), ..Sent::default() };
        assert_eq!(found, [sent("error", "a"), sent("", "b")]);
    }

    #[test]
    fn an_event_that_is_never_finished_is_none() {
        let mut events = EventStream::default();
        assert!(events.take(b"data: [DONE]").unwrap().is_empty());
        assert_eq!(events.rest(), "[DONE]");
        assert_eq!(EventStream::default().rest(), "");
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let mut events = EventStream::default();
        let outcomes: Vec<_> = (0..20).map(|_| events.take(&[b'x'; 1 << 20]).is_ok()).collect();
        assert!(outcomes[0] && !outcomes[19]);
    }

    #[test]
    fn an_id_counts_until_the_next_one_and_an_event_knows_whether_it_is_its_own() {
        let mut events = EventStream::default();
        let stream = "data: a\n\nid: 1\ndata: b\n\ndata: c\n\nid: x\0y\ndata: d\n\nid\ndata: e\n\n";
        let found = events.take(stream.as_bytes()).unwrap();
        let ids: Vec<_> = found.iter().map(|sent| (sent.id.as_str(), sent.has_own_id)).collect();
        assert_eq!(ids, [("", false), ("1", true), ("1", false), ("1", false), ("", true)]);
    }

    #[test]
    fn an_id_takes_effect_with_its_blank_line_also_without_data() {
        let mut events = EventStream::default();
        assert!(events.take(b"id: 7\n").unwrap().is_empty());
        assert_eq!(events.last_id(), "");
        assert!(events.take(b"\n: still there\n\n").unwrap().is_empty());
        assert_eq!(events.last_id(), "7");
    }

    #[test]
    fn only_digits_are_a_time_to_wait() {
        let asked = |stream: &str| {
            let mut events = EventStream::default();
            events.take(stream.as_bytes()).unwrap();
            events.retry().map(|time| time.as_millis())
        };
        assert_eq!(asked("retry: 2000\n"), Some(2000));
        assert_eq!(asked("retry:15\nretry: soon\nretry: -1\nretry\n"), Some(15));
        assert_eq!(asked("retry: 99999999999999999999999\n"), None);
        assert_eq!(asked("retry: 2000"), None);
    }

    #[test]
    fn the_longest_journal_line_still_is_an_event() {
        let line = "x".repeat(LINE_BYTES_MAX);
        let mut events = EventStream::default();
        let mut found = Vec::new();
        for piece in format!("data: {line}\n\n").as_bytes().chunks(1 << 20) {
            found.extend(events.take(piece).unwrap());
        }
        assert_eq!(found[0].data.len(), LINE_BYTES_MAX);
    }
}
