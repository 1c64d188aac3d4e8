//! What a producer has sent: the events that surely arrived, and those of which that is not known yet. Knows no connection.
//!
//! Each batch says which number its first event is to get. So the same batch may be sent again after any failure: it is
//! appended once, or found to be there.

use std::ops::RangeInclusive;

use super::runs::EventBatch;

/// Events on their way.
#[derive(Debug)]
pub(super) struct Sending {
    last_seq: u64,
    pending: Option<EventBatch>,
    /// Whether what is pending was sent, and nobody knows what came of it.
    is_in_doubt: bool,
}

impl Sending {
    /// Behind this event.
    pub(super) fn behind(last_seq: u64) -> Self {
        Sending { last_seq, pending: None, is_in_doubt: false }
    }

    /// The last event that surely arrived.
    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The number of the next event.
    pub(super) fn next_seq(&self) -> u64 {
        self.last_seq + 1
    }

    /// Events of which it is not known whether they arrived.
    pub(super) fn pending(&self) -> Option<&EventBatch> {
        self.pending.as_ref()
    }

    /// Takes events to be sent. False if others are still on their way.
    pub(super) fn begin(&mut self, batch: EventBatch) -> bool {
        if self.pending.is_some() {
            return false;
        }
        self.pending = Some(batch).filter(|batch| !batch.is_empty());
        true
    }

    /// The server has appended what is pending, and says what the last event now is. An error says what is wrong with it.
    pub(super) fn arrived(&mut self, last_seq: u64) -> Result<RangeInclusive<u64>, String> {
        let count = self.pending.as_ref().map_or(0, EventBatch::len);
        let expected = self.last_seq + count;
        if last_seq < expected {
            return Err(format!("the last event is said to be {last_seq}, although {expected} was appended"));
        }
        let appended = self.next_seq()..=expected;
        *self = Sending::behind(expected);
        Ok(appended)
    }

    /// What is pending is being sent. Gives whether it was in doubt before.
    pub(super) fn sent(&mut self) -> bool {
        std::mem::replace(&mut self.is_in_doubt, true)
    }

    /// It did not get as far as the server.
    pub(super) fn not_sent(&mut self, was_in_doubt: bool) {
        self.is_in_doubt = was_in_doubt;
    }

    /// The server took none of it this time. If it was in doubt before, it still is.
    pub(super) fn refused(&mut self, was_in_doubt: bool) {
        if !was_in_doubt {
            *self = Sending::behind(self.last_seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(events: usize) -> EventBatch {
        EventBatch::of_lines(&"{}\n".repeat(events))
    }

    #[test]
    fn what_arrived_is_counted_and_nothing_is_sent_before_that() {
        let mut sending = Sending::behind(4);
        assert!(sending.begin(batch(3)));
        assert_eq!(sending.next_seq(), 5);
        assert!(!sending.begin(batch(1)), "three are on their way");
        assert_eq!(sending.arrived(7), Ok(5..=7));
        assert_eq!((sending.last_seq(), sending.pending()), (7, None));
        assert!(sending.begin(batch(1)));
        assert_eq!(sending.arrived(8), Ok(8..=8));
    }

    #[test]
    fn a_repeat_may_find_that_others_came_behind_it() {
        let mut sending = Sending::behind(0);
        sending.begin(batch(2));
        assert_eq!(sending.arrived(3), Ok(1..=2));
        assert_eq!(sending.next_seq(), 3, "the next batch will say so, and be refused");
    }

    #[test]
    fn an_answer_that_says_less_than_was_sent_is_not_believed() {
        let mut sending = Sending::behind(0);
        sending.begin(batch(2));
        assert!(sending.arrived(1).is_err());
        assert_eq!(sending.pending(), Some(&batch(2)));
    }

    #[test]
    fn nothing_and_what_was_refused_are_not_pending() {
        let mut sending = Sending::behind(0);
        assert!(sending.begin(batch(0)));
        assert_eq!(sending.pending(), None);
        sending.begin(batch(1));
        let was_in_doubt = sending.sent();
        sending.refused(was_in_doubt);
        assert_eq!((sending.pending(), sending.next_seq()), (None, 1));
    }

    #[test]
    fn a_refusal_settles_nothing_that_was_in_doubt_before() {
        let mut sending = Sending::behind(0);
        sending.begin(batch(1));
        let was_in_doubt = sending.sent();
        sending.not_sent(was_in_doubt);
        assert!(!sending.sent(), "nobody was reached the first time");
        let was_in_doubt = sending.sent();
        sending.refused(was_in_doubt);
        assert_eq!(sending.pending(), Some(&batch(1)));
        sending.arrived(1).unwrap();
        assert!(sending.begin(batch(1)) && !sending.sent());
    }
}
