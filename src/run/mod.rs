//! Supervised runs: where the tokens come from. A producer is started, every event that it says is journalled before
//! anybody sees it, its silence is watched, and it is ended properly and folded into the transcript.
//!
//! Start with [`Supervisor`]. What a silence means ([`watchdog`]), what follows an attempt and how long to wait are pure
//! functions; `sleep.rs` is the one place that waits. A run is a task of a tokio runtime, not a thread. Knows no terminal
//! and no HTTP server.

mod attachments;
mod attempt;
mod backoff;
mod command;
mod config;
mod decide;
mod demo;
mod ending;
mod group;
#[cfg(feature = "openai")]
mod openai;
mod options;
mod process;
mod pulse;
mod runner;
mod runners;
mod scribe;
mod sleep;
mod stderr;
mod supervise;
mod supervisor;
pub mod watchdog;

pub use backoff::Retries;
pub use command::{BadInherit, CommandRunner, InheritEnv, OutputForm};
pub use config::{BadConfig, Config};
pub use demo::DemoRunner;
pub use group::{Reaped, reap};
#[cfg(feature = "openai")]
pub use openai::{ApiKey, OpenAiRunner};
pub use options::{BadBudget, BudgetSettings, FIRST_EVENT_VARIABLE, IDLE_VARIABLE, RunOptions, TOOL_VARIABLE};
pub use runner::{Failure, Finish, Outlet, Producing, Prompt, Refused, Retry, Runner};
pub use runners::{DEMO, RunnerInfo, Runners};
pub use stderr::{OnStderr, StderrTail};
pub use supervise::{RunFailure, RunReport};
pub use supervisor::{Drained, StartError, Started, SuperviseError, Supervisor};
