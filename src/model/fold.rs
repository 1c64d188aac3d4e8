//! The one reducer from events to transcript rows, for live runs, lazy recovery and offline repair alike.
//!
//! Pure: events in, rows and tool cards out. Where they go, and which of them are there already, others decide.

use super::fold_limit::{Budget, FoldLimit};
use super::json::{Fields, Object, TextBuffer, needs_escape, quoted};
use super::moment::seconds_of;
use super::row::Row;
use super::seqs::SeenSeqs;
use super::text::{is_truthy, python_text, trim};
use super::tool::ToolCard;
use crate::limits::{CARD_ARG_CHARS_MAX, CARD_ARGS_KEYS_MAX};

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
}

/// The outcome of a fold.
#[derive(Debug, Default)]
pub struct Folded {
    /// The rows, in order.
    pub rows: Vec<FoldedRow>,
    /// The cards, in the order of their tool calls.
    pub cards: Vec<FoldedCard>,
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
        self.note_truncation(provenance.run(), &mut row);
        row
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
    /// The cards whose tools have not answered yet.
    open: Vec<usize>,
    budget: Budget,
}

impl Folder {
    /// A reducer that takes no more than fits.
    pub fn within(limit: FoldLimit) -> Self {
        Folder { budget: Budget::new(limit), ..Folder::default() }
    }

    /// Takes the next event. An event whose number was there already is the same event and does not count again.
    pub fn push(&mut self, event: &FoldEvent<'_>) {
        if !event.is_foreign && event.seq.is_some_and(|seq| !self.seen.insert(seq)) {
            return;
        }
        match event.name {
            "token" if self.budget.admits_text(event) => self.add_token(event),
            "reasoning" if self.budget.admits_text(event) => self.add_reasoning(event),
            "interim_assistant" if self.budget.admits_row(event) => self.add_interim(event),
            "tool" if self.budget.admits_card(event) => self.add_tool(event),
            "tool_complete" if self.budget.admits_card(event) => self.complete_tool(event),
            ATTEMPT_EVENT => self.begin_attempt(),
            "done" | "stream_end" | "cancel" | "apperror" | "error" => self.flush(),
            _ => {}
        }
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

    /// What an attempt that failed had thought stays, a paragraph of its own.
    fn begin_attempt(&mut self) {
        if !self.reasoning.is_empty() {
            self.reasoning.push("\n\n");
        }
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
    }

    fn add_row(&mut self, content: String, reasoning: String, first: First) -> usize {
        let index = self.folded.rows.len();
        let timestamp = first.at.map(|at| at as i64);
        let first_seq = first.seq;
        self.folded.rows.push(FoldedRow { content, reasoning, timestamp, first_seq, truncated_from: None });
        self.anchor = Some(index);
        index
    }

    fn add_tool(&mut self, event: &FoldEvent<'_>) {
        self.flush();
        let row = match self.anchor {
            Some(anchor) => anchor,
            None => {
                let first = First { is_set: true, seq: event.seq, at: event.seconds() };
                self.add_row(String::new(), String::new(), first)
            }
        };
        let fields = Fields::parse(event.payload).unwrap_or(Fields(Vec::new()));
        let nth = self.folded.cards.len();
        let number = event.seq.filter(|seq| *seq > 0);
        let card = open_card(&fields, number.unwrap_or(nth as u64 + 1));
        let (begun_as, tool_id) = (card.shown(), tool_id(&fields));
        self.open.push(nth);
        self.folded.cards.push(FoldedCard { row, card, begun_as, is_numbered: number.is_some(), tool_id });
    }

    fn complete_tool(&mut self, event: &FoldEvent<'_>) {
        let fields = Fields::parse(event.payload).unwrap_or(Fields(Vec::new()));
        let id = tool_id(&fields);
        let name = given_text(&fields, "name");
        let is_named = |card: &FoldedCard| name.is_empty() || card.card.name() == name;
        let cards = &self.folded.cards;
        let has_id = |at: &usize| id.is_some() && cards[*at].tool_id == id;
        let is_meant = |at: &usize| (id.is_none() || cards[*at].tool_id.is_none()) && is_named(&cards[*at]);
        let found = self.open.iter().rposition(has_id).or_else(|| self.open.iter().rposition(is_meant));
        if let Some(nth) = found {
            let at = self.open.remove(nth);
            close_card(self.folded.cards[at].card.fields_mut(), &fields);
        }
    }
}

/// The text of a payload that is exactly `{"text":"..."}` without escapes, as most are. Spares the JSON reader.
fn lone_text(payload: &str) -> Option<&str> {
    let text = payload.strip_prefix("{\"text\":\"")?.strip_suffix("\"}")?;
    (!needs_escape(text)).then_some(text)
}

/// The id of the call that a `tool` or `tool_complete` is about.
pub(crate) fn tool_id(fields: &Fields<'_>) -> Option<String> {
    let keys = ["tool_call_id", "tool_id", "tid", "id"];
    let value = keys.iter().filter_map(|key| fields.get(key)).find(|value| is_truthy(value))?;
    Some(python_text(value).into_owned())
}

fn given_text(fields: &Fields<'_>, key: &str) -> String {
    fields.get(key).filter(|value| is_truthy(value)).map(python_text).unwrap_or_default().into_owned()
}

/// A card whose tool has not answered. `number` is that of its event, or the card's position in the replay from 1.
fn open_card(fields: &Fields<'_>, number: u64) -> ToolCard {
    let name = given_text(fields, "name");
    let preview = given_text(fields, "preview");
    let snippet = given_text(fields, "snippet");
    let mut card = ToolCard::default();
    let out = card.fields_mut();
    out.set_text("name", if name.is_empty() { "tool" } else { &name });
    out.set_text("preview", &preview);
    out.set_text("snippet", if snippet.is_empty() { &preview } else { &snippet });
    out.set_text("tid", &format!("journal-{number}"));
    out.set("args", shown_args(fields.get("args")));
    out.set("done", "false");
    card
}

fn shown_args(args: Option<&str>) -> String {
    let mut shown = Object::default();
    let fields = args.and_then(Fields::parse).unwrap_or(Fields(Vec::new()));
    for (key, value) in fields.0.iter().take(CARD_ARGS_KEYS_MAX) {
        shown.set(key, quoted(&cut(&python_text(value))));
    }
    shown.to_json()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CARD_ARG_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn close_card(card: &mut Object, fields: &Fields<'_>) {
    let preview = given_text(fields, "preview");
    let snippet = given_text(fields, "snippet");
    card.set("done", "true");
    if !preview.is_empty() {
        card.set_text("preview", &preview);
        card.set_text("snippet", &preview);
    }
    if !snippet.is_empty() {
        card.set_text("snippet", &snippet);
    }
    if let Some(duration) = fields.get("duration").filter(|value| *value != "null") {
        card.set("duration", duration);
    }
    card.set("is_error", fields.get("is_error").is_some_and(is_truthy).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_without_a_number_is_named_by_its_position_among_all_cards() {
        let seqs = [None, Some(7), Some(0), None, Some(9)];
        for len in 0..=seqs.len() {
            let mut folder = Folder::default();
            for seq in &seqs[..len] {
                let (name, payload, created_at) = ("tool", "{}", None);
                folder.push(&FoldEvent { seq: *seq, is_foreign: false, name, payload, created_at });
            }
            let tids: Vec<_> = folder.finish().cards.iter().map(|card| card.card.tid().into_owned()).collect();
            let all = ["journal-1", "journal-7", "journal-3", "journal-4", "journal-9"];
            assert_eq!(tids, all[..len], "a fold of {len} events");
        }
    }

    fn fold(events: &[(&str, &str)]) -> Folded {
        let mut folder = Folder::default();
        for (at, (name, payload)) in events.iter().enumerate() {
            let seq = at as u64 + 1;
            let created_at = format!("{}.5", 100 + at);
            folder.push(&FoldEvent {
                seq: Some(seq),
                is_foreign: false,
                name,
                payload,
                created_at: Some(created_at.as_bytes()),
            });
        }
        folder.finish()
    }

    #[track_caller]
    fn check(events: &[(&str, &str)], expected: &[(&str, &str, i64)]) {
        let folded = fold(events);
        let rows: Vec<_> = folded
            .rows
            .iter()
            .map(|row| (row.content.as_str(), row.reasoning.as_str(), row.timestamp.unwrap_or_default()))
            .collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn tokens_join_into_one_row_with_the_time_of_the_first() {
        check(
            &[("metering", "{}"), ("token", r#"{"text":" Hello"}"#), ("token", r#"{"text":" sea "}"#)],
            &[("Hello sea", "", 101)],
        );
    }

    #[test]
    fn a_payload_is_understood_alike_whether_or_not_it_has_our_shape() {
        let texts = [
            "",
            "x",
            "\u{e9}\u{2028}",
            r"a\nb",
            r#"\""#,
            r"\",
            "\u{1}",
            "\"",
            r#"a","text":"b"#,
            r#"a","b":"c"#,
            r"\ud800",
        ];
        for text in texts {
            let ours = format!(r#"{{"text":"{text}"}}"#);
            let spaced = format!(r#"{{ "text":"{text}"}}"#);
            assert_eq!(fold(&[("token", &ours)]).rows, fold(&[("token", &spaced)]).rows, "{ours}");
            assert_eq!(fold(&[("reasoning", &ours)]).rows, fold(&[("reasoning", &spaced)]).rows, "{ours}");
        }
    }

    #[test]
    fn reasoning_stays_beside_the_text_and_never_in_it() {
        check(
            &[("reasoning", r#"{"text":"","thinking":"hm "}"#), ("token", r#"{"text":"yes"}"#), ("done", "{}")],
            &[("yes", "hm", 100)],
        );
    }

    #[test]
    fn what_a_failed_attempt_thought_is_a_paragraph_of_its_own() {
        let thought = |text: &str| format!(r#"{{"text":"{text}"}}"#);
        check(
            &[("attempt", "{}"), ("reasoning", &thought("a")), ("attempt", "{}"), ("reasoning", &thought("b"))],
            &[("", "a\n\nb", 101)],
        );
    }

    #[test]
    fn an_interim_note_starts_a_paragraph_and_ends_the_row() {
        check(
            &[
                ("token", r#"{"text":"Streamed"}"#),
                ("interim_assistant", r#"{"text":" note "}"#),
                ("token", r#"{"text":"tail"}"#),
                ("interim_assistant", r#"{"already_streamed":true,"text":"tail"}"#),
                ("token", r#"{"text":"end"}"#),
            ],
            &[("Streamed\n\nnote", "", 100), ("tail", "", 102), ("end", "", 104)],
        );
    }

    #[test]
    fn a_tool_before_any_text_gets_an_empty_row_to_stand_on() {
        let folded = fold(&[("tool", r#"{"name":"ls"}"#), ("token", r#"{"text":"x"}"#), ("tool", r#"{"name":"cd"}"#)]);
        assert_eq!(folded.rows.iter().map(|row| row.content.as_str()).collect::<Vec<_>>(), ["", "x"]);
        assert_eq!(folded.cards.iter().map(|card| card.row).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_result_finds_its_card_by_id_before_it_looks_at_names() {
        let folded = fold(&[
            ("tool", r#"{"name":"t","tool_call_id":"a","preview":"1"}"#),
            ("tool", r#"{"name":"t","tool_call_id":"b","preview":"2"}"#),
            ("tool_complete", r#"{"name":"t","tool_call_id":"a","preview":"one","duration":0.50}"#),
        ]);
        let cards: Vec<_> = folded.cards.iter().map(|card| card.card.fields().to_json()).collect();
        assert!(cards[0].contains(r#""preview":"one","snippet":"one""#) && cards[0].contains(r#""duration":0.50"#));
        assert!(cards[0].contains(r#""done":true"#) && cards[1].contains(r#""done":false"#), "{cards:?}");
    }

    #[test]
    fn arguments_are_shown_in_part() {
        let long = "x".repeat(130);
        let payload = format!(r#"{{"args":{{"a":"{long}","b":7,"c":[1],"d":null,"e":1}}}}"#);
        let folded = fold(&[("tool", &payload)]);
        let args = Object::parse(folded.cards[0].card.fields().get("args").unwrap()).unwrap();
        assert_eq!(args.text("a").unwrap(), format!("{}...", "x".repeat(120)));
        assert_eq!(args.text("c").unwrap(), "[1]");
        assert_eq!(args.iter().count(), 4);
    }

    #[test]
    fn an_event_that_is_there_twice_counts_once_even_out_of_order() {
        let mut folder = Folder::default();
        for (seq, text) in [(1, "a"), (3, "c"), (2, "b"), (3, "c"), (2, "b"), (4, "d")] {
            let payload = format!(r#"{{"text":"{text}"}}"#);
            folder.push(&FoldEvent {
                seq: Some(seq),
                is_foreign: false,
                name: "token",
                payload: &payload,
                created_at: None,
            });
        }
        assert_eq!(folder.finish().rows[0].content, "acbd");
    }

    #[test]
    fn rows_of_a_run_that_ended_normally_carry_no_recovery_keys() {
        let folded = fold(&[("token", r#"{"text":"x"}"#), ("tool", r#"{"name":"t"}"#)]);
        let row = folded.rows[0].to_row(Provenance::Live("r"), 0);
        let card = folded.cards[0].to_card(Provenance::Live("r"), 4);
        assert_eq!(row.fields().to_json(), r#"{"role":"assistant","content":"x","timestamp":100,"_run_id":"r"}"#);
        assert!(!card.fields().to_json().contains("_recovered"));
        assert_eq!(card.row_index(), Some(4));
    }
}
