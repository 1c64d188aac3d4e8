//! One event as it goes over the wire: encoded once, shared by everybody who follows.

use std::io::Write;
use std::ops::Range;

use bytes::Bytes;

use crate::format::EventRef;
use crate::model::{RunEnd, RunId};

/// What memory costs beside what is in it, for the pieces of a frame.
const ALLOCATED_BYTES: usize = 96;
/// What stands around an event's id, name and line, and its number.
const SYNTAX_BYTES: usize = 48;

/// An event of a run, ready to be sent.
#[derive(Debug, Clone)]
pub(in crate::http) struct Frame {
    /// Where its line begins in the journal.
    pub(in crate::http) offset: u64,
    /// Its number, if it has a usable one.
    pub(in crate::http) seq: Option<u64>,
    /// How the run ends with it, if it does.
    pub(in crate::http) terminal: Option<RunEnd>,
    /// As a server-sent event.
    pub(in crate::http) sse: Bytes,
    name: Range<usize>,
    line: Line,
    payload: Range<usize>,
}

/// The journal's line.
#[derive(Debug, Clone)]
enum Line {
    /// In the server-sent event.
    Within(Range<usize>),
    /// One that had to be divided there.
    Apart(Bytes),
}

impl Frame {
    pub(in crate::http) fn new(run: &RunId, event: &EventRef<'_>) -> Self {
        let (text, payload) = (event.text(), event.payload.unwrap_or_default());
        let terminal = event.is_terminal().then(|| RunEnd::of(&event.name, payload)).flatten();
        let mut sse = Vec::with_capacity(text.len() + run.as_str().len() + event.name.len() + SYNTAX_BYTES);
        if let Some(seq) = event.seq {
            writeln!(sse, "id: {run}:{seq}").expect("memory takes what is written");
        }
        let name = push_name(&mut sse, &event.name);
        let line = push_data(&mut sse, text);
        sse.push(b'\n');
        let line = line.map_or_else(|| Line::Apart(Bytes::copy_from_slice(text.as_bytes())), Line::Within);
        let payload = place_of(payload, text);
        Frame { offset: event.offset, seq: event.seq, terminal, sse: Bytes::from(sse), name, line, payload }
    }

    /// Its name, on one line.
    pub(in crate::http) fn name(&self) -> &str {
        std::str::from_utf8(&self.sse[self.name.clone()]).unwrap_or_default()
    }

    /// The journal's line, without its line feed.
    pub(in crate::http) fn line(&self) -> &[u8] {
        match &self.line {
            Line::Within(place) => &self.sse[place.clone()],
            Line::Apart(line) => line,
        }
    }

    /// Its payload as JSON text.
    pub(in crate::http) fn payload(&self) -> &str {
        std::str::from_utf8(&self.line()[self.payload.clone()]).unwrap_or_default()
    }

    /// Where the next line begins in the journal.
    pub(in crate::http) fn end(&self) -> u64 {
        self.offset + self.line().len() as u64 + 1
    }

    /// The bytes that it sends.
    pub(in crate::http) fn bytes(&self) -> usize {
        self.sse.len()
    }

    /// The bytes that it keeps in memory, about.
    pub(in crate::http) fn memory(&self) -> usize {
        self.sse.len() + size_of::<Self>() + ALLOCATED_BYTES
    }
}

/// Where a part stands in a text.
fn place_of(part: &str, text: &str) -> Range<usize> {
    if part.is_empty() {
        return 0..0;
    }
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

/// A name goes on one line, whatever another program put into it. Says where it is.
fn push_name(sse: &mut Vec<u8>, name: &str) -> Range<usize> {
    sse.extend_from_slice(b"event: ");
    let start = sse.len();
    match name.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => sse.extend_from_slice(name.as_bytes()),
        false => {
            let plain = name.chars().map(|c| if c.is_control() { ' ' } else { c });
            sse.extend_from_slice(plain.collect::<String>().as_bytes());
        }
    }
    let place = start..sse.len();
    sse.push(b'\n');
    place
}

/// A carriage return would end the line for the reader. In JSON it stands only between tokens, where a line break means
/// the same. Says where the text is if it is there in one piece.
fn push_data(sse: &mut Vec<u8>, line: &str) -> Option<Range<usize>> {
    if memchr::memchr2(b'\r', b'\n', line.as_bytes()).is_none() {
        sse.extend_from_slice(b"data: ");
        let start = sse.len();
        sse.extend_from_slice(line.as_bytes());
        sse.push(b'\n');
        return Some(start..start + line.len());
    }
    for part in line.split(['\r', '\n']) {
        sse.extend_from_slice(format!("data: {part}\n").as_bytes());
    }
    None
}

/// An id without an event: a reader that is cut before its first event goes on from there. `0` is the beginning.
pub(super) fn lone_id(place: Option<(&RunId, u64)>) -> Bytes {
    match place {
        Some((run, seq)) => Bytes::from(format!("id: {run}:{seq}\n\n")),
        None => Bytes::from_static(b"id: 0\n\n"),
    }
}

/// A notice: something that is said about the stream, and is no event of a run. It has no id, so that nobody resumes
/// from it.
pub(in crate::http) fn notice(name: &str, data: &serde_json::Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}
