//! A fold into a turn that may hold part of it already: every event's text and every tool stands there once.
//!
//! Rows are known by the number of their first event where we wrote them, else by their text. Only rows of the turn
//! are compared, and none that another run left there. The work grows with the turn, not with its square.

mod cards;
mod contain;
mod context;
mod rows;

use self::cards::merge_cards;
pub(super) use self::context::{ContextRows, add_to_context};
use self::rows::KnownRows;
use super::turn::Turn;
use crate::model::fold::{Folded, FoldedRow, Provenance};
use crate::model::{NotAList, Session, normal_form};

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
    let context = ContextRows::of(session, provenance.run());
    let mut merged = Merged::default();
    let mut added = Vec::new();
    let mut places = Vec::new();
    for (row, claim) in folded.rows.iter().zip(claims) {
        places.push(match claim {
            Some(at) => {
                merged.changed |= complete_row(session, &context, at, row, provenance)?;
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

/// Gives a row what the journal knows beyond it, and says whether there was anything.
fn complete_row(
    session: &mut Session,
    context: &ContextRows,
    at: usize,
    folded: &FoldedRow,
    provenance: Provenance<'_>,
) -> Result<bool, NotAList> {
    let old = session.message(at).unwrap_or_default();
    let mut row = old.clone();
    let is_longer = |new: &str, old: &str| normal_form(new).len() > normal_form(old).len();
    if is_longer(&folded.content, &old.content()) {
        row.fields_mut().set_text("content", &folded.content);
        row.fields_mut().remove("_partial");
    }
    let reasoning = old.reasoning().unwrap_or_default();
    let is_own = old.run().as_deref() == Some(provenance.run());
    if (reasoning.is_empty() || is_own) && is_longer(&folded.reasoning, &reasoning) {
        row.fields_mut().set_text("reasoning", &folded.reasoning);
    }
    if is_own {
        provenance.retag(row.fields_mut());
        folded.note_parts(&mut row);
        folded.note_truncation(provenance.run(), &mut row);
    }
    if row == old {
        return Ok(false);
    }
    session.replace_message(at, &row)?;
    context.replace(session, &old, &row)?;
    Ok(true)
}
