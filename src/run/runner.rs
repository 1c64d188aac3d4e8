//! What a producer of answers is: one small trait, what it is given, and how it says that it ended.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use super::group::Groups;
use super::stderr::StderrKeeper;
use crate::model::{Context, Event, Object, RunId, SessionId};

/// An attempt at an answer, at work.
pub type Producing = Pin<Box<dyn Future<Output = Result<Finish, Failure>> + Send>>;

/// Produces answers: it is given a conversation, and says events until it ends.
///
/// What holds for every runner:
/// - It waits without blocking a thread. A call that blocks goes to `tokio::task::spawn_blocking`.
/// - When [`Outlet::stopped`] comes, or a [`Outlet::say`] is refused, it ends what it started and returns soon; what it
///   returns then is of no interest. It is dropped if it takes longer than the stop grace, so whatever must not outlive
///   it is also ended by a `Drop`.
/// - It never decides on time: budgets, retries and the end of the run are the supervisor's.
pub trait Runner: Send + Sync + fmt::Debug {
    /// Begins an attempt at an answer.
    fn produce(&self, prompt: Prompt, outlet: Outlet) -> Producing;

    /// A word for the kind of runner, for programs that list the runners: `demo`, `command` and `openai` are the built-in
    /// kinds.
    fn kind(&self) -> &str {
        "custom"
    }
}

/// What is to be answered.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// The session.
    pub session: SessionId,
    /// The run that the answer belongs to.
    pub run: RunId,
    /// What the user said.
    pub message: String,
    /// What came with it: a JSON list. A stored file is there as a data URL in `url`; a URL that still begins with
    /// `lastword:` names one that is not stored or too large.
    pub attachments: String,
    /// The conversation up to and including the message, without loose ends, its files as content parts of a chat request.
    pub context: Context,
    /// What the agent calls this conversation, if it completed a turn of it before.
    pub agent_session: Option<String>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// What a producer says.
#[derive(Debug)]
pub(super) enum Said {
    /// An event of the answer.
    Event(Event),
    /// That it is there, in a way that is no event of the answer.
    Stirred,
    /// That it waits for its turn to be started: what comes until then is not its silence.
    Queued,
    /// That it is its turn.
    Going,
}

/// Why a producer is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// Its attempt has failed: it stalled, or what it said ended the run as a failure.
    Failed,
    /// It is not wanted any more: the user stopped the run, the program ends, or the journal takes no more.
    Unwanted,
}

/// Nobody listens to the producer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run takes no more events")]
pub struct Refused;

/// Where a producer says its events. Whoever says more than can be written at the moment waits.
#[derive(Debug, Clone)]
pub struct Outlet {
    pub(super) said: mpsc::Sender<Said>,
    pub(super) stop: watch::Receiver<Option<Halt>>,
    pub(super) groups: Groups,
    pub(super) stderr: StderrKeeper,
}

impl Outlet {
    /// Says an event. It is journalled before anybody sees it.
    pub async fn say(&self, event: Event) -> Result<(), Refused> {
        self.said.send(Said::Event(event)).await.map_err(|_| Refused)
    }

    /// Says that the backend has begun to answer although there is nothing to show yet. Counts as an event for the
    /// watchdog, and is not journalled. Bytes that merely keep a connection open are no such sign.
    pub async fn stir(&self) -> Result<(), Refused> {
        self.said.send(Said::Stirred).await.map_err(|_| Refused)
    }

    /// Comes when the producer is to end.
    pub async fn stopped(&self) {
        self.halted().await;
    }

    /// Comes when the producer is to end, and says why.
    pub(super) async fn halted(&self) -> Halt {
        let mut stop = self.stop.clone();
        let halt = stop.wait_for(Option::is_some).await;
        // A supervisor that is gone wants no more either.
        halt.ok().and_then(|halt| *halt).unwrap_or(Halt::Unwanted)
    }

    /// What comes of something, unless the producer is to end before that.
    pub async fn unless_stopped<T>(&self, something: impl Future<Output = T>) -> Result<T, Refused> {
        tokio::select! {
            biased;
            () = self.stopped() => Err(Refused),
            done = something => Ok(done),
        }
    }

    /// Where the end of a command's stderr is kept.
    pub(super) fn stderr(&self) -> &StderrKeeper {
        &self.stderr
    }

    /// Where process groups are noted before they go to work.
    pub(super) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Waits until another process may be started. It may as long as the place is held.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit, Refused> {
        let said = |said| async { self.said.send(said).await.map_err(|_| Refused) };
        if let Some(place) = self.groups.try_place() {
            return Ok(place);
        }
        said(Said::Queued).await?;
        let place = self.groups.place().await;
        said(Said::Going).await?;
        Ok(place)
    }
}

/// The end of an answer that is complete: the events that end its run.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    pub(super) events: Vec<Event>,
}

impl Finish {
    /// It is complete.
    pub fn done() -> Self {
        Finish { events: vec![Event::done()] }
    }

    /// It is complete, with something to note about it.
    pub fn done_with(notes: &Object) -> Self {
        let event = Event::new("done", &notes.to_json());
        Finish { events: vec![event.unwrap_or_else(|_| Event::done())] }
    }
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// A word for programs.
    pub kind: String,
    /// A sentence for people: what failed, and what they can do.
    pub message: String,
    /// What ended the attempt, as a word that the journal keeps.
    pub close_reason: &'static str,
    /// Whether another attempt may fare better.
    pub retry: Retry,
    /// What else is known of it: an exit code, a status.
    pub notes: Object,
}

/// Whether another attempt may fare better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It would fail alike.
    No,
    /// It may, but not before so long, if the backend said so.
    After(Option<Duration>),
    /// It may, if the agent begins a conversation of its own: it no longer knows the one that it was told.
    Afresh,
}

impl Failure {
    /// A failure that another attempt would only repeat.
    pub fn new(kind: &str, message: impl Into<String>) -> Self {
        Failure {
            kind: kind.to_owned(),
            message: message.into(),
            close_reason: "failed",
            retry: Retry::No,
            notes: Object::default(),
        }
    }

    /// The same, but another attempt may fare better.
    pub fn retryable(self) -> Self {
        Failure { retry: Retry::After(None), ..self }
    }

    /// The same, with what ended the attempt.
    pub fn closed_by(self, close_reason: &'static str) -> Self {
        Failure { close_reason, ..self }
    }

    /// The same, with something to note about it. `json` is a value's text.
    pub fn noting(mut self, key: &str, json: impl Into<Box<str>>) -> Self {
        self.notes.set(key, json);
        self
    }
}

/// Of no interest: whoever refused knows why.
impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Failure::new("stopped", refused.to_string()).closed_by("stopped")
    }
}
