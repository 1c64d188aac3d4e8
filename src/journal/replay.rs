//! Replay over all runs of a session, from where a client left off.

use std::sync::Arc;

use super::event::JournalEvent;
use super::reader::{ReadOptions, RunEvents, read_events};
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

/// Replays what lies behind a cursor, or everything without one: runs by their earliest event, then by id.
pub fn replay_session(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    cursor: Option<&Cursor>,
    limits: ReplayLimits,
) -> Result<Replay, StorageError> {
    let mut runs = Vec::new();
    for run in storage.journals(session)? {
        let found = read_events(storage, session, &run, ReadOptions::default())?;
        runs.push((run, found));
    }
    let earliest = |found: &RunEvents| found.events.iter().filter_map(|event| event.created_at).reduce(f64::min);
    runs.sort_by(|(a_run, a), (b_run, b)| {
        let (a, b) = (earliest(a).unwrap_or(f64::MAX), earliest(b).unwrap_or(f64::MAX));
        a.total_cmp(&b).then_with(|| a_run.cmp(b_run))
    });
    Ok(match place_of(session, cursor, &runs) {
        Ok((first, after_seq)) => collect(&runs[first..], after_seq, limits),
        Err(status) => Replay { status, events: Vec::new() },
    })
}

type Runs = [(RunId, RunEvents)];

/// The run to begin with, and the number behind which to begin.
fn place_of(session: &SessionId, cursor: Option<&Cursor>, runs: &Runs) -> Result<(usize, u64), ReplayStatus> {
    let Some(cursor) = cursor else { return Ok((0, 0)) };
    let (Some(run), Some(seq)) = (&cursor.run, cursor.seq) else { return Err(ReplayStatus::CursorInvalid) };
    let run = RunId::parse(run).map_err(|_| ReplayStatus::CursorInvalid)?;
    let at = runs.iter().position(|(known, _)| *known == run).ok_or(ReplayStatus::CursorRunMissing)?;
    let events = &runs[at].1.events;
    if events.iter().any(|event| belongs_elsewhere(event, session)) {
        return Err(ReplayStatus::CursorSessionMismatch);
    }
    let is_known = seq == 0 || events.iter().any(|event| event.seq == Some(seq));
    if is_known { Ok((at, seq)) } else { Err(ReplayStatus::CursorEventMissing) }
}

fn belongs_elsewhere(event: &JournalEvent, session: &SessionId) -> bool {
    let stated = Object::parse(&event.line);
    stated.as_ref().and_then(|line| line.text("session_id")).is_some_and(|stated| stated != session.as_str())
}

fn collect(runs: &Runs, mut after_seq: u64, limits: ReplayLimits) -> Replay {
    let mut replay = Replay { status: ReplayStatus::Ok, events: Vec::new() };
    let mut bytes = 0;
    for (run, found) in runs {
        if let Some(status) = trouble_of(found, after_seq) {
            return Replay { status, events: Vec::new() };
        }
        for event in found.events.iter().filter(|event| event.seq.is_some_and(|seq| seq > after_seq)) {
            bytes += event.line.len() + 1;
            if replay.events.len() == limits.events {
                return Replay { status: ReplayStatus::LimitRows, ..replay };
            }
            if bytes > limits.bytes {
                return Replay { status: ReplayStatus::LimitBytes, ..replay };
            }
            replay.events.push((run.clone(), event.clone()));
        }
        after_seq = 0;
    }
    replay
}

/// An unfinished last line is no trouble: its event was never acknowledged.
fn trouble_of(found: &RunEvents, after_seq: u64) -> Option<ReplayStatus> {
    if found.damage.iter().any(|damage| damage.kind != DamageKind::TornTail) {
        return Some(ReplayStatus::Malformed);
    }
    let mut expected = after_seq + 1;
    for event in &found.events {
        let Some(seq) = event.seq else { return Some(ReplayStatus::Malformed) };
        if seq <= after_seq {
            continue;
        }
        if seq != expected {
            return Some(ReplayStatus::Noncontiguous);
        }
        expected += 1;
    }
    None
}
