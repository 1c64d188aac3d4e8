//! The end of a turn: a sealed run's events become rows of the transcript, once, and the turn is no longer pending.

use super::{Shared, StoreError};
use crate::format::Record;
use crate::journal::{JournalReader, RunSummary};
use crate::model::fold::{Folded, Folder, Provenance};
use crate::model::{
    List, NotAList, Object, PendingTurn, Row, RunId, Session, SessionId, TerminalState,
    marker::{failed_marker, stopped_marker},
};
use crate::sidecar::SaveOptions;

/// A run's journal, read to its end.
struct Ended {
    folded: Folded,
    summary: RunSummary,
    error: Option<Failure>,
}

/// What a producer said when it failed.
#[derive(Default)]
struct Failure {
    kind: String,
    message: String,
}

impl Shared {
    /// Folds a run that has ended into its session, if the session waits for it, and says whether it did. The caller holds
    /// the session's gate.
    ///
    /// The journal is durable and sealed before. A crash before the save leaves the turn pending and the journal
    /// complete, so that it can be folded again; a crash behind it leaves the transcript.
    pub(super) fn settle(&self, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        let mut document = match self.load(session) {
            Err(StoreError::NotFound { .. }) => return Ok(false),
            loaded => loaded?,
        };
        if document.active_run().as_deref() != Some(run.as_str()) {
            return Ok(false);
        }
        let ended = self.read_ended(session, run)?;
        add_turn(&mut document, run, &ended, self.clock.now().whole_seconds())
            .map_err(|source| StoreError::WrongShape { session: session.clone(), source })?;
        self.save(&document, SaveOptions::default()).map(|_| true)
    }

    fn read_ended(&self, session: &SessionId, run: &RunId) -> Result<Ended, StoreError> {
        let mut folder = Folder::default();
        let mut summary = RunSummary::default();
        let mut error = None;
        if let Some(mut reader) = JournalReader::open(&self.storage, session, run)? {
            while let Some(record) = reader.next_record()? {
                let Record::Event(event) = record else { continue };
                summary.add(&event);
                folder.push(&event.to_fold());
                if matches!(&*event.name, "apperror" | "error") {
                    error = Some(failure_of(event.payload.unwrap_or_default()));
                }
            }
        }
        Ok(Ended { folded: folder.finish(), summary, error })
    }
}

fn failure_of(payload: &str) -> Failure {
    let Some(fields) = Object::parse(payload) else { return Failure::default() };
    let text = |keys: [&str; 2]| keys.iter().find_map(|key| fields.text(key)).unwrap_or_default().into_owned();
    Failure { kind: text(["type", "code"]), message: text(["message", "error"]) }
}

/// Adds the user's row, the folded rows and cards, and a marker if the answer did not end by itself.
fn add_turn(session: &mut Session, run: &RunId, ended: &Ended, now_seconds: i64) -> Result<(), NotAList> {
    let pending = session.pending_turn();
    session.clear_pending();
    if let Some(turn) = &pending {
        add_row(session, &user_row(turn, run, now_seconds))?;
    }
    let first = session.len(List::Messages);
    let provenance = Provenance::Live(run.as_str());
    for row in &ended.folded.rows {
        add_row(session, &row.to_row(provenance, now_seconds))?;
    }
    for card in &ended.folded.cards {
        session.push_tool_card(&card.to_card(provenance, first + card.row))?;
    }
    if let Some(mut marker) = marker_of(ended, now_seconds) {
        marker.fields_mut().set_text("_run_id", run.as_str());
        session.push_message(&marker)?;
    }
    Ok(())
}

fn user_row(turn: &PendingTurn, run: &RunId, now_seconds: i64) -> Row {
    let at = turn.started_at.filter(|at| *at > 0.0).map_or(now_seconds, |at| at as i64);
    let mut row = Row::user(&turn.message, at);
    row.fields_mut().set_text("_run_id", run.as_str());
    if let Some(source) = turn.source.as_deref().filter(|source| *source != "webui") {
        row.fields_mut().set_text("_source", source);
    }
    if turn.attachments.trim() != "[]" {
        row.fields_mut().set("attachments", turn.attachments.as_str());
    }
    row
}

/// A conversation that was shortened for the model goes on as well, without reasoning.
fn add_row(session: &mut Session, row: &Row) -> Result<(), NotAList> {
    session.push_message(row)?;
    if !session.is_empty(List::ContextMessages) {
        let mut row = row.clone();
        row.fields_mut().remove("reasoning");
        session.push_item(List::ContextMessages, &row.fields().to_json())?;
    }
    Ok(())
}

fn marker_of(ended: &Ended, now_seconds: i64) -> Option<Row> {
    let state = ended.summary.terminal.as_ref().map(|terminal| terminal.state.as_str())?;
    if state == TerminalState::InterruptedByUser.as_str() {
        return Some(stopped_marker(now_seconds));
    }
    let failure = ended.error.as_ref().filter(|_| state != TerminalState::Completed.as_str())?;
    Some(failed_marker(&failure.kind, &failure.message, now_seconds))
}
