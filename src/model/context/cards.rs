//! Tool cards become calls of the rows that they are tied to.
//!
//! A card names its row by its place in the transcript. If no assistant's row of the conversation stands there, the card
//! goes to the nearest one before it in the same turn. Without one, or tied to a row that does not exist, it is left out:
//! it may be what is left of a turn that was taken away.

use std::collections::HashMap;

use super::line::{Line, Speaker, word};
use super::tools::{Call, Place, call_at};
use crate::model::json::Fields;
use crate::model::session::{List, Session};

/// For each row of the transcript, its line. The conversation is the transcript.
pub(super) fn rows_of_all(lines: &[Option<Line>]) -> Vec<Option<usize>> {
    lines.iter().enumerate().map(|(at, line)| line.as_ref().map(|_| at)).collect()
}

/// For each row of the transcript, its line in a conversation that an application shortened. New turns are added to both,
/// so they agree from the end on, up to where it was shortened. Calls from before are the application's own affair.
pub(super) fn rows_of_tail(session: &Session, lines: &[Option<Line>]) -> Vec<Option<usize>> {
    let mut rows = vec![None; session.len(List::Messages)];
    let mut rest = lines.iter().enumerate().rev().filter_map(|(at, line)| Some((at, line.as_ref()?)));
    for (row, json) in session.texts(List::Messages).enumerate().rev() {
        let Some(line) = Line::parse(json) else { continue };
        match rest.next() {
            Some((at, same)) if same.is_same(&line) => rows[row] = Some(at),
            _ => break,
        }
    }
    rows
}

/// Adds what the cards show. `native` are the calls that the rows hold themselves: a card of one of them tells at most
/// how it ended, and a row that holds its calls takes no others from cards, which would be the same ones under other ids.
pub(super) fn add_cards<'a>(
    lines: &mut [Option<Line>],
    cards: impl Iterator<Item = &'a str>,
    rows: &[Option<usize>],
    native: &HashMap<String, Place>,
) {
    let (anchors, turns) = (anchors(lines, rows), turns(lines));
    let mut added = Vec::new();
    for card in cards.filter_map(Fields::parse) {
        let call = Call::of_card(&card);
        let anchor = row_index(&card).and_then(|row| *anchors.get(row)?);
        // Producers count their calls anew in each answer.
        let is_of_turn = |place: &&Place| anchor.is_some_and(|anchor| turns[anchor] == turns[place.0]);
        let by_tid = native.get(&word(&card, "tid")).filter(|_| !word(&card, "tid").is_empty());
        let by_id = native.get(&call.id).filter(|_| !call.id.is_empty()).filter(is_of_turn);
        if let Some(place) = by_tid.or(by_id) {
            call_at(lines, *place).take_result_of(call);
        } else if let Some(anchor) = anchor {
            added.push((anchor, call));
        }
    }
    added.retain(|(anchor, _)| lines[*anchor].as_ref().is_some_and(|line| line.calls.is_empty()));
    for (anchor, call) in added {
        lines[anchor].as_mut().expect("an anchor is a line").calls.push(call);
    }
}

/// For each line, how many users' lines stand before it: lines of one turn have the same number.
fn turns(lines: &[Option<Line>]) -> Vec<usize> {
    let mut turn = 0;
    let of_line = |line: &Option<Line>| {
        turn += usize::from(line.as_ref().is_some_and(|line| line.speaker == Speaker::User));
        turn
    };
    lines.iter().map(of_line).collect()
}

fn row_index(card: &Fields<'_>) -> Option<usize> {
    card.get("assistant_msg_idx")?.parse().ok()
}

/// For each row of the transcript, the line that a card tied to it goes to.
fn anchors(lines: &[Option<Line>], rows: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut anchor = None;
    let of_row = |row: &Option<usize>| {
        match row.and_then(|at| lines[at].as_ref()).map(|line| line.speaker) {
            Some(Speaker::Assistant) => anchor = *row,
            Some(Speaker::User) => anchor = None,
            _ => {}
        }
        anchor
    };
    rows.iter().map(of_row).collect()
}
