//! The order of a session's runs in its stream: segments by their numbers, runs without a number among them by time.

use std::collections::HashSet;
use std::sync::Arc;

use super::event::JournalEvent;
use super::reader::{Found, ReadOptions, RunReader};
use crate::model::{RunId, SessionId};
use crate::storage::{Birth, Continuation, Storage, StorageError};

/// A part of a run that a session's stream shows in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The run.
    pub run: RunId,
    /// It has events with greater numbers only.
    pub after_seq: u64,
    /// And with no greater numbers than this; none for the run's last segment.
    pub until_seq: Option<u64>,
    /// Its place in the session's stream; 0 for a run that was begun without a number.
    pub order: u64,
}

/// The time that places a run without a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnnumberedBy {
    /// What was noted when it began; its first event for runs of other programs.
    Beginning,
    /// Its first event, as the reference program has it.
    FirstEvent,
}

/// A segment and what decides its place.
struct Placed {
    segment: Segment,
    /// When its run began.
    time: f64,
    /// 0 without a number.
    order: u64,
}

/// All segments of a session in the order of its stream, a run's own in the order of their events. Costs one read of each
/// run's record, and of the first event of runs without one.
pub fn segments(storage: &Arc<dyn Storage>, session: &SessionId) -> Result<Vec<Segment>, StorageError> {
    segments_by(storage, session, UnnumberedBy::Beginning)
}

/// A session's runs that have a journal, in the order of their first segments.
pub fn runs_as_begun(storage: &Arc<dyn Storage>, session: &SessionId) -> Result<Vec<RunId>, StorageError> {
    let mut seen = HashSet::new();
    let runs = segments(storage, session)?.into_iter().map(|segment| segment.run);
    Ok(runs.filter(|run| seen.insert(run.clone())).collect())
}

pub(super) fn segments_by(
    storage: &Arc<dyn Storage>,
    session: &SessionId,
    by: UnnumberedBy,
) -> Result<Vec<Segment>, StorageError> {
    let mut placed = Vec::new();
    for run in storage.journals(session)? {
        let birth = readable_birth(storage, session, &run)?;
        let time = match &birth {
            Some(birth) if birth.order.is_some() || by == UnnumberedBy::Beginning => birth.begun_at,
            _ => first_event_at(storage, session, &run)?,
        };
        placed.extend(segments_of(run, time, &birth.unwrap_or_default()));
    }
    Ok(in_stream_order(placed))
}

/// What was noted of a run. A record that cannot be read costs the session no other run.
fn readable_birth(storage: &Arc<dyn Storage>, session: &SessionId, run: &RunId) -> Result<Option<Birth>, StorageError> {
    match storage.birth(session, run) {
        Err(error) if error.is_of_one_object() => Ok(None),
        birth => birth,
    }
}

/// The segments of one run. A continuation that does not come after the one before it is left out.
fn segments_of(run: RunId, time: f64, birth: &Birth) -> Vec<Placed> {
    let mut places = vec![Continuation { after_seq: 0, order: birth.order.unwrap_or(0) }];
    for next in &birth.continued {
        let last = places[places.len() - 1];
        if last.order < next.order && last.after_seq <= next.after_seq {
            places.push(*next);
        }
    }
    let until = places.iter().skip(1).map(|next| Some(next.after_seq)).chain([None]);
    let placed = |(place, until_seq): (&Continuation, Option<u64>)| {
        let Continuation { after_seq, order } = *place;
        Placed { segment: Segment { run: run.clone(), after_seq, until_seq, order }, time, order }
    };
    places.iter().zip(until).map(placed).collect()
}

/// Sorts segments. The time of a numbered one is the latest beginning of all runs up to it in the order of numbers, so
/// that a clock that was set back moves no numbered segment, and a run's own segments keep their order.
fn in_stream_order(mut placed: Vec<Placed>) -> Vec<Segment> {
    let by_number = |a: &Placed, b: &Placed| a.order.cmp(&b.order).then_with(|| a.segment.run.cmp(&b.segment.run));
    placed.sort_by(by_number);
    let mut latest = f64::NEG_INFINITY;
    for numbered in placed.iter_mut().filter(|placed| placed.order > 0) {
        latest = latest.max(numbered.time);
        numbered.time = latest;
    }
    placed.sort_by(|a, b| a.time.total_cmp(&b.time).then_with(|| by_number(a, b)));
    placed.into_iter().map(|placed| placed.segment).collect()
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

#[cfg(test)]
mod tests;
