//! Stops of runs. Of any number of calls one reports that it stopped the run: the one whose event ended it, or, where that
//! event was written and the answer could not be saved, the next one that succeeds.

use std::collections::HashSet;

use super::{Store, StoreError};
use crate::model::{Event, RunId, SessionId};
use crate::sync::Mutex;

/// Stops whose callers were told of a failure. Beyond that all are forgotten: then no later call reports the stop.
const UNREPORTED_MAX: usize = 1_024;

/// Runs that a stop has ended and no caller knows of, because the answer could not be saved. Not known after a restart.
#[derive(Debug, Default)]
pub(super) struct UnreportedStops(Mutex<HashSet<(SessionId, RunId)>>);

impl UnreportedStops {
    pub(super) fn note(&self, session: &SessionId, run: &RunId) {
        let mut runs = self.0.lock();
        if runs.len() >= UNREPORTED_MAX {
            runs.clear();
        }
        runs.insert((session.clone(), run.clone()));
    }

    /// Whether such a stop ended this run. The caller reports it: it is asked once.
    pub(super) fn take(&self, session: &SessionId, run: &RunId) -> bool {
        self.0.lock().remove(&(session.clone(), run.clone()))
    }
}

impl Store {
    /// Stops a run, also one of an outside producer: it ends as stopped, what arrived is kept, and its producer's next append
    /// is refused. `true` if this call stopped it. For all others it had ended before; an end that could not be saved is saved
    /// then. A call that fails may have stopped the run: the next one reports it.
    pub fn stop_run(&self, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        let has_ended_it = self.resume_run(session, run)?.end_unless_ended(Event::stopped_by_user())?;
        Ok(self.take_unreported_stop(session, run) || has_ended_it)
    }

    /// Whether a stop ended the run and could not report it. The caller reports it.
    pub(crate) fn take_unreported_stop(&self, session: &SessionId, run: &RunId) -> bool {
        self.shared.unreported_stops.take(session, run)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{RunEnd, RunState};
    use crate::storage::sim::SimDisk;
    use crate::store::{NewSession, Options, UserTurn};

    /// On a disk that is full from this operation of the stop on: what three stops answer, and how often a stop failed.
    fn answers_of_stops(full_at: u64) -> (Vec<bool>, usize) {
        let disk = SimDisk::new();
        let store = Store::open_on(Arc::new(disk.clone()), "/data", Options::default()).unwrap();
        let session = store.create(NewSession::titled("x")).unwrap();
        let run = store.begin_run(&session, UserTurn::text("x")).unwrap();
        run.append(Event::token("half")).unwrap();
        let id = run.id().clone();
        drop(run);
        disk.fill(disk.operations() + full_at);
        let first = store.stop_run(&session, &id);
        disk.make_room();
        let answers = [first, store.stop_run(&session, &id), store.stop_run(&session, &id)];
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        let info = store.run_info(&session, &id).unwrap();
        assert_eq!(info.state, RunState::Ended(RunEnd::InterruptedByUser), "full at {full_at}");
        (answers.into_iter().flatten().collect(), failed)
    }

    #[test]
    fn one_stop_reports_that_it_stopped_the_run_whatever_could_not_be_saved_before() {
        let mut failed = 0;
        for full_at in 1..30 {
            let (answers, failures) = answers_of_stops(full_at);
            assert_eq!(answers.iter().filter(|is_stopped| **is_stopped).count(), 1, "full at {full_at}: {answers:?}");
            failed += failures;
        }
        assert!(failed > 2, "no stop met the full disk");
    }
}
