//! Server-sent events out of bytes: the name and the data of each event, however the bytes were cut. Bounded, pure.

use crate::limits::LINE_BYTES_MAX;

/// An event's data is longer than anything that could be journalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    /// Empty if it has none.
    pub(super) name: String,
    pub(super) data: String,
}

/// Reads a stream of events.
#[derive(Debug, Default)]
pub(super) struct EventStream {
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Whether the last byte was a carriage return, so that a line feed behind it ends nothing.
    is_behind_return: bool,
    has_begun: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl EventStream {
    /// Takes bytes and gives the events that they complete.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Sent>, TooLong> {
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
        match self.line.len() + self.data.len() > LINE_BYTES_MAX {
            true => Err(TooLong),
            false => Ok(events),
        }
    }

    /// The data of an event that the stream ended in, if its line is whole. Not to be relied on.
    pub(super) fn rest(mut self) -> String {
        self.end_line();
        String::from_utf8_lossy(&self.data).into_owned()
    }

    fn end_line(&mut self) -> Option<Sent> {
        let line = std::mem::take(&mut self.line);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let line = if is_first { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line) } else { &line };
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            return std::mem::take(&mut self.has_data).then(|| Sent { name: text(name), data: text(data) });
        }
        if let Some(name) = line.strip_prefix(b"event:") {
            self.name = name.trim_ascii().to_vec();
        }
        let data = if line == b"data" { Some(&b""[..]) } else { line.strip_prefix(b"data:") };
        if let Some(data) = data {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        None
    }
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
        let sent = |name: &str, data: &str| Sent { name: name.to_owned(), data: data.to_owned() };
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
}
