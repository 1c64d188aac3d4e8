//! Replay over all runs of a session, from where a client left off.

use std::sync::Arc;

use super::event::JournalEvent;
use super::reader::{Found, ReadOptions, RunReader};
use crate::format::DamageKind;
use crate::limits::{REPLAY_BYTES_MAX, REPLAY_EVENTS_MAX};
use crate::model::{Cursor, Object, RunId, SessionId};
use crate::storage::{Storage, StorageError};

/// How a replay went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayStatus {
    /// Everything behind the cursor is there.
    Ok,
    /// The cursor is not of the form `run:seq`.
    CursorInvalid,
    /// The session has no run of that id.
    CursorRunMissing,
    /// The run's events say that they belong to another session.
    CursorSessionMismatch,
    /// The run has no event of that number.
    CursorEventMissing,
    /// A journal behind the cursor is damaged.
    Malformed,
    /// Numbers are missing behind the cursor.
    Noncontiguous,
    /// There are more events than one replay gives; these are the first of them.
    LimitRows,
    /// There are more bytes than one replay gives; these events are the first of them.
    LimitBytes,
}

impl ReplayStatus {
    /// The word that clients are told.
    pub fn as_str(self) -> &'static str {
        match self {
            ReplayStatus::Ok => "ok",
            ReplayStatus::CursorInvalid => "cursor_invalid",
            ReplayStatus::CursorRunMissing => "cursor_run_missing",
            ReplayStatus::CursorSessionMismatch => "cursor_session_mismatch",
            ReplayStatus::CursorEventMissing => "cursor_event_missing",
            ReplayStatus::Malformed => "replay_malformed",
            ReplayStatus::Noncontiguous => "replay_noncontiguous",
            ReplayStatus::LimitRows => "replay_limit_rows",
            ReplayStatus::LimitBytes => "replay_limit_bytes",
        }
    }
}

/// The events behind a cursor.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Whether that is all of them, and if not, why.
    pub status: ReplayStatus,
    /// The events, with their runs. Empty unless the status is ok or a limit.
    pub events: Vec<(RunId, JournalEvent)>,
}

/// How much one replay gives at most.
#[derive(Debug, Clone, Copy)]
pub struct ReplayLimits {
    /// Events.
    pub events: usize,
    /// Bytes of lines.
    pub bytes: usize,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        ReplayLimits { events: REPLAY_EVENTS_MAX, bytes: REPLAY_BYTES_MAX }
    }
}

/// Replays what lies behind a cursor, or everything without one: runs by their first event, then by id. Only runs from
/// the cursor's on are read, no further than the limits, and each no further than it may be shown.
pub fn replay_session(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    cursor: Option<&Cursor>,
    limits: ReplayLimits,
    shown: &dyn Fn(&RunId) -> Option<u64>,
) -> Result<Replay, StorageError> {
    let runs = runs_in_order(storage, session)?;
    let place = match place_of(cursor, &runs) {
        Ok(place) => place,
        Err(status) => return Ok(Replay { status, events: Vec::new() }),
    };
    let mut collected = Collected { session, limits, shown, bytes: 0, events: Vec::new() };
    let mut after_seq = place.after_seq;
    for run in &runs[place.first_run..] {
        let status = collected.add_run(storage, run, after_seq)?;
        match status {
            ReplayStatus::Ok => after_seq = 0,
            ReplayStatus::LimitRows | ReplayStatus::LimitBytes => return Ok(collected.into_replay(status)),
            status => return Ok(Replay { status, events: Vec::new() }),
        }
    }
    Ok(collected.into_replay(ReplayStatus::Ok))
}

fn runs_in_order(storage: &Arc<dyn Storage>, session: &SessionId) -> Result<Vec<RunId>, StorageError> {
    let mut runs = Vec::new();
    for run in storage.journals(session)? {
        runs.push((first_event_at(storage, session, &run)?, run));
    }
    runs.sort_by(|(a, a_run), (b, b_run)| a.total_cmp(b).then_with(|| a_run.cmp(b_run)));
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

/// A session's runs that have a journal, as they began: by what was noted when they did, which for runs of other programs
/// is their first event. Costs a look at each run, however long it is.
pub fn runs_as_begun(storage: &Arc<dyn Storage>, session: &SessionId) -> Result<Vec<RunId>, StorageError> {
    let mut runs = Vec::new();
    for run in storage.journals(session)? {
        let begun_at = match storage.birth(session, &run)? {
            Some(birth) => birth.begun_at,
            None => first_event_at(storage, session, &run)?,
        };
        runs.push((begun_at, run));
    }
    runs.sort_by(|(a, a_run), (b, b_run)| a.total_cmp(b).then_with(|| a_run.cmp(b_run)));
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

/// When a run's first event was written. A run without one comes last.
fn first_event_at(storage: &Arc<dyn Storage>, session: &SessionId, run: &RunId) -> Result<f64, StorageError> {
    for found in RunReader::open(storage, session, run, ReadOptions::default())?.into_iter().flatten() {
        if let Found::Event(JournalEvent { created_at: Some(at), .. }) = found? {
            return Ok(at);
        }
    }
    Ok(f64::MAX)
}

/// Where a replay begins.
struct Place {
    first_run: usize,
    after_seq: u64,
}

fn place_of(cursor: Option<&Cursor>, runs: &[RunId]) -> Result<Place, ReplayStatus> {
    let Some(cursor) = cursor else { return Ok(Place { first_run: 0, after_seq: 0 }) };
    let (Some(run), Some(after_seq)) = (&cursor.run, cursor.seq) else { return Err(ReplayStatus::CursorInvalid) };
    let run = RunId::parse(run).map_err(|_| ReplayStatus::CursorInvalid)?;
    let first_run = runs.iter().position(|known| *known == run).ok_or(ReplayStatus::CursorRunMissing)?;
    Ok(Place { first_run, after_seq })
}

/// The events found so far.
struct Collected<'a> {
    session: &'a SessionId,
    limits: ReplayLimits,
    shown: &'a dyn Fn(&RunId) -> Option<u64>,
    bytes: usize,
    events: Vec<(RunId, JournalEvent)>,
}

impl Collected<'_> {
    /// Adds the events of a run behind a number. An unfinished last line is no trouble: its event was never acknowledged.
    fn add_run(
        &mut self,
        storage: &Arc<dyn Storage>,
        run: &RunId,
        after_seq: u64,
    ) -> Result<ReplayStatus, StorageError> {
        let mut is_known = after_seq == 0;
        let mut expected = after_seq + 1;
        let reader = RunReader::open(storage, self.session, run, ReadOptions::default())?;
        for found in reader.map(|reader| reader.up_to((self.shown)(run))).into_iter().flatten() {
            let event = match found? {
                Found::Damage(damage) if damage.kind == DamageKind::TornTail => continue,
                Found::Damage(_) => return Ok(ReplayStatus::Malformed),
                Found::Event(event) => event,
            };
            is_known |= event.seq == Some(after_seq);
            if after_seq > 0 && belongs_elsewhere(&event, self.session) {
                return Ok(ReplayStatus::CursorSessionMismatch);
            }
            let Some(seq) = event.seq else { return Ok(ReplayStatus::Malformed) };
            if seq <= after_seq {
                continue;
            }
            if seq != expected {
                return Ok(if is_known { ReplayStatus::Noncontiguous } else { ReplayStatus::CursorEventMissing });
            }
            expected += 1;
            if let Some(limit) = self.add(run, event) {
                return Ok(limit);
            }
        }
        Ok(if is_known { ReplayStatus::Ok } else { ReplayStatus::CursorEventMissing })
    }

    fn add(&mut self, run: &RunId, event: JournalEvent) -> Option<ReplayStatus> {
        if self.events.len() == self.limits.events {
            return Some(ReplayStatus::LimitRows);
        }
        self.bytes += event.line.len() + 1;
        if self.bytes > self.limits.bytes {
            return Some(ReplayStatus::LimitBytes);
        }
        self.events.push((run.clone(), event));
        None
    }

    fn into_replay(self, status: ReplayStatus) -> Replay {
        Replay { status, events: self.events }
    }
}

fn belongs_elsewhere(event: &JournalEvent, session: &SessionId) -> bool {
    let stated = Object::parse(&event.line);
    stated.as_ref().and_then(|line| line.text("session_id")).is_some_and(|stated| stated != session.as_str())
}
