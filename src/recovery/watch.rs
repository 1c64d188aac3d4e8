//! What in a session calls for another look when it is read again. Found once, when the session is loaded.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::marker::{self, Retry};
use crate::model::{List, Row, Session};

/// A run whose rows were recovered and whose journal may have grown since.
#[derive(Debug)]
pub struct Growing {
    /// The run.
    pub run: String,
    /// How much of its journal was looked at, if anything was.
    seen_bytes: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Growing {
    fn new(run: &str, bytes: Option<u64>) -> Self {
        Growing { run: run.to_owned(), seen_bytes: AtomicU64::new(bytes.unwrap_or(NEVER)) }
    }

    /// Whether the journal has another length than when it was looked at.
    pub fn differs_from(&self, bytes: u64) -> bool {
        self.seen_bytes.load(Ordering::Relaxed) != bytes
    }

    /// Notes that the journal was looked at and had nothing new.
    pub fn note(&self, bytes: u64) {
        self.seen_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// What in a session calls for another look.
#[derive(Debug, Default)]
pub struct Watch {
    /// Whether a turn waits for a run.
    pub is_pending: bool,
    /// The armed markers.
    pub armed: Vec<Retry>,
    /// The runs whose journals may grow.
    pub growing: Vec<Growing>,
}

impl Watch {
    /// What in this session calls for another look.
    pub fn of(session: &Session) -> Self {
        let is_pending = session.active_run().is_some() && session.pending_turn().is_some();
        let mut watch = Watch { is_pending, ..Watch::default() };
        for at in session.messages_with("\"interrupted\"") {
            let row = session.message(at).unwrap_or_default();
            match Retry::of(&row) {
                Some(retry) => watch.armed.push(retry),
                None => watch.growing.extend(growing_run(session, at, &row)),
            }
        }
        watch
    }

    /// Whether nothing does.
    pub fn is_quiet(&self) -> bool {
        !self.is_pending && self.armed.is_empty() && self.growing.is_empty()
    }
}

/// The run above a marker that is not armed, if more of it may come. The reference program notes nothing for that, so a
/// marker of its is only looked behind while it closes the last turn.
pub(super) fn growing_run(session: &Session, at: usize, row: &Row) -> Option<Growing> {
    if !marker::is_interrupted(row) {
        return None;
    }
    if let (Some(bytes), Some(run)) = (marker::folded_bytes(row), row.run()) {
        return Some(Growing::new(&run, Some(bytes)));
    }
    let above = session.message(at.checked_sub(1)?)?;
    let is_foreign = row.run().is_none() && above.fields().is_true("_recovered_from_run_journal");
    let closes =
        (at + 1..session.len(List::Messages)).all(|at| session.message(at).is_some_and(|row| row.role() != "user"));
    above.run().filter(|_| is_foreign && closes).map(|run| Growing::new(&run, None))
}
