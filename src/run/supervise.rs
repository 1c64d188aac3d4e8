//! The life of one run: attempt after attempt, until it is ended, folded and saved.
//!
//! What a crash leaves: the prompt and every event that anybody saw are in the session and the journal; the producer's
//! processes are noted. The next read resolves the turn, the next writer ends the processes, and nobody answers it again.

use std::sync::Arc;

use tokio::sync::watch;

use super::attachments::{Stored, resolved};
use super::attempt::{Around, Asked, Attempt, wish};
use super::decide::{AttemptEnd, Next, Story, decide};
use super::ending::{Why, agent_forgot, agent_is_new, attempt_begins, attempt_ends, run_fails, run_is_ended};
use super::group::Groups;
use super::options::RunOptions;
use super::runner::{Failure, Halt, Prompt};
use super::runners::Named;
use super::scribe::{Scribe, Sealed};
use super::sleep::sleep;
use super::stderr::StderrKeeper;
use super::watchdog::Budgets;
use crate::awake::AwakeClock;
use crate::entropy::{Entropy, SystemEntropy};
use crate::journal::{Found, ReadOptions};
use crate::model::{Context, Event, Object, RunEnd, SessionId};
use crate::store::{Run, Store, StoreError};

/// What became of a supervised run.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// How it ended. An error if its journal took no more: another process ended it, or the disk failed. What arrived is kept
    /// then, and the next full read of the session resolves the rest.
    pub end: Result<RunEnd, StoreError>,
    /// What its producer said if it failed.
    pub failure: Option<RunFailure>,
}

/// What a run said of its failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFailure {
    /// A word for programs.
    pub kind: String,
    /// A sentence for people.
    pub message: String,
}

impl RunReport {
    /// The report of a run that this event ended.
    fn of(event: &Event) -> Self {
        let end = event.terminal_state().unwrap_or(RunEnd::Errored);
        let failure = matches!(end, RunEnd::Errored | RunEnd::InterruptedByCrash).then(|| {
            let payload = Object::parse(event.payload()).unwrap_or_default();
            let text = |key| payload.text(key).unwrap_or_default().into_owned();
            RunFailure { kind: text("type"), message: text("message") }
        });
        RunReport { end: Ok(end), failure }
    }

    /// The report of a run that failed.
    pub fn failed(kind: impl Into<String>, message: impl Into<String>) -> Self {
        let failure = Some(RunFailure { kind: kind.into(), message: message.into() });
        RunReport { end: Ok(RunEnd::Errored), failure }
    }

    fn unwritten(error: StoreError) -> Self {
        RunReport { end: Err(error), failure: None }
    }

    /// Whether it ended by itself: with a complete answer, or at its limit of tool calls.
    pub fn is_completed(&self) -> bool {
        matches!(self.end, Ok(RunEnd::Completed | RunEnd::ToolLimitReached))
    }

    /// Whether the user stopped it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.end, Ok(RunEnd::InterruptedByUser))
    }

    /// Whether it failed like this.
    pub fn has_failed_as(&self, kind: &str) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.kind == kind)
    }

    /// Whether its journal took no more.
    pub fn is_unwritten(&self) -> bool {
        self.end.is_err()
    }
}

/// How far a run is.
#[derive(Debug, Clone, Default)]
pub(super) struct Stage {
    /// How it ended, once it has.
    pub(super) end: Option<RunReport>,
    /// Whether the event by which a stop ends a run ended it, and no other.
    pub(super) is_ended_by_stop: bool,
    /// Whether its producer is gone too.
    pub(super) is_gone: bool,
}

/// Everything that one run needs.
pub(super) struct Supervision {
    pub(super) store: Store,
    pub(super) named: Named,
    pub(super) budgets: Budgets,
    pub(super) options: RunOptions,
    pub(super) clock: Arc<AwakeClock>,
    pub(super) scribe: Scribe,
    pub(super) groups: Groups,
    pub(super) stderr: StderrKeeper,
    pub(super) asked: Asked,
    pub(super) stage: watch::Sender<Stage>,
}

/// Whether the story goes on behind an attempt.
enum Chapter {
    Next,
    Last,
}

impl Supervision {
    /// Sees the run to its end, and gives back where it is told that all of it is gone.
    pub(super) async fn run(mut self) -> watch::Sender<Stage> {
        let mut story = Story { agent_session: self.agent_session().await, ..Story::default() };
        loop {
            story.attempt += 1;
            match self.chapter(&mut story).await {
                Ok(Chapter::Next) => {}
                Ok(Chapter::Last) => break,
                Err(error) => {
                    self.give_up(error, story.attempt).await;
                    break;
                }
            }
        }
        self.stage
    }

    /// One attempt, and what follows from it.
    async fn chapter(&mut self, story: &mut Story) -> Result<Chapter, StoreError> {
        let asked = *self.asked.borrow();
        if let Some(why) = asked {
            return self.end_because(why, story.attempt).await;
        }
        self.scribe.append(self.beginning(story)).await?;
        let prompt = self.prompt(story).await?;
        let mut asked = self.asked.clone();
        let mut attempt = Attempt::begin(&*self.named.runner, prompt, self.around());
        let watched = attempt.watch(&mut asked).await;
        story.has_shown |= attempt.has_shown();
        let wish = watched.as_ref().ok().and_then(AttemptEnd::wish);
        match watched.map(|end| decide(end, story, SystemEntropy.next(), &self.options.retries)) {
            Ok(Next::End(events)) => self.end_with(attempt, events, wish).await.map(|()| Chapter::Last),
            Ok(Next::Again { failure, pause, is_afresh }) => {
                attempt.halt(self.options.stop_grace, Halt::Failed).await;
                self.turn_page(story, failure, pause, is_afresh).await
            }
            Err(error) => {
                attempt.halt(self.options.stop_grace, Halt::Unwanted).await;
                Err(error)
            }
        }
    }

    /// Ends the run and its producer. Neither waits for the other: the end is told when it is saved, and a disk that is full
    /// keeps no producer at work.
    async fn end_with(
        &self,
        mut attempt: Attempt<'_>,
        events: Vec<Event>,
        wish: Option<Why>,
    ) -> Result<(), StoreError> {
        let written = attempt.write_rest().await;
        let end = async {
            written?;
            self.end(events, wish).await
        };
        let why = if wish.is_some() { Halt::Unwanted } else { Halt::Failed };
        tokio::join!(end, attempt.halt(self.options.stop_grace, why)).0
    }

    /// The events that begin an attempt. An agent that has begun afresh has no name for the conversation until it says so.
    fn beginning(&self, story: &Story) -> Vec<Event> {
        let begins = attempt_begins(story.attempt, self.options.retries.attempts_max, &self.named.name);
        let forgets = story.has_begun_afresh.then(|| agent_is_new(&self.named.name));
        [begins].into_iter().chain(forgets).collect()
    }

    /// Says why the last attempt failed, and waits for the next.
    async fn turn_page(
        &mut self,
        story: &mut Story,
        failure: Failure,
        pause: std::time::Duration,
        is_afresh: bool,
    ) -> Result<Chapter, StoreError> {
        let mut events = vec![attempt_ends(story.attempt, &failure, pause)];
        if is_afresh {
            story.agent_session = None;
            story.has_begun_afresh = true;
            // The user reads that, so that nothing more is tried behind their back.
            story.has_shown = true;
            events.push(agent_forgot());
        }
        self.scribe.append(events).await?;
        tokio::select! {
            biased;
            why = wish(&mut self.asked) => self.end_because(why, story.attempt).await,
            () = sleep(pause) => Ok(Chapter::Next),
        }
    }

    fn around(&self) -> Around<'_> {
        let (groups, stderr) = (self.groups.clone(), self.stderr.clone());
        Around {
            runner: &self.named.name,
            budgets: self.budgets,
            clock: &self.clock,
            scribe: &self.scribe,
            groups,
            stderr,
        }
    }

    /// The conversation as it is now, with the turn that is to be answered at its end.
    async fn prompt(&self, story: &Story) -> Result<Prompt, StoreError> {
        let (store, session) = (self.store.clone(), self.scribe.run.session().clone());
        let read = move || turn_to_answer(&store, &session);
        let TurnToAnswer { message, attachments, context } = self.scribe.desk.document(read).await?;
        let (session, run) = (self.scribe.run.session().clone(), self.scribe.run.id().clone());
        let (agent_session, attempt) = (story.agent_session.clone(), story.attempt);
        Ok(Prompt { session, run, message, attachments, context, agent_session, attempt })
    }

    /// What the runner's agent calls the conversation. If that cannot be read now, the first attempt will say so.
    async fn agent_session(&self) -> Option<String> {
        let (store, run, runner) = (self.store.clone(), self.scribe.run.clone(), self.named.name.clone());
        let read = move || store.session_for_run(run.session(), run.id()).ok()?.agent_session(&runner);
        self.scribe.desk.document(read).await.map(|known| known.id)
    }

    /// Ends the run because somebody wants it to end.
    async fn end_because(&self, why: Why, attempt: u32) -> Result<Chapter, StoreError> {
        self.end(vec![run_is_ended(why, attempt)], Some(why)).await.map(|()| Chapter::Last)
    }

    /// Ends the run and reports how: by which wish, if there was one. If another caller was faster, it ended as that one said.
    async fn end(&self, events: Vec<Event>, wish: Option<Why>) -> Result<(), StoreError> {
        let own = events.first().map_or_else(|| RunReport::of(&Event::done()), RunReport::of);
        let sealed = self.scribe.end(events).await?;
        let end = match sealed {
            Sealed::Now => own,
            Sealed::Before => self.end_in_journal().await?.unwrap_or(own),
        };
        if sealed == Sealed::Now {
            // The caller of the stop waits for this, and reports it.
            let _ = self.store.take_unreported_stop(self.scribe.run.session(), self.scribe.run.id());
        }
        self.stage.send_modify(|stage| {
            stage.end = Some(end);
            stage.is_ended_by_stop = sealed == Sealed::Now && wish == Some(Why::Stop);
        });
        Ok(())
    }

    /// How the run ended, in the words of its journal.
    async fn end_in_journal(&self) -> Result<Option<RunReport>, StoreError> {
        let (store, run) = (self.store.clone(), self.scribe.run.clone());
        self.scribe.desk.document(move || end_in_journal(&store, &run)).await
    }

    /// Something could not be written. One last try to say so in the journal is made, if it takes anything at all; it may
    /// also have ended meanwhile.
    async fn give_up(&self, error: StoreError, attempt: u32) {
        let message =
            format!("The answer could not be written down: {error}. What had arrived is kept; please try again.");
        let failure = Failure::new(error.code(), message).closed_by("unwritten");
        let last = run_fails(attempt, &failure);
        let end = match self.scribe.try_end(vec![last.clone()]).await {
            Ok(Sealed::Now) => RunReport::of(&last),
            Ok(Sealed::Before) => {
                self.end_in_journal().await.ok().flatten().unwrap_or_else(|| RunReport::unwritten(error))
            }
            Err(_) => RunReport::unwritten(error),
        };
        self.stage.send_modify(|stage| stage.end = Some(end));
    }
}

/// The pending turn of a session, and the conversation that it belongs to.
struct TurnToAnswer {
    message: String,
    attachments: String,
    context: Context,
}

fn turn_to_answer(store: &Store, session: &SessionId) -> Result<TurnToAnswer, StoreError> {
    let pending = store.get_session(session)?.pending_turn();
    let (message, attachments) = pending.map(|turn| (turn.message, turn.attachments)).unwrap_or_default();
    let attachments = resolved(&attachments, &Stored { store, session });
    Ok(TurnToAnswer { message, attachments, context: store.context(session)? })
}

fn end_in_journal(store: &Store, run: &Run) -> Result<Option<RunReport>, StoreError> {
    let mut end = None;
    for found in store.events(run.session(), run.id(), ReadOptions::default())? {
        match found? {
            Found::Event(event) if event.is_terminal && event.name != "stream_end" => {
                end = Event::journalled(&event.name, event.payload()).ok().map(|event| RunReport::of(&event));
            }
            _ => {}
        }
    }
    Ok(end)
}

/// Notes a wish that a run should end, and says whether it counts. The first one does, unless it was no wish but news.
pub(super) fn ask(asked: &watch::Sender<Option<Why>>, why: Why) -> bool {
    asked.send_if_modified(|wish| {
        let is_new = wish.is_none() || (*wish == Some(Why::Elsewhere) && why != Why::Elsewhere);
        if is_new {
            *wish = Some(why);
        }
        is_new
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish_after(asked: &[Why]) -> Option<Why> {
        let (sender, receiver) = watch::channel(None);
        for why in asked {
            ask(&sender, *why);
        }
        *receiver.borrow()
    }

    #[test]
    fn the_first_wish_counts_and_news_gives_way_to_any_wish() {
        assert_eq!(wish_after(&[Why::Stop, Why::Shutdown]), Some(Why::Stop));
        assert_eq!(wish_after(&[Why::Shutdown, Why::Stop]), Some(Why::Shutdown));
        for wish in [Why::Stop, Why::Shutdown] {
            assert_eq!(wish_after(&[Why::Elsewhere, wish]), Some(wish));
            assert_eq!(wish_after(&[wish, Why::Elsewhere]), Some(wish));
        }
        assert_eq!(wish_after(&[Why::Elsewhere]), Some(Why::Elsewhere));
    }

    #[test]
    fn a_wish_that_does_not_count_wakes_no_task() {
        let (sender, mut receiver) = watch::channel(None);
        assert!(ask(&sender, Why::Stop));
        receiver.mark_unchanged();
        assert!(!ask(&sender, Why::Stop) && !ask(&sender, Why::Shutdown) && !ask(&sender, Why::Elsewhere));
        assert!(!receiver.has_changed().unwrap());
    }
}
