//! What a command prints, as events: lines that are events are events, all else is the text of the answer.
//!
//! Text does not wait for the end of its line. A line that begins like an event, with its name or its payload, does. Bytes
//! in, events out; bytes that are no UTF-8 become U+FFFD, but a character is never cut because a read ended in it.

use crate::limits::LINE_BYTES_MAX;
use crate::model::Event;

/// How a command's output is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputForm {
    /// Lines `{"event":..,"payload":..}` are events, all else is text.
    #[default]
    Auto,
    /// Everything is text, also what looks like an event.
    Text,
}

/// Text beyond this becomes an event of its own.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// In this many bytes the first key of an event has come.
const FIRST_KEY_BYTES_MAX: usize = 64;

/// Reads what a command prints.
#[derive(Debug)]
pub(super) struct Output {
    form: OutputForm,
    place: Place,
    /// A line that may become an event, or the beginning of a character.
    held: Vec<u8>,
    events: Vec<Event>,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Behind an event, or at the very beginning: a blank line says nothing.
    BehindEvent,
    /// At the beginning of a line.
    LineStart,
    /// In a line that may become an event.
    Candidate,
    /// In a line of text.
    Text,
}

impl Output {
    pub(super) fn new(form: OutputForm) -> Self {
        Output { form, place: Place::BehindEvent, held: Vec::new(), events: Vec::new(), text: String::new() }
    }

    /// Takes what was read and gives the events in it.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Vec<Event> {
        while let Some(first) = bytes.first() {
            let taken = match self.place {
                Place::Candidate => self.take_candidate(bytes),
                Place::Text => self.take_text(bytes),
                Place::BehindEvent | Place::LineStart => self.begin_line(*first),
            };
            bytes = &bytes[taken..];
        }
        self.flush();
        std::mem::take(&mut self.events)
    }

    /// There is no more.
    pub(super) fn finish(&mut self) -> Vec<Event> {
        let held = std::mem::take(&mut self.held);
        match self.place {
            Place::Candidate => self.end_candidate(held),
            _ => self.push(&String::from_utf8_lossy(&held)),
        }
        self.flush();
        std::mem::take(&mut self.events)
    }

    /// Decides what a line is by its first byte. Takes only a line feed that says nothing.
    fn begin_line(&mut self, first: u8) -> usize {
        if self.place == Place::BehindEvent && matches!(first, b'\n' | b'\r') {
            return 1;
        }
        let may_be_event = first == b'{' && self.form == OutputForm::Auto;
        self.place = if may_be_event { Place::Candidate } else { Place::Text };
        0
    }

    fn take_candidate(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        self.held.extend_from_slice(&bytes[..end]);
        if self.held.last() == Some(&b'\n') {
            let line = std::mem::take(&mut self.held);
            self.end_candidate(line);
        } else if self.held.len() > LINE_BYTES_MAX || !begins_like_event(&self.held) {
            self.place = Place::Text;
            let text = std::mem::take(&mut self.held);
            self.push_bytes(&text);
        }
        end
    }

    /// Whether an event has begun whose line has not ended.
    pub(super) fn is_amid_event(&self) -> bool {
        self.place == Place::Candidate
    }

    fn end_candidate(&mut self, line: Vec<u8>) {
        let text = String::from_utf8_lossy(&line);
        match Event::parse(&text) {
            Ok(event) => {
                self.flush();
                self.events.push(event);
                self.place = Place::BehindEvent;
            }
            Err(_) => {
                self.push(&text);
                self.place = Place::LineStart;
            }
        }
    }

    fn take_text(&mut self, bytes: &[u8]) -> usize {
        let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        self.push_bytes(&bytes[..end]);
        if bytes[end - 1] == b'\n' {
            self.place = Place::LineStart;
        }
        end
    }

    /// Adds text, but for the beginning of a character at its end.
    fn push_bytes(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let whole = held.len() - unfinished(&held);
        self.push(&String::from_utf8_lossy(&held[..whole]));
        self.held = held[whole..].to_vec();
    }

    fn push(&mut self, text: &str) {
        for c in text.chars() {
            if self.text.len() >= TEXT_BYTES_MAX {
                self.flush();
            }
            self.text.push(c);
        }
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.events.push(Event::token(&std::mem::take(&mut self.text)));
        }
    }
}

/// Whether a line may become an event, as far as it has come: its first key is `event` or `payload`.
fn begins_like_event(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"{") else { return false };
    let key = rest[..rest.len().min(FIRST_KEY_BYTES_MAX)].trim_ascii_start();
    let may_come = |known: &[u8]| rest.len() < FIRST_KEY_BYTES_MAX && known.starts_with(key);
    [&b"\"event\""[..], b"\"payload\""].iter().any(|known| key.starts_with(known) || may_come(known))
}

/// How many bytes at the end are the beginning of a character whose rest may come.
fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    let Some(last) = tail.utf8_chunks().last() else { return 0 };
    let may_go_on = std::str::from_utf8(last.invalid()).is_err_and(|error| error.error_len().is_none());
    if may_go_on { last.invalid().len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::JSON_DEPTH_MAX;

    /// What comes out, as name and payload, when the output is read in pieces of each size.
    #[track_caller]
    fn check(form: OutputForm, printed: &[u8], expected: &[(&str, &str)]) {
        for size in [1, 2, 3, 5, printed.len().max(1)] {
            let mut output = Output::new(form);
            let mut events: Vec<Event> = printed.chunks(size).flat_map(|piece| output.take(piece)).collect();
            events.extend(output.finish());
            let expected: Vec<_> = expected.iter().map(|(name, said)| (*name, (*said).to_owned())).collect();
            assert_eq!(joined(&events), expected, "in pieces of {size}");
        }
    }

    /// Neighbouring tokens as one: how text is cut into events is nobody's business.
    fn joined(events: &[Event]) -> Vec<(&str, String)> {
        let mut all: Vec<(&str, String)> = Vec::new();
        for event in events {
            let text =
                crate::model::Object::parse(event.payload()).and_then(|o| o.text("text").map(|t| t.into_owned()));
            match (event.name(), text, all.last_mut()) {
                ("token", Some(text), Some((name, said))) if *name == "token" => said.push_str(&text),
                ("token", Some(text), _) => all.push(("token", text)),
                (name, _, _) => all.push((name, event.payload().to_owned())),
            }
        }
        all
    }

    #[test]
    fn plain_text_is_the_answer() {
        check(OutputForm::Auto, "Grüße\nvom Meer".as_bytes(), &[("token", "Grüße\nvom Meer")]);
        check(OutputForm::Auto, b"", &[]);
    }

    #[test]
    fn a_line_that_is_nested_too_deeply_for_an_event_is_text() {
        let line = |levels: usize| {
            format!(r#"{{"event":"x","payload":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
        };
        let (taken, refused) = (line(JSON_DEPTH_MAX), line(JSON_DEPTH_MAX + 1));
        let payload = format!("{}{}", "[".repeat(JSON_DEPTH_MAX - 1), "]".repeat(JSON_DEPTH_MAX - 1));
        check(OutputForm::Auto, taken.as_bytes(), &[("x", &payload)]);
        check(OutputForm::Auto, refused.as_bytes(), &[("token", &refused)]);
    }

    #[test]
    fn lines_that_are_events_are_events_and_all_else_is_text() {
        let printed = b"{\"event\":\"reasoning\",\"payload\":{\"text\":\"hm\"}}\n\nHello\n{\"event\":\"x\"}\n{not json}\n{\"a\":1}";
        let expected =
            [("reasoning", "{\"text\":\"hm\"}"), ("token", "Hello\n"), ("x", "{}"), ("token", "{not json}\n{\"a\":1}")];
        check(OutputForm::Auto, printed, &expected);
    }

    #[test]
    fn a_last_line_needs_no_line_feed() {
        check(OutputForm::Auto, b"{\"event\":\"done\"}", &[("done", "{}")]);
    }

    #[test]
    fn everything_is_text_if_it_is_said_to_be() {
        check(OutputForm::Text, b"{\"event\":\"done\"}\n", &[("token", "{\"event\":\"done\"}\n")]);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_the_rest_stays() {
        check(OutputForm::Auto, b"a\xffb\xe2\x82", &[("token", "a\u{fffd}b\u{fffd}")]);
        check(OutputForm::Auto, b"\xf0\x9f\x98\x80!", &[("token", "\u{1f600}!")]);
    }

    #[test]
    fn text_does_not_wait_for_the_end_of_its_line() {
        let mut output = Output::new(OutputForm::Auto);
        assert_eq!(output.take(b"To the "), [Event::token("To the ")]);
        assert_eq!(output.take(b"sea\xc3"), [Event::token("sea")]);
        assert_eq!(output.take(b"\xa9"), [Event::token("\u{e9}")]);
        assert_eq!(output.take(b"{"), [Event::token("{")], "only the first byte of a line makes a candidate");
    }

    #[test]
    fn json_that_is_no_event_is_text_as_soon_as_that_is_known() {
        let mut output = Output::new(OutputForm::Auto);
        assert_eq!(output.take(b"{ \"ev"), [], "this may become an event");
        assert!(output.is_amid_event());
        assert_eq!(output.take(b"ening\":"), [Event::token("{ \"evening\":")]);
        assert!(!output.is_amid_event());
        assert_eq!(output.take(b" 1}\n{\"payload\":{},"), [Event::token(" 1}\n")]);
        assert_eq!(output.take(b"\"event\":\"x\"}\n"), [Event::new("x", "{}").unwrap()]);
        assert_eq!(output.take(&[b"{", &[b' '; 80][..]].concat()).len(), 1, "blanks without end are text");
    }

    #[test]
    fn a_line_that_never_ends_is_text_and_memory_is_bounded() {
        let mut output = Output::new(OutputForm::Auto);
        let mut bytes = 0;
        assert_eq!(output.take(b"{\"event\":\""), []);
        for _ in 0..40 {
            let events = output.take(&[b'x'; 1 << 20]);
            bytes += events.iter().map(|event| event.payload().len()).sum::<usize>();
            assert!(output.held.len() <= LINE_BYTES_MAX + (1 << 20));
        }
        assert!(bytes > 30 << 20);
    }
}
