//! Decide: what becomes of a session whose answers were interrupted. Pure: a session and what is known in, the session
//! as it should be out, or nothing if it is as it should be.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::evidence::{Evidence, JournalState};
use super::pending::recover_turn;
use super::replace::{Replacing, nth_user, place_of, place_of_nth};
use super::retry::resolve_marker;
use super::turn::Turn;
use crate::clock::Timestamp;
use crate::model::marker::{Retry, is_interrupted};
use crate::model::{Branch, NotAList, Session, TurnNote};

/// How long recovery hopes.
#[derive(Debug, Clone)]
pub struct RecoveryOptions {
    /// How often a journal is looked at in vain before its marker says that the answer is lost.
    pub attempts_max: u32,
    /// How long a marker asks for another look.
    pub give_up_after: Duration,
    /// How long a turn that this process began is left alone although nobody seems to work on it.
    pub grace: Duration,
}

impl Default for RecoveryOptions {
    fn default() -> Self {
        RecoveryOptions {
            attempts_max: 12,
            give_up_after: Duration::from_secs(24 * 60 * 60),
            grace: Duration::from_secs(30),
        }
    }
}

/// All that a decision may depend on.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The present moment.
    pub now: Timestamp,
    /// When the process began that holds the directory.
    pub process_began: Timestamp,
    /// How long to hope.
    pub options: &'a RecoveryOptions,
    /// What is known of the pending turn's run, if that turn is dead.
    pub pending: Option<Evidence>,
    /// What that run's record notes of the turn.
    pub turn: &'a TurnNote,
    /// The agent's own transcript, for a session that has none.
    pub core: Option<Session>,
    /// What is known of the runs that markers name. A marker whose run is not among them is left alone.
    pub runs: HashMap<String, Evidence>,
}

/// An answer that is to come into the transcript.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer<'a> {
    pub(super) run: &'a str,
    pub(super) evidence: &'a Evidence,
    pub(super) now: Timestamp,
}

/// What was decided for one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Its turn ended properly and only had to be folded.
    Folded,
    /// Its turn was interrupted, and so many rows were recovered.
    Recovered {
        /// Rows that were added.
        rows: usize,
    },
    /// Its turn was interrupted, and nothing was found yet.
    Armed,
    /// Its marker was resolved, with so many more rows.
    Promoted {
        /// Rows that were added.
        rows: usize,
    },
    /// One more look was in vain.
    Spent {
        /// Looks so far.
        attempts: i64,
    },
    /// There is nothing left to hope for.
    GaveUp,
    /// What its marker noted was unusable and is so no longer.
    Mended,
}

/// What should be done.
#[derive(Debug)]
pub struct Plan {
    /// The session as it should be.
    pub session: Session,
    /// What that means for each run.
    pub steps: Vec<(String, Step)>,
    /// Whether the session changed for its user: a dead turn came into the transcript.
    pub touches: bool,
    /// The branch that is to be stored before the session: a turn that was replaced, or an attempt to replace it that failed.
    pub branch: Option<Branch>,
}

/// Decides what becomes of a session; nothing if it is to stay as it is.
pub fn plan(session: &Session, facts: &Facts<'_>) -> Result<Option<Plan>, NotAList> {
    let mut plan = Plan { session: session.clone(), steps: Vec::new(), touches: false, branch: None };
    let replaced = place_of(session, facts.turn).map(|place| nth_user(session, place));
    // From the last to the first, because rows are only ever added above a marker.
    let mut marked = HashSet::new();
    for at in session.messages_with("\"interrupted\"").into_iter().rev() {
        let row = session.message(at).unwrap_or_default();
        let retry = Retry::of(&row).map(|retry| retry.run);
        let run = retry.clone().or_else(|| row.run().filter(|_| is_interrupted(&row)).map(Cow::into_owned));
        let is_new = run.filter(|run| !run.is_empty()).is_none_or(|run| marked.insert(run));
        plan.steps.extend(match retry {
            Some(run) if !is_new => drop_marker(&mut plan.session, at, &run)?,
            _ => resolve_marker(&mut plan.session, at, facts)?,
        });
    }
    let pending = session.pending_turn().filter(|pending| !is_undecided(pending.started_at, facts));
    if let (Some(evidence), Some(pending)) = (&facts.pending, pending) {
        let run = session.active_run().unwrap_or_default().into_owned();
        let answer = Answer { run: &run, evidence, now: facts.now };
        let step = match marked.contains(&run) && Turn::with_words(&plan.session, &pending.message).is_some() {
            // Its turn was recovered before: only the note that it waits was left behind.
            true => forget_turn(&mut plan.session),
            false => {
                let place = replaced.and_then(|nth| place_of_nth(&plan.session, nth));
                let replacing = Replacing { run: &run, evidence, note: facts.turn, place, now: facts.now };
                let recover = |session: &mut Session| recover_turn(session, &pending, &answer, facts);
                let (step, branch) = replacing.settle(&mut plan.session, recover)?;
                plan.branch = branch;
                step
            }
        };
        plan.steps.push((run, step));
        plan.touches = true;
    }
    Ok((!plan.steps.is_empty()).then_some(plan))
}

/// Whether a run that replaces a turn cannot be decided now, because its journal cannot be read. It may have ended well. A turn
/// for which that lasts too long is decided without it.
fn is_undecided(began: Option<f64>, facts: &Facts<'_>) -> bool {
    let is_unreadable = facts.pending.as_ref().is_some_and(|evidence| evidence.journal == JournalState::Unreadable);
    let age = began.map_or(f64::INFINITY, |began| facts.now.seconds() - began);
    facts.turn.replaces.is_some() && is_unreadable && age < facts.options.give_up_after.as_secs_f64()
}

fn forget_turn(session: &mut Session) -> Step {
    session.clear_pending();
    Step::Folded
}

/// One run has one marker: an armed one that stands above another of the same run goes.
fn drop_marker(session: &mut Session, at: usize, run: &str) -> Result<Option<(String, Step)>, NotAList> {
    session.splice_messages(at..at + 1, &[])?;
    Ok(Some((run.to_owned(), Step::Mended)))
}
