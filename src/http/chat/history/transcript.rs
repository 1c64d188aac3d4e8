//! Rows in order become messages: who speaks, which rows are one answer, and whose results are whose.

use std::collections::{HashMap, VecDeque};

use super::HistoryView;
use super::Pending;
use super::answer::{about, parts_of, state_of_marker};
use super::cards::Cards;
use super::foreign::{self, tool_results};
use super::message::{Answer, Call, Part, UiMessage};
use super::user::user_parts;
use crate::http::chat::call_id::CallIds;
use crate::http::chat::value::{FileAddresses, shown};
use crate::model::message_id::{answer_id, user_message_id};
use crate::model::{Fields, List, Object, Row, RunEnd, RunId, Session, is_truthy, normal_form};

/// The messages so far.
pub(super) struct Transcript<'a> {
    session: &'a Session,
    files: &'a FileAddresses,
    left_out: Option<&'a RunId>,
    cards: Cards,
    messages: Vec<UiMessage>,
    /// The place of each message by its id.
    places: HashMap<String, usize>,
    /// What is known about the run of each answer beside its rows.
    answers: HashMap<usize, AnswerNote>,
    /// What the user rows note about the runs that answered them.
    runs: HashMap<String, Object>,
    user: Option<(Row, usize)>,
    /// Calls that rows make themselves and that have no result yet.
    open: VecDeque<OpenCall>,
}

#[derive(Default)]
struct AnswerNote {
    run: Option<String>,
    ids: CallIds,
    marker: Option<RunEnd>,
}

struct OpenCall {
    given_id: String,
    message: usize,
    part: usize,
}

impl<'a> Transcript<'a> {
    pub(super) fn new(view: &HistoryView<'a>, end: Option<usize>) -> Self {
        Transcript {
            session: view.session,
            files: view.files,
            left_out: view.left_out,
            cards: Cards::of(view.session, end),
            messages: Vec::new(),
            places: HashMap::new(),
            answers: HashMap::new(),
            runs: HashMap::new(),
            user: None,
            open: VecDeque::new(),
        }
    }

    pub(super) fn add(&mut self, index: usize, row: Row) {
        match &*row.role() {
            "assistant" if is_marker(&row) => self.add_marker(&row),
            "assistant" if self.is_left_out(&row) => {}
            "assistant" => self.add_answer(index, &row),
            "tool" => tool_results(&row).for_each(|(id, answer)| self.answer(&id, answer)),
            "user" if !is_marker(&row) => self.add_user(index, row),
            _ => {}
        }
    }

    fn is_left_out(&self, row: &Row) -> bool {
        self.left_out.is_some_and(|run| row.run().is_some_and(|of_row| of_row == run.as_str()))
    }

    /// A row of the user that only brings results is not a message.
    fn add_user(&mut self, index: usize, row: Row) {
        tool_results(&row).for_each(|(id, answer)| self.answer(&id, answer));
        let parts = user_parts(self.files, &row);
        if parts.is_empty() && foreign::has_results(&row) {
            return;
        }
        let run = row.run().map(|run| run.into_owned()).filter(|run| !run.is_empty());
        if let (Some(run), Some(note)) = (&run, row.fields().get("_run").and_then(Object::parse)) {
            self.runs.insert(run.clone(), note);
        }
        if !parts.is_empty() {
            let id = self.free_id(user_message_id(&row, index), run.as_deref(), index);
            let metadata = row.fields().get("_metadata").and_then(object);
            self.push(UiMessage { id, role: "user", metadata, parts });
        }
        self.user = Some((row, index));
    }

    /// The user's message that waits for its answer. Some programs have added it to the transcript already.
    pub(super) fn add_pending(&mut self, pending: &Pending<'_>) {
        let mut row = Row::user(&pending.turn.message, 0);
        row.fields_mut().set("attachments", pending.turn.attachments.as_str());
        row.fields_mut().set_text("_run_id", pending.run.as_str());
        if let Some(id) = pending.note.and_then(|note| note.message_id.as_deref()) {
            row.fields_mut().set_text("_message_id", id);
        }
        if let Some(metadata) = pending.note.and_then(|note| note.metadata.as_deref()) {
            row.fields_mut().set("_metadata", metadata);
        }
        if !self.has_just_said(&row) {
            self.add_user(self.session.len(List::Messages), row);
        }
    }

    fn has_just_said(&self, row: &Row) -> bool {
        let is_last = self.messages.last().is_some_and(|message| message.role == "user");
        let is_same = |(last, _): &(Row, usize)| {
            last.run().is_none_or(|run| run.is_empty() || Some(run) == row.run())
                && normal_form(&last.content()) == normal_form(&row.content())
        };
        is_last && self.user.as_ref().is_some_and(is_same)
    }

    fn add_answer(&mut self, index: usize, row: &Row) {
        let user = self.user.as_ref().map(|(row, at)| (row, *at));
        let id = answer_id(user, row, index);
        let place = match self.places.get(&id) {
            Some(place) if self.messages[*place].role == "assistant" => *place,
            _ => {
                let id = self.free_id(id, None, index);
                self.push(UiMessage { id, role: "assistant", metadata: None, parts: Vec::new() })
            }
        };
        let note = self.answers.entry(place).or_default();
        note.run = note.run.take().or_else(|| row.run().map(|run| run.into_owned()).filter(|run| !run.is_empty()));
        let calls = foreign::calls(row);
        let has_own_calls = !calls.is_empty();
        let (words, files) = parts_of(self.files, row);
        self.messages[place].parts.extend(words);
        for call in calls {
            let part = self.messages[place].parts.len();
            self.open.push_back(OpenCall { given_id: call.given_id.clone(), message: place, part });
            let id = note.ids.begin(Some(call.given_id.as_str()).filter(|id| !id.is_empty()));
            let call = Call { id, name: call.name, input: call.input, answer: None };
            self.messages[place].parts.push(Part::Call(call));
        }
        for card in self.cards.take(index) {
            if !has_own_calls {
                let id = note.ids.begin(card.given_id.as_deref());
                let call = Call { id, name: card.name, input: card.input, answer: card.answer };
                self.messages[place].parts.push(Part::Call(call));
            }
        }
        self.messages[place].parts.extend(files);
    }

    /// A result belongs to the first call that is open under its id; one without an id to the first open call.
    fn answer(&mut self, id: &str, answer: Answer) {
        let Some(nth) = self.open.iter().position(|call| id.is_empty() || call.given_id == id) else { return };
        let Some(open) = self.open.remove(nth) else { return };
        if let Part::Call(call) = &mut self.messages[open.message].parts[open.part] {
            call.answer = Some(answer);
        }
    }

    /// A marker tells how the answer above it ended, where nothing else does.
    fn add_marker(&mut self, row: &Row) {
        let last = self.messages.len().checked_sub(1).filter(|last| self.messages[*last].role == "assistant");
        if let Some(last) = last {
            self.answers.entry(last).or_default().marker = Some(state_of_marker(row));
        }
    }

    fn push(&mut self, message: UiMessage) -> usize {
        let place = self.messages.len();
        self.places.insert(message.id.clone(), place);
        self.messages.push(message);
        place
    }

    /// An id that no other message has.
    fn free_id(&self, id: String, run: Option<&str>, index: usize) -> String {
        let of_run = run.map(|run| format!("{run}-user"));
        let mut ids = [Some(id), of_run, Some(format!("row-{index}"))].into_iter().flatten();
        let free = ids.find(|id| !self.places.contains_key(id));
        free.unwrap_or_else(|| format!("row-{index}-{}", self.messages.len()))
    }

    /// All messages. An answer without a part is none.
    pub(super) fn finish(mut self) -> Vec<UiMessage> {
        for (place, note) in &self.answers {
            if let Some(run) = &note.run {
                self.messages[*place].metadata = Some(about(run, self.runs.get(run), note.marker));
            }
        }
        self.messages.retain(|message| !message.parts.is_empty());
        self.messages
    }
}

/// Rows that speak to the user about the conversation.
pub(super) fn is_marker(row: &Row) -> bool {
    let is_set = |key| row.fields().get(key).is_some_and(is_truthy);
    is_set("_error") || is_set("_pending_journal_recovery") || is_set("interruption_cause")
}

/// A JSON object that every reader takes.
fn object(json: &str) -> Option<String> {
    Fields::parse(json).map(|_| shown(json)).filter(|json| json.starts_with('{'))
}
