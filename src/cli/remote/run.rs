//! `lastword --server URL run`
//!
//! The server's runner answers, and whoever looks on may go: only Ctrl-C stops the run, by asking the server to.

use lastword::client::{Client, EndNotice, Follow, FollowOptions, NewRun, SentEvent, Told};
use lastword::model::Object;
use lastword::model::{RunEnd, RunState};
use lastword::run::RunReport;
use lastword::{RunId, SessionId};
use tokio::sync::mpsc;

use crate::cli::failure::Failure;
use crate::cli::screen::Screen;
use crate::cli::signals::Signals;
use crate::cli::turn::user_turn;
use crate::cli::{Context, output, run, session_to_find};

/// Events that wait to be printed.
const WAITING_MAX: usize = 256;

/// Whoever usually answers there.
const USUAL_RUNNER: &str = "default";

const OWN_BUDGETS: &str = "the server's configuration says how long a runner may take: leave out the timeouts";
const LEFT: &str =
    "left before the end; the run goes on until the server has stopped it, and `tail` shows how it ended";

pub(super) async fn run(context: &Context, client: &Client, args: run::Args) -> Result<(), Failure> {
    let session = session_to_find(&args.id)?;
    let turn = user_turn(&args.message, args.run.as_deref())?;
    let runner = Some(args.runner.unwrap_or_else(|| USUAL_RUNNER.to_owned()));
    if args.ttfb_timeout_seconds.or(args.idle_timeout_seconds).is_some() {
        return Err(Failure::Usage(OWN_BUDGETS.to_owned()));
    }
    let mut signals = Signals::listen()?;
    let new = NewRun { turn, runner };
    let run = tokio::select! {
        run = client.begin_run(&session, &new) => run?,
        _ = signals.next() => return Err(Failure::No("left while the turn was begun; it may have been".to_owned())),
    };
    let json = context.json;
    let (events, printed) = mpsc::channel(WAITING_MAX);
    let printing = tokio::task::spawn_blocking(move || print(printed, json));
    let watcher = Watcher { client, session, run, events };
    let end = watcher.see_to_the_end(&mut signals).await?;
    tokio::select! {
        _ = printing => run::tell(end),
        _ = signals.next() => Err(Failure::Told),
    }
}

/// Looks on while the server's runner answers.
struct Watcher<'a> {
    client: &'a Client,
    session: SessionId,
    run: RunId,
    events: mpsc::Sender<SentEvent>,
}

impl Watcher<'_> {
    /// The first Ctrl-C asks the server to stop the run; the second one does not wait for it.
    async fn see_to_the_end(self, signals: &mut Signals) -> Result<RunReport, Failure> {
        let mut follow = self.client.follow(&self.session, &self.run, 0, FollowOptions::default());
        let (mut last_words, mut is_stopping) = (None, false);
        loop {
            tokio::select! {
                told = self.next(&mut follow, &mut last_words) => match told? {
                    Some(end) => return Ok(end_of(&end, last_words)),
                    None => continue,
                },
                _ = signals.next() => {
                    if std::mem::replace(&mut is_stopping, true) {
                        return Err(Failure::No(LEFT.to_owned()));
                    }
                    self.ask_to_stop();
                }
            }
        }
    }

    fn ask_to_stop(&self) {
        let (client, session, run) = (self.client.clone(), self.session.clone(), self.run.clone());
        tokio::spawn(async move {
            if let Err(error) = client.stop(&session, &run).await {
                output::aside(&error.to_string());
            }
        });
    }

    /// Hands on the next event; gives the end if that is what comes. Nothing is lost if it is not waited for.
    async fn next(
        &self,
        follow: &mut Follow,
        last_words: &mut Option<SentEvent>,
    ) -> Result<Option<EndNotice>, Failure> {
        // Whoever stopped reading is no reason to stop.
        let room = self.events.reserve().await.ok();
        match follow.next().await? {
            Some(Told::Event(event)) => {
                if event.terminal_state().is_some() && event.name != "stream_end" {
                    *last_words = Some(event.clone());
                }
                if let Some(room) = room {
                    room.send(event);
                }
                Ok(None)
            }
            Some(Told::Ended(end)) => Ok(Some(end)),
            Some(_) => Ok(None),
            None => Err(Failure::Storage("the server ended the run's events without an end".to_owned())),
        }
    }
}

/// How a run ended, in the words of its last event.
fn end_of(end: &EndNotice, last_words: Option<SentEvent>) -> RunReport {
    match end.run_state().and_then(RunState::end) {
        Some(end @ (RunEnd::Completed | RunEnd::ToolLimitReached | RunEnd::InterruptedByUser)) => {
            RunReport { end: Ok(end), failure: None }
        }
        _ => {
            let payload = last_words.and_then(|event| Object::parse(&event.payload()?)).unwrap_or_default();
            let text = |key: &str| payload.text(key).map(|text| text.into_owned());
            let message = text("message").unwrap_or_else(|| "what had arrived is kept".to_owned());
            RunReport::failed(text("type").unwrap_or_else(|| end.state.clone()), message)
        }
    }
}

fn print(mut events: mpsc::Receiver<SentEvent>, json: bool) {
    let mut screen = Screen::default();
    while let Some(event) = events.blocking_recv() {
        match json {
            true => screen.answer(&format!("{}\n", event.line)),
            false => screen.show(&event.name, &event.payload().unwrap_or_default()),
        }
    }
    screen.end();
}
