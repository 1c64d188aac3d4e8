//! What a run's journal says of the run: how far it came, and how it ended.

use std::sync::Arc;

use super::reader::JournalReader;
use crate::format::{EventRef, Record};
use crate::limits::SEQ_MAX;
use crate::model::{RunEnd, RunId, SessionId, text_of};
use crate::storage::{Seal, Storage, StorageError};

/// The event that decides how a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TerminalEvent {
    /// Its number, if usable.
    pub seq: Option<u64>,
    /// Its name.
    pub name: String,
    /// How the run ended, in the journal's words.
    pub state: String,
    /// Whether it surely belongs to this run: its ids are the run's own and it says plainly that it is terminal.
    pub is_own: bool,
    /// Whether this program wrote it: its line carries a checksum, which is right.
    pub is_checked: bool,
}

impl TerminalEvent {
    /// Whether the run surely ended by itself.
    pub fn is_completed(&self) -> bool {
        self.is_own && self.state == RunEnd::Completed.as_str()
    }
}

/// How a run ended, as far as its events were looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TerminalScan {
    /// The event that decides it.
    pub terminal: Option<TerminalEvent>,
    /// Whether the journal takes more events.
    pub seal: Seal,
}

impl TerminalScan {
    /// Takes the next event into account, and says whether it decides how the run ended.
    pub fn add(&mut self, event: &EventRef<'_>) -> bool {
        self.seal = self.seal.after_found(event);
        let decides = event.is_terminal() && self.is_decided_by(event);
        if decides {
            self.terminal = Some(terminal_of(event));
        }
        decides
    }

    /// The last terminal event decides, but a `stream_end` only where there is no other.
    fn is_decided_by(&self, event: &EventRef<'_>) -> bool {
        event.name != "stream_end" || self.terminal.as_ref().is_none_or(|known| known.name == "stream_end")
    }
}

/// What a run's journal says of the run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunSummary {
    /// How many events it holds.
    pub events: u64,
    /// The highest number among them.
    pub last_seq: u64,
    /// When the earliest was written, in seconds, as far as events have a usable time.
    pub first_event_at: Option<f64>,
    /// The same for the latest.
    pub last_event_at: Option<f64>,
    /// The event that decides how it ended.
    pub terminal: Option<TerminalEvent>,
    /// Whether it takes more events.
    pub seal: Seal,
    /// How many places of the journal are damaged.
    pub damaged: u64,
}

impl RunSummary {
    /// The id of the run's last event: `run:seq`. Nothing if it has no event with a number.
    pub fn last_event_id(&self, run: &RunId) -> Option<String> {
        (self.last_seq > 0).then(|| format!("{run}:{}", self.last_seq))
    }

    /// The state of the run in the journal's words: how it ended, `running` if nothing ended it, `unknown` without events.
    pub fn state(&self) -> &str {
        match &self.terminal {
            Some(terminal) => &terminal.state,
            None if self.events > 0 => "running",
            None => "unknown",
        }
    }

    /// Takes the next event into account.
    pub fn add(&mut self, event: &EventRef<'_>) {
        self.events += 1;
        self.last_seq = self.last_seq.max(event.seq.unwrap_or(0));
        let mut end = TerminalScan { terminal: self.terminal.take(), seal: self.seal };
        end.add(event);
        (self.terminal, self.seal) = (end.terminal, end.seal);
        if let Some(at) = event.created_at_seconds() {
            self.first_event_at = Some(self.first_event_at.map_or(at, |first| first.min(at)));
            self.last_event_at = Some(self.last_event_at.map_or(at, |last| last.max(at)));
        }
    }
}

fn terminal_of(event: &EventRef<'_>) -> TerminalEvent {
    let stated = event.terminal_state.and_then(text_of).map(|text| text.into_owned());
    let implied = || RunEnd::of(&event.name, event.payload.unwrap_or("null")).map(RunEnd::as_str);
    TerminalEvent {
        seq: event.seq,
        name: event.name.to_string(),
        state: stated.or_else(|| implied().map(str::to_owned)).unwrap_or_default(),
        is_own: event.is_own_terminal(),
        is_checked: event.checked,
    }
}

/// Reads a run's journal for its summary; nothing if it has none.
pub fn summarize(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    run: &RunId,
) -> Result<Option<RunSummary>, StorageError> {
    summarize_within(storage, session, run, None)
}

/// The same as [`summarize`] of the last events alone, for a run of ours, whose end is the last of them. Reads a bounded part of
/// the journal, however long it is.
pub(crate) fn summarize_end(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    run: &RunId,
) -> Result<Option<RunSummary>, StorageError> {
    JournalReader::open_before(storage, session, run, SEQ_MAX)?.map(|reader| summarized(reader, None)).transpose()
}

/// Where the end of a run begins in its journal, if it has one.
pub(crate) fn end_of(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    run: &RunId,
) -> Result<Option<u64>, StorageError> {
    let Some(mut reader) = JournalReader::open(storage, session, run)? else { return Ok(None) };
    let mut seal = Seal::Open;
    while let Some(record) = reader.next_within(None)? {
        if let Record::Event(event) = record {
            seal = seal.after_found(&event);
            if seal.is_sealed() {
                return Ok(Some(event.offset));
            }
        }
    }
    Ok(None)
}

/// The same as [`summarize`], looking no further than this offset.
pub(crate) fn summarize_within(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    run: &RunId,
    extent: Option<u64>,
) -> Result<Option<RunSummary>, StorageError> {
    JournalReader::open(storage, session, run)?.map(|reader| summarized(reader, extent)).transpose()
}

/// Shows every record of a run's journal up to this offset, in order. `false` if the run has no journal.
pub(crate) fn read_within(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    run: &RunId,
    extent: Option<u64>,
    mut show: impl FnMut(Record<'_>),
) -> Result<bool, StorageError> {
    let Some(mut reader) = JournalReader::open(storage, session, run)? else { return Ok(false) };
    while let Some(record) = reader.next_within(extent)? {
        show(record);
    }
    Ok(true)
}

fn summarized(mut reader: JournalReader, extent: Option<u64>) -> Result<RunSummary, StorageError> {
    let mut summary = RunSummary::default();
    while let Some(record) = reader.next_within(extent)? {
        match record {
            Record::Event(event) => summary.add(&event),
            Record::Damage(_) => summary.damaged += 1,
        }
    }
    Ok(summary)
}
