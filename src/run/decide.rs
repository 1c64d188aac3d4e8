//! What follows an attempt: the end of the run, or another attempt. A pure function of how it ended and what came before.

use std::time::Duration;

use super::backoff::{Retries, pause_after};
use super::ending::{Why, run_fails, run_is_ended};
use super::runner::{Failure, Finish, Retry};
use crate::model::Event;

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum AttemptEnd {
    /// The answer is complete.
    Finished(Finish),
    /// It failed, or stalled.
    Failed(Failure),
    /// Somebody ended the run.
    Ended(Why),
}

impl AttemptEnd {
    /// The wish that ended it, if one did.
    pub(super) fn wish(&self) -> Option<Why> {
        if let AttemptEnd::Ended(why) = self { Some(*why) } else { None }
    }
}

/// What is known of a run's attempts so far.
#[derive(Debug, Default, Clone)]
pub(super) struct Story {
    /// Which attempt this is, from 1.
    pub(super) attempt: u32,
    /// Whether the user has seen anything of the answer: from then on nothing is tried again behind their back.
    pub(super) has_shown: bool,
    /// What the agent is told that it calls the conversation.
    pub(super) agent_session: Option<String>,
    /// Whether the agent was found not to know it, and began anew. That happens once.
    pub(super) has_begun_afresh: bool,
}

/// What follows.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// The run ends with these events.
    End(Vec<Event>),
    /// Another attempt, after a pause.
    Again {
        /// Why this one failed.
        failure: Failure,
        /// How long to wait.
        pause: Duration,
        /// Whether the agent begins a conversation of its own.
        is_afresh: bool,
    },
}

/// Decides. `chance` is any number.
pub(super) fn decide(end: AttemptEnd, story: &Story, chance: u128, retries: &Retries) -> Next {
    let failure = match end {
        AttemptEnd::Finished(finish) => return Next::End(finish.events),
        AttemptEnd::Ended(why) => return Next::End(vec![run_is_ended(why, story.attempt)]),
        AttemptEnd::Failed(failure) => failure,
    };
    let pause = match failure.retry {
        _ if story.has_shown => None,
        Retry::No => None,
        Retry::Afresh => (!story.has_begun_afresh).then_some(Duration::ZERO),
        Retry::After(asked) => pause_after(story.attempt, asked, chance, retries),
    };
    match pause {
        Some(pause) => Next::Again { is_afresh: failure.retry == Retry::Afresh, failure, pause },
        None => Next::End(vec![run_fails(story.attempt, &failure)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(failure: Failure, story: Story) -> Next {
        decide(AttemptEnd::Failed(failure), &story, 0, &Retries::default())
    }

    fn first() -> Story {
        Story { attempt: 1, ..Story::default() }
    }

    fn is_end(next: &Next) -> bool {
        matches!(next, Next::End(_))
    }

    #[test]
    fn a_failure_before_anything_was_shown_is_tried_again_a_few_times() {
        let failure = Failure::new("timeout", "m").retryable();
        assert!(!is_end(&after(failure.clone(), first())));
        assert!(!is_end(&after(failure.clone(), Story { attempt: 2, ..first() })));
        assert!(is_end(&after(failure, Story { attempt: 3, ..first() })));
    }

    #[test]
    fn nothing_is_tried_again_behind_the_back_of_somebody_who_saw_it() {
        let failure = Failure::new("timeout", "m").retryable();
        assert!(is_end(&after(failure, Story { has_shown: true, ..first() })));
    }

    #[test]
    fn what_would_only_fail_alike_is_not_tried_again() {
        assert!(is_end(&after(Failure::new("bad_key", "m"), first())));
    }

    #[test]
    fn an_agent_that_forgot_begins_afresh_once() {
        let failure = Failure { retry: Retry::Afresh, ..Failure::new("unknown_agent_session", "m") };
        assert!(matches!(after(failure.clone(), first()), Next::Again { is_afresh: true, .. }));
        assert!(is_end(&after(failure, Story { has_begun_afresh: true, ..first() })));
    }

    #[test]
    fn a_backend_that_asks_for_an_hour_is_not_asked_again() {
        let failure = Failure { retry: Retry::After(Some(Duration::from_secs(3600))), ..Failure::new("rate", "m") };
        assert!(is_end(&after(failure, first())));
    }

    #[test]
    fn what_somebody_ends_is_ended_whatever_came_before() {
        for why in [Why::Stop, Why::Shutdown] {
            assert!(is_end(&decide(AttemptEnd::Ended(why), &first(), 0, &Retries::default())));
        }
    }
}
