//! `lastword run`
//!
//! The answer goes to stdout as it is journalled; thoughts, tools and what happens around it go to stderr. Nobody who
//! stops reading stops the run: only Ctrl-C does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lastword::run::{
    BudgetSettings, Config, DemoRunner, OnStderr, RunFailure, RunReport, StartError, Started, SuperviseError,
    Supervisor,
};
use lastword::{After, RunId, SessionId, Store, UserTurn};
use parking_lot::Mutex;

use super::failure::{Failure, with_causes};
use super::screen::Screen;
use super::signals::{Signals, Wish};
use super::turn::user_turn;
use super::{Context, config, output, session_to_find};

/// How long tasks may take to let go of what they hold, producers among it, when nobody waits for them any more. Only
/// printing to somebody who does not read takes as long.
const PARTING: Duration = Duration::from_secs(1);

const LEFT: &str = "left before the end could be written; what had arrived is kept, and `show` resolves the rest";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session.
    pub(super) id: String,
    /// What the user says.
    #[arg(long, value_name = "TEXT")]
    pub(super) message: String,
    /// Who answers: the name of a configured runner.
    #[arg(long, value_name = "NAME")]
    pub(super) runner: Option<String>,
    /// The id of the run; a fresh one if none is given.
    #[arg(long)]
    pub(super) run: Option<String>,
    /// The file that configures runners; `_lastword.toml` in the data directory if none is given.
    #[arg(long, env = "LASTWORD_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// How long to wait for the first event; 0 leaves that to the idle timeout.
    #[arg(long, value_name = "SECONDS")]
    pub(super) ttfb_timeout_seconds: Option<f64>,
    /// How long a silence in the middle of an answer may last; 0 lets it last for ever. Counts from the start if the first
    /// event has no timeout.
    #[arg(long, value_name = "SECONDS")]
    pub(super) idle_timeout_seconds: Option<f64>,
    /// The pause between two words of the built-in demo.
    #[arg(long, env = "LASTWORD_DEMO_PACE_MS", value_name = "MS")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=60_000))]
    pub(super) pace_ms: Option<u64>,
}

impl Args {
    fn config(&self, context: &Context) -> Result<Config, Failure> {
        let mut config = config::load(context, self.config.as_deref())?;
        if let Some(pace) = self.pace_ms {
            config.runners = config.runners.with_demo(DemoRunner { pace: Duration::from_millis(pace) });
        }
        let given = BudgetSettings {
            first_event_seconds: self.ttfb_timeout_seconds,
            idle_seconds: self.idle_timeout_seconds,
            tool_seconds: None,
        };
        config.runners = config.runners.with_all_budgets(given);
        Ok(config)
    }
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let session = session_to_find(&args.id)?;
    let turn = user_turn(&args.message, args.run.as_deref())?;
    let config = args.config(context)?;
    let store = context.writer()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|cause| Failure::Storage(format!("could not start the tasks of a run: {cause}")))?;
    let done = runtime.block_on(answer(context, store, config, session, turn, args.runner.as_deref()));
    runtime.shutdown_timeout(PARTING);
    done
}

/// What commands of failed attempts printed on stderr, until the task that prints shows it. A terminal that is not read
/// holds up no run.
#[derive(Debug, Clone, Default)]
struct Complaints(Arc<Mutex<Vec<String>>>);

impl Complaints {
    fn listener(&self) -> OnStderr {
        let complaints = self.0.clone();
        OnStderr::new(move |tail| {
            if tail.has_failed {
                complaints.lock().push(tail.text.to_owned());
            }
        })
    }

    fn show(&self, screen: &mut Screen) {
        let complaints = std::mem::take(&mut *self.0.lock());
        complaints.iter().for_each(|text| screen.complaint(text));
    }
}

async fn answer(
    context: &Context,
    store: Store,
    mut config: Config,
    session: SessionId,
    turn: UserTurn,
    runner: Option<&str>,
) -> Result<(), Failure> {
    let complaints = Complaints::default();
    config.options.on_stderr = Some(complaints.listener());
    let supervisor = Supervisor::new(store.clone(), config.runners, config.options)?;
    let mut signals = Signals::listen()?;
    let started = supervisor.start(&session, turn, runner).await?;
    let (run, json) = (started.run().clone(), context.json);
    let late = complaints.clone();
    let printing = tokio::task::spawn_blocking(move || print(&store, &session, &run, json, &complaints));
    let Seen { end, is_hurried } = see_to_the_end(&supervisor, started.clone(), &mut signals).await;
    let Some(end) = end else { return Err(Failure::No(LEFT.to_owned())) };
    let producer = Some(started).filter(|_| !is_hurried);
    see_off(producer, printing, &mut signals).await?;
    // A command that stalled is ended, and its complaints are known, after the run has ended.
    late.show(&mut Screen::default());
    tell(end)
}

/// A run that was seen to its end.
struct Seen {
    /// Nothing if somebody did not want to wait for it.
    end: Option<RunReport>,
    /// Whether it was asked for more than once.
    is_hurried: bool,
}

/// How often somebody asks before it is left as it is.
const WISHES_MAX: u32 = 3;

/// Waits for the end. The first Ctrl-C stops the run; a disk that is full may keep that from being written, and a third
/// one does not wait for it.
async fn see_to_the_end(supervisor: &Supervisor, mut started: Started, signals: &mut Signals) -> Seen {
    let run = started.run().clone();
    let mut wishes = 0_u32;
    loop {
        tokio::select! {
            end = started.ended() => return Seen { end: Some(end), is_hurried: wishes > 1 },
            wish = signals.next() => {
                wishes += 1;
                if wishes == WISHES_MAX {
                    return Seen { end: None, is_hurried: true };
                }
                let (supervisor, run) = (supervisor.clone(), run.clone());
                tokio::spawn(async move { obey(&supervisor, &run, wish).await });
            }
        }
    }
}

/// Waits for the producer to be gone, if it is waited for, and for all to be printed. A signal waits for neither, and
/// whoever does not read is told nothing more.
async fn see_off(producer: Option<Started>, printing: Printing, signals: &mut Signals) -> Result<(), Failure> {
    let is_given_up = match producer {
        Some(mut producer) => tokio::select! {
            () = producer.gone() => false,
            _ = signals.next() => true,
        },
        None => false,
    };
    let given_up = async {
        if !is_given_up {
            signals.next().await;
        }
    };
    tokio::select! {
        biased;
        printed = printing => printed.unwrap_or_else(|broken| std::panic::resume_unwind(broken.into_panic())),
        () = given_up => Err(Failure::Told),
    }
}

/// The task that prints.
type Printing = tokio::task::JoinHandle<Result<(), Failure>>;

async fn obey(supervisor: &Supervisor, run: &RunId, wish: Wish) {
    match wish {
        Wish::Stop => {
            for (session, _) in supervisor.running().into_iter().filter(|(_, running)| running == run) {
                // How the run ended is told by the run.
                let _ = supervisor.stop(&session, run).await;
            }
        }
        Wish::Shutdown => drop(supervisor.drain(Duration::ZERO).await),
    }
}

/// Says how a run ended.
pub(super) fn tell(report: RunReport) -> Result<(), Failure> {
    let is_stopped = report.is_stopped();
    match (report.end, report.failure) {
        (Err(error), _) => Err(error.into()),
        (Ok(_), Some(RunFailure { kind, message })) => {
            Err(Failure::No(format!("the answer failed ({kind}): {}", output::plain(&message))))
        }
        _ if is_stopped => Err(Failure::No("stopped; what had arrived is kept".to_owned())),
        _ => Ok(()),
    }
}

/// Prints the run's events as they are journalled. A reader who has left is no reason to stop.
fn print(store: &Store, session: &SessionId, run: &RunId, json: bool, complaints: &Complaints) -> Result<(), Failure> {
    let mut screen = Screen::default();
    for event in store.follow(session, run, After::Start)? {
        let event = event?;
        match json {
            true => screen.answer(&format!("{}\n", event.line)),
            false => screen.show(&event.name, event.payload()),
        }
        complaints.show(&mut screen);
    }
    complaints.show(&mut screen);
    screen.end();
    Ok(())
}

impl From<SuperviseError> for Failure {
    fn from(error: SuperviseError) -> Self {
        match error {
            SuperviseError::Store(error) => error.into(),
            error => Failure::Usage(with_causes(&error)),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Store(error) => error.into(),
            StartError::UnknownRunner { .. } => Failure::Usage(error.to_string()),
            StartError::Draining => Failure::Busy(error.to_string()),
        }
    }
}
