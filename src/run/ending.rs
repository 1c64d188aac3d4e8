//! The events that begin and end attempts and runs, and the words in them. Pure.

use std::time::Duration;

use super::runner::{Failure, Retry};
use super::watchdog::Stall;
use crate::model::fold::ATTEMPT_EVENT;
use crate::model::{AGENT_SESSION_EVENT, AgentSession, Event, Object};

/// The event that says why an attempt failed that is followed by another.
pub(super) const ATTEMPT_END_EVENT: &str = "attempt_end";

const AGAIN: &str = "Please try again.";
const KEPT: &str = "What had arrived is kept above; please try again.";

/// Why somebody ends a run that its producer would go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The user stopped it.
    Stop,
    /// The program ends.
    Shutdown,
    /// Its journal takes no more: somebody else ended the run, or its session is gone, or the disk failed.
    Elsewhere,
}

/// The event that begins an attempt.
pub(super) fn attempt_begins(attempt: u32, attempts_max: u32, runner: &str) -> Event {
    let mut payload = Object::default();
    payload.set("attempt", attempt.to_string());
    payload.set("of", attempts_max.max(attempt).to_string());
    payload.set_text("runner", runner);
    event(ATTEMPT_EVENT, &payload)
}

/// The event that ends an attempt that is followed by another, after a pause.
pub(super) fn attempt_ends(attempt: u32, failure: &Failure, pause: Duration) -> Event {
    telling(ATTEMPT_END_EVENT, failure, |payload, failure| {
        payload.set("attempt", attempt.to_string());
        tell(payload, failure);
        payload.set("retry_in_seconds", format!("{:.3}", pause.as_secs_f64()));
    })
}

/// The event that ends a run that failed.
pub(super) fn run_fails(attempt: u32, failure: &Failure) -> Event {
    telling("apperror", failure, |payload, failure| {
        tell(payload, failure);
        payload.set("attempts", attempt.to_string());
    })
}

/// The event that ends a run that somebody ended.
pub(super) fn run_is_ended(why: Why, attempt: u32) -> Event {
    match why {
        // Its journal refuses this, because it has ended or takes no more.
        Why::Elsewhere => Event::cancel(),
        Why::Stop => Event::stopped_by_user(),
        Why::Shutdown => run_fails(
            attempt,
            &Failure::new(
                "shutdown",
                "The program was shut down before this answer was complete. What had arrived is kept above; please \
                 send your message again.",
            )
            .retryable()
            .closed_by("shutdown"),
        ),
    }
}

/// What the user is told when the agent no longer knows the conversation.
pub(super) fn agent_forgot() -> Event {
    let mut payload = Object::default();
    payload.set_text("text", "(The agent no longer knew this conversation and has begun a new one of its own.)");
    payload.set_text("notice", "agent_session_lost");
    event("interim_assistant", &payload)
}

/// What is noted of an agent that begins a conversation of its own: the name that it was told no longer counts.
pub(super) fn agent_is_new(runner: &str) -> Event {
    let nameless = AgentSession { runner: runner.to_owned(), id: String::new() };
    event(AGENT_SESSION_EVENT, &Object::parse(&nameless.to_json()).unwrap_or_default())
}

/// Why a producer that stalled was cut off. `has_begun`: at least one event came before the silence.
pub(super) fn stall_failure(stall: Stall, budget: Duration, has_begun: bool) -> Failure {
    let seconds = budget.as_secs_f64();
    let (close_reason, message) = match stall {
        Stall::FirstEvent => (
            "ttfb_timeout",
            format!("The backend accepted the request and sent nothing within {seconds} s (TTFB timeout). {AGAIN}"),
        ),
        Stall::Idle if !has_begun => {
            ("idle_timeout", format!("The backend accepted the request and sent nothing for {seconds} s. {AGAIN}"))
        }
        Stall::Idle => {
            ("idle_timeout", format!("The backend fell silent for {seconds} s in the middle of its answer. {KEPT}"))
        }
        Stall::Tool => ("tool_timeout", format!("A tool did not answer within {seconds} s. {KEPT}")),
    };
    Failure::new("timeout", message).retryable().closed_by(close_reason)
}

/// A runner that panicked.
pub(super) fn panic_failure() -> Failure {
    Failure::new("runner_panicked", "The runner broke down while it answered. Its log says where; please try again.")
        .closed_by("panic")
}

fn tell(payload: &mut Object, failure: &Failure) {
    payload.set_text("type", &failure.kind);
    payload.set_text("message", &failure.message);
    payload.set_text("close_reason", failure.close_reason);
    payload.set("retryable", (failure.retry != Retry::No).to_string());
    for (key, value) in failure.notes.iter() {
        if payload.get(key).is_none() {
            payload.set(key, value);
        }
    }
}

/// An event that tells of a failure; in brief, if all that is known of it is more than a line takes.
fn telling(name: &'static str, failure: &Failure, fill: impl Fn(&mut Object, &Failure)) -> Event {
    let told = |failure: &Failure| {
        let mut payload = Object::default();
        fill(&mut payload, failure);
        Event::new(name, &payload.to_json())
    };
    told(failure).or_else(|_| told(&in_brief(failure))).expect("a brief failure fits in a line")
}

fn in_brief(failure: &Failure) -> Failure {
    const CHARS_MAX: usize = 2_000;
    let cut = |text: &str| text.chars().take(CHARS_MAX).collect::<String>();
    Failure { kind: cut(&failure.kind), message: cut(&failure.message), notes: Object::default(), ..failure.clone() }
}

fn event(name: &'static str, payload: &Object) -> Event {
    Event::new(name, &payload.to_json()).expect("what we say ourselves is short")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RunEnd;

    #[test]
    fn a_stall_at_the_beginning_says_ttfb_and_has_a_reason_of_its_own() {
        let failure = stall_failure(Stall::FirstEvent, Duration::from_secs(45), false);
        assert!(failure.message.contains("TTFB") && failure.message.contains("45 s"), "{failure:?}");
        let event = run_fails(3, &failure);
        assert!(event.payload().contains(r#""close_reason":"ttfb_timeout","retryable":true"#), "{event:?}");
        assert_eq!(event.terminal_state(), Some(RunEnd::Errored));
        let reason = |stall| stall_failure(stall, Duration::from_secs(1), true).close_reason;
        assert_eq!([Stall::Idle, Stall::Tool].map(reason), ["idle_timeout", "tool_timeout"]);
    }

    #[test]
    fn an_idle_stall_speaks_of_an_answer_only_if_there_was_one() {
        let [before, within] =
            [false, true].map(|has_begun| stall_failure(Stall::Idle, Duration::from_secs(9), has_begun));
        assert_eq!((before.close_reason, within.close_reason), ("idle_timeout", "idle_timeout"));
        assert!(before.message.contains("sent nothing for 9 s"), "{before:?}");
        assert!(!before.message.contains("answer") && !before.message.contains("kept"), "{before:?}");
        assert!(within.message.contains("9 s in the middle of its answer"), "{within:?}");
    }

    #[test]
    fn a_stop_is_the_users_and_a_shutdown_is_not() {
        assert_eq!(run_is_ended(Why::Stop, 1).terminal_state(), Some(RunEnd::InterruptedByUser));
        assert_eq!(run_is_ended(Why::Shutdown, 1).terminal_state(), Some(RunEnd::Errored));
    }

    #[test]
    fn notes_never_replace_what_a_failure_says_of_itself() {
        let failure = Failure::new("k", "m").noting("type", "\"other\"").noting("exit_code", "7");
        assert_eq!(
            run_fails(1, &failure).payload(),
            r#"{"type":"k","message":"m","close_reason":"failed","retryable":false,"exit_code":7,"attempts":1}"#
        );
    }

    #[test]
    fn a_failure_that_is_too_long_to_tell_is_told_in_brief_and_ends_what_it_should() {
        let long = "\u{e9}".repeat(crate::limits::LINE_BYTES_MAX / 2);
        for failure in [Failure::new("k", long.clone()), Failure::new("k", "m").noting("x", format!("\"{long}\""))] {
            let (run, attempt) = (run_fails(1, &failure), attempt_ends(1, &failure, Duration::ZERO));
            assert!(run.payload().contains("\"type\":\"k\"") && run.payload().len() < 8_000);
            assert_eq!((run.terminal_state(), attempt.terminal_state()), (Some(RunEnd::Errored), None));
            assert_eq!(attempt.name(), ATTEMPT_END_EVENT);
        }
    }

    #[test]
    fn beginning_and_failing_attempts_does_not_end_a_run() {
        let failure = Failure::new("k", "m").retryable();
        for event in [attempt_begins(1, 3, "demo"), attempt_ends(1, &failure, Duration::ZERO), agent_forgot()] {
            assert_eq!(event.terminal_state(), None, "{event:?}");
        }
    }
}
