//! Tool cards as the calls of the rows that they are tied to.

use std::collections::HashMap;

use super::message::Answer;
use super::transcript::is_marker;
use crate::model::{Session, TOLD_KEYS, ToolCard, is_truthy, trim};

/// The cards of a transcript, by the row that each belongs to.
pub(super) struct Cards {
    of_rows: HashMap<usize, Vec<CardCall>>,
}

/// What a card says of its call.
pub(super) struct CardCall {
    /// What the events call it.
    pub(super) given_id: Option<String>,
    pub(super) name: String,
    pub(super) input: Option<String>,
    pub(super) answer: Option<Answer>,
}

impl Cards {
    /// A card whose row is not an answer's goes to the nearest one before it in the same turn. Without one it is left out.
    pub(super) fn of(session: &Session, end: Option<usize>) -> Self {
        let anchors = anchors(session, end);
        let mut of_rows: HashMap<usize, Vec<CardCall>> = HashMap::new();
        for card in session.tool_cards() {
            if let Some(row) = card.row_index().and_then(|row| *anchors.get(row)?) {
                of_rows.entry(row).or_default().push(CardCall::of(&card));
            }
        }
        Cards { of_rows }
    }

    pub(super) fn take(&mut self, row: usize) -> Vec<CardCall> {
        self.of_rows.remove(&row).unwrap_or_default()
    }
}

/// For each row, the row that a card tied to it goes to.
fn anchors(session: &Session, end: Option<usize>) -> Vec<Option<usize>> {
    let mut anchor = None;
    let rows = session.messages().enumerate().take(end.unwrap_or(usize::MAX));
    rows.map(|(at, row)| {
        match &*row.role() {
            "assistant" if !is_marker(&row) => anchor = Some(at),
            "user" => anchor = None,
            _ => {}
        }
        anchor
    })
    .collect()
}

impl CardCall {
    fn of(card: &ToolCard) -> Self {
        let fields = card.fields();
        let name = card.name();
        CardCall {
            given_id: fields.text("_call_id").map(|id| id.into_owned()),
            name: if name.is_empty() { "tool".to_owned() } else { name.into_owned() },
            input: fields.get("_args").or_else(|| fields.get("args")).map(str::to_owned),
            answer: answer_of(card),
        }
    }
}

/// What the tool answered, if it has. Cards that another program made of finished calls do not say that they are done, and
/// those of earlier versions have nothing but a preview.
fn answer_of(card: &ToolCard) -> Option<Answer> {
    let fields = card.fields();
    let is_told = TOLD_KEYS.iter().any(|key| fields.get(key).is_some());
    let shown = ["snippet", "preview"].iter().filter_map(|key| fields.text(key)).find(|text| !trim(text).is_empty());
    let is_done = match (fields.get("_answered"), fields.get("done")) {
        (Some(answered), _) => answered == "true",
        (None, Some(done)) => is_truthy(done),
        (None, None) => shown.is_some(),
    };
    let preview = fields.text("_result_preview").or(shown.filter(|_| !is_told)).unwrap_or_default();
    let is_error = fields.is_true("_result_is_error") || !is_told && fields.get("is_error").is_some_and(is_truthy);
    let result = fields.get("_result").map(str::to_owned);
    is_done.then(|| Answer { result, preview: preview.into_owned(), is_error })
}
