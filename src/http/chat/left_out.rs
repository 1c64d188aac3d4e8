//! Answers that a history left out because they were live: for a moment they are still streamed to the client that read
//! that history, although they have ended since. Bounded, in memory.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Stopwatch;
use crate::limits::{LEFT_OUT_FOR, LEFT_OUT_MAX};
use crate::model::{RunId, SessionId};

/// The notes, the oldest first. A session has one at most.
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
    /// Notes what a history of a session has left out. One that left nothing out had all of it.
    pub(in crate::http) fn note(&self, session: &SessionId, run: Option<&RunId>) {
        let mut notes = self.notes.lock();
        notes.retain(|note| note.session != *session);
        if let Some(run) = run {
            notes.push_back(Note { session: session.clone(), run: run.clone(), since: Stopwatch::start() });
        }
        if notes.len() > LEFT_OUT_MAX {
            notes.pop_front();
        }
    }

    /// The run that the last history of a session left out a moment ago. It is given once.
    pub(in crate::http) fn take(&self, session: &SessionId) -> Option<RunId> {
        self.take_within(session, LEFT_OUT_FOR)
    }

    fn take_within(&self, session: &SessionId, limit: Duration) -> Option<RunId> {
        let mut notes = self.notes.lock();
        let at = notes.iter().position(|note| note.session == *session)?;
        let note = notes.remove(at)?;
        (note.since.elapsed() < limit).then_some(note.run)
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
    fn a_run_that_was_left_out_is_given_once_and_not_after_a_history_that_had_it() {
        let left_out = LeftOutRuns::default();
        left_out.note(&session(1), Some(&run("a")));
        left_out.note(&session(1), Some(&run("b")));
        left_out.note(&session(2), Some(&run("c")));
        assert_eq!(left_out.take(&session(1)), Some(run("b")));
        assert_eq!(left_out.take(&session(1)), None);
        left_out.note(&session(2), None);
        assert_eq!(left_out.take(&session(2)), None);
    }

    #[test]
    fn a_note_is_worth_nothing_after_its_time() {
        let left_out = LeftOutRuns::default();
        left_out.note(&session(1), Some(&run("a")));
        assert_eq!(left_out.take_within(&session(1), Duration::ZERO), None);
        assert_eq!(left_out.take(&session(1)), None);
    }

    #[test]
    fn the_oldest_note_makes_room() {
        let left_out = LeftOutRuns::default();
        (0..=LEFT_OUT_MAX).for_each(|nth| left_out.note(&session(nth), Some(&run("a"))));
        assert_eq!(left_out.take(&session(0)), None);
        assert_eq!(left_out.take(&session(LEFT_OUT_MAX)), Some(run("a")));
    }
}
