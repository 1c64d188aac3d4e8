//! A session's transcript as the AI SDK's messages: one for each thing that the user said and one for each answer. Pure.
//!
//! A part is what the chat stream gave for the same events, with the same tool call ids, so that a reload shows the message
//! that was there before. Markers, errors and rows of the system are not messages.

mod answer;
mod cards;
mod foreign;
mod message;
#[cfg(test)]
mod tests;
mod transcript;
mod user;

use std::cell::Cell;

use message::UiMessage;
use transcript::Transcript;

use super::value::FileAddresses;
use crate::limits::HISTORY_LARGE_BYTES_MAX;
use crate::model::fold::StoredValue;
use crate::model::{AttachmentId, PendingTurn, RunId, Session, TurnNote};
use crate::recovery::place_of;

/// What is to be shown.
#[derive(Clone, Copy)]
pub(in crate::http) struct HistoryView<'a> {
    /// The session, after a full read.
    pub(in crate::http) session: &'a Session,
    /// Where its files are fetched.
    pub(in crate::http) files: &'a FileAddresses,
    /// The turn that is being answered.
    pub(in crate::http) pending: Option<Pending<'a>>,
    /// The run whose answer the chat stream shows instead.
    pub(in crate::http) left_out: Option<&'a RunId>,
    /// Loads a tool's arguments or result that are too large for the document.
    pub(in crate::http) large: &'a dyn Fn(&AttachmentId) -> Option<Vec<u8>>,
}

/// A turn that is being answered.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Pending<'a> {
    /// The run that answers it.
    pub(in crate::http) run: &'a RunId,
    /// What the user said.
    pub(in crate::http) turn: &'a PendingTurn,
    /// What the client called it, and the turn that it replaces: what is there from that turn on is not shown.
    pub(in crate::http) note: Option<&'a TurnNote>,
}

/// The messages, each as JSON, the oldest first. `before` is the id of the message that the page ends before; an id that no
/// message has gives none. `limit` keeps the last ones.
pub(in crate::http) fn ui_messages(view: &HistoryView<'_>, before: Option<&str>, limit: Option<usize>) -> Vec<String> {
    let mut messages = messages(view);
    if let Some(before) = before {
        let end = messages.iter().position(|message| message.id == before).unwrap_or(0);
        messages.truncate(end);
    }
    let from = messages.len().saturating_sub(limit.unwrap_or(usize::MAX));
    let large = Large::new(view);
    messages[from..].iter().map(|message| message.to_json(&large)).collect()
}

fn messages(view: &HistoryView<'_>) -> Vec<UiMessage> {
    let note = view.pending.and_then(|pending| pending.note);
    let end = note.and_then(|note| place_of(view.session, note));
    let mut transcript = Transcript::new(view, end);
    view.session.messages().enumerate().take(end.unwrap_or(usize::MAX)).for_each(|(at, row)| transcript.add(at, row));
    if let Some(pending) = &view.pending {
        transcript.add_pending(pending);
    }
    transcript.finish()
}

/// Values that the document only refers to.
struct Large<'a> {
    load: &'a dyn Fn(&AttachmentId) -> Option<Vec<u8>>,
    /// Bytes that may still be loaded for this page.
    room: Cell<u64>,
}

impl<'a> Large<'a> {
    fn new(view: &HistoryView<'a>) -> Self {
        Large { load: view.large, room: Cell::new(HISTORY_LARGE_BYTES_MAX) }
    }

    /// The value itself; the reference if there is no room for more, or if its bytes are gone.
    fn whole(&self, json: &str) -> String {
        self.load(json).unwrap_or_else(|| json.to_owned())
    }

    fn load(&self, json: &str) -> Option<String> {
        let stored = StoredValue::parse(json)?;
        let room = self.room.get().checked_sub(stored.bytes)?;
        let whole =
            String::from_utf8((self.load)(&stored.id)?).ok().filter(|whole| whole.len() as u64 == stored.bytes)?;
        self.room.set(room);
        Some(whole)
    }
}
