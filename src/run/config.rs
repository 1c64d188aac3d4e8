//! The one place where runners are configured: a TOML text becomes named runners and options. Reads no file and no
//! secret; a runner reads its key when it needs it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::backoff::Retries;
use super::command::{CommandRunner, OutputForm};
use super::demo::DemoRunner;
#[cfg(feature = "openai")]
use super::openai::{ApiKey, OpenAiRunner};
use super::options::{BadBudget, BudgetSettings, RunOptions};
use super::runner::Runner;
use super::runners::Runners;
use crate::limits::JSON_DEPTH_MAX;
use crate::model::nested_deeper_at;

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadConfig {
    /// It is no TOML, or says something that nobody understands.
    #[error("{reason}")]
    Unreadable {
        /// What the reader said, and where.
        reason: String,
    },
    /// A runner cannot be made of what is said about it.
    #[error("runner {name:?}: {reason}")]
    Runner {
        /// The runner.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A budget is no number of seconds.
    #[error(transparent)]
    Budget(#[from] BadBudget),
}

/// Runners and the options of runs.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The runners.
    pub runners: Runners,
    /// How runs are supervised.
    pub options: RunOptions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default_runner: Option<String>,
    #[serde(default)]
    runs: Runs,
    #[serde(default)]
    runners: BTreeMap<String, RunnerEntry>,
    /// Of the same file, and somebody else's.
    #[serde(default, rename = "server")]
    _server: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Runs {
    ttfb_timeout_seconds: Option<f64>,
    idle_timeout_seconds: Option<f64>,
    tool_timeout_seconds: Option<f64>,
    attempts_max: Option<u32>,
    first_pause_seconds: Option<f64>,
    pause_max_seconds: Option<f64>,
    asked_pause_max_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunnerEntry {
    kind: String,
    ttfb_timeout_seconds: Option<f64>,
    idle_timeout_seconds: Option<f64>,
    tool_timeout_seconds: Option<f64>,
    pace_ms: Option<u64>,
    command: Option<Vec<String>>,
    cwd: Option<PathBuf>,
    env: Option<BTreeMap<String, String>>,
    output: Option<String>,
    stale_session_when: Option<Vec<String>>,
    base_url: Option<String>,
    model: Option<String>,
    system: Option<String>,
    api_key_env: Option<String>,
    api_key_file: Option<PathBuf>,
    headers: Option<BTreeMap<String, String>>,
    headers_env: Option<BTreeMap<String, String>>,
    body: Option<toml::Table>,
    stream_options: Option<bool>,
    attachments: Option<bool>,
}

/// Which keys belong to which kind of runner.
const KEYS: [(&str, &[&str]); 3] = [
    ("demo", &["pace_ms"]),
    ("command", &["command", "cwd", "env", "output", "stale_session_when"]),
    (
        "openai",
        &[
            "base_url",
            "model",
            "system",
            "api_key_env",
            "api_key_file",
            "headers",
            "headers_env",
            "body",
            "stream_options",
            "attachments",
        ],
    ),
];

impl Config {
    /// Reads a configuration.
    pub fn parse(text: &str) -> Result<Self, BadConfig> {
        let file: File = toml::from_str(text).map_err(|cause| unreadable(text, &cause))?;
        let mut runners = Runners::default();
        for (name, entry) in &file.runners {
            let bad = |reason: String| BadConfig::Runner { name: name.clone(), reason };
            let budgets = entry.budgets();
            budgets.check().map_err(|cause| bad(cause.to_string()))?;
            runners = runners.with_budgets(name, entry.runner().map_err(bad)?, budgets);
        }
        if let Some(name) = file.default_runner {
            if runners.get(Some(&name)).is_none() {
                return Err(BadConfig::Runner { name, reason: "it is the default and is not configured".to_owned() });
            }
            runners = runners.with_default(&name);
        }
        Ok(Config { runners, options: file.runs.options()? })
    }
}

/// Whether a name is one that every shell takes for a variable's.
fn is_variable(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_fine)
}

/// What is wrong, and in which line. The line itself may hold a secret.
fn unreadable(text: &str, cause: &toml::de::Error) -> BadConfig {
    let line = cause.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
    let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    BadConfig::Unreadable { reason: format!("{place}{}", cause.message()) }
}

impl Runs {
    fn options(&self) -> Result<RunOptions, BadConfig> {
        let budgets = BudgetSettings {
            first_event_seconds: self.ttfb_timeout_seconds,
            idle_seconds: self.idle_timeout_seconds,
            tool_seconds: self.tool_timeout_seconds,
        };
        budgets.check()?;
        let usual = Retries::default();
        let retries = Retries {
            attempts_max: self.attempts_max.unwrap_or(usual.attempts_max).max(1),
            first_pause: pause("first_pause_seconds", self.first_pause_seconds, usual.first_pause)?,
            pause_max: pause("pause_max_seconds", self.pause_max_seconds, usual.pause_max)?,
            asked_pause_max: pause("asked_pause_max_seconds", self.asked_pause_max_seconds, usual.asked_pause_max)?,
        };
        Ok(RunOptions { budgets, retries, ..RunOptions::default() })
    }
}

fn pause(name: &str, seconds: Option<f64>, usual: Duration) -> Result<Duration, BadBudget> {
    const SECONDS_MAX: f64 = 86_400.0;
    let Some(seconds) = seconds else { return Ok(usual) };
    match (0.0..=SECONDS_MAX).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(BadBudget { name: name.to_owned(), value: seconds.to_string() }),
    }
}

impl RunnerEntry {
    fn budgets(&self) -> BudgetSettings {
        BudgetSettings {
            first_event_seconds: self.ttfb_timeout_seconds,
            idle_seconds: self.idle_timeout_seconds,
            tool_seconds: self.tool_timeout_seconds,
        }
    }

    fn runner(&self) -> Result<Arc<dyn Runner>, String> {
        let Some((_, own)) = KEYS.iter().find(|(kind, _)| *kind == self.kind) else {
            let kinds = KEYS.map(|(kind, _)| kind).join(", ");
            return Err(format!("there is no kind {:?}: choose one of {kinds}", self.kind));
        };
        if let Some(key) = self.given().into_iter().find(|key| !own.contains(key)) {
            return Err(format!("`{key}` is not for the kind {:?}, which takes {}", self.kind, own.join(", ")));
        }
        match self.kind.as_str() {
            "demo" => Ok(Arc::new(self.demo())),
            "command" => Ok(Arc::new(self.command_runner()?)),
            _ => self.openai(),
        }
    }

    /// The keys that are said and belong to one kind only.
    fn given(&self) -> Vec<&'static str> {
        let given = [
            ("pace_ms", self.pace_ms.is_some()),
            ("command", self.command.is_some()),
            ("cwd", self.cwd.is_some()),
            ("env", self.env.is_some()),
            ("output", self.output.is_some()),
            ("stale_session_when", self.stale_session_when.is_some()),
            ("base_url", self.base_url.is_some()),
            ("model", self.model.is_some()),
            ("system", self.system.is_some()),
            ("api_key_env", self.api_key_env.is_some()),
            ("api_key_file", self.api_key_file.is_some()),
            ("headers", self.headers.is_some()),
            ("headers_env", self.headers_env.is_some()),
            ("body", self.body.is_some()),
            ("stream_options", self.stream_options.is_some()),
            ("attachments", self.attachments.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(key, _)| key).collect()
    }

    fn demo(&self) -> DemoRunner {
        self.pace_ms.map_or_else(DemoRunner::default, |pace| DemoRunner { pace: Duration::from_millis(pace) })
    }

    fn command_runner(&self) -> Result<CommandRunner, String> {
        let command = self.command.clone().unwrap_or_default();
        if command.first().is_none_or(String::is_empty) {
            return Err("`command` is missing: give a list of the program and its arguments".to_owned());
        }
        let output = match self.output.as_deref() {
            None | Some("auto") => OutputForm::Auto,
            Some("text") => OutputForm::Text,
            Some(other) => return Err(format!("`output` is {other:?}: choose \"auto\" or \"text\"")),
        };
        if let Some(name) = self.env.iter().flatten().map(|(name, _)| name).find(|name| !is_variable(name)) {
            return Err(format!(
                "`env` has {name:?}, which is no name that a shell hands on: use letters, digits and _"
            ));
        }
        Ok(CommandRunner {
            command,
            folder: self.cwd.clone(),
            environment: self.env.clone().unwrap_or_default().into_iter().collect(),
            output,
            forgotten_when: self.stale_session_when.clone().unwrap_or_default(),
        })
    }

    #[cfg(not(feature = "openai"))]
    fn openai(&self) -> Result<Arc<dyn Runner>, String> {
        Err("this program was built without the feature `openai`".to_owned())
    }

    #[cfg(feature = "openai")]
    fn openai(&self) -> Result<Arc<dyn Runner>, String> {
        let need = |value: &Option<String>, key: &str| {
            value.clone().filter(|value| !value.is_empty()).ok_or_else(|| format!("`{key}` is missing"))
        };
        let key = match (&self.api_key_env, &self.api_key_file) {
            (Some(_), Some(_)) => return Err("give `api_key_env` or `api_key_file`, not both".to_owned()),
            (Some(name), None) => ApiKey::Variable(name.clone()),
            (None, Some(path)) => ApiKey::File(path.clone()),
            (None, None) => ApiKey::None,
        };
        let body = serde_json::to_string(&self.body.clone().unwrap_or_default()).map_err(|cause| cause.to_string())?;
        if nested_deeper_at(body.as_bytes(), JSON_DEPTH_MAX).is_some() {
            return Err(format!("`body` is nested deeper than {JSON_DEPTH_MAX} levels: flatten it"));
        }
        let mut runner = OpenAiRunner::new(&need(&self.base_url, "base_url")?, &need(&self.model, "model")?)?;
        runner.key = key;
        runner.system = self.system.clone();
        runner.body = body;
        runner.stream_options = self.stream_options.unwrap_or(true);
        runner.attachments = self.attachments.unwrap_or(true);
        runner.headers = self.headers.clone().unwrap_or_default().into_iter().collect();
        runner.headers_env = self.headers_env.clone().unwrap_or_default().into_iter().collect();
        runner.check()?;
        Ok(Arc::new(runner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_are_configured_by_name() {
        let text = r#"
            default_runner = "agent"
            [runs]
            ttfb_timeout_seconds = 10
            attempts_max = 5
            [runners.agent]
            kind = "command"
            command = ["my-agent", "--stream"]
            env = { MODE = "chat" }
            idle_timeout_seconds = 0
            [runners.slow]
            kind = "demo"
            pace_ms = 500
        "#;
        let config = Config::parse(text).unwrap();
        assert_eq!(config.runners.names().collect::<Vec<_>>(), ["agent", "demo", "slow"]);
        assert_eq!(config.runners.default_name(), "agent");
        assert_eq!(config.options.retries.attempts_max, 5);
        let agent = config.runners.get(None).unwrap();
        let budgets = agent.budgets.or(config.options.budgets).budgets();
        assert_eq!((budgets.first_event, budgets.idle), (Some(Duration::from_secs(10)), None));
    }

    #[test]
    fn nothing_configured_is_the_demo() {
        let config = Config::parse("").unwrap();
        assert_eq!((config.runners.default_name(), config.runners.names().count()), ("demo", 1));
    }

    #[track_caller]
    fn refused(text: &str, words: &str) {
        let error = Config::parse(text).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_name() {
        refused("\nnonsense", "line 2: ");
        refused("[runs]\nttfb_timeout_second = 4", "ttfb_timeout_second");
        refused("[runs]\nttfb_timeout_seconds = -4", "first-event budget");
        refused("default_runner = \"x\"", "\"x\"");
        refused("[runners.a]\nkind = \"magic\"", "demo, command, openai");
        refused("[runners.a]\nkind = \"command\"", "`command` is missing");
        refused("[runners.a]\nkind = \"command\"\ncommand = [\"x\"]\noutput = \"json\"", "`output` is \"json\"");
        refused("[runners.a]\nkind = \"command\"\ncommand = [\"x\"]\nenv = { \"a.b\" = \"1\" }", "`env` has \"a.b\"");
        refused("[runners.a]\nkind = \"demo\"\nmodel = \"m\"", "`model` is not for the kind \"demo\"");
    }

    #[test]
    fn no_refusal_repeats_a_line_that_may_hold_a_secret() {
        let text = "[runners.a]\nkind = \"openai\"\nheaders = { \"api-key\" = \"sk-secret\" \"x\" }";
        assert!(!Config::parse(text).unwrap_err().to_string().contains("sk-secret"));
    }

    #[cfg(feature = "openai")]
    #[test]
    fn an_endpoint_needs_its_address_and_a_model() {
        refused("[runners.a]\nkind = \"openai\"\nmodel = \"m\"", "`base_url` is missing");
        refused("[runners.a]\nkind = \"openai\"\nbase_url = \"ftp://x\"\nmodel = \"m\"", "base_url");
        refused(
            "[runners.a]\nkind = \"openai\"\nbase_url = \"http://x/v1\"\nmodel = \"m\"\nheaders = { \"a b\" = \"c\" }",
            "header",
        );
        let text =
            "[runners.a]\nkind = \"openai\"\nbase_url = \"http://x/v1\"\nmodel = \"m\"\nbody = { temperature = 0.5 }";
        assert!(Config::parse(text).is_ok());
        // A table of the header and a list are levels, too.
        let nested = |tables: usize, lists: usize| {
            let header = format!("[runners.a.body{}]", ".t".repeat(tables));
            format!(
                "{}\n{header}\nl = {}{}",
                text.replace("body =", "headers =").replace("0.5", "\"\""),
                "[".repeat(lists),
                "]".repeat(lists)
            )
        };
        assert!(Config::parse(&nested(49, 50)).is_ok(), "{:?}", Config::parse(&nested(49, 50)).err());
        refused(&nested(50, 50), "`body` is nested deeper than 100 levels");
        refused(&nested(0, 5_000), "line 7");
        let dotted = format!("{{ {} = ", ["t"; 79].join("."));
        refused(&format!("{text}\n[runners.a.x]\nl = {}1{}", dotted.repeat(70), " }".repeat(70)), "a");
        for key in ["stream_options", "attachments"] {
            assert!(Config::parse(&format!("{text}\n{key} = false")).is_ok(), "{key}");
            refused(&format!("{text}\n{key} = \"no\""), "line 6");
            refused(&format!("[runners.a]\nkind = \"demo\"\n{key} = true"), "is not for the kind \"demo\"");
        }
    }
}
