//! Which tool cards the folded cards are: by run and number of the call, else by what they show. The id of a card without
//! a number is its position, which the reference program counts anew in each replay: it has to show the same as well.

use std::collections::{HashMap, VecDeque};

use crate::model::fold::{Folded, FoldedCard, Provenance};
use crate::model::{ANSWERED, List, NotAList, Session, TOLD_KEYS, ToolCard};
use crate::recovery::turn::Turn;

/// The cards that a folded card may turn out to be.
struct KnownCards {
    cards: Vec<ToolCard>,
    is_claimed: Vec<bool>,
    /// Lines of another run, or without numbers, may have the same.
    by_tid: HashMap<String, VecDeque<usize>>,
    by_shown: HashMap<(String, String), VecDeque<usize>>,
}

impl KnownCards {
    fn of(session: &Session, turn: &Turn, run: &str) -> Self {
        let cards: Vec<ToolCard> = session.tool_cards().collect();
        let is_claimed = vec![false; cards.len()];
        let (mut by_tid, mut by_shown) = (HashMap::<_, VecDeque<usize>>::new(), HashMap::<_, VecDeque<usize>>::new());
        for (at, card) in cards.iter().enumerate() {
            let is_own = card.run().as_deref() == Some(run);
            let stands_here = card.run().is_none() && card.row_index().is_some_and(|row| turn.rows.contains(&row));
            if is_own {
                by_tid.entry(card.tid().into_owned()).or_default().push_back(at);
            }
            if is_own || stands_here {
                by_shown.entry((card.name().into_owned(), card.shown())).or_default().push_back(at);
            }
        }
        KnownCards { cards, is_claimed, by_tid, by_shown }
    }

    /// For each folded card the card that it is, if it is there. None is two.
    fn claim(&mut self, folded: &[FoldedCard]) -> Vec<Option<usize>> {
        let mut claims: Vec<Option<usize>> = folded.iter().map(|card| self.claim_tid(card)).collect();
        claims.iter().flatten().for_each(|at| self.is_claimed[*at] = true);
        for (card, claim) in folded.iter().zip(&mut claims).filter(|(_, claim)| claim.is_none()) {
            let name = card.card.name();
            *claim = self.claim_shown(&name, &card.begun_as).or_else(|| self.claim_shown(&name, &card.card.shown()));
        }
        claims
    }

    fn claim_tid(&mut self, card: &FoldedCard) -> Option<usize> {
        let queue = self.by_tid.get_mut(&*card.card.tid())?;
        let known = &self.cards[*queue.front()?];
        (card.is_numbered || may_be(known, card)).then(|| queue.pop_front()).flatten()
    }

    fn claim_shown(&mut self, name: &str, shown: &str) -> Option<usize> {
        let queue = self.by_shown.get_mut(&(name.to_owned(), shown.to_owned()))?;
        while let Some(at) = queue.pop_front() {
            if !std::mem::replace(&mut self.is_claimed[at], true) {
                return Some(at);
            }
        }
        None
    }
}

/// Whether a card has the name of a folded one and shows its call or its result.
fn may_be(known: &ToolCard, card: &FoldedCard) -> bool {
    let shown = known.shown();
    known.name() == card.card.name() && (shown == card.begun_as || shown == card.card.shown())
}

/// Puts folded cards beside the rows that they belong to, and says whether anything changed.
pub(super) fn merge_cards(
    session: &mut Session,
    turn: &Turn,
    folded: &Folded,
    indexes: &[usize],
    provenance: Provenance<'_>,
) -> Result<bool, NotAList> {
    // Where cards should be there may be something else, which is not added to.
    if folded.cards.is_empty() || !session.is_list(List::ToolCalls) {
        return Ok(false);
    }
    let mut known = KnownCards::of(session, turn, provenance.run());
    let claims = known.claim(&folded.cards);
    let mut changed = false;
    for (card, claim) in folded.cards.iter().zip(claims) {
        let new = card.to_card(provenance, indexes[card.row]);
        match claim.map(|at| (at, &known.cards[at])) {
            None => session.push_tool_card(&new)?,
            Some((at, old)) if is_better(&new, old, provenance) => {
                session.replace_item(List::ToolCalls, at, &updated(old, &new, provenance))?;
            }
            Some((at, old)) if tells_more(&new, old, provenance) => {
                session.replace_item(List::ToolCalls, at, &told(old, &new))?;
            }
            Some(_) => continue,
        }
        changed = true;
    }
    Ok(changed)
}

/// The old card with what the new one knows: others may have put keys of their own into it.
fn updated(old: &ToolCard, new: &ToolCard, provenance: Provenance<'_>) -> String {
    let mut card = old.clone();
    provenance.retag(card.fields_mut());
    // A note of an earlier fold, which results that came since may have made wrong.
    card.fields_mut().remove(ANSWERED);
    new.fields().iter().for_each(|(key, value)| card.fields_mut().set(key, value));
    card.fields().to_json()
}

/// The old card with what the tool was really called with and answered. What it shows stays.
fn told(old: &ToolCard, new: &ToolCard) -> String {
    let mut card = old.clone();
    card.fields_mut().remove(ANSWERED);
    let told = TOLD_KEYS.iter().filter_map(|key| Some((*key, new.fields().get(key)?)));
    told.for_each(|(key, value)| card.fields_mut().set(key, value));
    card.fields().to_json()
}

/// Whether a card of this run should be written anew: its tool has answered since, or its run ended normally after all.
fn is_better(new: &ToolCard, old: &ToolCard, provenance: Provenance<'_>) -> bool {
    is_of(old, provenance) && ((new.is_done() && !old.is_done()) || provenance.is_live())
}

/// Whether the new card tells more of what its tool really did, and shows nothing else.
fn tells_more(new: &ToolCard, old: &ToolCard, provenance: Provenance<'_>) -> bool {
    let tells = |card: &ToolCard, key: &str| card.fields().get(key).is_some();
    let tells_other = |key: &&str| tells(new, key) && new.fields().get(key) != old.fields().get(key);
    let is_corrected = tells(old, ANSWERED) && !tells(new, ANSWERED);
    is_of(old, provenance) && new.is_done() == old.is_done() && (is_corrected || TOLD_KEYS.iter().any(tells_other))
}

fn is_of(card: &ToolCard, provenance: Provenance<'_>) -> bool {
    card.run().as_deref() == Some(provenance.run())
}
