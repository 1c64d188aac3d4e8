//! A question that is asked again: it and what answered it leave the transcript, and its new answer takes their place.

use crate::model::{List, NotAList, Session, ToolCard};

/// Takes the last question and everything behind it out of a session, if it is this one. Says whether it was.
///
/// The version with them is kept by whoever saves this one, because it is shorter.
pub(super) fn make_room(session: &mut Session, question: &str) -> Result<bool, NotAList> {
    let Some(first_gone) = last_question(session).filter(|at| is_asked(session, *at, question)) else {
        return Ok(false);
    };
    let is_kept = |card: &&str| ToolCard::parse(card).row_index().is_none_or(|row| row < first_gone);
    let kept: Vec<String> = session.texts(List::ToolCalls).filter(is_kept).map(str::to_owned).collect();
    if kept.len() < session.len(List::ToolCalls) {
        session.truncate(List::ToolCalls, 0)?;
        kept.iter().try_for_each(|card| session.push_item(List::ToolCalls, card))?;
    }
    session.truncate(List::Messages, first_gone)?;
    Ok(true)
}

fn last_question(session: &Session) -> Option<usize> {
    session.messages().rposition(|row| row.role() == "user")
}

fn is_asked(session: &Session, at: usize, question: &str) -> bool {
    session.message(at).is_some_and(|row| row.content().trim() == question.trim())
}
