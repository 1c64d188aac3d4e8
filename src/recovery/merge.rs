//! A fold into a turn that may hold part of it already: every event's text and every tool stands there once.
//!
//! Rows are known by the number of their first event where we wrote them, else by their text. Only rows of the turn
//! are compared, and none that another run left there. The work grows with the turn, not with its square.

use std::collections::{HashMap, VecDeque};

use super::contain::Sought;
use super::turn::Turn;
use crate::model::fold::{Folded, FoldedRow, Provenance};
use crate::model::{List, NotAList, Row, Session, ToolCard, normal_form};

/// What a merge did to the transcript.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Merged {
    /// Rows that were added at the turn's end.
    pub(super) added: usize,
    /// Whether anything else changed: a row grew, a card came or was completed.
    pub(super) changed: bool,
}

/// Where a folded row stands in the transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Existing(usize),
    Added(usize),
}

/// Puts folded rows and cards into a turn, new ones at its end.
pub(super) fn merge(
    session: &mut Session,
    turn: &Turn,
    folded: &Folded,
    provenance: Provenance<'_>,
    now_seconds: i64,
) -> Result<Merged, NotAList> {
    let mut known = KnownRows::of(session, turn, provenance.run());
    let claims = known.claim(&folded.rows);
    let mut merged = Merged::default();
    let mut added = Vec::new();
    let mut places = Vec::new();
    for (row, claim) in folded.rows.iter().zip(claims) {
        places.push(match claim {
            Some(at) => {
                merged.changed |= complete_row(session, at, row, provenance)?;
                Place::Existing(at)
            }
            None => {
                added.push(row.to_row(provenance, now_seconds));
                Place::Added(added.len() - 1)
            }
        });
    }
    let end = turn.rows.end;
    session.splice_messages(end..end, &added)?;
    add_to_context(session, end + added.len(), &added)?;
    merged.added = added.len();
    let indexes: Vec<usize> = places.iter().map(|place| place.index(end)).collect();
    merged.changed |= merge_cards(session, turn, folded, &indexes, provenance)?;
    Ok(merged)
}

impl Place {
    fn index(self, end: usize) -> usize {
        match self {
            Place::Existing(at) => at,
            Place::Added(nth) => end + nth,
        }
    }
}

/// A row of the turn that a folded row may turn out to be.
struct KnownRow {
    at: usize,
    normal: String,
    is_claimed: bool,
}

#[derive(Default)]
struct KnownRows {
    rows: Vec<KnownRow>,
    /// Rows that say with which event they begin.
    by_seq: HashMap<u64, usize>,
    /// All others.
    by_text: HashMap<String, VecDeque<usize>>,
    /// Those of them that came from this run, or are a saved part of an answer: their text may be the beginning of a
    /// longer one.
    growing: VecDeque<usize>,
}

/// What two rows without an event's number are compared by. One without text is known by its reasoning.
fn text_key(normal: &str, reasoning: &str) -> String {
    if normal.is_empty() { format!("\0{}", normal_form(reasoning)) } else { normal.to_owned() }
}

impl KnownRows {
    fn of(session: &Session, turn: &Turn, run: &str) -> Self {
        let mut known = KnownRows::default();
        for at in turn.rows.clone() {
            let row = session.message(at).unwrap_or_default();
            let is_own = row.run().as_deref() == Some(run);
            if row.role() == "assistant" && !row.is_error() && (is_own || row.run().is_none()) {
                known.add(at, &row, is_own);
            }
        }
        known
    }

    fn add(&mut self, at: usize, row: &Row, is_own: bool) {
        let nth = self.rows.len();
        let normal = normal_form(&row.content());
        let seq = row.fields().get("_recovered_seq").and_then(|seq| seq.parse().ok());
        if let Some(seq) = seq.filter(|_| is_own) {
            self.by_seq.insert(seq, nth);
        } else if is_own || !normal.is_empty() {
            let key = text_key(&normal, &row.reasoning().unwrap_or_default());
            self.by_text.entry(key).or_default().push_back(nth);
            if !normal.is_empty() && (is_own || row.fields().is_true("_partial")) {
                self.growing.push_back(nth);
            }
        }
        self.rows.push(KnownRow { at, normal, is_claimed: false });
    }

    /// For each folded row the row of the transcript that it is, if it is there.
    fn claim(&mut self, folded: &[FoldedRow]) -> Vec<Option<usize>> {
        let normals: Vec<String> = folded.iter().map(|row| normal_form(&row.content)).collect();
        let mut claims: Vec<Option<usize>> = Vec::with_capacity(folded.len());
        for (row, normal) in folded.iter().zip(&normals) {
            let found = self.by_seq(row).or_else(|| self.by_text(row, normal)).or_else(|| self.by_beginning(normal));
            claims.push(found.map(|nth| self.take(nth)));
        }
        self.claim_containing(&normals, &mut claims);
        claims
    }

    fn claim_containing(&mut self, normals: &[String], claims: &mut [Option<usize>]) {
        let open = claims.iter().enumerate().filter(|(_, claim)| claim.is_none()).map(|(at, _)| at);
        let mut sought = Sought::new(open.map(|at| (at, normals[at].as_str())));
        for nth in 0..self.rows.len() {
            if !self.rows[nth].is_claimed
                && let Some(number) = sought.take_contained_in(&self.rows[nth].normal)
            {
                claims[number] = Some(self.take(nth));
            }
        }
    }

    fn take(&mut self, nth: usize) -> usize {
        self.rows[nth].is_claimed = true;
        self.rows[nth].at
    }

    fn by_seq(&self, row: &FoldedRow) -> Option<usize> {
        self.by_seq.get(&row.first_seq?).copied().filter(|nth| !self.rows[*nth].is_claimed)
    }

    fn by_text(&mut self, row: &FoldedRow, normal: &str) -> Option<usize> {
        next_unclaimed(self.by_text.get_mut(&text_key(normal, &row.reasoning))?, &self.rows)
    }

    fn by_beginning(&mut self, normal: &str) -> Option<usize> {
        let nth = next_unclaimed(&mut self.growing, &self.rows)?;
        normal.starts_with(&self.rows[nth].normal).then_some(nth)
    }
}

fn next_unclaimed(queue: &mut VecDeque<usize>, rows: &[KnownRow]) -> Option<usize> {
    while queue.front().is_some_and(|nth| rows[*nth].is_claimed) {
        queue.pop_front();
    }
    queue.front().copied()
}

/// Gives a row what the journal knows beyond it, and says whether there was anything.
fn complete_row(
    session: &mut Session,
    at: usize,
    folded: &FoldedRow,
    provenance: Provenance<'_>,
) -> Result<bool, NotAList> {
    let old = session.message(at).unwrap_or_default();
    let mut row = old.clone();
    let is_longer = |new: &str, old: &str| normal_form(new).len() > normal_form(old).len();
    if is_longer(&folded.content, &old.content()) {
        row.fields_mut().set_text("content", &folded.content);
    }
    let reasoning = old.reasoning().unwrap_or_default();
    let is_own = old.run().as_deref() == Some(provenance.run());
    if (reasoning.is_empty() || is_own) && is_longer(&folded.reasoning, &reasoning) {
        row.fields_mut().set_text("reasoning", &folded.reasoning);
    }
    if is_own {
        provenance.retag(row.fields_mut());
    }
    if row == old {
        return Ok(false);
    }
    session.replace_message(at, &row)?;
    replace_in_context(session, &old, &row)?;
    Ok(true)
}

/// The cards that a folded card may turn out to be.
struct KnownCards {
    cards: Vec<ToolCard>,
    by_tid: HashMap<String, usize>,
    by_shown: HashMap<(String, String), VecDeque<usize>>,
}

impl KnownCards {
    fn of(session: &Session, turn: &Turn, run: &str) -> Self {
        let cards: Vec<ToolCard> = session.tool_cards().collect();
        let mut known = KnownCards { cards: Vec::new(), by_tid: HashMap::new(), by_shown: HashMap::new() };
        for (at, card) in cards.iter().enumerate() {
            let is_own = card.run().as_deref() == Some(run);
            let stands_here = card.run().is_none() && card.row_index().is_some_and(|row| turn.rows.contains(&row));
            if is_own {
                known.by_tid.insert(card.tid().into_owned(), at);
            }
            if is_own || stands_here {
                known.by_shown.entry((card.name().into_owned(), card.shown())).or_default().push_back(at);
            }
        }
        known.cards = cards;
        known
    }

    /// The card of the same call, which no other call may have: by its number, else by what it shows.
    fn claim_shown(&mut self, name: &str, shown: &str, is_claimed: &[bool]) -> Option<usize> {
        let queue = self.by_shown.get_mut(&(name.to_owned(), shown.to_owned()))?;
        while queue.front().is_some_and(|at| is_claimed[*at]) {
            queue.pop_front();
        }
        queue.pop_front()
    }
}

fn merge_cards(
    session: &mut Session,
    turn: &Turn,
    folded: &Folded,
    indexes: &[usize],
    provenance: Provenance<'_>,
) -> Result<bool, NotAList> {
    if folded.cards.is_empty() {
        return Ok(false);
    }
    let mut known = KnownCards::of(session, turn, provenance.run());
    let mut is_claimed = vec![false; known.cards.len()];
    let by_tid: Vec<Option<usize>> =
        folded.cards.iter().map(|card| known.by_tid.get(&*card.card.tid()).copied()).collect();
    by_tid.iter().flatten().for_each(|at| is_claimed[*at] = true);
    let mut changed = false;
    for (card, by_tid) in folded.cards.iter().zip(by_tid) {
        let name = card.card.name().into_owned();
        let shown = card.card.shown();
        let claim = by_tid
            .or_else(|| known.claim_shown(&name, &card.begun_as, &is_claimed))
            .or_else(|| known.claim_shown(&name, &shown, &is_claimed));
        let new = card.to_card(provenance, indexes[card.row]);
        match claim {
            None => session.push_tool_card(&new)?,
            Some(at) => {
                is_claimed[at] = true;
                let old = &known.cards[at];
                let is_own = old.run().as_deref() == Some(provenance.run());
                if !is_own || (old.is_done() || !new.is_done()) && !provenance.is_live() {
                    continue;
                }
                session.replace_item(List::ToolCalls, at, &new.fields().to_json())?;
            }
        }
        changed = true;
    }
    Ok(changed)
}

/// A conversation that was shortened for the model goes on as well, without reasoning: in its own turn's place.
pub(super) fn add_to_context(session: &mut Session, turn_end: usize, rows: &[Row]) -> Result<(), NotAList> {
    if session.is_empty(List::ContextMessages) {
        return Ok(());
    }
    let mut at = context_place(session, turn_end);
    for row in rows {
        session.insert_item(List::ContextMessages, at, &without_reasoning(row))?;
        at += 1;
    }
    Ok(())
}

/// Before the user row that follows the turn in the transcript, if the context has it; else at the end.
fn context_place(session: &Session, turn_end: usize) -> usize {
    let len = session.len(List::ContextMessages);
    let rows = turn_end..session.len(List::Messages);
    let next = rows.filter_map(|at| session.message(at)).find(|row| row.role() == "user");
    let Some(next) = next.map(|row| normal_form(&row.content())) else { return len };
    let is_next = |json: &str| {
        let row = Row::parse(json);
        row.role() == "user" && normal_form(&row.content()) == next
    };
    session.texts(List::ContextMessages).rposition(is_next).unwrap_or(len)
}

fn replace_in_context(session: &mut Session, old: &Row, new: &Row) -> Result<(), NotAList> {
    let is_old = |json: &str| {
        let row = Row::parse(json);
        row.role() == "assistant" && row.content() == old.content()
    };
    let place = session.texts(List::ContextMessages).rposition(is_old);
    match place {
        Some(at) => session.replace_item(List::ContextMessages, at, &without_reasoning(new)),
        None => Ok(()),
    }
}

fn without_reasoning(row: &Row) -> String {
    let mut row = row.clone();
    row.fields_mut().remove("reasoning");
    row.fields().to_json()
}
