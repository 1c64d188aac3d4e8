//! What a supervisor can be told, and what holds where it is told nothing.

use std::sync::Arc;
use std::time::Duration;

use super::backoff::Retries;
use super::stderr::OnStderr;
use super::watchdog::Budgets;
use crate::clock::{Steady, SystemSteady};
use crate::storage::{OpenFileShares, open_files_max};

/// The variable of the environment that sets the first-event budget where nothing else does.
pub const FIRST_EVENT_VARIABLE: &str = "LASTWORD_TTFB_TIMEOUT_SECONDS";

/// The same for the idle budget.
pub const IDLE_VARIABLE: &str = "LASTWORD_IDLE_TIMEOUT_SECONDS";

/// The same for the budget of tools.
pub const TOOL_VARIABLE: &str = "LASTWORD_TOOL_TIMEOUT_SECONDS";

const FIRST_EVENT_SECONDS: f64 = 45.0;
const IDLE_SECONDS: f64 = 300.0;
const TOOL_SECONDS: f64 = 0.0;

/// Budgets in seconds, as far as anybody set them; 0 switches one off.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BudgetSettings {
    /// Before the first event. 45 unless set. At 0 the idle budget counts from the start of the attempt.
    pub first_event_seconds: Option<f64>,
    /// Between two events. 300 unless set.
    pub idle_seconds: Option<f64>,
    /// While a tool is at work. Off unless set.
    pub tool_seconds: Option<f64>,
}

/// A budget that is no number of seconds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value:?}: give a number of seconds, or 0 to switch it off")]
pub struct BadBudget {
    /// What sets it.
    pub name: String,
    /// What it is set to.
    pub value: String,
}

impl BudgetSettings {
    /// What the environment sets.
    pub fn from_environment() -> Result<Self, BadBudget> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, BadBudget> {
        let seconds = |name: &str| match variable(name).filter(|value| !value.trim().is_empty()) {
            Some(value) => number(name, &value).map(Some),
            None => Ok(None),
        };
        Ok(BudgetSettings {
            first_event_seconds: seconds(FIRST_EVENT_VARIABLE)?,
            idle_seconds: seconds(IDLE_VARIABLE)?,
            tool_seconds: seconds(TOOL_VARIABLE)?,
        })
    }

    /// These, and where they are silent those.
    pub fn or(self, others: Self) -> Self {
        BudgetSettings {
            first_event_seconds: self.first_event_seconds.or(others.first_event_seconds),
            idle_seconds: self.idle_seconds.or(others.idle_seconds),
            tool_seconds: self.tool_seconds.or(others.tool_seconds),
        }
    }

    /// Whether each of them is a number of seconds.
    pub fn check(&self) -> Result<(), BadBudget> {
        let named = [
            ("the first-event budget", self.first_event_seconds),
            ("the idle budget", self.idle_seconds),
            ("the tool budget", self.tool_seconds),
        ];
        for (name, seconds) in named {
            seconds.map_or(Ok(0.0), |seconds| number(name, &seconds.to_string()))?;
        }
        Ok(())
    }

    /// The budgets, with the defaults where nothing is set.
    pub fn budgets(&self) -> Budgets {
        Budgets {
            first_event: duration(self.first_event_seconds.unwrap_or(FIRST_EVENT_SECONDS)),
            idle: duration(self.idle_seconds.unwrap_or(IDLE_SECONDS)),
            tool: duration(self.tool_seconds.unwrap_or(TOOL_SECONDS)),
        }
    }
}

/// Beyond this nobody waits, and no clock counts.
const SECONDS_MAX: f64 = 1e9;

fn number(name: &str, value: &str) -> Result<f64, BadBudget> {
    let seconds = value.trim().parse::<f64>().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| BadBudget { name: name.to_owned(), value: value.to_owned() })
}

fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|budget| !budget.is_zero())
}

/// How a supervisor behaves. The defaults are meant for production.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// How long producers may be silent. What is set here wins over the environment.
    pub budgets: BudgetSettings,
    /// Attempts of one run, and the pauses between them.
    pub retries: Retries,
    /// How long a producer may take to end when it is told to, before it is dropped.
    pub stop_grace: Duration,
    /// How long a run holds on to what it could not write because the disk is full, before it gives up.
    pub disk_patience: Duration,
    /// Files that commands may hold open together. Those for which there are none wait for their turn.
    pub command_files_max: usize,
    /// What silence is measured with.
    pub steady: Arc<dyn Steady>,
    /// Called with what a command printed on stderr, when it has ended.
    pub on_stderr: Option<OnStderr>,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            budgets: BudgetSettings::default(),
            retries: Retries::default(),
            stop_grace: Duration::from_secs(10),
            disk_patience: Duration::from_secs(60),
            command_files_max: OpenFileShares::of_library(open_files_max()).commands,
            steady: Arc::new(SystemSteady::default()),
            on_stderr: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(value: &str) -> Result<BudgetSettings, BadBudget> {
        BudgetSettings::from_variables(|name| (name == FIRST_EVENT_VARIABLE).then(|| value.to_owned()))
    }

    #[test]
    fn explicit_configuration_wins_over_the_environment_and_that_over_the_default() {
        let first = |settings: BudgetSettings| settings.budgets().first_event.map(|budget| budget.as_secs());
        assert_eq!(first(BudgetSettings::default()), Some(45));
        let environment = from("7").unwrap();
        assert_eq!(first(environment), Some(7));
        let explicit = BudgetSettings { first_event_seconds: Some(9.0), ..BudgetSettings::default() };
        assert_eq!(first(explicit.or(environment)), Some(9));
        let off = BudgetSettings { first_event_seconds: Some(0.0), ..BudgetSettings::default() };
        assert_eq!(first(off.or(environment)), None, "an explicit 0 switches off what the environment sets");
    }

    #[test]
    fn zero_switches_a_budget_off() {
        assert_eq!(from("0").unwrap().budgets().first_event, None);
        assert_eq!(from(" 0.5 ").unwrap().budgets().first_event, Some(Duration::from_millis(500)));
        assert_eq!(from("").unwrap(), BudgetSettings::default(), "an empty variable is as good as none");
    }

    #[test]
    fn what_is_no_number_of_seconds_is_refused_by_name() {
        for value in ["soon", "-1", "NaN", "inf", "1e99"] {
            let error = from(value).unwrap_err().to_string();
            assert!(error.contains(FIRST_EVENT_VARIABLE) && error.contains(value), "{error}");
        }
        let bad = BudgetSettings { idle_seconds: Some(-2.0), ..BudgetSettings::default() };
        assert!(bad.check().is_err());
    }
}
