//! An event as it was read from a journal, with its line.

use crate::format::EventRef;

/// One journalled event.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalEvent {
    /// Its number in its run, if the line has a usable one.
    pub seq: Option<u64>,
    /// Its name.
    pub name: String,
    /// When it was written, in seconds, if it has a usable time: a number above 0.
    pub created_at: Option<f64>,
    /// Whether it ends the run.
    pub is_terminal: bool,
    /// Where its line begins in the journal.
    pub offset: u64,
    /// The line as it stands there, without its line feed.
    pub line: String,
    payload: std::ops::Range<usize>,
}

impl JournalEvent {
    /// Its payload as JSON text; empty if the line has none.
    pub fn payload(&self) -> &str {
        &self.line[self.payload.clone()]
    }
}

impl From<&EventRef<'_>> for JournalEvent {
    fn from(event: &EventRef<'_>) -> Self {
        let payload = event.payload.map_or(0..0, |payload| {
            let start = payload.as_ptr() as usize - event.line.as_ptr() as usize;
            start..start + payload.len()
        });
        JournalEvent {
            seq: event.seq,
            name: event.name.to_string(),
            created_at: event.created_at_seconds(),
            is_terminal: event.is_terminal(),
            offset: event.offset,
            line: event.text().to_owned(),
            payload,
        }
    }
}
