//! The runners that a supervisor knows, each by its name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::demo::DemoRunner;
use super::options::BudgetSettings;
use super::runner::Runner;

/// The name of the runner that is always there.
pub const DEMO: &str = "demo";

/// A runner, and the budgets that are its own.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) runner: Arc<dyn Runner>,
    pub(super) budgets: BudgetSettings,
    /// Whether it is there because nobody configured another one of its name.
    is_built_in: bool,
}

/// A runner as lists show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerInfo<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it calls its kind.
    pub kind: &'a str,
    /// Whether it answers where a request names no runner.
    pub is_default: bool,
}

/// Runners by name. `demo` is there from the beginning and answers where nobody is asked for.
#[derive(Debug, Clone)]
pub struct Runners {
    named: BTreeMap<String, Named>,
    default: String,
}

impl Default for Runners {
    fn default() -> Self {
        let none = Runners { named: BTreeMap::new(), default: DEMO.to_owned() };
        none.with_demo(DemoRunner::default())
    }
}

impl Runners {
    /// These, and another one.
    pub fn with(self, name: &str, runner: impl Runner + 'static) -> Self {
        self.with_budgets(name, Arc::new(runner), BudgetSettings::default())
    }

    /// These, and another one with budgets of its own.
    pub fn with_budgets(mut self, name: &str, runner: Arc<dyn Runner>, budgets: BudgetSettings) -> Self {
        let named = Named { name: name.to_owned(), runner, budgets, is_built_in: false };
        self.named.insert(name.to_owned(), named);
        self
    }

    /// These, with another demo, unless somebody configured a runner of that name.
    pub fn with_demo(mut self, demo: DemoRunner) -> Self {
        let free = self.named.get(DEMO).is_none_or(|named| named.is_built_in);
        if free {
            let budgets = self.named.get(DEMO).map(|named| named.budgets).unwrap_or_default();
            let demo = Named { name: DEMO.to_owned(), runner: Arc::new(demo), budgets, is_built_in: true };
            self.named.insert(DEMO.to_owned(), demo);
        }
        self
    }

    /// These, with another one to answer where nobody is asked for.
    pub fn with_default(mut self, name: &str) -> Self {
        self.default = name.to_owned();
        self
    }

    /// These, with budgets that win over what each has of its own.
    pub fn with_all_budgets(mut self, budgets: BudgetSettings) -> Self {
        self.named.values_mut().for_each(|named| named.budgets = budgets.or(named.budgets));
        self
    }

    /// The name of the one that answers where nobody is asked for.
    pub fn default_name(&self) -> &str {
        &self.default
    }

    /// The names of all.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// All of them, by name.
    pub fn list(&self) -> impl Iterator<Item = RunnerInfo<'_>> {
        self.named.values().map(|named| RunnerInfo {
            name: &named.name,
            kind: named.runner.kind(),
            is_default: named.name == self.default,
        })
    }

    pub(super) fn get(&self, name: Option<&str>) -> Option<&Named> {
        self.named.get(name.unwrap_or(&self.default))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Named> {
        self.named.values()
    }
}
