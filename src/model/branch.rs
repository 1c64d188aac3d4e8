//! Rows beside the transcript: taken out of it from one row on, to be kept, listed, and put back in their place.

use std::collections::HashMap;

use super::id::SessionId;
use super::json::Object;
use super::row::Row;
use super::session::{List, NotAList, Session};
use super::text::trim;
use super::tool::ToolCard;
use super::turn_note::BranchReason;
use crate::clock::Timestamp;

/// The end of a transcript, cut off: rows, their tool cards, and the rows of the model's own view that go with them. JSON
/// texts, as they stood.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cut {
    /// The place of the first row.
    pub at_row: usize,
    /// The fingerprint of the conversation before it.
    pub after: String,
    /// The rows.
    pub rows: Vec<String>,
    /// The tool cards of these rows. Their row numbers count from the transcript's first row.
    pub tool_calls: Vec<String>,
    /// The rows of `context_messages` that go with them.
    pub context_messages: Vec<String>,
    /// How many rows of `context_messages` stayed.
    pub context_at: usize,
}

/// A cut that is stored beside its session.
#[derive(Debug, Clone, PartialEq)]
pub struct Branch {
    /// Its id.
    pub branch_id: String,
    /// The run that answered its first turn.
    pub run_id: Option<String>,
    /// The rows.
    pub cut: Cut,
    /// Of an attempt that failed: the fingerprint of the rows that stayed in its place.
    pub beside: Option<String>,
    /// When that was, in seconds.
    pub replaced_at: f64,
    /// Why.
    pub reason: BranchReason,
}

/// A branch in a list of them.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchSummary {
    /// Its id.
    pub branch_id: String,
    /// The run that answered its first turn.
    pub run_id: Option<String>,
    /// The place of its first row in the transcript.
    pub at_row: usize,
    /// How many rows it has.
    pub rows: usize,
    /// When it left the transcript or was kept out of it, in seconds.
    pub replaced_at: f64,
    /// Why.
    pub reason: BranchReason,
}

impl Cut {
    /// Takes the rows from this place on out of a session.
    pub fn take(session: &mut Session, at_row: usize) -> Result<Cut, NotAList> {
        let context_at = context_place(session, at_row);
        let from = |list, at| session.texts(list).skip(at).map(str::to_owned).collect::<Vec<String>>();
        let (rows, context_messages) = (from(List::Messages, at_row), from(List::ContextMessages, context_at));
        let after = fingerprint(session.messages().take(at_row));
        let tool_calls = session.texts(List::ToolCalls).filter(is_of_rows(at_row)).map(str::to_owned).collect();
        cut_off(session, at_row, context_at)?;
        Ok(Cut { at_row, after, rows, tool_calls, context_messages, context_at })
    }

    /// Removes these rows. For those who need only what stays: it reads none of it.
    pub fn drop_rows(session: &mut Session, at_row: usize) -> Result<(), NotAList> {
        let context_at = context_place(session, at_row);
        cut_off(session, at_row, context_at)
    }

    /// Puts the rows at the end of a session that was cut at their place.
    pub fn attach(&self, session: &mut Session) -> Result<(), NotAList> {
        let first = session.len(List::Messages);
        // The model is shown the transcript, unless its own view can be had whole.
        if self.context_at != session.len(List::ContextMessages) && !session.is_empty(List::ContextMessages) {
            session.truncate(List::ContextMessages, 0)?;
        }
        if self.context_at == session.len(List::ContextMessages) {
            self.context_messages.iter().try_for_each(|row| session.push_item(List::ContextMessages, row))?;
        }
        self.rows.iter().try_for_each(|row| session.push_item(List::Messages, row))?;
        self.tool_calls.iter().try_for_each(|card| session.push_item(List::ToolCalls, &self.moved(card, first)))
    }

    /// These rows and nothing else, as a session. The conversation before them need not be there.
    pub fn alone(&self, id: &SessionId) -> Result<Session, NotAList> {
        let mut alone = Session::new(id.clone(), "", Timestamp::from_seconds(0.0));
        Cut { context_at: 0, ..self.clone() }.attach(&mut alone)?;
        Ok(alone)
    }

    /// The same place with the rows of such a session.
    pub fn with_rows_of(&self, alone: &Session) -> Cut {
        let texts = |list| alone.texts(list).map(str::to_owned).collect();
        let first = Cut::default();
        Cut {
            rows: texts(List::Messages),
            tool_calls: alone.texts(List::ToolCalls).map(|card| first.moved(card, self.at_row)).collect(),
            context_messages: texts(List::ContextMessages),
            ..self.clone()
        }
    }

    /// A card that points at its row, wherever the rows stand now.
    fn moved(&self, card: &str, first: usize) -> String {
        let mut parsed = ToolCard::parse(card);
        match parsed.row_index() {
            Some(index) if first != self.at_row => {
                parsed.set_row_index((index + first).saturating_sub(self.at_row));
                parsed.fields().to_json()
            }
            _ => card.to_owned(),
        }
    }

    /// Where the rows belong in a session: after the same conversation, where a turn begins or the last one ends. Markers may
    /// have come or gone there; nothing if it is another conversation.
    pub fn place_in(&self, session: &Session) -> Option<usize> {
        self.place_among(&TurnPlaces::of(session))
    }

    /// The same among the places of a session that are known.
    pub fn place_among(&self, places: &TurnPlaces) -> Option<usize> {
        let fitting = places.0.get(&self.after)?;
        fitting.iter().copied().find(|at| *at == self.at_row).or(fitting.last().copied())
    }

    /// Whether exactly these rows stand at this place of the transcript.
    pub fn stands_at(&self, session: &Session, place: usize) -> bool {
        let rows = session.texts(List::Messages).skip(place).map(Object::parse);
        self.rows.len() <= session.len(List::Messages).saturating_sub(place)
            && self.rows.iter().map(|row| Object::parse(row)).zip(rows).all(|(known, found)| known == found)
    }

    /// What tells these rows from others.
    pub fn fingerprint(&self) -> String {
        fingerprint(self.rows.iter().map(|row| Row::parse(row)))
    }

    /// The run that answered the first turn.
    pub fn run(&self) -> Option<String> {
        let mut rows = self.rows.iter().map(|row| Row::parse(row));
        let first = rows.next()?;
        let answer = rows.take_while(|row| row.role() != "user").find_map(|row| row.run().map(|run| run.into_owned()));
        first.run().map(|run| run.into_owned()).or(answer).filter(|run| !run.is_empty())
    }
}

/// The places of a session where a turn begins or the last one ends, by the fingerprint of the conversation before them.
#[derive(Debug)]
pub struct TurnPlaces(HashMap<String, Vec<usize>>);

impl TurnPlaces {
    /// Reads each row once.
    pub fn of(session: &Session) -> Self {
        let (mut print, mut places) = (Fingerprint::default(), HashMap::<String, Vec<usize>>::new());
        for (at, row) in session.messages().enumerate() {
            if row.is_question() {
                places.entry(print.to_string()).or_default().push(at);
            }
            print.add(&row);
        }
        places.entry(print.to_string()).or_default().push(session.len(List::Messages));
        TurnPlaces(places)
    }
}

impl Branch {
    /// The rows as they are stored under an id.
    pub fn new(branch_id: &str, cut: Cut, reason: BranchReason, replaced_at: f64) -> Self {
        Branch { branch_id: branch_id.to_owned(), run_id: cut.run(), cut, beside: None, replaced_at, reason }
    }

    /// The same rows under an id that follows from them, so that a repeat stores them once.
    pub fn named_by_rows(cut: Cut, reason: BranchReason, replaced_at: f64) -> Self {
        let mut print = Fingerprint::default();
        cut.rows.iter().for_each(|row| print.add_text(row));
        let branch_id = format!("rows-{}-{print}", cut.at_row);
        Branch::new(&branch_id, cut, reason, replaced_at)
    }

    /// As it is listed.
    pub fn summary(&self) -> BranchSummary {
        BranchSummary {
            branch_id: self.branch_id.clone(),
            run_id: self.run_id.clone(),
            at_row: self.cut.at_row,
            rows: self.cut.rows.len(),
            replaced_at: self.replaced_at,
            reason: self.reason,
        }
    }
}

fn cut_off(session: &mut Session, at_row: usize, context_at: usize) -> Result<(), NotAList> {
    let is_of_rows = is_of_rows(at_row);
    let kept: Vec<String> =
        session.texts(List::ToolCalls).filter(|card| !is_of_rows(card)).map(str::to_owned).collect();
    if kept.len() < session.len(List::ToolCalls) {
        session.truncate(List::ToolCalls, 0)?;
        kept.iter().try_for_each(|card| session.push_item(List::ToolCalls, card))?;
    }
    if context_at < session.len(List::ContextMessages) {
        session.truncate(List::ContextMessages, context_at)?;
    }
    session.truncate(List::Messages, at_row)
}

fn is_of_rows(at_row: usize) -> impl Fn(&&str) -> bool {
    move |card| ToolCard::parse(card).row_index().is_some_and(|row| row >= at_row)
}

/// Where the model's own view of the conversation has the user row of this place: as far from the end here as there, and with
/// the same words. Where it has not, the whole view goes, and is made anew from the transcript.
fn context_place(session: &Session, at_row: usize) -> usize {
    if at_row >= session.len(List::Messages) {
        return session.len(List::ContextMessages);
    }
    let users = |list| -> Vec<usize> {
        let rows = session.texts(list).enumerate().filter(|(_, row)| Row::parse(row).role() == "user");
        rows.map(|(at, _)| at).collect()
    };
    let nth_last = users(List::Messages).iter().filter(|at| **at >= at_row).count();
    let users = users(List::ContextMessages);
    let place = users.len().checked_sub(nth_last).and_then(|nth| users.get(nth).copied());
    let words = |list, at| session.item(list, at).map(|row| trim(&Row::parse(row).content()).to_owned());
    let is_same = |at: &usize| words(List::ContextMessages, *at) == words(List::Messages, at_row);
    place.filter(is_same).unwrap_or(0)
}

/// What tells one conversation from another: who said what. Markers and errors are no part of it.
pub(crate) fn fingerprint(rows: impl Iterator<Item = Row>) -> String {
    let mut print = Fingerprint::default();
    rows.for_each(|row| print.add(&row));
    print.to_string()
}

/// 128 bits in two FNV-1a sums. It does not withstand a search for collisions.
#[derive(Clone, Copy)]
struct Fingerprint(u64, u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325, 0x6c62_272e_07bb_0142)
    }
}

impl Fingerprint {
    fn add(&mut self, row: &Row) {
        if !row.is_error() {
            self.add_text(&row.role());
            self.add_text(&row.content());
        }
    }

    fn add_text(&mut self, text: &str) {
        const PRIME: u64 = 0x0100_0000_01b3;
        for byte in text.bytes().chain([0xff]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(PRIME);
            self.1 = (self.1 ^ u64::from(byte)).wrapping_mul(PRIME).rotate_left(29);
        }
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:016x}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(words: &str) -> String {
        Row::user(words, 1).fields().to_json()
    }

    fn answer(words: &str) -> String {
        Row::assistant(words, 1).fields().to_json()
    }

    fn marker() -> String {
        r#"{"role":"assistant","content":"interrupted","_error":true}"#.to_owned()
    }

    fn session(rows: &[String]) -> Session {
        let mut session = Session::new(SessionId::parse("s").unwrap(), "", Timestamp::from_seconds(1.0));
        rows.iter().try_for_each(|row| session.push_item(List::Messages, row)).unwrap();
        session
    }

    fn rows(session: &Session) -> Vec<String> {
        session.texts(List::Messages).map(str::to_owned).collect()
    }

    /// What was cut off at the second question.
    fn cut() -> (Session, Cut) {
        let mut session = session(&[user("a"), answer("b"), user("c"), answer("d")]);
        for (name, row) in [("x", "1"), ("y", "3"), ("z", "null")] {
            let card = format!(r#"{{"name":"{name}","assistant_msg_idx":{row}}}"#);
            session.push_item(List::ToolCalls, &card).unwrap();
        }
        let cut = Cut::take(&mut session, 2).unwrap();
        (session, cut)
    }

    #[test]
    fn cards_go_with_their_rows_and_come_back_with_them() {
        let (mut before, cut) = cut();
        assert_eq!((before.len(List::Messages), before.len(List::ToolCalls)), (2, 2));
        before.splice_messages(2..2, &[Row::parse(&marker())]).unwrap();
        let place = cut.place_in(&before).unwrap();
        assert_eq!(place, 3);
        cut.attach(&mut before).unwrap();
        let cards: Vec<_> = before.tool_cards().map(|card| (card.name().into_owned(), card.row_index())).collect();
        let expected = [("x", Some(1)), ("z", None), ("y", Some(4))].map(|(name, row)| (name.to_owned(), row));
        assert_eq!(cards, expected);
        assert!(cut.stands_at(&before, 3) && !cut.stands_at(&before, 2));
    }

    #[test]
    fn rows_are_a_session_of_their_own_and_come_back_to_their_place() {
        let (before, mut cut) = cut();
        cut.context_messages = vec![user("so far"), user("c")];
        for context_at in [0, 1] {
            cut.context_at = context_at;
            let alone = cut.alone(before.id()).unwrap();
            assert_eq!(rows(&alone), cut.rows);
            assert_eq!(alone.tool_cards().map(|card| card.row_index()).collect::<Vec<_>>(), [Some(1)]);
            assert_eq!(cut.with_rows_of(&alone), cut);
        }
    }

    #[test]
    fn rows_belong_after_the_same_conversation_where_a_turn_begins() {
        let (_, cut) = cut();
        let place = |rows: &[String]| cut.place_in(&session(rows));
        let [a, b, c, e] = [user("a"), answer("b"), user("c"), answer("e")];
        assert_eq!(place(&[a.clone(), b.clone()]), Some(2));
        assert_eq!(place(&[a.clone(), b.clone(), c.clone(), e.clone()]), Some(2));
        assert_eq!(place(&[a.clone(), b.clone(), marker(), c.clone()]), Some(3), "a marker came");
        assert_eq!(place(&[a.clone(), b.clone(), e.clone(), c.clone()]), None, "the answer goes on");
        assert_eq!(place(&[a.clone(), e, c.clone()]), None);
        assert_eq!(place(&[a, c.clone()]), None);
        assert_eq!(place(&[b, c]), None);
        assert_eq!(place(&[]), None);
    }

    #[test]
    fn the_models_own_view_is_cut_at_the_same_question_or_goes_whole() {
        let view = |context: &[String]| {
            let mut session = session(&[user("a"), answer("b"), user("c"), answer("d"), user("c")]);
            context.iter().try_for_each(|row| session.push_item(List::ContextMessages, row)).unwrap();
            let before = session.clone();
            let cut = Cut::take(&mut session, 2).unwrap();
            let kept = session.len(List::ContextMessages);
            cut.attach(&mut session).unwrap();
            assert_eq!(rows(&session), rows(&before));
            let texts = |session: &Session| session.texts(List::ContextMessages).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(texts(&session), texts(&before), "it comes back");
            (kept, cut.context_messages.len())
        };
        assert_eq!(view(&[]), (0, 0));
        assert_eq!(view(&[answer("so far"), user("c"), answer("d"), user("c")]), (1, 3));
        assert_eq!(view(&[answer("so far"), user("c")]), (0, 2), "it has but one of the two");
        assert_eq!(view(&[user("c"), user("x")]), (0, 2), "the words are others");
    }

    #[test]
    fn the_same_rows_have_the_same_name_and_other_rows_another() {
        let (_, cut) = cut();
        let name = |cut: &Cut| Branch::named_by_rows(cut.clone(), BranchReason::Edit, 1.0).branch_id;
        let mut other = cut.clone();
        other.rows[1] = answer("e");
        assert_eq!(name(&cut), name(&cut.clone()));
        assert_ne!(name(&cut), name(&other));
        assert!(crate::model::RunId::parse(&name(&cut)).is_ok());
    }
}
