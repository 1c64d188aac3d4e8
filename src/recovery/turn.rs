//! Where a turn stands in the transcript: its user row, and the rows that answer it.

use std::ops::Range;

use crate::model::fold::Provenance;
use crate::model::message_id::{MESSAGE_ID, METADATA};
use crate::model::{List, NotAList, PendingTurn, Row, Session, TurnNote, is_truthy, normal_form};

/// A turn: the rows behind its user row, up to the next turn or to a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    /// The user's row, if the transcript has it.
    pub(super) user: Option<usize>,
    /// The rows that answer it.
    pub(super) rows: Range<usize>,
}

fn last_user(session: &Session, before: usize) -> Option<usize> {
    (0..before).rev().find(|at| session.message(*at).is_some_and(|row| row.role() == "user"))
}

impl Turn {
    /// No turn in particular: whatever comes, comes at the end.
    pub(super) fn at_end(session: &Session) -> Self {
        let len = session.len(List::Messages);
        Turn { user: None, rows: len..len }
    }

    /// The turn that a marker belongs to, up to the marker.
    pub(super) fn above(session: &Session, marker: usize) -> Self {
        let user = last_user(session, marker);
        Turn { user, rows: user.map_or(0, |user| user + 1)..marker }
    }

    /// The last turn of the transcript, if its user row has these words.
    pub(super) fn with_words(session: &Session, words: &str) -> Option<Self> {
        let len = session.len(List::Messages);
        let user = last_user(session, len)?;
        let is_same = normal_form(&session.message(user)?.content()) == normal_form(words);
        is_same.then(|| Turn { user: Some(user), rows: user + 1..len })
    }

    /// The pending turn, if its user row is in the transcript already: at the very end, or with rows of its own answer
    /// behind it. The same words in an older turn are another turn, and so are those that another run answers.
    pub(super) fn of_pending(session: &Session, pending: &PendingTurn, provenance: Provenance<'_>) -> Option<Self> {
        let run = provenance.run();
        let turn = Turn::with_words(session, &pending.message)?;
        let row = session.message(turn.user?)?;
        // The prompt of a run of ours is in the transcript only if something there says so.
        let is_likely = || !provenance.is_live() && (turn.rows.is_empty() || row.timestamp().is_none());
        let is_same = match row.run() {
            Some(known) => known == run,
            None => is_of(&row, pending) || turn.names(session, run) || is_likely(),
        };
        is_same.then_some(turn)
    }

    fn names(&self, session: &Session, run: &str) -> bool {
        self.rows.clone().filter_map(|at| session.message(at)).any(|row| row.run().as_deref() == Some(run))
    }
}

/// How much earlier than the turn's own note of its beginning its user row may have been stamped.
const STAMPED_BEFORE_SECONDS: i64 = 2;

/// Whether a user row with the pending turn's words was written for it, and not for an older one.
fn is_of(row: &Row, pending: &PendingTurn) -> bool {
    let began = pending.started_at.filter(|at| *at > 0.0).map(|at| at as i64);
    matches!((row.timestamp(), began), (Some(said), Some(began)) if said >= began.saturating_sub(STAMPED_BEFORE_SECONDS))
}

/// Gives a user row the client's id and metadata of the message, if it has none.
pub(super) fn note_message(row: &mut Row, note: &TurnNote) {
    let fields = row.fields_mut();
    if let Some(id) = note.message_id.as_deref().filter(|_| fields.get(MESSAGE_ID).is_none()) {
        fields.set_text(MESSAGE_ID, id);
    }
    if let Some(metadata) = note.metadata.as_deref().filter(|_| fields.get(METADATA).is_none()) {
        fields.set(METADATA, metadata);
    }
}

/// The same of a user row that was there before its turn came into the transcript.
pub(super) fn note_known_message(session: &mut Session, turn: &Turn, note: &TurnNote) -> Result<(), NotAList> {
    let Some(user) = turn.user.filter(|_| note.message_id.is_some() || note.metadata.is_some()) else { return Ok(()) };
    let mut row = session.message(user).unwrap_or_default();
    note_message(&mut row, note);
    session.replace_message(user, &row)
}

/// The row of a pending turn.
pub(super) fn user_row(turn: &PendingTurn, now_seconds: i64) -> Row {
    let at = turn.started_at.filter(|at| *at > 0.0).map_or(now_seconds, |at| at as i64);
    let mut row = Row::user(&turn.message, at);
    if let Some(source) = turn.source.as_deref().filter(|source| !matches!(*source, "" | "webui")) {
        row.fields_mut().set_text("_source", source);
    }
    if is_truthy(&turn.attachments) {
        row.fields_mut().set("attachments", turn.attachments.as_str());
    }
    row
}
