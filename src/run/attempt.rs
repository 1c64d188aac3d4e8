//! One attempt at an answer: a producer at work, what it says written down at once, and its silence watched.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::decide::AttemptEnd;
use super::ending::{Why, panic_failure, stall_failure};
use super::group::Groups;
use super::pulse::Pulse;
use super::runner::{Failure, Finish, Halt, Outlet, Producing, Prompt, Runner, Said};
use super::scribe::Scribe;
use super::sleep::{sleep_or_stay, within};
use super::stderr::StderrKeeper;
use super::watchdog::{Budgets, Verdict, judge};
use crate::awake::AwakeClock;
use crate::model::{AGENT_SESSION_EVENT, AgentSession, Event};
use crate::store::StoreError;

/// What a producer may say before it has to wait for the journal.
const SAID_MAX: usize = 256;

/// Somebody's wish that the run should end.
pub(super) type Asked = watch::Receiver<Option<Why>>;

/// A producer at work.
pub(super) struct Attempt<'a> {
    runner: &'a str,
    budgets: Budgets,
    clock: &'a AwakeClock,
    scribe: &'a Scribe,
    producing: Option<Guarded>,
    said: mpsc::Receiver<Said>,
    is_silenced: bool,
    stop: watch::Sender<Option<Halt>>,
    pulse: Pulse,
    /// An event by which the producer itself ended the run. Nothing that it says behind that counts.
    last_words: Option<Event>,
}

/// What an attempt needs from around it.
pub(super) struct Around<'a> {
    /// The runner's name.
    pub(super) runner: &'a str,
    pub(super) budgets: Budgets,
    pub(super) clock: &'a AwakeClock,
    pub(super) scribe: &'a Scribe,
    pub(super) groups: Groups,
    pub(super) stderr: StderrKeeper,
}

impl<'a> Attempt<'a> {
    pub(super) fn begin(runner: &dyn Runner, prompt: Prompt, around: Around<'a>) -> Self {
        let (say, said) = mpsc::channel(SAID_MAX);
        let (stop, stopped) = watch::channel(None);
        let Around { runner: name, budgets, clock, scribe, groups, stderr } = around;
        let outlet = Outlet { said: say, stop: stopped, groups, stderr };
        let producing = Guarded::begin(runner, prompt, outlet);
        let pulse = Pulse::begin(clock.now());
        Attempt {
            runner: name,
            budgets,
            clock,
            scribe,
            producing,
            said,
            is_silenced: false,
            stop,
            pulse,
            last_words: None,
        }
    }

    /// Writes down what the producer says, until it ends, stalls, or somebody ends it. An error is the journal's.
    pub(super) async fn watch(&mut self, asked: &mut Asked) -> Result<AttemptEnd, StoreError> {
        loop {
            // They stay noted, so that what is still in the queue is not written before them.
            if let Some(end) = self.last_words.clone() {
                return Ok(AttemptEnd::Finished(Finish { events: vec![end] }));
            }
            let silence = self.pulse.silence(self.clock.now());
            let look_again = match judge(&silence, &self.budgets) {
                Verdict::Fine(look_again) => look_again,
                Verdict::Stalled(stall, budget) if self.said.is_empty() => {
                    return Ok(AttemptEnd::Failed(stall_failure(stall, budget, silence.events_seen > 0)));
                }
                Verdict::Stalled(..) => Some(Duration::ZERO),
            };
            let mut said = Vec::new();
            tokio::select! {
                biased;
                why = wish(asked) => return Ok(AttemptEnd::Ended(why)),
                count = self.said.recv_many(&mut said, SAID_MAX), if !self.is_silenced => match count {
                    0 => self.is_silenced = true,
                    _ => self.write(said).await?,
                },
                end = ended(&mut self.producing) => {
                    self.producing = None;
                    self.write_rest().await?;
                    if self.last_words.is_none() {
                        return Ok(end.map_or_else(AttemptEnd::Failed, AttemptEnd::Finished));
                    }
                }
                () = sleep_or_stay(look_again) => {}
            }
        }
    }

    /// Whether the user has seen anything of it.
    pub(super) fn has_shown(&self) -> bool {
        self.pulse.has_shown()
    }

    /// Writes what was said and not yet written, and lets nothing more be said.
    pub(super) async fn write_rest(&mut self) -> Result<(), StoreError> {
        self.said.close();
        let rest = std::iter::from_fn(|| self.said.try_recv().ok()).collect();
        self.write(rest).await
    }

    /// Ends a producer that is still at work, and waits until it has, or for as long as it may take.
    pub(super) async fn halt(mut self, grace: Duration, why: Halt) {
        self.said.close();
        let _ = self.stop.send(Some(why));
        if let Some(producing) = self.producing.take() {
            within(grace, producing).await;
        }
    }

    async fn write(&mut self, said: Vec<Said>) -> Result<(), StoreError> {
        let mut events = Vec::with_capacity(said.len());
        for one in said {
            match one {
                _ if self.last_words.is_some() => break,
                Said::Stirred => self.pulse.stir(),
                Said::Queued => self.pulse.wait_for_turn(true),
                Said::Going => self.pulse.wait_for_turn(false),
                Said::Event(event) if event.terminal_state().is_some() => self.last_words = Some(event),
                Said::Event(event) => {
                    self.pulse.note(&event);
                    events.push(named(event, self.runner));
                }
            }
        }
        let written = self.scribe.append(events).await;
        // The time that it took to write is not the producer's silence.
        self.pulse.rest(self.clock.now());
        written
    }
}

/// What the agent calls the conversation is noted with the runner whose agent it is.
fn named(event: Event, runner: &str) -> Event {
    if event.name() != AGENT_SESSION_EVENT {
        return event;
    }
    let Some(agent) = AgentSession::parse(event.payload()) else { return event };
    let agent = AgentSession { runner: runner.to_owned(), ..agent };
    Event::new(AGENT_SESSION_EVENT, &agent.to_json()).unwrap_or(event)
}

/// Comes when somebody wants the run to end.
pub(super) async fn wish(asked: &mut Asked) -> Why {
    match asked.wait_for(Option::is_some).await {
        Ok(why) => why.unwrap_or(Why::Shutdown),
        // Whoever could ask is gone, and with it the program.
        Err(_) => Why::Shutdown,
    }
}

async fn ended(producing: &mut Option<Guarded>) -> Result<Finish, Failure> {
    match producing {
        Some(producing) => producing.await,
        None => std::future::pending().await,
    }
}

/// A producer whose panic is a failure of its attempt and of nothing else.
struct Guarded {
    producing: Option<Producing>,
}

impl Guarded {
    fn begin(runner: &dyn Runner, prompt: Prompt, outlet: Outlet) -> Option<Self> {
        let begin = AssertUnwindSafe(|| runner.produce(prompt, outlet));
        Some(Guarded { producing: catch_unwind(begin).ok() })
    }
}

impl Future for Guarded {
    type Output = Result<Finish, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(producing) = self.producing.as_mut() else { return Poll::Ready(Err(panic_failure())) };
        match catch_unwind(AssertUnwindSafe(|| producing.as_mut().poll(context))) {
            Ok(polled) => polled,
            Err(_) => {
                self.producing = None;
                Poll::Ready(Err(panic_failure()))
            }
        }
    }
}
