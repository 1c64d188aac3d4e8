//! Replay over all runs of a session, from where a client left off.

use std::sync::Arc;

use super::event::JournalEvent;
use super::reader::{Found, ReadOptions, RunReader};
use super::segments::{Segment, UnnumberedBy, segments_by};
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

/// Replays what comes after a cursor, or everything without one: segments by their numbers, runs without a number by their
/// first event, then by id. Only segments from the cursor's on are read, no further than the limits, and each run no
/// further than it may be shown.
pub fn replay_session(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    cursor: Option<&Cursor>,
    limits: ReplayLimits,
    shown: &dyn Fn(&RunId) -> Option<u64>,
) -> Result<Replay, StorageError> {
    let segments = segments_by(storage, session, UnnumberedBy::FirstEvent)?;
    let place = match place_of(cursor, &segments) {
        Ok(place) => place,
        Err(status) => return Ok(Replay { status, events: Vec::new() }),
    };
    let mut collected = Collected { session, limits, shown, bytes: 0, events: Vec::new() };
    let mut cursor_seq = place.cursor_seq;
    for segment in &segments[place.first_segment..] {
        let status = collected.add_segment(storage, segment, cursor_seq)?;
        match status {
            ReplayStatus::Ok => cursor_seq = 0,
            ReplayStatus::LimitRows | ReplayStatus::LimitBytes => return Ok(collected.into_replay(status)),
            status => return Ok(Replay { status, events: Vec::new() }),
        }
    }
    Ok(collected.into_replay(ReplayStatus::Ok))
}

/// Where a replay begins.
struct Place {
    first_segment: usize,
    /// The number of the cursor's event; 0 if all of its run is wanted.
    cursor_seq: u64,
}

fn place_of(cursor: Option<&Cursor>, segments: &[Segment]) -> Result<Place, ReplayStatus> {
    let Some(cursor) = cursor else { return Ok(Place { first_segment: 0, cursor_seq: 0 }) };
    let (Some(run), Some(cursor_seq)) = (&cursor.run, cursor.seq) else { return Err(ReplayStatus::CursorInvalid) };
    let run = RunId::parse(run).map_err(|_| ReplayStatus::CursorInvalid)?;
    let holds = |segment: &Segment| segment.run == run && segment.until_seq.is_none_or(|until| cursor_seq <= until);
    let first_segment = segments.iter().position(holds).ok_or(ReplayStatus::CursorRunMissing)?;
    Ok(Place { first_segment, cursor_seq })
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
    /// Adds the events of a segment, after the cursor's if that is in it. An unfinished last line is not damage: its event
    /// was never acknowledged.
    fn add_segment(
        &mut self,
        storage: &Arc<dyn Storage>,
        segment: &Segment,
        cursor_seq: u64,
    ) -> Result<ReplayStatus, StorageError> {
        let run = &segment.run;
        let after_seq = segment.after_seq.max(cursor_seq);
        let mut is_known = cursor_seq == 0;
        let mut expected = after_seq + 1;
        let reader = RunReader::open(storage, self.session, run, ReadOptions::default())?;
        for found in reader.map(|reader| reader.up_to((self.shown)(run))).into_iter().flatten() {
            let event = match found? {
                Found::Damage(damage) if damage.kind == DamageKind::TornTail => continue,
                Found::Damage(_) => return Ok(ReplayStatus::Malformed),
                Found::Event(event) => event,
            };
            is_known |= event.seq == Some(cursor_seq);
            if cursor_seq > 0 && belongs_elsewhere(&event, self.session) {
                return Ok(ReplayStatus::CursorSessionMismatch);
            }
            let Some(seq) = event.seq else { return Ok(ReplayStatus::Malformed) };
            if seq <= after_seq {
                continue;
            }
            if seq != expected {
                return Ok(if is_known { ReplayStatus::Noncontiguous } else { ReplayStatus::CursorEventMissing });
            }
            if segment.until_seq.is_some_and(|until| until < seq) {
                break;
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
