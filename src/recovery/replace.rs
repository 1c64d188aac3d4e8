//! A run that replaces a turn: which of the two stands in the transcript when it has ended, and which becomes a branch.
//!
//! Until the run has ended, the old turn and all that follows it stay in the transcript, and the new one is pending. Its end, as
//! far as its journal tells, decides ([`judge`]), for a live end, a dead turn and a late end alike. The branch is stored first and
//! the document afterwards, under a key that a repeat overwrites. What a crash leaves:
//!
//! | after | is there | and the next full read |
//! |---|---|---|
//! | the run's record and journal, before the document | the old transcript, nothing pending | has nothing to do |
//! | the document with the pending turn | the old transcript, the turn pending, its note in the record | decides when the run is dead |
//! | the end in the journal | the same | decides as the live end would have |
//! | the branch object | the same; a branch whose rows the transcript has, or whose run it waits for, is not listed | decides the same, and stores the same branch again |
//! | the document | the turn in its place, the other one in the branch | has nothing to do |

use super::evidence::Evidence;
use super::retry::{fold_late, is_marker_of};
use crate::clock::Timestamp;
use crate::model::message_id::{find_user, user_rows};
use crate::model::{
    Branch, BranchReason, Cut, List, NotAList, Row, RunEnd, Session, TurnNote, TurnPlaces, fingerprint,
};

/// What becomes of a run that was to replace a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It takes the place, and the old rows become a branch.
    TakesPlace,
    /// The old rows stay, and it becomes a branch.
    Fails,
    /// The old rows stay, and nothing is kept: it said nothing, and its question stands in the old rows.
    LeavesNothing,
}

/// Decides by how the run ended and whether it said anything.
pub fn judge(reason: BranchReason, ending: Option<RunEnd>, has_output: bool) -> Verdict {
    match (ending, has_output) {
        (Some(RunEnd::Completed | RunEnd::ToolLimitReached), _) | (Some(RunEnd::InterruptedByUser), true) => {
            Verdict::TakesPlace
        }
        // An edited question stands nowhere else.
        (Some(RunEnd::InterruptedByUser), false) if reason == BranchReason::Regenerate => Verdict::LeavesNothing,
        _ => Verdict::Fails,
    }
}

/// Where the turn begins that is to be replaced: the place of its user row. Nothing if it is not there any more; then the new
/// turn is a turn like any other.
pub fn place_of(session: &Session, note: &TurnNote) -> Option<usize> {
    let message = &note.replaces.as_ref()?.message;
    let is_same = |at: &usize| match &note.replaced_row {
        Some(print) if message.starts_with("row-") => row_print(session, *at).as_deref() == Some(print),
        _ => true,
    };
    let named = find_user(session, message).filter(is_same);
    // A place that was counted may have moved.
    let moved = || {
        let print = note.replaced_row.as_ref().filter(|_| message.starts_with("row-"))?;
        user_rows(session).map(|(at, _)| at).find(|at| row_print(session, *at).as_ref() == Some(print))
    };
    named.or_else(moved)
}

/// The fingerprint of one row.
pub fn row_print(session: &Session, at: usize) -> Option<String> {
    session.message(at).map(|row| fingerprint([row].into_iter()))
}

/// The same place by the number of user rows before it: markers may come and go before it, user rows do not.
pub(super) fn nth_user(session: &Session, place: usize) -> usize {
    user_rows(session).filter(|(at, _)| *at < place).count()
}

/// The place of the user row before which so many stand.
pub(super) fn place_of_nth(session: &Session, nth: usize) -> Option<usize> {
    let users: Vec<usize> = user_rows(session).map(|(at, _)| at).collect();
    users.into_iter().rev().nth(nth)
}

/// The session as it was before the turn that a run replaces; nothing if the run replaces none.
pub fn without_replaced(session: &Session, note: &TurnNote) -> Option<Session> {
    let place = place_of(session, note)?;
    let mut before = session.clone();
    Cut::drop_rows(&mut before, place).ok()?;
    Some(before)
}

/// A run whose turn is to be decided.
pub(super) struct Replacing<'a> {
    pub(super) run: &'a str,
    pub(super) evidence: &'a Evidence,
    pub(super) note: &'a TurnNote,
    /// Where the turn begins that it replaces; nothing if it replaces none.
    pub(super) place: Option<usize>,
    pub(super) now: Timestamp,
}

impl Replacing<'_> {
    /// Lets `fold` bring the run into the session as if the old rows were not there, and decides which of the two stay.
    /// The pending turn is settled in any case.
    pub(super) fn settle<T>(
        &self,
        session: &mut Session,
        fold: impl FnOnce(&mut Session) -> Result<T, NotAList>,
    ) -> Result<(T, Option<Branch>), NotAList> {
        let (Some(place), Some(replaces)) = (self.place, &self.note.replaces) else {
            return fold(session).map(|told| (told, None));
        };
        let mut attempt = session.clone();
        let old = Cut::take(&mut attempt, place)?;
        let told = fold(&mut attempt)?;
        let branch = match judge(replaces.reason, self.evidence.ending, self.evidence.has_output()) {
            Verdict::TakesPlace => {
                *session = attempt;
                Some(self.branch(old, replaces.reason))
            }
            Verdict::Fails => {
                session.clear_pending();
                let failed = Cut::take(&mut attempt, place)?;
                Some(Branch { beside: Some(old.fingerprint()), ..self.branch(failed, BranchReason::Failed) })
            }
            Verdict::LeavesNothing => {
                session.clear_pending();
                None
            }
        };
        Ok((told, branch))
    }

    fn branch(&self, cut: Cut, reason: BranchReason) -> Branch {
        Branch::new(self.run, cut, reason, self.now.seconds())
    }
}

/// What a run leaves that ended after its attempt was given up for dead and became a branch.
#[derive(Debug)]
pub struct Late {
    /// The session with it in the place of the old rows; nothing if they stay.
    pub session: Option<Session>,
    /// The branch to be stored before: the old rows, or all that the attempt said.
    pub branch: Branch,
}

/// Lets a run that completed late take the place that it was to have, if the conversation did not go on meanwhile and no turn
/// waits for its answer. Else its branch gets the rest of it: also after a stop, because that asks for no answer in the
/// place of the old one.
pub fn replace_late(
    session: &Session,
    run: &str,
    evidence: &Evidence,
    failed: &Branch,
    note: &TurnNote,
    now: Timestamp,
) -> Result<Option<Late>, NotAList> {
    let Some(replaces) = &note.replaces else { return Ok(None) };
    let is_free = session.pending_turn().is_none() && session.active_run().is_none();
    let is_answer = matches!(evidence.ending, Some(RunEnd::Completed | RunEnd::ToolLimitReached));
    let place = failed.cut.place_in(session).filter(|_| is_free && is_answer);
    if let Some(place) = place {
        let mut attempt = session.clone();
        let old = Cut::take(&mut attempt, place)?;
        if failed.beside.as_ref() == Some(&old.fingerprint()) {
            failed.cut.attach(&mut attempt)?;
            let late = fold_late(&attempt, run, evidence, now)?;
            let branch = Branch::named_by_rows(old, replaces.reason, now.seconds());
            return Ok(late.map(|late| Late { session: Some(late), branch }));
        }
    }
    let late = fold_late(&failed.cut.alone(session.id())?, run, evidence, now)?;
    let branch = |late: Session| Branch { cut: failed.cut.with_rows_of(&late), ..failed.clone() };
    Ok(late.map(|late| Late { session: None, branch: branch(late) }))
}

/// Whether a branch is an attempt whose run may still end: its marker has not said its last word.
pub fn waits_for_end(branch: &Branch) -> bool {
    let is_open = |row: &String| is_marker_of(&Row::parse(row), &branch.branch_id);
    branch.reason == BranchReason::Failed && branch.cut.rows.iter().any(is_open)
}

/// Whether a stored branch is one to be shown: not what a crash left of rows that stand in the transcript, nor of a run that has
/// not been decided yet.
pub fn is_shown(session: &Session, places: &TurnPlaces, branch: &Branch) -> bool {
    let is_pending = session.active_run().as_deref() == Some(branch.branch_id.as_str());
    let names_run = |row: &str| branch.run_id.as_deref().is_some_and(|run| row.contains(run));
    let is_there = || {
        let run = branch.run_id.as_deref();
        session.texts(List::Messages).filter(|row| names_run(row)).any(|row| Row::parse(row).run().as_deref() == run)
    };
    let is_settled = branch.reason == BranchReason::Failed && is_there();
    let stands = branch.cut.place_among(places).is_some_and(|place| branch.cut.stands_at(session, place));
    !is_pending && !is_settled && !stands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_the_place_if_it_is_one_and_leaves_it_otherwise() {
        use BranchReason::{Edit, Regenerate};
        use Verdict::{Fails, LeavesNothing, TakesPlace};
        for (ending, with_output, without) in [
            (Some(RunEnd::Completed), TakesPlace, TakesPlace),
            (Some(RunEnd::ToolLimitReached), TakesPlace, TakesPlace),
            (Some(RunEnd::InterruptedByUser), TakesPlace, LeavesNothing),
            (Some(RunEnd::InterruptedByCrash), Fails, Fails),
            (Some(RunEnd::Errored), Fails, Fails),
            (None, Fails, Fails),
        ] {
            assert_eq!(judge(Regenerate, ending, true), with_output, "{ending:?}");
            assert_eq!(judge(Regenerate, ending, false), without, "{ending:?}");
            assert_eq!(judge(Edit, ending, true), with_output, "{ending:?}");
            let of_edit = if without == LeavesNothing { Fails } else { without };
            assert_eq!(judge(Edit, ending, false), of_edit, "an edited question stands nowhere else: {ending:?}");
        }
    }
}
