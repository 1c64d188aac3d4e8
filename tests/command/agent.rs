//! Agents for tests: a shell script as a command, in a house of its own, and a look at the processes that it started.

use std::fs;
use std::time::Duration;

use lastword::run::{BudgetSettings, CommandRunner, Retries};
use serde_json::Value;

use crate::house::House;
pub(crate) use crate::house::until;

/// A command that is this script. `$0` is a folder that it may write to.
pub(crate) fn script(text: &str, folder: &str) -> CommandRunner {
    let words = ["/bin/sh", "-c", text, folder];
    CommandRunner { command: words.map(str::to_owned).to_vec(), ..CommandRunner::default() }
}

/// A house in which a script answers.
pub(crate) struct Agent {
    pub(crate) house: House,
    pub(crate) folder: tempfile::TempDir,
}

impl Agent {
    pub(crate) fn new(text: &str) -> Self {
        Self::with(BudgetSettings::default(), text)
    }

    pub(crate) fn with(budgets: BudgetSettings, text: &str) -> Self {
        Self::made(budgets, text, |runner| runner)
    }

    /// The same, with something changed about the command.
    pub(crate) fn made(
        budgets: BudgetSettings,
        text: &str,
        change: impl FnOnce(CommandRunner) -> CommandRunner,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runner = change(script(text, folder.path().to_str().unwrap()));
        let retries = Retries { first_pause: Duration::from_millis(20), ..Retries::default() };
        Agent { house: House::of(budgets, retries, runner), folder }
    }

    /// What the script has written to this file so far.
    pub(crate) fn written(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// The line of this file of the script's as JSON.
    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.written(name)).unwrap()
    }

    /// Waits until the script has written a whole line to this file, and gives it.
    pub(crate) async fn line(&self, name: &str) -> String {
        until(&format!("the agent writes {name}"), || self.written(name).ends_with('\n')).await;
        self.written(name).trim_end().to_owned()
    }

    /// How many times it was started, if it says so in the file `starts`.
    pub(crate) fn starts(&self) -> usize {
        self.written("starts").lines().count()
    }

    /// The processes that were noted and not forgotten.
    pub(crate) fn noted(&self) -> usize {
        self.house.store.noted_groups().unwrap().len()
    }
}

/// Whether a process is there and has not ended.
pub(crate) fn is_alive(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}
