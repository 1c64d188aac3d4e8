//! One event as it goes over the wire: encoded once, shared by everybody who follows.

use std::ops::Range;

use bytes::Bytes;

use crate::journal::JournalEvent;
use crate::model::{RunId, TerminalState};

/// What memory costs beside what is in it, for the pieces of a frame.
const ALLOCATED_BYTES: usize = 96;

/// An event of a run, ready to be sent.
#[derive(Debug, Clone)]
pub(in crate::http) struct Frame {
    /// Where its line begins in the journal.
    pub(in crate::http) offset: u64,
    /// Its number, if it has a usable one.
    pub(in crate::http) seq: Option<u64>,
    /// How the run ends with it, if it does.
    pub(in crate::http) terminal: Option<TerminalState>,
    /// As a server-sent event.
    pub(in crate::http) sse: Bytes,
    name: Box<str>,
    line: Bytes,
    payload: Range<usize>,
}

impl Frame {
    pub(in crate::http) fn new(run: &RunId, event: &JournalEvent) -> Self {
        let terminal = event.is_terminal.then(|| TerminalState::of(&event.name, event.payload())).flatten();
        let mut sse = Vec::with_capacity(event.line.len() + run.as_str().len() + event.name.len() + 48);
        if let Some(seq) = event.seq {
            sse.extend_from_slice(format!("id: {run}:{seq}\n").as_bytes());
        }
        push_name(&mut sse, &event.name);
        let line = push_data(&mut sse, &event.line);
        sse.push(b'\n');
        let sse = Bytes::from(sse);
        // A line that had to be divided is not in there as it is.
        let line = line.map_or_else(|| Bytes::from(event.line.clone()), |place| sse.slice(place));
        let payload = payload_of(event);
        Frame { offset: event.offset, seq: event.seq, terminal, sse, name: event.name.as_str().into(), line, payload }
    }

    /// Its name.
    pub(in crate::http) fn name(&self) -> &str {
        &self.name
    }

    /// The journal's line, without its line feed.
    pub(in crate::http) fn line(&self) -> &Bytes {
        &self.line
    }

    /// Its payload as JSON text.
    pub(in crate::http) fn payload(&self) -> &str {
        std::str::from_utf8(&self.line[self.payload.clone()]).unwrap_or_default()
    }

    /// Where the next line begins in the journal.
    pub(in crate::http) fn end(&self) -> u64 {
        self.offset + self.line.len() as u64 + 1
    }

    /// The bytes that it sends.
    pub(in crate::http) fn bytes(&self) -> usize {
        self.sse.len()
    }

    /// The bytes that it keeps in memory, about.
    pub(in crate::http) fn memory(&self) -> usize {
        self.sse.len() + self.name.len() + size_of::<Self>() + ALLOCATED_BYTES
    }
}

fn payload_of(event: &JournalEvent) -> Range<usize> {
    let payload = event.payload();
    if payload.is_empty() {
        return 0..0;
    }
    let start = payload.as_ptr() as usize - event.line.as_ptr() as usize;
    start..start + payload.len()
}

/// A name goes on one line, whatever another program put into it.
fn push_name(sse: &mut Vec<u8>, name: &str) {
    sse.extend_from_slice(b"event: ");
    let plain = name.chars().map(|c| if c.is_control() { ' ' } else { c });
    sse.extend_from_slice(plain.collect::<String>().as_bytes());
    sse.push(b'\n');
}

/// A carriage return would end the line for the reader. In JSON it stands only between tokens, where a line break means
/// the same. Says where the text is if it is there in one piece.
fn push_data(sse: &mut Vec<u8>, line: &str) -> Option<Range<usize>> {
    if !line.contains(['\r', '\n']) {
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

/// A notice: something that is said about the stream, and is no event of a run. It has no id, so that nobody resumes
/// from it.
pub(in crate::http) fn notice(name: &str, data: &serde_json::Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}
