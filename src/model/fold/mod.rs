//! The one reducer from events to transcript rows, for live runs, lazy recovery and offline repair alike.
//!
//! Pure: events in, rows and tool cards out. Where they go, and which of them are there already, others decide.

mod card;
mod parts;
mod value;

#[cfg(test)]
mod tests;

use self::card::{close_card, given_text, note_answer, note_call, note_whether_answered, open_card};
pub(crate) use self::card::{tool_arguments, tool_id, tool_result};
use self::value::kept_of;
pub use self::value::{LargeValue, StoredValue};
use super::fold_limit::{Budget, FoldLimit};
use super::json::{Fields, Object, TextBuffer, needs_escape, quoted};
use super::moment::seconds_of;
use super::open_calls::OpenCalls;
use super::row::Row;
use super::seqs::SeenSeqs;
use super::text::{is_truthy, python_text, trim};
use super::tool::ToolCard;
use super::ui_part::{PARTS, ui_part};

/// The event with which a supervised run begins an attempt.
pub const ATTEMPT_EVENT: &str = "attempt";

/// What the reducer needs to know of one event.
#[derive(Debug, Clone, Copy)]
pub struct FoldEvent<'a> {
    /// Its number, if the line had a usable one.
    pub seq: Option<u64>,
    /// Whether the number is another run's, so that it says nothing of this run's events.
    pub is_foreign: bool,
    /// Its name.
    pub name: &'a str,
    /// The text of its payload; empty if it has none.
    pub payload: &'a str,
    /// When it happened, as JSON text: few events are asked for it.
    pub created_at: Option<&'a [u8]>,
}

impl FoldEvent<'_> {
    fn seconds(&self) -> Option<f64> {
        self.created_at.and_then(seconds_of)
    }
}

/// A row as it comes out of the events, before it is known where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldedRow {
    /// The visible text.
    pub content: String,
    /// The reasoning; empty if there was none.
    pub reasoning: String,
    /// When its first event happened, in whole seconds, if that event has a usable time. No later event is asked.
    pub timestamp: Option<i64>,
    /// The number of its first event: what the row is known by when the journal is folded again.
    pub first_seq: Option<u64>,
    /// The files, sources and data that came with it, as the parts of a UI message.
    pub parts: Vec<Object>,
    /// The first event that did not fit into the session, if this is the last row for which there was room.
    pub truncated_from: Option<u64>,
}

/// A tool card and the folded row that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldedCard {
    /// Index into [`Folded::rows`].
    pub row: usize,
    /// The card, its place in the transcript still open.
    pub card: ToolCard,
    /// What it showed when the tool was called, before there was a result.
    pub begun_as: String,
    /// Whether its id is the number of its event. Else it is the card's position, which alone does not identify it.
    pub is_numbered: bool,
    tool_id: Option<String>,
    /// Whether its own result came.
    is_answered: bool,
}

/// The outcome of a fold.
#[derive(Debug, Default)]
pub struct Folded {
    /// The rows, in order.
    pub rows: Vec<FoldedRow>,
    /// The cards, in the order of their tool calls.
    pub cards: Vec<FoldedCard>,
    /// The values that cards only refer to, to be stored before them.
    pub large: Vec<LargeValue>,
}

/// How rows and cards say where they come from.
#[derive(Debug, Clone, Copy)]
pub enum Provenance<'a> {
    /// The run of this id ended normally.
    Live(&'a str),
    /// They were recovered from the journal of this run.
    Recovered(&'a str),
}

impl Provenance<'_> {
    /// The run.
    pub fn run(&self) -> &str {
        match self {
            Provenance::Live(run) | Provenance::Recovered(run) => run,
        }
    }

    /// Whether the run ended normally.
    pub fn is_live(&self) -> bool {
        matches!(self, Provenance::Live(_))
    }

    /// Lets a row or card of the run that was recovered before say so no longer, if the run ended normally after all.
    pub fn retag(self, fields: &mut Object) {
        if self.is_live() {
            for key in ["_recovered", "_recovered_from_run_journal", "_recovered_stream_id", "_recovered_seq"] {
                fields.remove(key);
            }
            self.tag(fields);
        }
    }

    fn tag(self, fields: &mut Object) {
        match self {
            Provenance::Live(run) => fields.set_text("_run_id", run),
            Provenance::Recovered(run) => {
                fields.set("_recovered_from_run_journal", "true");
                fields.set_text("_recovered_stream_id", run);
            }
        }
    }
}

impl FoldedRow {
    /// The transcript row.
    pub fn to_row(&self, provenance: Provenance<'_>, now_seconds: i64) -> Row {
        let mut row = Row::assistant(&self.content, self.timestamp.unwrap_or(now_seconds));
        provenance.tag(row.fields_mut());
        if let (Provenance::Recovered(_), Some(seq)) = (provenance, self.first_seq) {
            row.fields_mut().set("_recovered_seq", seq.to_string());
        }
        if !self.reasoning.is_empty() {
            row.fields_mut().set_text("reasoning", &self.reasoning);
        }
        self.note_parts(&mut row);
        self.note_truncation(provenance.run(), &mut row);
        row
    }

    /// Notes in the row the files, sources and data that came with it.
    pub fn note_parts(&self, row: &mut Row) {
        if !self.parts.is_empty() {
            row.fields_mut().set(PARTS, parts::to_json(&self.parts));
        }
    }

    /// Notes in the row from which event on the answer is only in the journal.
    pub fn note_truncation(&self, run: &str, row: &mut Row) {
        if let Some(from_seq) = self.truncated_from {
            let (run, key) = (quoted(run), TRUNCATED);
            row.fields_mut().set(key, format!("{{\"run_id\":{run},\"from_seq\":{from_seq}}}"));
        }
    }
}

/// The key of a row that says from which event on the answer did not fit into the session.
pub const TRUNCATED: &str = "_truncated";

/// From which event on a row says that the answer of this run did not fit.
pub fn truncated_from(row: &Row, run: &str) -> Option<u64> {
    let noted = Object::parse(row.fields().get(TRUNCATED)?)?;
    noted.text("run_id").filter(|noted| noted == run)?;
    noted.get("from_seq")?.parse().ok()
}

impl FoldedCard {
    /// The tool card, tied to the transcript row that its folded row became.
    pub fn to_card(&self, provenance: Provenance<'_>, row_index: usize) -> ToolCard {
        let mut card = ToolCard::default();
        for (key, value) in self.card.fields().iter() {
            card.fields_mut().set(key, value);
            match key {
                "tid" => card.set_row_index(row_index),
                "done" => provenance.tag(card.fields_mut()),
                _ => {}
            }
        }
        card
    }
}

/// The first event of the row that is being gathered.
#[derive(Debug, Default, Clone, Copy)]
struct First {
    is_set: bool,
    seq: Option<u64>,
    at: Option<f64>,
}

impl First {
    fn note(&mut self, event: &FoldEvent<'_>) {
        if !self.is_set {
            *self = First { is_set: true, seq: event.seq, at: event.seconds() };
        }
    }
}

/// The reducer. Push events, then finish.
#[derive(Debug, Default)]
pub struct Folder {
    folded: Folded,
    seen: SeenSeqs,
    text: TextBuffer,
    reasoning: TextBuffer,
    first: First,
    anchor: Option<usize>,
    /// The cards that show no result yet.
    open: Vec<usize>,
    /// The calls whose own results have not come.
    calls: OpenCalls,
    /// The files, sources and data of the row that is being gathered.
    parts: Vec<Object>,
    budget: Budget,
}

impl Folder {
    /// A reducer that takes no more than fits.
    pub fn within(limit: FoldLimit) -> Self {
        Folder { budget: Budget::new(limit), ..Folder::default() }
    }

    /// Takes the next event, and says whether it counts: one whose number was there already is the same event.
    pub fn push(&mut self, event: &FoldEvent<'_>) -> bool {
        if !event.is_foreign && event.seq.is_some_and(|seq| !self.seen.insert(seq)) {
            return false;
        }
        match event.name {
            "token" if self.budget.admits_text(event) => self.add_token(event),
            "reasoning" if self.budget.admits_text(event) => self.add_reasoning(event),
            "interim_assistant" if self.budget.admits_row(event) => self.add_interim(event),
            "tool" => self.add_tool(event),
            "tool_complete" => self.complete_tool(event),
            "file" | "source" | "data" => self.add_part(event),
            ATTEMPT_EVENT => self.begin_attempt(),
            "done" | "stream_end" | "cancel" | "apperror" | "error" => self.flush(),
            _ => {}
        }
        true
    }

    /// The rows and cards of everything pushed.
    pub fn finish(mut self) -> Folded {
        self.flush();
        if let Some(from) = self.budget.cut_from() {
            if self.folded.rows.is_empty() {
                self.add_row(String::new(), String::new(), First::default());
            }
            self.folded.rows.iter_mut().last().into_iter().for_each(|row| row.truncated_from = Some(from));
        }
        self.folded.cards.iter_mut().for_each(|card| note_whether_answered(&mut card.card, card.is_answered));
        self.folded
    }

    fn add_token(&mut self, event: &FoldEvent<'_>) {
        if let Some(text) = lone_text(event.payload) {
            return Self::add_text(&mut self.text, &mut self.first, text, event);
        }
        if let Some(value) = Fields::parse(event.payload).and_then(|fields| fields.get("text")) {
            Self::add_value(&mut self.text, &mut self.first, value, event);
        }
    }

    fn add_reasoning(&mut self, event: &FoldEvent<'_>) {
        if let Some(text) = lone_text(event.payload) {
            return Self::add_text(&mut self.reasoning, &mut self.first, text, event);
        }
        let Some(fields) = Fields::parse(event.payload) else { return };
        let value = ["text", "reasoning", "thinking"].iter().filter_map(|key| fields.get(key)).find(|v| is_truthy(v));
        if let Some(value) = value {
            Self::add_value(&mut self.reasoning, &mut self.first, value, event);
        }
    }

    /// What an attempt that failed had thought stays, a paragraph of its own. Its calls get no result any more.
    fn begin_attempt(&mut self) {
        if !self.reasoning.is_empty() {
            self.reasoning.push("\n\n");
        }
        self.calls.give_up();
    }

    fn add_text(buffer: &mut TextBuffer, first: &mut First, text: &str, event: &FoldEvent<'_>) {
        if !text.is_empty() {
            first.note(event);
            buffer.push(text);
        }
    }

    fn add_value(buffer: &mut TextBuffer, first: &mut First, value: &str, event: &FoldEvent<'_>) {
        if !is_truthy(value) {
            return;
        }
        first.note(event);
        match value.starts_with('"') {
            true => buffer.push_literal(value),
            false => buffer.push(&python_text(value)),
        }
    }

    fn add_interim(&mut self, event: &FoldEvent<'_>) {
        let fields = Fields::parse(event.payload);
        let value = |key| fields.as_ref().and_then(|fields| fields.get(key));
        if value("already_streamed").is_some_and(is_truthy) {
            return self.flush();
        }
        let text = value("text").filter(|v| is_truthy(v)).map(python_text).unwrap_or_default();
        let text = trim(&text);
        if text.is_empty() {
            return;
        }
        if self.text.last().is_some_and(|last| last != '\n' && last != ' ') {
            self.text.push("\n\n");
        }
        self.first.note(event);
        self.text.push(text);
        self.flush();
    }

    fn flush(&mut self) {
        let (text, reasoning) = (self.text.take(), self.reasoning.take());
        let (content, reasoning) = (trim(&text).to_owned(), trim(&reasoning).to_owned());
        let first = std::mem::take(&mut self.first);
        if !content.is_empty() || !reasoning.is_empty() {
            self.add_row(content, reasoning, first);
        }
        let parts = std::mem::take(&mut self.parts);
        parts.into_iter().for_each(|part| self.place_part(part, first));
    }

    /// A part goes to the row that is being gathered, else to the last one. It never ends a row.
    fn add_part(&mut self, event: &FoldEvent<'_>) {
        let Some(part) = ui_part(event.name, event.payload) else { return };
        if !self.budget.admits_bytes(event, json_len(&part)) {
            return;
        }
        let first = First { is_set: true, seq: event.seq, at: event.seconds() };
        match self.first.is_set {
            true => parts::add_part(part, &mut self.folded.rows, &mut self.parts, true),
            false => self.place_part(part, first),
        }
    }

    /// A part before any text stands in a row without words.
    fn place_part(&mut self, part: Object, first: First) {
        if self.folded.rows.is_empty() {
            self.add_row(String::new(), String::new(), first);
        }
        parts::add_part(part, &mut self.folded.rows, &mut self.parts, false);
    }

    fn add_row(&mut self, content: String, reasoning: String, first: First) -> usize {
        let index = self.folded.rows.len();
        let timestamp = first.at.map(|at| at as i64);
        let first_seq = first.seq;
        let parts = Vec::new();
        self.folded.rows.push(FoldedRow { content, reasoning, timestamp, first_seq, parts, truncated_from: None });
        self.anchor = Some(index);
        index
    }

    fn add_tool(&mut self, event: &FoldEvent<'_>) {
        let fields = Fields::parse(event.payload).unwrap_or(Fields(Vec::new()));
        let nth = self.folded.cards.len();
        let number = event.seq.filter(|seq| *seq > 0);
        let mut card = open_card(&fields, number.unwrap_or(nth as u64 + 1));
        let (begun_as, tool_id) = (card.shown(), tool_id(&fields));
        let (args, large) = tool_arguments(&fields).map(kept_of).unzip();
        note_call(card.fields_mut(), tool_id.as_deref(), args.as_deref());
        if !self.budget.admits_bytes(event, json_len(card.fields())) {
            return;
        }
        self.flush();
        let row = match self.anchor {
            Some(anchor) => anchor,
            None => {
                let first = First { is_set: true, seq: event.seq, at: event.seconds() };
                self.add_row(String::new(), String::new(), first)
            }
        };
        self.open.push(nth);
        self.calls.begin(tool_id.clone(), &card.name());
        self.folded.large.extend(large.flatten());
        let (is_numbered, is_answered) = (number.is_some(), false);
        self.folded.cards.push(FoldedCard { row, card, begun_as, is_numbered, tool_id, is_answered });
    }

    /// What a result shows goes to the card that the reference program gives it to, and the result to the call that it is
    /// for. They may be two where calls without ids are under way at once.
    fn complete_tool(&mut self, event: &FoldEvent<'_>) {
        let fields = Fields::parse(event.payload).unwrap_or(Fields(Vec::new()));
        let (result, large) = tool_result(&fields).map(|(value, _)| kept_of(value)).unzip();
        let carried = |key: &str| fields.get(key).map_or(0, str::len);
        // A preview stands in three keys. A value that is no text is spelt out, which at most doubles it.
        let shown = 6 * (carried("preview") + carried("snippet")) + carried("duration");
        if !self.budget.admits_bytes(event, shown + result.as_ref().map_or(0, |result| result.len())) {
            return;
        }
        let (id, name) = (tool_id(&fields), given_text(&fields, "name"));
        if let Some(at) = self.shown_on(id.as_deref(), &name) {
            close_card(self.folded.cards[at].card.fields_mut(), &fields);
        }
        if let Some(at) = self.calls.complete(id.as_deref(), &name) {
            self.folded.large.extend(large.flatten());
            self.folded.cards[at].is_answered = true;
            note_answer(self.folded.cards[at].card.fields_mut(), &fields, result.as_deref());
        }
    }

    /// The card that shows a result, by the reference program's rule.
    fn shown_on(&mut self, id: Option<&str>, name: &str) -> Option<usize> {
        let cards = &self.folded.cards;
        let is_named = |card: &FoldedCard| name.is_empty() || card.card.name() == name;
        let has_id = |at: &usize| id.is_some() && cards[*at].tool_id.as_deref() == id;
        let is_meant = |at: &usize| (id.is_none() || cards[*at].tool_id.is_none()) && is_named(&cards[*at]);
        let found = self.open.iter().rposition(has_id).or_else(|| self.open.iter().rposition(is_meant))?;
        Some(self.open.remove(found))
    }
}

/// Bytes of an object as JSON, or a few more.
fn json_len(fields: &Object) -> usize {
    fields.iter().map(|(key, value)| 2 * key.len() + value.len() + 4).sum()
}

/// The text of a payload that is exactly `{"text":"..."}` without escapes, as most are. Spares the JSON reader.
fn lone_text(payload: &str) -> Option<&str> {
    let text = payload.strip_prefix("{\"text\":\"")?.strip_suffix("\"}")?;
    (!needs_escape(text)).then_some(text)
}
