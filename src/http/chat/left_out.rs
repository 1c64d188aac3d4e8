//! Answers that histories left out because they were live: for a moment they are still streamed to the clients that read
//! those histories, although they have ended since. Bounded, in memory.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Stopwatch;
use crate::limits::{LEFT_OUT_FOR, LEFT_OUT_MAX};
use crate::model::{RunId, SessionId};

/// The notes, the oldest first: one for each history that left an answer out, because each of its readers comes back for it.
#[derive(Debug, Default)]
pub(in crate::http) struct LeftOutRuns {
    notes: Mutex<VecDeque<Note>>,
}

#[derive(Debug)]
struct Note {
    session: SessionId,
    run: RunId,
    since: Stopwatch,
}

impl LeftOutRuns {
    /// Notes what a history of a session has left out.
    pub(in crate::http) fn note(&self, session: &SessionId, run: &RunId) {
        let mut notes = self.notes.lock();
        notes.push_back(Note { session: session.clone(), run: run.clone(), since: Stopwatch::start() });
        if notes.len() > LEFT_OUT_MAX {
            notes.pop_front();
        }
    }

    /// The run that a history of a session left out a moment ago. It is given once for each of them.
    pub(in crate::http) fn take(&self, session: &SessionId) -> Option<RunId> {
        self.take_within(session, LEFT_OUT_FOR)
    }

    fn take_within(&self, session: &SessionId, limit: Duration) -> Option<RunId> {
        let mut notes = self.notes.lock();
        while notes.front().is_some_and(|note| note.since.elapsed() >= limit) {
            notes.pop_front();
        }
        let at = notes.iter().position(|note| note.session == *session)?;
        notes.remove(at).map(|note| note.run)
    }

    /// Forgets one of the notes of a run that was streamed to a client while it was live.
    pub(in crate::http) fn forget(&self, session: &SessionId, run: &RunId) {
        let mut notes = self.notes.lock();
        if let Some(at) = notes.iter().position(|note| note.session == *session && note.run == *run) {
            notes.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(nth: usize) -> SessionId {
        SessionId::parse(&format!("s{nth}")).unwrap()
    }

    fn run(id: &str) -> RunId {
        RunId::parse(id).unwrap()
    }

    #[test]
    fn a_run_is_given_once_for_each_history_that_left_it_out() {
        let left_out = LeftOutRuns::default();
        left_out.note(&session(1), &run("a"));
        left_out.note(&session(1), &run("a"));
        left_out.note(&session(2), &run("c"));
        assert_eq!([left_out.take(&session(1)), left_out.take(&session(1))], [Some(run("a")), Some(run("a"))]);
        assert_eq!(left_out.take(&session(1)), None);
        left_out.forget(&session(2), &run("other"));
        left_out.forget(&session(2), &run("c"));
        assert_eq!(left_out.take(&session(2)), None);
    }

    #[test]
    fn a_note_is_worth_nothing_after_its_time() {
        let left_out = LeftOutRuns::default();
        left_out.note(&session(1), &run("a"));
        assert_eq!(left_out.take_within(&session(1), Duration::ZERO), None);
        assert_eq!(left_out.take(&session(1)), None);
    }

    #[test]
    fn the_oldest_note_makes_room() {
        let left_out = LeftOutRuns::default();
        (0..=LEFT_OUT_MAX).for_each(|nth| left_out.note(&session(nth), &run("a")));
        assert_eq!(left_out.take(&session(0)), None);
        assert_eq!(left_out.take(&session(LEFT_OUT_MAX)), Some(run("a")));
    }
}
