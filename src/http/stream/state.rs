//! The state of a run beside its lines: what a reader that was given this much may conclude.

use super::follower::{Follower, Next};
use crate::http::error::ApiError;
use crate::model::{RunId, RunState, SessionId};
use crate::store::{After, Liveness, Store, StoreError};

/// The state of a run as it is when a reader is given this. A reader that waits for the run has an orphaned one sealed, and
/// then gets its end: until then the answer says that the run goes on.
pub(in crate::http) fn state_beside(
    next: &Next,
    follower: &Follower,
    is_waited_for: bool,
) -> impl Future<Output = Result<RunState, ApiError>> + Send + use<> {
    let known = follower.known_end().or(known_end(next));
    let (hub, tail) = (follower.hub().clone(), follower.tail().clone());
    let may_have_ended = follower.is_behind() || has_terminal(next);
    let has_events = follower.last_seq() > 0 || matches!(next, Next::Frames(_));
    async move {
        if let Some(state) = known {
            return Ok(state);
        }
        let store = hub.store().clone();
        let state = hub.blocking.read(move || {
            let ended = if may_have_ended { end_now(&store, &tail.session, &tail.run)? } else { None };
            ended.map_or_else(|| unsealed(&store, &tail.session, &tail.run, has_events), Ok)
        });
        let state = state.await.map_err(|broken| ApiError::broken(broken.to_string()))??;
        Ok(match state? {
            RunState::Orphaned if is_waited_for => alive(has_events),
            state => state,
        })
    }
}

/// How the run ended, if a reader sees that by what it was given. A `stream_end` alone does not say it: the `done` before does.
fn known_end(next: &Next) -> Option<RunState> {
    match next {
        Next::End(state) => Some(*state),
        Next::Frames(frames) => {
            let deciding = frames.iter().rev().filter(|frame| frame.name() != "stream_end");
            deciding.filter_map(|frame| frame.terminal).next().map(RunState::Ended)
        }
        _ => None,
    }
}

fn has_terminal(next: &Next) -> bool {
    matches!(next, Next::Frames(frames) if frames.iter().any(|frame| frame.terminal.is_some()))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::stream::Waits;
    use crate::http::tests::{TestServer, done, run, session};
    use crate::model::{Event, RunEnd};
    use crate::storage::sim::Fault;

    /// Longer than the lease and the grace of a run.
    const LONG: Duration = Duration::from_secs(3_600);

    /// The state that a reader of lines gets, whether it waits or not.
    async fn state(server: &TestServer, is_waited_for: bool) -> RunState {
        let tail = server.app.hub.tail(&session(), &run("r"));
        let mut follower = Follower::new(&server.app.hub, tail, 0, Waits::No);
        let first = follower.next().await;
        state_beside(&first, &follower, is_waited_for).await.unwrap()
    }

    #[tokio::test]
    async fn a_dead_run_is_orphaned_for_a_reader_that_does_not_wait_and_goes_on_for_one_that_does() {
        let server = TestServer::new();
        drop(server.begin("r"));
        assert_eq!([state(&server, false).await, state(&server, true).await], [RunState::Unknown; 2]);
        server.pass(LONG);
        // A journal without events is never sealed, so nothing else will come of it.
        assert_eq!([state(&server, false).await, state(&server, true).await], [RunState::Orphaned; 2]);
        let resumed = server.store().resume_run(&session(), &run("r")).unwrap();
        resumed.append(Event::token("x")).unwrap();
        assert_eq!([state(&server, false).await, state(&server, true).await], [RunState::Running; 2]);
        drop(resumed);
        server.pass(LONG);
        assert_eq!([state(&server, false).await, state(&server, true).await], [RunState::Orphaned, RunState::Running]);
    }

    #[tokio::test]
    async fn an_end_beyond_the_first_piece_is_told_and_one_that_is_not_saved_is_not() {
        let mut hidden = 0;
        for operation in 1..40 {
            let server = TestServer::new();
            let begun = server.begin("r");
            begun.append_all(&vec![Event::token("x"); 1_000], crate::storage::Durability::Buffered).unwrap();
            assert_eq!(state(&server, false).await, RunState::Running);
            server.disk.fail(server.disk.operations() + operation, Fault::Enospc);
            let ended = begun.append(done());
            if server.seqs("r").len() == 1_000 && begun.is_sealed() {
                assert!(ended.is_err());
                hidden += 1;
                assert_eq!(state(&server, false).await, RunState::Running, "operation {operation}");
            }
            if ended.is_ok() {
                assert_eq!(state(&server, false).await, RunState::Ended(RunEnd::Completed), "operation {operation}");
            }
        }
        assert!(hidden > 0, "no end was written without being saved");
    }
}
