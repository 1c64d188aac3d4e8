//! What lists show of a run: read from the note in its user row, or from its journal. Reads, and changes nothing.

use std::sync::Arc;

use super::run_note::{AT_LEAST, ATTEMPTS, RUN, RunNote};
use super::usage::{Usage, UsageSum};
use crate::format::{EventRef, Ids, Record};
use crate::journal::{TerminalScan, read_within};
use crate::model::{Object, Row, RunEnd, RunId, SeenSeqs, SessionId, seconds_of};
use crate::storage::{Seal, Storage, StorageError};

/// What is known of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunDetails {
    /// How it ended; none if it has not, or if the event that ended it does not say how.
    pub end: Option<RunEnd>,
    /// Whether its journal holds its end.
    pub is_sealed: bool,
    /// Whether nothing of this can change any more, except that a `stream_end` may follow: an event of ours ended the run.
    pub is_final: bool,
    /// The runner that answered; none for a producer that makes no attempts.
    pub runner: Option<String>,
    /// How many attempts were made; none for a producer that makes none.
    pub attempts: Option<u64>,
    /// The model that answered.
    pub model: Option<String>,
    /// The tokens that it used. They are known if it ended by itself and reported them.
    pub usage: UsageSum,
    /// When it began, in seconds. Not known from a journal.
    pub began_at: Option<f64>,
    /// When its first event happened, in seconds.
    pub first_event_at: Option<f64>,
    /// When the event happened that ended it, in seconds.
    pub ended_at: Option<f64>,
    /// Why it ended, in the words of the event that ended it.
    pub close_reason: Option<String>,
    /// The highest number of its events. A note does not have it of a run that a `stream_end` may follow.
    pub last_seq: Option<u64>,
    /// Whether it has an event.
    pub has_events: bool,
}

/// The run that a user row names, and what the row notes of it. A row of an earlier version notes less, and is not final.
pub fn details_of_row(row: &Row) -> Option<(String, RunDetails)> {
    let run = row.run().filter(|run| !run.is_empty())?.into_owned();
    let note = row.fields().get(RUN).and_then(Object::parse);
    Some((run, note.map(|note| RunDetails::of_note(&note)).unwrap_or_default()))
}

impl RunDetails {
    fn of_note(note: &Object) -> Self {
        let text = |key| note.text(key).map(|text| text.into_owned());
        let seconds = |key| note.get(key).and_then(|at| seconds_of(at.as_bytes()));
        let number = |key| note.get(key).and_then(|number| number.parse().ok());
        let usage = |key| note.get(key).and_then(Object::parse).and_then(|fields| Usage::parse(&fields));
        let end = text("state").and_then(|state| RunEnd::parse(&state));
        let known = usage("usage").unwrap_or_default();
        let at_least = usage(AT_LEAST).unwrap_or(known);
        let is_final = end.is_some() && note.get(ATTEMPTS).is_some();
        RunDetails {
            end,
            is_sealed: is_final,
            is_final,
            runner: text("runner"),
            attempts: number(ATTEMPTS),
            model: text("model"),
            usage: UsageSum { known, at_least }.of_run(end),
            began_at: seconds("began_at"),
            first_event_at: seconds("first_event_at"),
            ended_at: seconds("ended_at"),
            close_reason: text("close_reason"),
            last_seq: number("last_seq"),
            has_events: true,
        }
    }
}

/// Reads a run's journal for its details, no further than this offset; nothing if it has none.
pub fn read_details(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    run: &RunId,
    extent: Option<u64>,
) -> Result<Option<RunDetails>, StorageError> {
    let mut reading = Reading::default();
    let is_there = read_within(storage, session, run, extent, |record| {
        if let Record::Event(event) = record {
            reading.add(&event);
        }
    })?;
    Ok(is_there.then(|| reading.finish()))
}

/// A journal as far as it was read.
#[derive(Default)]
struct Reading {
    seen: SeenSeqs,
    note: RunNote,
    end: TerminalScan,
    has_events: bool,
}

impl Reading {
    /// An event whose number was there already is the same event.
    fn add(&mut self, event: &EventRef<'_>) {
        let is_foreign = event.ids == Ids::Foreign;
        if is_foreign || event.seq.is_none_or(|seq| self.seen.insert(seq)) {
            self.note.add(event);
        }
        let decides = self.end.add(event);
        self.note.add_end(event, decides, self.end.seal);
        self.has_events = true;
    }

    fn finish(self) -> RunDetails {
        let Reading { note, end: TerminalScan { terminal, seal }, has_events, .. } = self;
        let end = terminal.as_ref().and_then(|terminal| RunEnd::parse(&terminal.state));
        let seconds = |at: Option<String>| at.and_then(|at| seconds_of(at.as_bytes()));
        RunDetails {
            end,
            is_sealed: seal != Seal::Open,
            is_final: end.is_some() && terminal.is_some_and(|terminal| terminal.is_own && terminal.is_checked),
            runner: note.runner,
            attempts: note.attempts,
            model: note.model,
            usage: note.usage.unwrap_or_default().of_run(end),
            began_at: None,
            first_event_at: seconds(note.first_event_at),
            ended_at: seconds(note.ended_at),
            close_reason: note.close_reason,
            last_seq: Some(note.last_seq),
            has_events,
        }
    }
}
