//! A question that is asked again: it and everything behind it leave the transcript, and its new answer takes their place.

use crate::model::{List, NotAList, Row, Session, ToolCard};

/// Which question is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// The last one, if it is this one. Else it is a question like any other.
    Last,
    /// The one of this number, counted from 1. It is refused if that is another one.
    Nth(usize),
}

/// What became of a question that is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// It was there, and made room.
    Made,
    /// It was not there, and need not be.
    NotNeeded,
    /// It was not where it should be.
    NotThere,
}

/// Takes a question and everything behind it out of a session, tool cards and the model's own view of it included.
///
/// The version with them is kept by whoever saves this one, because it is shorter.
pub(super) fn make_room(session: &mut Session, question: &str, again: Again) -> Result<Room, NotAList> {
    let questions: Vec<usize> = places(session, List::Messages);
    let nth = match again {
        Again::Last => questions.len().checked_sub(1),
        Again::Nth(nth) => nth.checked_sub(1),
    };
    let place = nth.and_then(|nth| questions.get(nth)).filter(|at| is_asked(session, List::Messages, **at, question));
    let Some((&first_gone, nth)) = place.zip(nth) else {
        return Ok(if again == Again::Last { Room::NotNeeded } else { Room::NotThere });
    };
    drop_cards(session, first_gone)?;
    drop_context(session, question, questions.len() - nth)?;
    session.truncate(List::Messages, first_gone)?;
    Ok(Room::Made)
}

/// Where the user's words stand in a list.
fn places(session: &Session, list: List) -> Vec<usize> {
    let rows = session.texts(list).map(Row::parse).enumerate();
    rows.filter(|(_, row)| row.role() == "user").map(|(at, _)| at).collect()
}

fn is_asked(session: &Session, list: List, at: usize, question: &str) -> bool {
    session.item(list, at).is_some_and(|row| Row::parse(row).content().trim() == question.trim())
}

fn drop_cards(session: &mut Session, first_gone: usize) -> Result<(), NotAList> {
    let is_kept = |card: &&str| ToolCard::parse(card).row_index().is_none_or(|row| row < first_gone);
    let kept: Vec<String> = session.texts(List::ToolCalls).filter(is_kept).map(str::to_owned).collect();
    if kept.len() == session.len(List::ToolCalls) {
        return Ok(());
    }
    session.truncate(List::ToolCalls, 0)?;
    kept.iter().try_for_each(|card| session.push_item(List::ToolCalls, card))
}

/// The model is not to be shown the old answer. Where its own view has no such question at that place, counted from the
/// end, it is made anew from the transcript.
fn drop_context(session: &mut Session, question: &str, nth_last: usize) -> Result<(), NotAList> {
    if session.is_empty(List::ContextMessages) {
        return Ok(());
    }
    let questions = places(session, List::ContextMessages);
    let place = questions.len().checked_sub(nth_last).map(|nth| questions[nth]);
    let first_gone = place.filter(|at| is_asked(session, List::ContextMessages, *at, question));
    session.truncate(List::ContextMessages, first_gone.unwrap_or(0))
}
