//! What in a session calls for another look when it is read again. Found once, when the session is loaded.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;

use crate::model::marker::{self, FoldedUpTo, Retry};
use crate::model::{List, Row, Session};

/// A run whose rows were recovered and whose journal may have grown since.
#[derive(Debug)]
pub struct Growing {
    /// The run.
    pub run: String,
    /// How much of its journal its marker says was folded; nothing if it does not say.
    pub noted: Option<FoldedUpTo>,
    /// The length of the journal when it was last looked at in vain.
    seen_bytes: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Growing {
    fn new(run: &str, noted: Option<FoldedUpTo>) -> Self {
        Growing { run: run.to_owned(), noted, seen_bytes: AtomicU64::new(NEVER) }
    }

    /// Whether the journal has another length than when it was last looked at; nothing if it was not looked at yet.
    pub fn has_changed(&self, bytes: u64) -> Option<bool> {
        let seen = self.seen_bytes.load(Ordering::Relaxed);
        (seen != NEVER).then_some(seen != bytes)
    }

    /// Notes that the journal was looked at and had nothing new.
    pub fn note(&self, bytes: u64) {
        self.seen_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Forgets that: what was torn at the journal's end may have been cut, and an event of the same length appended.
    pub fn forget(&self) {
        self.seen_bytes.store(NEVER, Ordering::Relaxed);
    }
}

/// What in a session calls for another look.
#[derive(Debug, Default)]
pub struct Watch {
    /// Whether a turn waits for a run.
    pub is_pending: bool,
    /// The armed markers.
    pub armed: Vec<Retry>,
    /// The runs whose journals may grow, in the order of their markers.
    pub growing: Vec<Growing>,
    /// Where those begin whose markers stand in the last turn. The turns before it are settled: their journals are looked
    /// at when the session is loaded, and again if this process opens them.
    last_turn: usize,
    by_run: HashMap<String, usize>,
}

impl Watch {
    /// What in this session calls for another look.
    pub fn of(session: &Session) -> Self {
        let is_pending = session.active_run().is_some() && session.pending_turn().is_some();
        let mut watch = Watch { is_pending, ..Watch::default() };
        let marked = session.messages_with("\"interrupted\"");
        let last_turn = if marked.is_empty() { 0 } else { start_of_last_turn(session) };
        for at in marked {
            let row = session.message(at).unwrap_or_default();
            match Retry::of(&row) {
                Some(retry) => watch.armed.push(retry),
                None => watch.growing.extend(growing_run(session, at, &row)),
            }
            if at < last_turn {
                watch.last_turn = watch.growing.len();
            }
        }
        watch.by_run = watch.growing.iter().enumerate().map(|(at, growing)| (growing.run.clone(), at)).collect();
        watch
    }

    /// Whether nothing does.
    pub fn is_quiet(&self) -> bool {
        !self.is_pending && self.armed.is_empty() && self.growing.is_empty()
    }

    /// The runs whose markers stand in the last turn.
    pub fn growing_in_last_turn(&self) -> &[Growing] {
        &self.growing[self.last_turn..]
    }

    /// The same run of any turn.
    pub fn growing_run(&self, run: &str) -> Option<&Growing> {
        self.by_run.get(run).map(|at| &self.growing[*at])
    }
}

/// The row of the last message of the user, or the first row.
fn start_of_last_turn(session: &Session) -> usize {
    let is_user = |at: &usize| session.message(*at).is_some_and(|row| row.role() == "user");
    (0..session.len(List::Messages)).rev().find(is_user).unwrap_or(0)
}

/// The run above a marker that is not armed, if more of it may come. The reference program notes nothing for that, so a
/// marker of its is only looked behind while it closes the last turn.
pub(super) fn growing_run(session: &Session, at: usize, row: &Row) -> Option<Growing> {
    if !marker::is_interrupted(row) {
        return None;
    }
    if let (Some(noted), Some(run)) = (marker::folded_up_to(row), row.run()) {
        return Some(Growing::new(&run, Some(noted)));
    }
    let above = session.message(at.checked_sub(1)?)?;
    let is_foreign = row.run().is_none() && above.fields().is_true("_recovered_from_run_journal");
    let closes =
        (at + 1..session.len(List::Messages)).all(|at| session.message(at).is_some_and(|row| row.role() != "user"));
    above.run().filter(|_| is_foreign && closes).map(|run| Growing::new(&run, None))
}
