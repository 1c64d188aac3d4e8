//! One event of a run, before it has a number: a name and a JSON payload.

mod parts;
mod tools;

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::depth::nested_deeper_at;
use super::json::{Object, quote, quoted};
use super::run_end::RunEnd;
use super::text::trim;
use crate::clock::Timestamp;
use crate::limits::{EVENT_NAME_BYTES_MAX, JSON_DEPTH_MAX, LINE_BYTES_MAX};

/// Bytes that a journal line needs beside the event's name and payload, at most.
const ENVELOPE_BYTES_MAX: usize = 2048;

/// An event that cannot be journalled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEvent {
    /// It has no name.
    #[error("the event has no name: give `event` a text that is not blank")]
    NoName,
    /// Its name is too long or holds a control character.
    #[error("the event's name is over {EVENT_NAME_BYTES_MAX} bytes or holds a control character: choose a plain name")]
    BadName,
    /// Its payload is not JSON.
    #[error("the event's payload is not JSON: {reason}")]
    BadPayload {
        /// What the JSON reader said.
        reason: String,
    },
    /// A line is no JSON object.
    #[error("it is not a JSON object {{\"event\":..,\"payload\":..}}")]
    NoObject,
    /// A line names no event.
    #[error("it has no `event` that is a text")]
    NoEvent,
    /// A line says more than the event's name, but not where its payload would be.
    #[error("it has keys but no `payload`")]
    NoPayload,
    /// It is nested too deeply.
    #[error(
        "the event is nested deeper than {JSON_DEPTH_MAX} levels, its line being the first: flatten it, or send the inner \
         part as a text"
    )]
    TooDeep,
    /// It is longer than a journal line may be.
    #[error("the event has {bytes} bytes and a journal line at most {LINE_BYTES_MAX}: send it in parts")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

/// What a journal line says of its own finality. Other programs write more than true and false there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// Exactly `true`.
    True,
    /// Something that the reference program takes for true.
    Truthy,
    /// Neither.
    False,
}

/// An event to be appended to a run's journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    name: Cow<'static, str>,
    payload: Box<str>,
    at: Option<Timestamp>,
    /// Follows from name and payload; asked for more than once on the way to the journal.
    terminal: Option<RunEnd>,
}

impl Event {
    fn of(name: Cow<'static, str>, payload: Box<str>) -> Self {
        let terminal = RunEnd::of(&name, &payload);
        Event { name, payload, at: None, terminal }
    }

    /// An event of any name. `payload` is JSON text and is journalled as it is, without line breaks.
    pub fn new(name: &str, payload: &str) -> Result<Self, InvalidEvent> {
        // The line around it is a level of its own.
        refuse_deeper(payload, JSON_DEPTH_MAX - 1)?;
        Self::journalled(name, payload)
    }

    /// The same for what stands in a journal already, however deeply it is nested.
    pub(crate) fn journalled(name: &str, payload: &str) -> Result<Self, InvalidEvent> {
        let name = trim(name);
        if name.is_empty() {
            return Err(InvalidEvent::NoName);
        }
        if name.len() > EVENT_NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(InvalidEvent::BadName);
        }
        let raw: &RawValue =
            serde_json::from_str(payload).map_err(|cause| InvalidEvent::BadPayload { reason: cause.to_string() })?;
        let event = Self::of(Cow::Owned(name.to_owned()), on_one_line(raw.get()));
        event.check_length()?;
        Ok(event)
    }

    /// An event as producers write it: an object with an `event`, and a `payload` unless the event is nothing but its
    /// name.
    pub fn parse(line: &str) -> Result<Self, InvalidEvent> {
        refuse_deeper(line, JSON_DEPTH_MAX)?;
        let input = Object::parse(line).ok_or(InvalidEvent::NoObject)?;
        let name = input.get("event").and_then(|raw| serde_json::from_str::<String>(raw).ok());
        let name = name.ok_or(InvalidEvent::NoEvent)?;
        let payload = match input.get("payload") {
            Some(payload) => payload,
            None if input.iter().count() > 1 => return Err(InvalidEvent::NoPayload),
            None => "{}",
        };
        Event::new(&name, payload)
    }

    fn of_text(name: &'static str, text: &str) -> Self {
        let (begin, end) = ("{\"text\":", "}");
        // Room for exactly this, if nothing is escaped: a box of another size would be moved.
        let mut payload = String::with_capacity(begin.len() + text.len() + 2 + end.len());
        payload.push_str(begin);
        quote(text, &mut payload);
        payload.push_str(end);
        Self::of_payload(name, payload)
    }

    fn of_payload(name: &'static str, payload: String) -> Self {
        Self::of(Cow::Borrowed(name), payload.into())
    }

    /// A piece of the answer.
    pub fn token(text: &str) -> Self {
        Self::of_text("token", text)
    }

    /// A piece of the model's reasoning, which never becomes chat text.
    pub fn reasoning(text: &str) -> Self {
        Self::of_text("reasoning", text)
    }

    /// The answer is complete.
    pub fn done() -> Self {
        Self::of_payload("done", "{}".to_owned())
    }

    /// The user stopped the answer.
    pub fn cancel() -> Self {
        Self::of_payload("cancel", "{}".to_owned())
    }

    /// The run failed. `kind` is a word for programs, `message` a sentence for people.
    pub fn error(kind: &str, message: &str) -> Self {
        Self::of_payload("apperror", format!("{{\"type\":{},\"message\":{}}}", quoted(kind), quoted(message)))
    }

    /// The event that ends a run like this, in plain words. An answer that failed is better ended with [`Event::error`].
    pub fn end(end: RunEnd) -> Self {
        match end {
            RunEnd::Completed => Self::done(),
            RunEnd::ToolLimitReached => {
                Self::of_payload("done", "{\"terminal_state\":\"tool_limit_reached\"}".to_owned())
            }
            RunEnd::InterruptedByUser => Self::cancel(),
            RunEnd::InterruptedByCrash => {
                Self::error("interrupted", "The producer of this answer went away before it ended.")
            }
            RunEnd::Errored => Self::error("error", "The answer failed. What had arrived is kept; please try again."),
        }
    }

    /// The same event, said to have happened at this moment instead of the moment of its append.
    pub fn at(mut self, moment: Timestamp) -> Self {
        self.at = Some(moment);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its payload, JSON on one line.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// When it is said to have happened, if that was stated.
    pub fn moment(&self) -> Option<Timestamp> {
        self.at
    }

    /// How the run ends with this event; nothing if it does not.
    pub fn terminal_state(&self) -> Option<RunEnd> {
        self.terminal
    }

    /// Whether it fits on a journal line.
    pub(crate) fn check_length(&self) -> Result<(), InvalidEvent> {
        let bytes = self.name.len() * 2 + self.payload.len() + ENVELOPE_BYTES_MAX;
        if bytes > LINE_BYTES_MAX { Err(InvalidEvent::TooLong { bytes }) } else { Ok(()) }
    }
}

fn refuse_deeper(json: &str, levels_max: usize) -> Result<(), InvalidEvent> {
    match nested_deeper_at(json.as_bytes(), levels_max) {
        Some(_) => Err(InvalidEvent::TooDeep),
        None => Ok(()),
    }
}

/// In valid JSON a control byte stands only between tokens, where a blank means the same.
fn on_one_line(json: &str) -> Box<str> {
    if json.bytes().all(|byte| byte >= 0x20) {
        return json.into();
    }
    json.chars().map(|c| if c < ' ' { ' ' } else { c }).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_never_breaks_the_line_it_is_written_on() {
        let event = Event::new("x", "{\n\t\"a\": \"b\\nc\",\r\n\"d\": 1}").unwrap();
        assert_eq!(event.payload(), r#"{  "a": "b\nc",  "d": 1}"#);
    }

    #[test]
    fn events_that_cannot_be_journalled_are_refused_by_name() {
        assert_eq!(Event::new("  ", "{}"), Err(InvalidEvent::NoName));
        assert_eq!(Event::new("a\u{1}b", "{}"), Err(InvalidEvent::BadName));
        assert_eq!(Event::new(&"n".repeat(257), "{}"), Err(InvalidEvent::BadName));
        assert!(matches!(Event::new("x", "{\"a\":NaN}"), Err(InvalidEvent::BadPayload { .. })));
        let long = format!("\"{}\"", "x".repeat(LINE_BYTES_MAX));
        assert!(matches!(Event::new("x", &long), Err(InvalidEvent::TooLong { .. })));
        assert!(Event::token(&"x".repeat(LINE_BYTES_MAX)).check_length().is_err());
    }

    #[test]
    fn a_line_has_at_most_a_hundred_levels_and_a_payload_one_less() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        let line = |levels: usize| format!(r#"{{"event":"x","payload":{}}}"#, nested(levels));
        assert!(Event::new("x", &nested(JSON_DEPTH_MAX - 1)).is_ok());
        assert_eq!(Event::new("x", &nested(JSON_DEPTH_MAX)), Err(InvalidEvent::TooDeep));
        assert!(Event::parse(&line(JSON_DEPTH_MAX - 1)).is_ok());
        assert_eq!(Event::parse(&line(JSON_DEPTH_MAX)), Err(InvalidEvent::TooDeep));
        let beside = format!(r#"{{"event":"x","payload":1,"other":{}}}"#, nested(1_000_000));
        assert_eq!(Event::parse(&beside), Err(InvalidEvent::TooDeep));
    }

    #[test]
    fn an_event_that_ends_a_run_says_how() {
        for end in RunEnd::ALL {
            assert_eq!(Event::end(end).terminal_state(), Some(end));
        }
    }

    #[test]
    fn a_name_is_taken_without_the_white_space_around_it() {
        assert_eq!(Event::new(" token ", "null").unwrap().name(), "token");
    }
}
