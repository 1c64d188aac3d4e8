//! The state of a run beside its lines: what a reader that was given this much may conclude.

use super::follower::{Follower, Next};
use crate::http::error::ApiError;
use crate::model::{RunId, RunState, SessionId};
use crate::store::{After, Liveness, Store, StoreError};

/// The state of a run as it is when a reader is given this. A reader that waits for the run has an orphaned one sealed, and
/// then gets its end: until that it is told that the run goes on.
pub(in crate::http) fn state_beside(
    next: &Next,
    follower: &Follower,
    is_waited_for: bool,
) -> impl Future<Output = Result<RunState, ApiError>> + Send + use<> {
    let known = known_end(next).or(follower.known_end());
    let (hub, tail, is_behind) = (follower.hub().clone(), follower.tail().clone(), follower.is_behind());
    let has_events = follower.last_seq() > 0 || matches!(next, Next::Frames(_));
    async move {
        if let Some(state) = known {
            return Ok(state);
        }
        let store = hub.store().clone();
        let state = hub.blocking.read(move || {
            let ended = if is_behind { end_now(&store, &tail.session, &tail.run)? } else { None };
            ended.map_or_else(|| unsealed(&store, &tail.session, &tail.run, has_events), Ok)
        });
        let state = state.await.map_err(|broken| ApiError::broken(broken.to_string()))??;
        Ok(match state? {
            RunState::Orphaned if is_waited_for => alive(has_events),
            state => state,
        })
    }
}

/// How the run ended, if a reader sees that by what it was given.
fn known_end(next: &Next) -> Option<RunState> {
    match next {
        Next::End(state) => Some(*state),
        _ => None,
    }
}

/// How a run has ended by now, as readers are shown it. Reads the end of the journal alone where the journal is ours.
fn end_now(store: &Store, session: &SessionId, run: &RunId) -> Result<Option<RunState>, StoreError> {
    let mut follow = match store.follow_at(session, run, After::Seq(u64::MAX), 0) {
        Err(StoreError::RunNotFound { .. }) => return Ok(Some(RunState::Gone)),
        follow => follow?,
    };
    // An event without a number is given, whatever the cursor.
    while follow.poll()?.is_some() {}
    follow.ended()
}

/// The state of a run that has not ended, as far as readers are shown it.
fn unsealed(store: &Store, session: &SessionId, run: &RunId, has_events: bool) -> Result<RunState, StoreError> {
    Ok(match store.liveness(session, run)? {
        Liveness::Orphaned => RunState::Orphaned,
        Liveness::Foreign => RunState::Foreign,
        Liveness::Gone => RunState::Gone,
        // Its end is written, and not shown before the answer is saved.
        Liveness::Live { .. } | Liveness::Sealed => alive(has_events),
    })
}

fn alive(has_events: bool) -> RunState {
    if has_events { RunState::Running } else { RunState::Unknown }
}
