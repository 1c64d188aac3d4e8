//! Sparse marks of an open journal: where the event of a number stands, found without reading what comes before it.
//!
//! A mark is trusted only in a journal whose numbers are known to ascend: every event of such a journal that has a number
//! up to N stands before every event with a greater one, and no number occurs twice. A new journal is empty, and its one
//! writer numbers upwards. A journal that was opened again is surveyed by the first read of all of it.

use std::collections::VecDeque;

use super::event::JournalEvent;
use crate::limits::{JOURNAL_MARK_STRIDE_BYTES, JOURNAL_MARKS_MAX, KEPT_MARKS_MAX};
use crate::model::{RunId, SessionId};
use crate::storage::Tail;
use crate::sync::Mutex;

/// Bytes between two marks, to begin with. Unit tests have many marks in short journals.
const STRIDE_BYTES: u64 = if cfg!(test) { 512 } else { JOURNAL_MARK_STRIDE_BYTES };

/// A place where a line begins: no event of this number or a greater one stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Mark {
    seq: u64,
    offset: u64,
}

/// What is known of the order of a journal's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Nothing: it was opened with events in it, and not read since.
    Unknown,
    /// Their numbers ascend.
    Ascending,
    /// An event has no number, or one that does not ascend. It stays so.
    Irregular,
}

/// The marks of one journal, at most [`JOURNAL_MARKS_MAX`], and the place of its last write.
#[derive(Debug, Clone)]
pub(super) struct Marks {
    order: Order,
    marks: Vec<Mark>,
    stride_bytes: u64,
    /// From which offset on the next mark is set.
    next_at: u64,
    last_write: Mark,
}

impl Marks {
    /// The marks of a journal that ends like this.
    pub(super) fn of(tail: &Tail) -> Self {
        let order = if tail.extent == 0 { Order::Ascending } else { Order::Unknown };
        let start = Mark { seq: 1, offset: 0 };
        Marks {
            order,
            marks: vec![start],
            stride_bytes: STRIDE_BYTES,
            next_at: tail.extent + STRIDE_BYTES,
            last_write: start,
        }
    }

    /// Notes where lines are about to be written, the first of them with this number.
    #[inline(always)]
    pub(super) fn note_write(&mut self, seq: u64, offset: u64) {
        self.last_write = Mark { seq, offset };
        if offset >= self.next_at {
            self.add(self.last_write);
        }
    }

    #[cold]
    fn add(&mut self, mark: Mark) {
        if self.marks.len() >= JOURNAL_MARKS_MAX {
            self.thin();
        }
        self.marks.push(mark);
        self.next_at = mark.offset + self.stride_bytes;
    }

    /// Leaves out every other mark.
    fn thin(&mut self) {
        let mut nth = 0;
        self.marks.retain(|_| {
            nth += 1;
            nth % 2 == 1
        });
        self.stride_bytes *= 2;
    }

    /// The last place that is known not to stand after any event with a greater number than this.
    pub(super) fn place_before(&self, after_seq: u64) -> Option<u64> {
        if self.order != Order::Ascending {
            return None;
        }
        let wanted = after_seq.saturating_add(1);
        if self.last_write.seq <= wanted {
            return Some(self.last_write.offset);
        }
        let behind = self.marks.partition_point(|mark| mark.seq <= wanted);
        Some(behind.checked_sub(1).map_or(0, |at| self.marks[at].offset))
    }

    /// Takes over what a read of the whole journal found; `last_seq` is the last number that its writer has given.
    pub(super) fn take(&mut self, survey: Survey, last_seq: u64) {
        if self.order != Order::Unknown {
            return;
        }
        if !survey.is_ascending || survey.last_seq > last_seq {
            self.order = Order::Irregular;
            return;
        }
        let written_since = std::mem::take(&mut self.marks).into_iter().filter(|mark| mark.offset >= survey.end);
        let later: Vec<Mark> = written_since.collect();
        let last_write = self.last_write;
        *self = survey.marks;
        later.into_iter().for_each(|mark| self.note_write(mark.seq, mark.offset));
        if last_write.offset > self.last_write.offset {
            self.last_write = last_write;
        }
    }
}

/// What reading all of a journal says of the order of its events.
#[derive(Debug)]
pub(super) struct Survey {
    is_ascending: bool,
    last_seq: u64,
    /// Where the last event ends.
    end: u64,
    marks: Marks,
}

impl Survey {
    pub(super) fn new() -> Self {
        Survey { is_ascending: true, last_seq: 0, end: 0, marks: Marks::of(&Tail::default()) }
    }

    /// Takes the next event into account, as it stands in the journal.
    pub(super) fn add(&mut self, seq: Option<u64>, offset: u64, bytes: usize) {
        let seq = seq.unwrap_or(0);
        self.is_ascending &= seq > self.last_seq;
        self.last_seq = self.last_seq.max(seq);
        self.end = offset + bytes as u64;
        self.marks.note_write(seq, offset);
    }
}

/// Whether these events are all that have numbers behind `after_seq`, up to `last_seq`: each once and in order.
pub(super) fn is_complete(events: &[JournalEvent], after_seq: u64, last_seq: u64) -> bool {
    let expected = after_seq.saturating_add(1)..=last_seq;
    events.iter().map(|event| event.seq).eq(expected.map(Some))
}

/// Marks of journals that were closed, for when they are opened again: a producer may repeat what ended its run.
#[derive(Debug, Default)]
pub struct KeptMarks(Mutex<VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    session: SessionId,
    run: RunId,
    extent: u64,
    last_seq: u64,
    marks: Marks,
}

impl KeptMarks {
    /// Keeps the marks of a journal that is closed. Beyond [`KEPT_MARKS_MAX`] the oldest are forgotten.
    pub(super) fn keep(&self, session: &SessionId, run: &RunId, extent: u64, last_seq: u64, marks: Marks) {
        if marks.order != Order::Ascending || extent == 0 {
            return;
        }
        let (session, run) = (session.clone(), run.clone());
        let mut all = self.0.lock();
        all.retain(|kept| (&kept.session, &kept.run) != (&session, &run));
        if all.len() >= KEPT_MARKS_MAX {
            all.pop_front();
        }
        all.push_back(Kept { session, run, extent, last_seq, marks });
    }

    /// The marks of a journal that is opened, if it still ends as it did when it was closed.
    pub(super) fn take(&self, session: &SessionId, run: &RunId, tail: &Tail) -> Option<Marks> {
        let mut all = self.0.lock();
        let at = all.iter().position(|kept| (&kept.session, &kept.run) == (session, run))?;
        let kept = all.remove(at)?;
        ((kept.extent, kept.last_seq) == (tail.extent, tail.last_seq)).then_some(kept.marks)
    }
}

#[cfg(test)]
mod tests;
