//! Resolving interrupted answers when a session is read: who is alive, what to look at, and one save.

use crate::sync::atomic::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::liveness::{KeptAlive, Liveness};
use super::read::Cached;
use super::session_locks::SessionLock;
use super::{Shared, Store, StoreError};
use crate::format::read_session;
use crate::journal::count_lines;
use crate::model::marker::{FirstSeen, FoldedUpTo, Retry};
use crate::model::{List, RunId, Session, SessionId, TurnNote};
use crate::recovery::{
    Evidence, Facts, Growing, JournalState, Plan, Step, Watch, fold_limit, look_within, plan, store_large,
    without_replaced,
};
use crate::sidecar::{SaveIntent, SaveOptions, SidecarError};

impl Store {
    /// Lets a run count as live while the guard lives: somebody in this process is about to append to it.
    pub fn keep_alive(&self, session: &SessionId, run: &RunId) -> KeptAlive {
        self.shared.liveness.keep_alive(session, run)
    }
}

impl Shared {
    /// The session with every interrupted answer resolved that can be. One at a time; whoever comes meanwhile gets the
    /// session as it is, and so does everybody while the disk is full.
    pub(super) fn resolve(&self, id: &SessionId, read: Arc<Cached>) -> Result<Arc<Session>, StoreError> {
        let lock = self.locks.of(id);
        let Some(_alone) = lock.document.try_lock() else { return Ok(read.session.clone()) };
        if read.watch.is_quiet() {
            return self.settle_branches(&lock, read).map(|read| read.session.clone());
        }
        match self.resolve_alone(&lock, id) {
            Err(error) if error.code() == "no_space" => Ok(read.session.clone()),
            resolved => resolved.map(|resolved| resolved.session.clone()),
        }
    }

    /// The same for a caller that holds the session's lock.
    ///
    /// A crash before the save leaves the session as it was, and the next read decides the same; a crash behind it
    /// leaves the session resolved, and the next read finds nothing to do.
    pub(super) fn resolve_alone(&self, lock: &Arc<SessionLock>, id: &SessionId) -> Result<Arc<Cached>, StoreError> {
        let read = self.settle_branches(lock, self.read(id)?)?;
        if read.watch.is_quiet() {
            lock.forget_closed_runs();
            return Ok(read);
        }
        let Some(grown) = self.calls_for_a_look(lock, &read) else { return Ok(read) };
        self.make_hidden_end_durable(lock, &read)?;
        // What cannot be told now is decided by a later read.
        let Ok(turn) = self.dead_turn_note(lock, &read) else { return Ok(read) };
        let facts = self.facts(lock, &read, &grown, &turn);
        if facts.runs.values().all(|evidence| evidence.journal != JournalState::Unreadable) {
            note_looked_through(lock, &read);
        }
        self.meter().damaged_lines.add(damaged(&facts));
        // A list that is no list is served as it is.
        let Ok(Some(plan)) = plan(&read.session, &facts) else {
            note_seen(&read.watch, &facts);
            return Ok(read);
        };
        self.store_large_values(id, &facts)?;
        plan.branch.iter().try_for_each(|branch| self.put_replaced(&read.session, branch, &plan.session))?;
        match self.save(&plan.session, save_options(&read.session, &plan)) {
            // Another program was faster: what is there now is served, and the next read looks at it.
            Err(StoreError::Sidecar(SidecarError::Conflict { .. })) => self.read(id),
            // There is no room even for a marker: it is served as it is.
            Err(StoreError::Sidecar(SidecarError::TooLarge { .. })) => Ok(read),
            saved => {
                let runs: Vec<RunId> = plan.steps.iter().filter_map(|(run, _)| RunId::parse(run).ok()).collect();
                let saved = saved?;
                note_seen(&saved.watch, &facts);
                note_folded(&read.session, &saved.watch, &facts);
                self.count(&plan.steps, &read.watch);
                runs.iter().for_each(|run| self.show_saved_end(lock, run));
                Ok(saved)
            }
        }
    }

    /// Stores what the cards of the answers refer to, before the document that holds the cards.
    fn store_large_values(&self, id: &SessionId, facts: &Facts<'_>) -> Result<(), StoreError> {
        let answers = facts.pending.iter().chain(facts.runs.values());
        Ok(answers.map(|answer| &answer.folded.large).try_for_each(|large| store_large(&self.storage, id, large))?)
    }

    /// An end that followers are not shown yet may not be durable. Only what is comes into the transcript.
    fn make_hidden_end_durable(&self, lock: &Arc<SessionLock>, read: &Cached) -> Result<(), StoreError> {
        match hidden_end(lock, read) {
            Some(run) => self.make_end_durable(lock, read.session.id(), &run),
            None => Ok(()),
        }
    }

    /// Counts what was decided, once it is saved.
    fn count(&self, steps: &[(String, Step)], watch: &Watch) {
        let recoveries = &self.meter().recoveries;
        for (run, step) in steps {
            let was_armed = || watch.armed.iter().any(|retry| retry.run == *run);
            let counter = match step {
                Step::Folded => &recoveries.folded,
                Step::Recovered { .. } => &recoveries.recovered,
                Step::Armed => &recoveries.armed,
                Step::Promoted { .. } if was_armed() => &recoveries.resolved,
                Step::Promoted { .. } => &recoveries.grown,
                Step::Spent { .. } => &recoveries.looked_in_vain,
                Step::GaveUp => &recoveries.given_up,
                Step::Mended => &recoveries.mended,
            };
            counter.add(1);
        }
    }

    /// Whether there may be something to resolve, and the runs whose journals have grown. Costs a stat of each journal that an
    /// armed marker, or one in the last turn, waits for; those of settled turns are looked at once after the session was
    /// loaded, and again if this process opens them.
    fn calls_for_a_look(&self, lock: &SessionLock, read: &Cached) -> Option<Vec<String>> {
        let session = &read.session;
        let is_dead = read.watch.is_pending && self.is_dead(lock, session);
        // While a run of the session is under way, its transcript is left alone.
        if read.watch.is_pending && !is_dead {
            return None;
        }
        let id = session.id();
        let grown = self.grown(lock, read);
        let calls = is_dead || !grown.is_empty() || read.watch.armed.iter().any(|retry| self.is_worth_a_try(id, retry));
        calls.then_some(grown)
    }

    /// The runs whose journals hold more than the rows above their markers, or may do so. If there is none, the journals were
    /// looked through.
    fn grown(&self, lock: &SessionLock, read: &Cached) -> Vec<String> {
        let (id, watch) = (read.session.id(), &read.watch);
        let opened = lock.runs_to_look_at();
        let opened_growing = opened.iter().filter_map(|(run, is_new)| {
            let growing = watch.growing_run(run.as_str())?;
            if *is_new {
                growing.forget();
            }
            Some(growing)
        });
        let opened_growing: Vec<_> = opened_growing.collect();
        let was_looked_through = read.was_looked_through.load(Ordering::Relaxed);
        let watched = if was_looked_through { watch.growing_in_last_turn() } else { &watch.growing };
        let mut grown: Vec<String> = watched
            .iter()
            .chain(opened_growing)
            .filter(|growing| self.has_grown(id, growing))
            .map(|growing| growing.run.clone())
            .collect();
        grown.sort_unstable();
        grown.dedup();
        if grown.is_empty() {
            note_looked_through(lock, read);
        }
        grown
    }

    /// Whether the pending turn is to be recovered, because the run that answers it is over.
    pub(super) fn is_dead(&self, lock: &SessionLock, session: &Session) -> bool {
        !matches!(self.liveness_of_turn(lock, session), Liveness::Live { .. })
    }

    /// An armed marker whose journal is missing or empty costs nothing, until it is too old or notes no usable numbers.
    fn is_worth_a_try(&self, session: &SessionId, retry: &Retry) -> bool {
        let age = match retry.first_seen {
            FirstSeen::At(first) => self.clock.now().seconds() - first,
            FirstSeen::Unknown => 0.0,
            FirstSeen::Unusable => return true,
        };
        let is_over = age > self.options.recovery.give_up_after.as_secs_f64();
        let is_spent = retry.attempts.is_none_or(|attempts| attempts >= i64::from(self.options.recovery.attempts_max));
        let is_nameable = RunId::parse(&retry.run).is_ok();
        is_over || is_spent || !is_nameable || self.journal_len(session, &retry.run).is_some_and(|bytes| bytes > 0)
    }

    /// One that cannot be looked at now may have: then the journal is read, and looked at again the next time.
    fn has_grown(&self, session: &SessionId, growing: &Growing) -> bool {
        let Ok(run) = RunId::parse(&growing.run) else { return false };
        let bytes = match self.storage.journal_len(session, &run) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return false,
            Err(_) => return true,
        };
        growing.has_changed(bytes).unwrap_or_else(|| {
            let is_known = self.is_known(session, growing);
            if is_known {
                growing.note(bytes);
            }
            !is_known
        })
    }

    /// Whether a marker notes as many records as its journal holds. A note of an earlier version may have counted a torn
    /// tail, and tells nothing.
    fn is_known(&self, session: &SessionId, growing: &Growing) -> bool {
        match (growing.noted, RunId::parse(&growing.run)) {
            (Some(FoldedUpTo::Records(records)), Ok(run)) => {
                count_lines(&self.storage, session, &run).ok().flatten() == Some(records)
            }
            _ => false,
        }
    }

    /// Looks at a run's journal, and folds no more of it than fits into the session.
    fn look_at(&self, session: &Session, run: &str) -> Evidence {
        let limit = fold_limit(session, run, self.options.document_bytes_max);
        look_within(&self.storage, session.id(), run, limit)
    }

    /// Looks at everything that the decision depends on.
    fn facts<'f>(&'f self, lock: &SessionLock, read: &Cached, grown: &[String], turn: &'f TurnNote) -> Facts<'f> {
        let (session, id) = (&read.session, read.session.id());
        let is_dead = read.watch.is_pending && self.is_dead(lock, session);
        let before = without_replaced(session, turn);
        let beside = before.as_ref().unwrap_or(session);
        let pending = session.active_run().filter(|_| is_dead).map(|run| self.look_at(beside, &run));
        let wants_core = pending.is_some() && session.is_empty(List::Messages);
        Facts {
            now: self.clock.now(),
            process_began: self.began_at,
            options: &self.options.recovery,
            pending,
            turn,
            core: if wants_core { self.core(id) } else { None },
            runs: self.look_behind_markers(read, grown),
        }
    }

    /// What is noted of the pending turn, if its run is dead.
    fn dead_turn_note(&self, lock: &SessionLock, read: &Cached) -> Result<TurnNote, StoreError> {
        let is_dead = read.watch.is_pending && self.is_dead(lock, &read.session);
        let run = read.session.active_run().filter(|_| is_dead).and_then(|run| RunId::parse(&run).ok());
        let note = run.map(|run| self.note_to_settle(read.session.id(), &run)).transpose()?;
        Ok(note.unwrap_or_default())
    }

    fn look_behind_markers(&self, read: &Cached, grown: &[String]) -> HashMap<String, Evidence> {
        let armed = read.watch.armed.iter().map(|retry| &retry.run).filter(|run| !run.is_empty());
        armed.chain(grown).map(|run| (run.clone(), self.look_at(&read.session, run))).collect()
    }

    /// How long a run's journal is; nothing if there is none, or none that can be looked at now.
    fn journal_len(&self, session: &SessionId, run: &str) -> Option<u64> {
        let run = RunId::parse(run).ok()?;
        self.storage.journal_len(session, &run).ok().flatten()
    }

    /// The agent's own transcript. One that cannot be read is as good as none.
    fn core(&self, id: &SessionId) -> Option<Session> {
        let bytes = self.storage.core_transcript(id).ok().flatten()?;
        read_session(id, bytes).ok()
    }
}

/// The pending run, if its journal has an end that followers are not shown yet.
fn hidden_end(lock: &SessionLock, read: &Cached) -> Option<RunId> {
    let run = RunId::parse(&read.session.active_run()?).ok()?;
    lock.open_run(&run)?.hidden_end().map(|_| run)
}

/// From now on the journals of settled turns need no look, unless this process opens them.
fn note_looked_through(lock: &SessionLock, read: &Cached) {
    lock.note_looked_at();
    read.was_looked_through.store(true, Ordering::Relaxed);
}

fn damaged(facts: &Facts<'_>) -> u64 {
    facts.pending.iter().chain(facts.runs.values()).map(|evidence| evidence.damaged).sum()
}

/// Journals that were looked at and had nothing new need no second look until they change again.
fn note_seen(watch: &Watch, facts: &Facts<'_>) {
    for growing in &watch.growing {
        if let Some(JournalState::Unsealed { bytes, .. } | JournalState::Sealed { bytes }) =
            facts.runs.get(&growing.run).map(|evidence| evidence.journal)
        {
            growing.note(bytes);
        }
    }
}

/// The journal of the turn that was just recovered needs no second look either.
fn note_folded(before: &Session, watch: &Watch, facts: &Facts<'_>) {
    if let Some(JournalState::Unsealed { bytes, .. }) = facts.pending.as_ref().map(|evidence| evidence.journal)
        && let Some(growing) = before.active_run().and_then(|run| watch.growing_run(&run))
    {
        growing.note(bytes);
    }
}

/// Only a dead turn that comes into the transcript moves the session up in lists. A marker that goes may leave fewer
/// rows, which is meant.
fn save_options(before: &Session, plan: &Plan) -> SaveOptions {
    let shrinks = plan.session.len(List::Messages) < before.len(List::Messages);
    let intent = if shrinks { SaveIntent::Shrink } else { SaveIntent::Keep };
    SaveOptions { intent, touch_updated_at: plan.touches }
}
