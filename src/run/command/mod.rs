//! A child process for every turn: the conversation on its stdin, events or text on its stdout.
//!
//! It gets a process group of its own, which ends with the turn. The end of what it prints on stderr is kept in the run's details,
//! and is in no event. Of this program's environment it is given a few variables and what its configuration names.

mod child;
mod environment;
mod output;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;

use self::child::{Child, ChildExit};
pub use self::environment::{BadInherit, InheritEnv};
pub use self::output::OutputForm;
use super::group::TERM_GRACE;
use super::runner::{Failure, Finish, Halt, Outlet, Producing, Prompt, Refused, Retry, Runner};
use crate::model::{Event, Object, RunEnd, is_truthy};

/// The exit code by which a command says that another attempt may fare better (`EX_TEMPFAIL`).
const TRY_AGAIN: i32 = 75;

/// The exit code of a shell that did not find what it was to start.
const NOT_FOUND: i32 = 127;

/// The words by which a command says that it does not know the agent session it was told.
const FORGOTTEN: [&str; 2] = ["unknown_agent_session", "stale_agent_session"];

/// Runs a command for every turn.
#[derive(Clone, Default)]
pub struct CommandRunner {
    /// The program and its arguments. No shell looks at them.
    pub command: Vec<String>,
    /// The folder that it runs in; this process's own if none is given.
    pub folder: Option<PathBuf>,
    /// What is added to its environment.
    pub environment: Vec<(String, String)>,
    /// What it is given of this process's environment beside `PATH`, `HOME` and the locale.
    pub inherit_env: InheritEnv,
    /// How its output is understood.
    pub output: OutputForm,
    /// What its stderr holds if it does not know the agent session that it was told.
    pub forgotten_when: Vec<String>,
}

/// The values of the environment, and arguments, may be secrets.
impl fmt::Debug for CommandRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandRunner").field("command", &self.name()).finish_non_exhaustive()
    }
}

impl Runner for CommandRunner {
    fn produce(&self, prompt: Prompt, outlet: Outlet) -> Producing {
        let runner = self.clone();
        Box::pin(async move { runner.answer(prompt, outlet).await })
    }

    fn kind(&self) -> &str {
        "command"
    }
}

impl CommandRunner {
    async fn answer(self, prompt: Prompt, outlet: Outlet) -> Result<Finish, Failure> {
        let was_told = prompt.agent_session.is_some();
        let _place = outlet.unless_stopped(outlet.turn()).await??;
        let mut child = Child::start(&self, &prompt, outlet.groups()).await?;
        let mut answer = Answer { is_asked_to_go_on: was_told, ..Answer::default() };
        let heard = outlet.unless_stopped(child.listen(input(&prompt), &outlet, &mut answer)).await;
        let ended = child.end(TERM_GRACE).await;
        let concluded = match heard {
            Ok(Ok(())) => self.conclude(child, &outlet, answer, &ended).await,
            Ok(Err(Refused)) | Err(Refused) => Err(Refused),
        };
        let has_failed = match &concluded {
            Ok(end) => end.as_ref().is_err_and(is_error),
            // It was cut off: as a failure, or because its answer is not wanted any more.
            Err(Refused) => outlet.halted().await == Halt::Failed,
        };
        outlet.stderr().keep(&prompt, &ended.stderr, has_failed).await;
        concluded?
    }

    async fn conclude(
        &self,
        mut child: Child,
        outlet: &Outlet,
        mut answer: Answer,
        ended: &ChildExit,
    ) -> Result<Result<Finish, Failure>, Refused> {
        child.say_rest(outlet, &mut answer).await?;
        outlet.say(exit_event(ended)).await?;
        Ok(answer.conclude(self, ended))
    }

    fn name(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    fn says_forgotten(&self, stderr: &str) -> bool {
        self.forgotten_when.iter().any(|words| !words.is_empty() && stderr.contains(words.as_str()))
    }
}

/// The object that a command reads: one line.
fn input(prompt: &Prompt) -> Vec<u8> {
    let mut object = Object::default();
    object.set_text("message", &prompt.message);
    object.set("attachments", prompt.attachments.as_str());
    object.set("context", prompt.context.to_json());
    object.set_text("session_id", prompt.session.as_str());
    object.set_text("run_id", prompt.run.as_str());
    match &prompt.agent_session {
        Some(id) => object.set_text("agent_session_id", id),
        None => object.set("agent_session_id", "null"),
    }
    object.set("attempt", prompt.attempt.to_string());
    let mut line = object.to_json().into_bytes();
    line.push(b'\n');
    line
}

/// What a command has said so far of how its answer ends.
#[derive(Debug, Default)]
struct Answer {
    has_spoken: bool,
    /// Whether it was told to go on with an agent session.
    is_asked_to_go_on: bool,
    /// The events by which it ended the run itself.
    end: Vec<Event>,
}

impl Answer {
    /// Takes an event, and gives it back if it is to be said: what ends a run waits for the command to end, and behind
    /// it nothing counts but a `stream_end`.
    fn take(&mut self, event: Event) -> Option<Event> {
        self.has_spoken = true;
        let is_end = event.terminal_state().is_some();
        match self.end.last().map(Event::name) {
            None if !is_end => return Some(event),
            None => self.end.push(event),
            Some("done") if event.name() == "stream_end" => self.end.push(event),
            Some(_) => {}
        }
        None
    }

    fn has_ended(&self) -> bool {
        !self.end.is_empty()
    }

    /// How the attempt ended: as the command said, or else as its exit code says.
    fn conclude(self, runner: &CommandRunner, ended: &ChildExit) -> Result<Finish, Failure> {
        let failure = match self.end.first() {
            Some(end) if matches!(end.name(), "apperror" | "error") => declared_failure(end),
            Some(_) => return Ok(Finish { events: self.end }),
            None if ended.status.is_some_and(|status| status.success()) && self.has_spoken => return Ok(Finish::done()),
            None => exit_failure(runner, ended),
        };
        let failure = noting_exit(failure, ended);
        let is_forgotten = FORGOTTEN.contains(&failure.kind.as_str()) || runner.says_forgotten(&ended.stderr);
        match self.is_asked_to_go_on && is_forgotten {
            true => Err(Failure { retry: Retry::Afresh, close_reason: "agent_session_lost", ..failure }),
            false => Err(failure),
        }
    }
}

/// What a command said when it failed. All that it said is kept.
fn declared_failure(event: &Event) -> Failure {
    let payload = Object::parse(event.payload()).unwrap_or_default();
    let word = |keys: [&str; 2]| {
        let texts = keys.iter().filter_map(|key| payload.text(key));
        texts.map(|text| text.into_owned()).find(|text| !text.is_empty())
    };
    let kind = word(["type", "code"]).unwrap_or_else(|| "error".to_owned());
    let otherwise = || "The command said that it failed. Please try again.".to_owned();
    let message = word(["message", "error"]).unwrap_or_else(otherwise);
    let mut failure = Failure::new(&kind, message).closed_by("declared");
    // An end that the command gives a meaning of its own, like a limit of tool calls, is no failure to be repeated.
    let is_plain = event.terminal_state() == Some(RunEnd::Errored);
    if is_plain && payload.get("retryable").is_some_and(is_truthy) {
        failure = failure.retryable();
    }
    failure.notes = payload;
    failure
}

/// Whether a run that fails so ends with an error, and not at a limit of tool calls or as its user wished.
fn is_error(failure: &Failure) -> bool {
    Event::error(&failure.kind, &failure.message).terminal_state() == Some(RunEnd::Errored)
}

fn exit_failure(runner: &CommandRunner, ended: &ChildExit) -> Failure {
    let name = runner.name();
    let code = ended.status.and_then(|status| status.code());
    let (kind, what) = match code {
        Some(0) => ("empty_answer", format!("The command {name:?} ended without an answer")),
        Some(NOT_FOUND) => ("command_not_found", format!("The command {name:?} could not be started")),
        Some(code) => ("command_failed", format!("The command {name:?} ended with exit code {code}")),
        None => ("command_killed", format!("The command {name:?} was ended by {}", signal_name(ended.status))),
    };
    let where_to_look = match ended.stderr.trim().is_empty() {
        true => "",
        false => "; its stderr is in the run's details",
    };
    let message = format!("{what}{where_to_look}. Please try again, or look at its configuration.");
    let failure = Failure::new(kind, message);
    let failure = failure.closed_by("exit");
    if code == Some(TRY_AGAIN) { failure.retryable() } else { failure }
}

fn signal_name(status: Option<ExitStatus>) -> String {
    #[cfg(unix)]
    if let Some(signal) = status.and_then(|status| std::os::unix::process::ExitStatusExt::signal(&status)) {
        return format!("signal {signal}");
    }
    let _ = status;
    "the system".to_owned()
}

fn noting_exit(failure: Failure, ended: &ChildExit) -> Failure {
    failure.noting("exit_code", exit_code(ended))
}

fn exit_code(ended: &ChildExit) -> String {
    ended.status.and_then(|status| status.code()).map_or("null".to_owned(), |code| code.to_string())
}

/// The event that keeps how the command ended.
fn exit_event(ended: &ChildExit) -> Event {
    let mut payload = Object::default();
    payload.set("exit_code", exit_code(ended));
    if ended.status.is_some_and(|status| status.code().is_none()) {
        payload.set_text("ended_by", &signal_name(ended.status));
    }
    Event::new("exit", &payload.to_json()).unwrap_or_else(|_| Event::token(""))
}
