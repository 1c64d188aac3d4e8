//! One child process: started behind a gate, fed, listened to, and ended with its whole group.
//!
//! On Unix it is started by a shell that waits for a line before it becomes the command, so that no command runs whose
//! group is not noted. If we die before that line, the shell reads the end of its input and ends.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

use super::output::Output;
use super::{Answer, CommandRunner};
use crate::limits::STDERR_BYTES_MAX;
use crate::run::group::{GroupHold, Groups};
use crate::run::process::{ExitWatch, TOKEN_VARIABLE};
use crate::run::runner::{Failure, Outlet, Prompt, Refused};
use crate::run::sleep::{Deadline, within};
use crate::storage::is_no_descriptor;

/// How long a command may take to end after it has said how its answer ends, and others to let go of its stdout after
/// it has ended.
const LINGER: Duration = Duration::from_secs(2);

/// How long the system may take to tell how a child ended that was killed, and what it said last.
const REAP_GRACE: Duration = Duration::from_secs(2);

/// How long a pipe is listened to in which nothing is, when everybody has ended.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// How much a pipe may hold.
const PIPE_BYTES_MAX: usize = 1024 * 1024;

const PIECE_BYTES: usize = 16 * 1024;

/// A child process at work.
pub(super) struct Child {
    // First, so that it is dropped first: while nobody has taken note of the child's end, the group's number is its own.
    group: Option<GroupHold>,
    child: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    exit: Option<ExitWatch>,
    has_exited: bool,
    output: Output,
    complaints: Vec<u8>,
}

/// A child process that has ended.
#[derive(Debug)]
pub(super) struct ChildExit {
    /// Nothing if the system would not tell.
    pub(super) status: Option<ExitStatus>,
    /// The end of what it printed on stderr.
    pub(super) stderr: String,
}

/// What was heard of a child.
enum Heard {
    Fed,
    Stdout(usize),
    Stderr(usize),
    Exit,
    Nothing,
}

impl Child {
    /// Starts a command. It goes to work when it is listened to.
    pub(super) async fn start(runner: &CommandRunner, prompt: &Prompt, groups: &Groups) -> Result<Self, Failure> {
        let token = Groups::fresh_token();
        let mut child = command(runner, prompt, &token).spawn().map_err(|cause| start_failure(runner, &cause))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = match child.id() {
            Some(first) => Some(note(groups, first, token, prompt).await?),
            None => None,
        };
        let exit = child.id().and_then(ExitWatch::of);
        let (output, complaints) = (Output::new(runner.output), Vec::new());
        Ok(Child { child, group, stdin, stdout, stderr, exit, has_exited: false, output, complaints })
    }

    /// Feeds the command and says what it answers, until it has ended, or said how the answer ends, and had time to go. If
    /// others hold on to its stdout then, they are not waited for.
    pub(super) async fn listen(&mut self, input: Vec<u8>, outlet: &Outlet, answer: &mut Answer) -> Result<(), Refused> {
        let mut feeding = Box::pin(feed(self.stdin.take(), input));
        let mut is_fed = false;
        let (mut said, mut complained) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        let mut patience = None;
        while !self.has_exited || self.stdout.is_some() {
            if self.has_exited || answer.has_ended() {
                patience.get_or_insert_with(|| Deadline::after(LINGER));
            }
            let heard = tokio::select! {
                n = read(&mut self.stdout, &mut said) => Heard::Stdout(n),
                n = read(&mut self.stderr, &mut complained) => Heard::Stderr(n),
                () = &mut feeding, if !is_fed => Heard::Fed,
                () = exited(&self.exit, &mut self.child), if !self.has_exited => Heard::Exit,
                () = Deadline::wait(patience) => Heard::Nothing,
            };
            match heard {
                Heard::Fed => is_fed = true,
                Heard::Stdout(0) => self.stdout = None,
                Heard::Stdout(n) => self.say(&said[..n], outlet, answer).await?,
                Heard::Stderr(0) => self.stderr = None,
                Heard::Stderr(n) => keep_end(&mut self.complaints, &complained[..n]),
                Heard::Exit => self.has_exited = true,
                Heard::Nothing => break,
            }
        }
        Ok(())
    }

    /// Ends whatever is left of the group, and tells how the child ended. It is taken note of last, so that until then
    /// the group's number is nobody else's.
    pub(super) async fn end(&mut self, term_grace: Duration) -> ChildExit {
        self.stdin = None;
        match (self.group.take(), &self.exit) {
            (Some(group), Some(_)) => group.end(term_grace).await,
            (Some(group), None) => drop(tokio::join!(within(term_grace, self.child.wait()), group.end(term_grace))),
            (None, _) => drop(self.child.start_kill()),
        }
        let status = within(REAP_GRACE, self.child.wait()).await.and_then(Result::ok);
        self.hear_last_complaints().await;
        ChildExit { status, stderr: String::from_utf8_lossy(&self.complaints).into_owned() }
    }

    /// Says what was in the pipe when everybody had ended, and what waits for the end of its line.
    pub(super) async fn say_rest(&mut self, outlet: &Outlet, answer: &mut Answer) -> Result<(), Refused> {
        let (mut piece, mut left) = (vec![0; PIECE_BYTES], PIPE_BYTES_MAX);
        while left > 0 && self.stdout.is_some() {
            match within(LAST_WORDS, read(&mut self.stdout, &mut piece)).await {
                Some(n) if n > 0 => {
                    self.say(&piece[..n], outlet, answer).await?;
                    left = left.saturating_sub(n);
                }
                _ => self.stdout = None,
            }
        }
        say(self.output.finish(), outlet, answer).await
    }

    async fn say(&mut self, printed: &[u8], outlet: &Outlet, answer: &mut Answer) -> Result<(), Refused> {
        let events = self.output.take(printed);
        if events.is_empty() && self.output.is_amid_event() {
            outlet.stir().await?;
        }
        say(events, outlet, answer).await
    }

    /// What is in the pipe of a child that has ended. Others may hold it too, and never fall silent.
    async fn hear_last_complaints(&mut self) {
        let hearing = async {
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                match within(LAST_WORDS, read(&mut self.stderr, &mut piece)).await {
                    Some(n) if n > 0 => keep_end(&mut self.complaints, &piece[..n]),
                    _ => return,
                }
            }
        };
        within(REAP_GRACE, hearing).await;
        self.stderr = None;
    }
}

/// Adds to what is kept of stderr: its end.
fn keep_end(complaints: &mut Vec<u8>, bytes: &[u8]) {
    complaints.extend_from_slice(bytes);
    let surplus = complaints.len().saturating_sub(STDERR_BYTES_MAX);
    complaints.drain(..surplus);
}

async fn say(events: Vec<crate::model::Event>, outlet: &Outlet, answer: &mut Answer) -> Result<(), Refused> {
    for event in events {
        if let Some(event) = answer.take(event) {
            outlet.say(event).await?;
        }
    }
    Ok(())
}

/// Comes when the child has ended.
async fn exited(exit: &Option<ExitWatch>, child: &mut tokio::process::Child) {
    match exit {
        Some(exit) => exit.seen().await,
        // If the system will not tell, there is nothing more to wait for.
        None => drop(child.wait().await),
    }
}

/// What is there to be read; 0 at the end. For ever nothing, if there is nothing to read from.
async fn read(from: &mut Option<impl AsyncRead + Unpin>, piece: &mut [u8]) -> usize {
    match from {
        Some(pipe) => pipe.read(piece).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

/// Lets the command go, hands it its input, and closes it. One that does not care to read is no failure.
async fn feed(stdin: Option<ChildStdin>, input: Vec<u8>) {
    let Some(mut stdin) = stdin else { return };
    let gate: &[u8] = if cfg!(unix) { b"\n" } else { b"" };
    // In one piece: if we die here, no command is let go that has nothing to answer.
    if stdin.write_all(&[gate, &input].concat()).await.is_ok() {
        let _ = stdin.shutdown().await;
    }
}

/// Notes the child's group while the child waits.
async fn note(groups: &Groups, first: u32, token: String, prompt: &Prompt) -> Result<GroupHold, Failure> {
    let (groups, session, run) = (groups.clone(), prompt.session.clone(), prompt.run.clone());
    let noting = tokio::task::spawn_blocking(move || groups.note(first, token, &session, &run));
    let failed = |cause: String| {
        let message = format!("The command was not started, because it could not be noted: {cause}. Please try again.");
        Failure::new("storage", message).closed_by("not_started")
    };
    match noting.await {
        Ok(noted) => noted.map_err(|cause| failed(cause.to_string())),
        Err(cause) => Err(failed(cause.to_string())),
    }
}

fn start_failure(runner: &CommandRunner, cause: &io::Error) -> Failure {
    let name = runner.name();
    let place = runner.folder.as_ref().map(|folder| format!(" in {}", folder.display())).unwrap_or_default();
    let message = format!("The command {name:?} could not be started{place}: {cause}. Look at its configuration.");
    let failure = Failure::new("command_not_started", message).closed_by("not_started");
    match cause.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => failure.retryable(),
        _ if is_no_descriptor(cause) => failure.retryable(),
        _ => failure,
    }
}

fn command(runner: &CommandRunner, prompt: &Prompt, token: &str) -> Command {
    let mut command = gated(&runner.command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    if let Some(folder) = &runner.folder {
        command.current_dir(folder);
    }
    command.env_clear().envs(runner.inherit_env.inherited());
    command.envs(runner.environment.iter().map(|(name, value)| (name, value)));
    command.env("LASTWORD_SESSION_ID", prompt.session.as_str()).env("LASTWORD_RUN_ID", prompt.run.as_str());
    command.env(TOKEN_VARIABLE, token);
    command
}

/// The command behind its gate, in a group of its own.
#[cfg(unix)]
fn gated(words: &[String]) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", "IFS= read -r LASTWORD_GATE && unset LASTWORD_GATE && exec \"$@\"", "lastword"])
        .args(words)
        .process_group(0);
    command
}

#[cfg(not(unix))]
fn gated(words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("", String::as_str));
    command.args(words.iter().skip(1));
    command
}
