//! Whether a producer still works: pure functions of how long it has been silent. Nothing here reads a clock or waits.

use std::time::Duration;

/// How long a producer may be silent. `None` switches a budget off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Before its first event of any kind. If this one is off, the idle budget counts from the start of the attempt.
    pub first_event: Option<Duration>,
    /// Between two events, once there was one, unless a tool is at work.
    pub idle: Option<Duration>,
    /// While a tool is at work.
    pub tool: Option<Duration>,
}

/// What is known of a producer's silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// How long it has lasted.
    pub lasted: Duration,
    /// How many events came before it.
    pub events_seen: u64,
    /// How many tools were called and have not answered.
    pub tools_pending: usize,
}

/// Which budget a producer has overdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stall {
    /// It never said anything.
    FirstEvent,
    /// It fell silent in the middle of its answer, or never said anything and the first event has no budget of its own.
    Idle,
    /// Its tool never answered.
    Tool,
}

/// What is to be thought of a silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All is well; it is time to look again after so long, or never.
    Fine(Option<Duration>),
    /// The producer has stalled, having overdrawn a budget of this length.
    Stalled(Stall, Duration),
}

/// Judges a silence.
pub fn judge(silence: &Silence, budgets: &Budgets) -> Verdict {
    let (stall, budget) = match silence {
        Silence { events_seen: 0, .. } if budgets.first_event.is_some() => (Stall::FirstEvent, budgets.first_event),
        Silence { tools_pending: 0, .. } => (Stall::Idle, budgets.idle),
        _ => (Stall::Tool, budgets.tool),
    };
    match budget {
        None => Verdict::Fine(None),
        Some(budget) if silence.lasted < budget => Verdict::Fine(Some(budget - silence.lasted)),
        Some(budget) => Verdict::Stalled(stall, budget),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BUDGETS: Budgets =
        Budgets { first_event: Some(Duration::from_secs(45)), idle: Some(Duration::from_secs(300)), tool: None };

    fn after(seconds: f64, events_seen: u64, tools_pending: usize) -> Verdict {
        let lasted = Duration::from_secs_f64(seconds);
        judge(&Silence { lasted, events_seen, tools_pending }, &BUDGETS)
    }

    #[test]
    fn a_producer_that_never_says_anything_is_cut_off_at_the_first_event_budget() {
        assert_eq!(after(44.0, 0, 0), Verdict::Fine(Some(SECOND)));
        assert_eq!(after(45.0, 0, 0), Verdict::Stalled(Stall::FirstEvent, Duration::from_secs(45)));
    }

    #[test]
    fn after_one_event_only_the_idle_budget_counts() {
        assert_eq!(after(45.0, 1, 0), Verdict::Fine(Some(Duration::from_secs(255))));
        assert_eq!(after(299.5, 900, 0), Verdict::Fine(Some(SECOND / 2)));
        assert_eq!(after(300.0, 1, 0), Verdict::Stalled(Stall::Idle, Duration::from_secs(300)));
    }

    #[test]
    fn without_a_first_event_budget_the_idle_budget_counts_from_the_start() {
        let late = |seconds: u64, idle: Option<Duration>| {
            let silence = Silence { lasted: Duration::from_secs(seconds), events_seen: 0, tools_pending: 0 };
            judge(&silence, &Budgets { first_event: None, idle, tool: Some(SECOND) })
        };
        assert_eq!(late(299, BUDGETS.idle), Verdict::Fine(Some(SECOND)));
        assert_eq!(late(300, BUDGETS.idle), Verdict::Stalled(Stall::Idle, Duration::from_secs(300)));
        assert_eq!(late(1_000_000, None), Verdict::Fine(None), "only both at 0 wait for ever");
    }

    #[test]
    fn silence_while_a_tool_is_at_work_is_no_stall_unless_tools_have_a_budget() {
        assert_eq!(after(1e6, 1, 1), Verdict::Fine(None));
        let budgets = Budgets { tool: Some(SECOND), ..BUDGETS };
        let silence = Silence { lasted: SECOND, events_seen: 1, tools_pending: 2 };
        assert_eq!(judge(&silence, &budgets), Verdict::Stalled(Stall::Tool, SECOND));
    }

    #[test]
    fn budgets_that_are_all_switched_off_are_never_overdrawn() {
        let none = Budgets::default();
        for events_seen in [0, 1] {
            let silence = Silence { lasted: Duration::MAX, events_seen, tools_pending: 0 };
            assert_eq!(judge(&silence, &none), Verdict::Fine(None));
        }
    }
}
