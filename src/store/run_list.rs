//! The runs of a session as lists show them: state, runner, model, times, usage, attempts. Reads only: no repair, no lease is
//! ended, no interrupted answer is resolved.
//!
//! Which runs a session has: those with a journal, those that its rows or the rows of its branches name, and the one that answers its
//! pending turn. A run of which only the rows are left is [`RunState::Gone`].
//!
//! What a list costs: the session (cached), its branches, a read of each run's record, and of each run of the page whose last
//! event was a `done` the end of its journal. A single run costs the session, its branches, and what is the run's own. A journal is
//! read whole if the run can still change, or if its user row has no note that says all (rows of earlier versions, journals of
//! other programs): once for each length, while this process remembers it.

use std::collections::{HashMap, HashSet};

use super::liveness::Liveness;
use super::{Shared, Store, StoreError};
use crate::journal::{runs_as_begun, summarize_end};
use crate::model::{Row, RunEnd, RunId, RunState, Session, SessionId};
use crate::recovery::{RunDetails, UsageSum, details_of_row, read_details};
use crate::storage::{ObjectKind, StorageError};
use crate::sync::Mutex;

/// Journals whose details are remembered. Beyond that all are forgotten, and read again.
const REMEMBERED_MAX: usize = 4_096;

/// A run as lists show it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunInfo {
    /// The run.
    pub run: RunId,
    /// Its state.
    pub state: RunState,
    /// The runner that answers; none if the run makes no attempts, as that of an outside producer.
    pub runner: Option<String>,
    /// The model, once its producer has named it.
    pub model: Option<String>,
    /// When it began, in seconds.
    pub began_at: Option<f64>,
    /// When its first event happened, in seconds.
    pub first_event_at: Option<f64>,
    /// When it ended, in seconds.
    pub ended_at: Option<f64>,
    /// The number of its last event; 0 without events.
    pub last_seq: u64,
    /// How many attempts were made so far; none if the run makes none.
    pub attempts: Option<u64>,
    /// The tokens that it used. They are known if it ended by itself and reported them.
    pub usage: UsageSum,
    /// Why it ended, in the words of the event that ended it, else of its marker.
    pub close_reason: Option<String>,
}

/// A page of a session's runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunList {
    /// The runs of the page, the newest last.
    pub runs: Vec<RunInfo>,
    /// The tokens that all runs of the session used.
    pub usage: UsageSum,
}

impl Store {
    /// The last runs of a session before another one, or up to its end, as many as the limit says. A session that has no run of
    /// that name is [`StoreError::RunNotFound`].
    pub fn list_runs(&self, session: &SessionId, before: Option<&RunId>, limit: usize) -> Result<RunList, StoreError> {
        let known = KnownRuns::of(&self.shared, session, runs_as_begun(&self.shared.storage, session)?)?;
        let end = match before {
            None => known.order.len(),
            Some(before) => known.order.iter().position(|run| run == before).ok_or_else(|| no_run(session, before))?,
        };
        let page = end.saturating_sub(limit)..end;
        let (mut runs, mut usage) = (Vec::with_capacity(page.len()), UsageSum::NOTHING);
        for (at, run) in known.order.iter().enumerate() {
            let details = known.details(run)?;
            let state = known.state(run, &details)?;
            usage = usage.plus(usage_in(state, &details));
            if page.contains(&at) {
                runs.push(known.info(run, state, details)?);
            }
        }
        Ok(RunList { runs, usage })
    }

    /// One run of a session as lists show it.
    pub fn run_info(&self, session: &SessionId, run: &RunId) -> Result<RunInfo, StoreError> {
        // The records of other runs, which only say in which order they began, are not read.
        let with_journal = self.shared.storage.journals(session)?;
        let with_journal = with_journal.into_iter().filter(|known| known == run).collect();
        let known = KnownRuns::of(&self.shared, session, with_journal)?;
        if !known.order.contains(run) {
            return Err(no_run(session, run));
        }
        let details = known.details(run)?;
        let state = known.state(run, &details)?;
        known.info(run, state, details)
    }

    /// Keeps the end of what a run's commands printed on stderr, durably, in the place of what was kept before.
    pub fn keep_stderr(&self, session: &SessionId, run: &RunId, text: &str) -> Result<(), StoreError> {
        let lock = self.shared.locks.of(session);
        let _alone = lock.document.lock();
        Ok(self.shared.storage.keep_stderr(session, run, text)?)
    }

    /// The end of what a run's commands printed on stderr; nothing if they printed nothing. It may hold secrets: show it only to
    /// those who may change the session.
    pub fn stderr_tail(&self, session: &SessionId, run: &RunId) -> Result<Option<String>, StoreError> {
        Ok(self.shared.storage.kept_stderr(session, run)?.filter(|text| !text.is_empty()))
    }
}

fn no_run(session: &SessionId, run: &RunId) -> StoreError {
    StoreError::RunNotFound { session: session.clone(), run: run.to_string() }
}

/// A session's runs, and what its rows say of them.
struct KnownRuns<'s> {
    shared: &'s Shared,
    session: &'s SessionId,
    /// In the order in which they began.
    order: Vec<RunId>,
    with_journal: HashSet<RunId>,
    rows: RowsOfRuns,
    /// When the pending turn was begun, and by which run it is answered.
    pending: Option<(RunId, Option<f64>)>,
}

impl<'s> KnownRuns<'s> {
    /// The runs whose journals are given, and those that rows name.
    fn of(shared: &'s Shared, session: &'s SessionId, mut order: Vec<RunId>) -> Result<Self, StoreError> {
        let read = shared.read(session)?;
        let with_journal = order.iter().cloned().collect();
        let mut rows = RowsOfRuns::default();
        let mut named = vec![rows.read(read.session.messages())];
        for key in shared.storage.objects(session, ObjectKind::Branch)? {
            let branch = shared.listed_branch(session, &key)?;
            let of_branch = branch.iter().flat_map(|branch| branch.cut.rows.iter().map(|row| Row::parse(row)));
            named.push(rows.read(of_branch));
        }
        let pending = pending_run(&read.session);
        named.push(pending.iter().map(|(run, _)| run.clone()).collect());
        named.iter().for_each(|named| insert_named(&mut order, named));
        Ok(KnownRuns { shared, session, order, with_journal, rows, pending })
    }

    /// What is known of a run: from the note in its user row if that says all, else from its journal, else from what there is.
    fn details(&self, run: &RunId) -> Result<RunDetails, StoreError> {
        let noted = self.rows.notes.get(run.as_str());
        if !self.with_journal.contains(run) || noted.is_some_and(|noted| noted.is_final) {
            return Ok(noted.cloned().unwrap_or_default());
        }
        let read = self.shared.journal_details(self.session, run)?.unwrap_or_default();
        let began_at = noted.and_then(|noted| noted.began_at);
        Ok(RunDetails { began_at, ..read })
    }

    fn state(&self, run: &RunId, details: &RunDetails) -> Result<RunState, StoreError> {
        let has_journal = self.with_journal.contains(run);
        if has_journal && details.is_final {
            return Ok(details.end.map_or(RunState::Foreign, RunState::Ended));
        }
        let lock = self.shared.locks.of(self.session);
        Ok(match self.shared.liveness_of(&lock, self.session, run)? {
            Liveness::Gone => RunState::Gone,
            Liveness::Foreign => RunState::Foreign,
            Liveness::Orphaned => RunState::Orphaned,
            // Only another program seals a journal with an event that does not say how.
            Liveness::Sealed if details.is_sealed => details.end.map_or(RunState::Foreign, RunState::Ended),
            // An end that is not shown yet has not happened for readers.
            Liveness::Sealed | Liveness::Live { .. } if details.has_events && has_journal => RunState::Running,
            Liveness::Sealed | Liveness::Live { .. } => RunState::Unknown,
        })
    }

    fn info(&self, run: &RunId, state: RunState, details: RunDetails) -> Result<RunInfo, StoreError> {
        let last_seq = match details.last_seq {
            None if self.with_journal.contains(run) => self.shared.last_seq_of(self.session, run)?,
            last_seq => last_seq.unwrap_or(0),
        };
        let usage = usage_in(state, &details);
        let has_ended = matches!(state, RunState::Ended(_) | RunState::Gone);
        Ok(RunInfo {
            run: run.clone(),
            state,
            runner: details.runner,
            model: details.model,
            began_at: self.began_at(run, details.began_at)?,
            first_event_at: details.first_event_at,
            ended_at: details.ended_at.filter(|_| has_ended),
            last_seq,
            attempts: details.attempts,
            usage,
            close_reason: details.close_reason.or_else(|| self.cause(run, state)),
        })
    }

    /// Why a run was interrupted, as its marker says.
    fn cause(&self, run: &RunId, state: RunState) -> Option<String> {
        let is_by_itself = state.end().is_some_and(RunEnd::is_by_itself);
        self.rows.causes.get(run.as_str()).filter(|_| !is_by_itself).cloned()
    }

    /// When a run began, as its record says, else its note, else the pending turn that it answers.
    fn began_at(&self, run: &RunId, noted: Option<f64>) -> Result<Option<f64>, StoreError> {
        // A record that cannot be read costs the list no other run.
        let recorded = match self.shared.storage.birth(self.session, run) {
            Err(error) if error.is_of_one_object() => None,
            birth => birth?.map(|birth| birth.begun_at).filter(|at| *at > 0.0),
        };
        let pending = || self.pending.as_ref().filter(|(pending, _)| pending == run).and_then(|(_, began)| *began);
        Ok(recorded.or(noted).or_else(pending))
    }
}

/// The usage of a run in this state. It is known only if the run ended by itself, and its journal is still there.
fn usage_in(state: RunState, details: &RunDetails) -> UsageSum {
    match state {
        RunState::Ended(end) if end.is_by_itself() => details.usage,
        _ => UsageSum { at_least: details.usage.at_least, ..UsageSum::default() },
    }
}

fn pending_run(session: &Session) -> Option<(RunId, Option<f64>)> {
    let run = RunId::parse(&session.active_run()?).ok()?;
    Some((run, session.pending_turn().and_then(|turn| turn.started_at)))
}

/// What rows say of runs.
#[derive(Default)]
struct RowsOfRuns {
    /// The note in the user row of each run, by the run's id. A transcript goes before branches.
    notes: HashMap<String, RunDetails>,
    /// Why each run was interrupted, as its marker says.
    causes: HashMap<String, String>,
}

impl RowsOfRuns {
    /// Reads rows, and gives the runs that they name, in order.
    fn read(&mut self, rows: impl Iterator<Item = Row>) -> Vec<RunId> {
        let mut named = Vec::new();
        // A marker of an earlier version names no run: it is that of the answer above it.
        let mut last: Option<String> = None;
        for row in rows {
            let run = row.run().filter(|run| !run.is_empty()).map(|run| run.into_owned());
            if let Some(cause) = row.fields().text("interruption_cause")
                && let Some(run) = run.as_ref().or(last.as_ref())
            {
                self.causes.entry(run.clone()).or_insert_with(|| cause.into_owned());
            }
            if row.role() == "user"
                && let Some((run, details)) = details_of_row(&row)
            {
                self.notes.entry(run).or_insert(details);
            }
            let Some(run) = run else { continue };
            if last.as_ref() != Some(&run) {
                named.extend(RunId::parse(&run).ok());
            }
            last = Some(run);
        }
        named
    }
}

/// Puts runs into a list that are not in it, each after the one that is named before it.
fn insert_named(order: &mut Vec<RunId>, named: &[RunId]) {
    let known: HashSet<&RunId> = order.iter().collect();
    // The runs that are missing, by the known run after which they stand; none for those before all others.
    let mut missing: HashMap<Option<&RunId>, Vec<RunId>> = HashMap::new();
    let (mut inserted, mut after) = (HashSet::new(), None);
    for run in named {
        if let Some(run) = known.get(run) {
            after = Some(*run);
        } else if inserted.insert(run) {
            missing.entry(after).or_default().push(run.clone());
        }
    }
    if missing.is_empty() {
        return;
    }
    let first = missing.remove(&None).unwrap_or_default();
    let rest = order.iter().flat_map(|run| {
        let following = missing.get(&Some(run)).into_iter().flatten();
        std::iter::once(run).chain(following).cloned()
    });
    *order = first.into_iter().chain(rest.collect::<Vec<_>>()).collect();
}

/// The details of journals that this process has read.
#[derive(Debug, Default)]
pub(super) struct RememberedDetails {
    by_run: Mutex<HashMap<(SessionId, RunId), Remembered>>,
}

/// What a journal of this length says.
#[derive(Debug)]
struct Remembered {
    bytes: u64,
    details: RunDetails,
}

impl RememberedDetails {
    fn get(&self, key: &(SessionId, RunId), bytes: u64) -> Option<RunDetails> {
        let by_run = self.by_run.lock();
        by_run.get(key).filter(|known| known.bytes == bytes).map(|known| known.details.clone())
    }

    fn note(&self, key: (SessionId, RunId), bytes: u64, details: &RunDetails) {
        let mut by_run = self.by_run.lock();
        if by_run.len() >= REMEMBERED_MAX {
            by_run.clear();
        }
        by_run.insert(key, Remembered { bytes, details: details.clone() });
    }
}

impl Shared {
    /// What a run's journal says, as far as it may be shown. That of a run which this process has not opened is read once for each
    /// length. One that cannot be read costs the list no other run.
    fn journal_details(&self, session: &SessionId, run: &RunId) -> Result<Option<RunDetails>, StoreError> {
        let key = (session.clone(), run.clone());
        let is_open = self.locks.of(session).open_run(run).is_some();
        let bytes = self.storage.journal_len(session, run)?.filter(|_| !is_open);
        if let Some(known) = bytes.and_then(|bytes| self.remembered.get(&key, bytes)) {
            return Ok(Some(known));
        }
        let read = self.read_shown(session, |shown| read_details(&self.storage, session, run, shown(run)));
        let details = match read {
            Err(error) if error.storage().is_some_and(StorageError::is_of_one_object) => None,
            details => details?,
        };
        if let (Some(bytes), Some(details)) = (bytes, &details) {
            self.remembered.note(key, bytes, details);
        }
        Ok(details)
    }

    /// The number of the last event of a run that has ended, from the end of its journal.
    fn last_seq_of(&self, session: &SessionId, run: &RunId) -> Result<u64, StoreError> {
        match summarize_end(&self.storage, session, run) {
            Err(error) if error.is_of_one_object() => Ok(0),
            summary => Ok(summary?.map_or(0, |summary| summary.last_seq)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(begun: &[&str], named: &[&str], expected: &[&str]) {
        let ids = |names: &[&str]| names.iter().map(|name| RunId::parse(name).unwrap()).collect::<Vec<_>>();
        let mut order = ids(begun);
        insert_named(&mut order, &ids(named));
        assert_eq!(order, ids(expected));
    }

    #[test]
    fn a_run_without_a_journal_stands_after_the_one_that_is_named_before_it() {
        check(&["a", "c"], &["a", "b", "c"], &["a", "b", "c"]);
        check(&["c"], &["a", "b", "c"], &["a", "b", "c"]);
        check(&["a", "c"], &["c", "d"], &["a", "c", "d"]);
        check(&[], &["a", "b", "a"], &["a", "b"]);
        check(&["a", "b"], &[], &["a", "b"]);
    }
}
