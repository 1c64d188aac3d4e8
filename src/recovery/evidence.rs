//! Look: what a run's journal tells of an answer. Reads, and changes nothing.

use std::sync::Arc;

use super::run_note::RunNote;
use crate::format::{DamageKind, EventRef, Record};
use crate::journal::{JournalReader, TerminalScan};
use crate::model::fold::{ATTEMPT_EVENT, Folded, Folder, Provenance};
use crate::model::{
    AGENT_SESSION_EVENT, AgentSession, FoldLimit, Object, Row, RunEnd, RunId, SessionId, is_truthy, text_of, trim,
};
use crate::storage::{Storage, StorageError};

/// What lies where a run's journal should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalState {
    /// The run's id is none, so there can be no journal.
    Unnameable,
    /// Nothing, or no bytes: it may still appear.
    Arriving,
    /// Something that the disk would not let us read now.
    Unreadable,
    /// So many bytes, and more may come.
    Unsealed {
        /// How far it was read.
        bytes: u64,
        /// How many whole records that are, a line each. A torn tail is none.
        records: u64,
    },
    /// All that there will ever be.
    Sealed {
        /// How much that is.
        bytes: u64,
    },
}

/// What a producer said when it failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// A word for programs.
    pub kind: String,
    /// A sentence for people.
    pub message: String,
}

/// What is known of an answer whose producer is gone.
#[derive(Debug)]
pub struct Evidence {
    /// What lies where its journal should be.
    pub journal: JournalState,
    /// The rows and cards that its events make.
    pub folded: Folded,
    /// How it ended, as far as its journal can be trusted with it.
    pub ending: Option<RunEnd>,
    /// What its producer said if it ended with an error.
    pub failure: Option<Failure>,
    /// Whether this program wrote the event that ended it: then nothing is left in doubt.
    pub is_ours: bool,
    /// The error row that the journal carries for the transcript, ready to be placed.
    pub error_row: Option<Row>,
    /// What the agent calls the conversation, if it said so.
    pub agent: Option<AgentSession>,
    /// What its events tell of the run itself.
    pub note: RunNote,
    /// How many places of its journal are damaged. A torn end is none: any crash may leave one.
    pub damaged: u64,
}

impl Evidence {
    /// What is known of a run that can have no journal, or has none.
    fn none(journal: JournalState) -> Self {
        let (folded, ending) = (Folded::default(), None);
        let note = RunNote::default();
        Evidence {
            journal,
            folded,
            ending,
            failure: None,
            is_ours: false,
            error_row: None,
            agent: None,
            note,
            damaged: 0,
        }
    }

    /// How many whole records of the journal were read, if more may come.
    pub(super) fn unsealed_records(&self) -> Option<u64> {
        match self.journal {
            JournalState::Unsealed { records, .. } => Some(records),
            JournalState::Arriving => Some(0),
            _ => None,
        }
    }

    /// What rows of it say of where they come from: a run that an event of ours has ended did so normally, unless its
    /// producer was found dead.
    pub(super) fn provenance<'r>(&self, run: &'r str) -> Provenance<'r> {
        match self.is_ours && self.ending != Some(RunEnd::InterruptedByCrash) {
            true => Provenance::Live(run),
            false => Provenance::Recovered(run),
        }
    }

    /// Whether anything was found that a transcript can show.
    pub fn has_output(&self) -> bool {
        !self.folded.rows.is_empty()
    }
}

/// Looks at a run's journal, whatever its id looks like. One that cannot be read must not take the session with it.
pub fn look(storage: &Arc<dyn Storage>, session: &SessionId, run: &str) -> Evidence {
    look_within(storage, session, run, FoldLimit::NONE)
}

/// The same, and folds no more than fits into the session.
pub fn look_within(storage: &Arc<dyn Storage>, session: &SessionId, run: &str, limit: FoldLimit) -> Evidence {
    match RunId::parse(run) {
        Err(_) => Evidence::none(JournalState::Unnameable),
        Ok(id) => read(storage, session, &id, limit).unwrap_or_else(|_| Evidence::none(JournalState::Unreadable)),
    }
}

/// Reads a run's journal to its end, and folds no more than fits into the session.
pub fn read(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    run: &RunId,
    limit: FoldLimit,
) -> Result<Evidence, StorageError> {
    let Some(mut reader) = JournalReader::open(storage, session, run)? else {
        return Ok(Evidence::none(JournalState::Arriving));
    };
    let mut read = Reading { folder: Folder::within(limit), ..Reading::default() };
    reader.show_all(|record| match record {
        Record::Event(event) => read.add(&event),
        Record::Damage(damage) => read.damaged += u64::from(damage.kind != DamageKind::TornTail),
    })?;
    Ok(read.finish(session, run.as_str(), reader.read_to(), reader.whole_lines()))
}

/// A journal as far as it was read.
#[derive(Default)]
struct Reading {
    folder: Folder,
    end: TerminalScan,
    /// The payload of the event that ended the run.
    last_words: String,
    agent: Option<AgentSession>,
    note: RunNote,
    damaged: u64,
}

impl Reading {
    fn add(&mut self, event: &EventRef<'_>) {
        if self.folder.push(&event.to_fold()) {
            self.note.add(event);
        }
        match &*event.name {
            AGENT_SESSION_EVENT => {
                self.agent = AgentSession::parse(event.payload.unwrap_or_default()).or(self.agent.take())
            }
            // What an attempt that failed called it is not what the next one does.
            ATTEMPT_EVENT => self.agent = None,
            _ => {}
        }
        let decides = self.end.add(event);
        if decides {
            self.last_words = event.payload.unwrap_or_default().to_owned();
        }
        self.note.add_end(event, decides, self.end.seal);
    }

    fn finish(self, session: &SessionId, run: &str, bytes: u64, records: u64) -> Evidence {
        let journal = match (self.end.seal.is_sealed(), bytes) {
            (true, bytes) => JournalState::Sealed { bytes },
            (false, 0) => JournalState::Arriving,
            (false, bytes) => JournalState::Unsealed { bytes, records },
        };
        let folded = self.folder.finish();
        let Some(terminal) = self.end.terminal.filter(|terminal| terminal.is_own) else {
            let note = RunNote { ended_at: None, close_reason: None, ..self.note };
            return Evidence { folded, note, damaged: self.damaged, ..Evidence::none(journal) };
        };
        let error_row = match (terminal.name.as_str(), terminal.seq) {
            ("apperror", Some(seq)) => error_row(&self.last_words, session, run, seq),
            _ => None,
        };
        let failed = matches!(terminal.name.as_str(), "apperror" | "error");
        Evidence {
            journal,
            folded,
            ending: RunEnd::parse(&terminal.state),
            failure: failed.then(|| failure_of(&self.last_words)),
            is_ours: terminal.is_checked,
            error_row,
            agent: self.agent,
            note: self.note,
            damaged: self.damaged,
        }
    }
}

fn failure_of(payload: &str) -> Failure {
    if let Some(message) = text_of(payload) {
        return Failure { kind: String::new(), message: message.into_owned() };
    }
    let Some(fields) = Object::parse(payload) else { return Failure::default() };
    let text = |keys: [&str; 2]| keys.iter().find_map(|key| fields.text(key)).unwrap_or_default().into_owned();
    Failure { kind: text(["type", "code"]), message: text(["message", "error"]) }
}

/// The error row that a failed run wanted to save: the last of the turn in the session that its last event carries.
fn error_row(payload: &str, session: &SessionId, run: &str, seq: u64) -> Option<Row> {
    let payload = Object::parse(payload)?;
    let carried = Object::parse(payload.get("session")?)?;
    let is_ours = |object: &Object| object.text("session_id").as_deref() == Some(session.as_str());
    let was_saved = payload.get("terminal_session_persisted").is_some_and(is_truthy);
    if !is_ours(&payload) || !is_ours(&carried) || was_saved {
        return None;
    }
    let rows: Vec<&serde_json::value::RawValue> = serde_json::from_str(carried.get("messages")?).ok()?;
    let rows: Vec<Row> = rows.iter().map(|row| Row::parse(row.get())).collect();
    let turn = rows.iter().rposition(|row| row.role() == "user").map_or(0, |user| user + 1);
    let last = rows[turn..].iter().rev().find(|row| row.role() == "assistant")?;
    (last.is_error() && !trim(&last.content()).is_empty()).then(|| tagged(last, run, seq))
}

/// The row, saying which event it comes from.
fn tagged(row: &Row, run: &str, seq: u64) -> Row {
    let mut row = row.clone();
    let fields = row.fields_mut();
    fields.set("_recovered_from_run_journal", "true");
    fields.set_text("_recovered_stream_id", run);
    fields.set_text("_recovered_event_id", &format!("{run}:{seq}"));
    row
}
