//! `lastword serve`
//!
//! Settings are said on the command line, in the environment, in the file; the first to say something wins.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lastword::Options;
use lastword::http::{Lasting, LogForm, ServeError, Server, ServerSettings, Tokens};
use lastword::run::{DemoRunner, Drained, OnStderr, StderrTail, Supervisor};
use lastword::storage::{OnFinding, OpenFileShares, raise_open_files};
use tokio::task::JoinHandle;
use tracing_subscriber::EnvFilter;

use super::failure::{Failure, with_causes};
use super::rotation::rotate;
use super::signals::{Hangups, Signals};
use super::{Context, config, greet, output};

/// How long tasks may take to let go when nobody waits for them any more.
const PARTING: Duration = Duration::from_secs(1);

/// Characters of a command's stderr that are logged, the last ones.
const LOGGED_CHARS_MAX: usize = 2_000;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to listen. An address that other machines can reach needs --token-file.
    #[arg(long, env = "LASTWORD_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// How lasting an append is before it is acknowledged, unless it says so itself.
    #[arg(long, env = "LASTWORD_DURABILITY", value_enum)]
    durability: Option<super::Lasting>,
    /// How long a reader that asks to wait for an event is kept waiting.
    #[arg(long, env = "LASTWORD_LONG_POLL_TIMEOUT_MS", value_name = "MS")]
    long_poll_timeout_ms: Option<u64>,
    /// The file of tokens: one a line, `read-only` after those that must not change anything. It is read again when it
    /// changes, and on SIGHUP.
    #[arg(long, env = "LASTWORD_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The path under which a proxy offers the server, like /chat, whether the proxy takes it off or not.
    #[arg(long, env = "LASTWORD_BASE_PATH", value_name = "PATH")]
    base_path: Option<String>,
    /// A name by which the server may be called, beside localhost and addresses. May be given more than once.
    #[arg(long, env = "LASTWORD_ALLOW_HOSTS", value_name = "NAME", value_delimiter = ',')]
    allow_host: Option<Vec<String>>,
    /// The origin of pages of another server that may use this one from a browser. May be given more than once.
    #[arg(long, env = "LASTWORD_ALLOW_ORIGINS", value_name = "ORIGIN", value_delimiter = ',')]
    allow_origin: Option<Vec<String>>,
    /// How long an outside producer counts as alive after its last append, unless it says so itself.
    #[arg(long, env = "LASTWORD_LEASE_SECONDS", value_name = "SECONDS")]
    lease_seconds: Option<f64>,
    /// How often a silent stream says that it is still there.
    #[arg(long, env = "LASTWORD_HEARTBEAT_SECONDS", value_name = "SECONDS")]
    heartbeat_seconds: Option<f64>,
    /// How long a reader is told to wait before it connects again.
    #[arg(long, env = "LASTWORD_RETRY_MS", value_name = "MS")]
    retry_ms: Option<u64>,
    /// Connections at the same time.
    #[arg(long, env = "LASTWORD_CONNECTIONS_MAX", value_name = "N")]
    connections_max: Option<u64>,
    /// Connections of one address at the same time, loopback addresses aside; of clients of a trusted proxy, requests. An eighth
    /// of all, and at least 8, unless said.
    #[arg(long, env = "LASTWORD_CONNECTIONS_PER_ADDRESS_MAX", value_name = "N")]
    connections_per_address_max: Option<u64>,
    /// A proxy whose X-Forwarded-For or Forwarded says which client a request is from. May be given more than once.
    #[arg(long, env = "LASTWORD_TRUST_FORWARDED_FOR", value_name = "ADDRESS[/PREFIX]", value_delimiter = ',')]
    trust_forwarded_for: Option<Vec<String>>,
    /// Bytes of a request's body.
    #[arg(long, env = "LASTWORD_BODY_BYTES_MAX", value_name = "BYTES")]
    body_bytes_max: Option<u64>,
    /// Bytes of the bodies of all requests in memory. At least one body must fit.
    #[arg(long, env = "LASTWORD_BODIES_BYTES_MAX", value_name = "BYTES")]
    bodies_bytes_max: Option<u64>,
    /// How long the head of a request may take.
    #[arg(long, env = "LASTWORD_HEAD_TIMEOUT_SECONDS", value_name = "SECONDS")]
    head_timeout_seconds: Option<f64>,
    /// How long its body may take.
    #[arg(long, env = "LASTWORD_BODY_TIMEOUT_SECONDS", value_name = "SECONDS")]
    body_timeout_seconds: Option<f64>,
    /// How long a reader may take nothing of what is there for it.
    #[arg(long, env = "LASTWORD_WRITE_TIMEOUT_SECONDS", value_name = "SECONDS")]
    write_timeout_seconds: Option<f64>,
    /// How long runs may take to end when the server is asked to.
    #[arg(long, env = "LASTWORD_DRAIN_SECONDS", value_name = "SECONDS")]
    drain_seconds: Option<f64>,
    /// What is logged: error, warn, info, debug, or filters.
    #[arg(long, env = "LASTWORD_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// In which form.
    #[arg(long, env = "LASTWORD_LOG_FORM", value_enum)]
    log_form: Option<Form>,
    /// The pause between two words of the built-in demo.
    #[arg(long, env = "LASTWORD_DEMO_PACE_MS", value_name = "MS")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=60_000))]
    pace_ms: Option<u64>,
    /// The file that configures the server and its runners; `_lastword.toml` in the data directory if none is given.
    #[arg(long, env = "LASTWORD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print what is configured, wherever it was said, and serve nothing.
    #[arg(long)]
    print_config: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Form {
    Text,
    Json,
}

impl Args {
    fn settings(&self) -> ServerSettings {
        ServerSettings {
            listen: self.listen.clone(),
            durability: self.durability.map(|durability| match durability {
                super::Lasting::Buffered => Lasting::Buffered,
                super::Lasting::Durable => Lasting::Durable,
            }),
            token_file: self.token_file.clone(),
            base_path: self.base_path.clone(),
            allow_hosts: self.allow_host.clone(),
            allow_origins: self.allow_origin.clone(),
            body_bytes_max: self.body_bytes_max,
            bodies_bytes_max: self.bodies_bytes_max,
            connections_max: self.connections_max,
            connections_per_address_max: self.connections_per_address_max,
            trust_forwarded_for: self.trust_forwarded_for.clone(),
            lease_seconds: self.lease_seconds,
            heartbeat_seconds: self.heartbeat_seconds,
            retry_ms: self.retry_ms,
            long_poll_timeout_ms: self.long_poll_timeout_ms,
            head_timeout_seconds: self.head_timeout_seconds,
            body_timeout_seconds: self.body_timeout_seconds,
            write_timeout_seconds: self.write_timeout_seconds,
            drain_seconds: self.drain_seconds,
            log: self.log.clone(),
            log_form: self.log_form.map(|form| match form {
                Form::Text => LogForm::Text,
                Form::Json => LogForm::Json,
            }),
        }
    }
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut configured = config::load(context, args.config.as_deref())?;
    let said = args.settings().or(config::load_server(context, args.config.as_deref())?);
    let settings = said.or(ServerSettings::usual());
    let (token_file, tokens) = settings.token_file.as_deref().map(read_tokens).transpose()?.unzip();
    let tokens = tokens.unwrap_or_default();
    let mut options = settings.options(context.data.clone(), tokens).map_err(|bad| Failure::Usage(bad.to_string()))?;
    if args.print_config {
        return print_config(&settings, configured.runners.names(), configured.runners.default_name());
    }
    log_to_stderr(&settings)?;
    if let Some(pace) = args.pace_ms {
        configured.runners = configured.runners.with_demo(DemoRunner { pace: Duration::from_millis(pace) });
    }
    // Every connection, every journal and every pipe of a command is a file.
    let shares = OpenFileShares::of_server(raise_open_files());
    options.connections_max = options.connections_max.min(shares.connections);
    options.reader_files_max = shares.readers;
    configured.options.command_files_max = shares.commands;
    configured.options.on_stderr = Some(OnStderr::new(log_stderr));
    let durability = settings.durability.unwrap_or(Lasting::Buffered).into();
    let on_finding = OnFinding::new(|finding| tracing::error!(code = finding.code, "{}", finding.message));
    let on_finding = Some(on_finding);
    let store_options = Options { durability, on_finding, serves_producers: true, ..context.options() };
    let store = lastword::Store::open(&context.data, store_options.with_shares(shares))?;
    greet(&store);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|cause| Failure::Storage(format!("could not start the server's tasks: {cause}")))?;
    let served = runtime.block_on(async {
        let supervisor = Supervisor::new(store.clone(), configured.runners, configured.options)?;
        let server = Server::bind(store, supervisor.clone(), options).await?;
        watch_tokens(token_file, &server)?;
        serve(context, server, supervisor).await
    });
    runtime.shutdown_timeout(PARTING);
    served
}

/// Reads the token file again when it changes. The task ends with the runtime.
fn watch_tokens(file: Option<TokenFile>, server: &Server) -> Result<(), Failure> {
    if let Some(TokenFile { path, state }) = file {
        let (tokens, hangups) = (server.token_handle(), Hangups::listen()?);
        tokio::spawn(async move { rotate(&path, state, tokens, hangups).await });
    }
    Ok(())
}

/// Serves until a signal asks it to end. A second one does not wait for runs, a third for nothing.
async fn serve(context: &Context, server: Server, supervisor: Supervisor) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    tell_address(context, &server)?;
    let (ask, asked) = tokio::sync::oneshot::channel::<()>();
    let serving = server.serve(async move { drop(asked.await) });
    tokio::pin!(serving);
    tell_systemd(&[sd_notify::NotifyState::Ready]);
    let mut ask = Some(ask);
    let mut cutting = None;
    let mut wishes = 0_u32;
    loop {
        tokio::select! {
            drained = &mut serving => {
                tell_cut(drained, cutting).await;
                return Ok(());
            }
            _ = signals.next() => {
                wishes += 1;
                match wishes {
                    1 => tell_systemd(&[sd_notify::NotifyState::Stopping]),
                    2 => {
                        let supervisor = supervisor.clone();
                        cutting = Some(tokio::spawn(async move { supervisor.drain(Duration::ZERO).await }));
                    }
                    _ => return Err(Failure::No("left before all runs had ended; what had arrived is kept".to_owned())),
                }
                if let Some(ask) = ask.take() {
                    // It may have ended by itself.
                    let _ = ask.send(());
                }
            }
        }
    }
}

/// Says how many runs were cut off: at the end of their time, or before it by somebody in a hurry.
async fn tell_cut(drained: Drained, hurried: Option<JoinHandle<Drained>>) {
    let cut_early = match hurried {
        Some(hurried) => hurried.await.map_or(0, |drained| drained.cut),
        None => 0,
    };
    let (cut, running) = (drained.cut.max(cut_early), drained.running);
    if cut > 0 {
        output::aside(&format!("{cut} of {running} runs were cut off; what had arrived is kept"));
    }
}

fn tell_address(context: &Context, server: &Server) -> Result<(), Failure> {
    let address = format!("http://{}", server.address());
    match context.json {
        true => output::line(&format!("{{\"listening\":\"{address}\"}}")),
        false => output::line(&format!("listening on {address}")),
    }
}

/// Without systemd there is nobody to tell.
fn tell_systemd(states: &[sd_notify::NotifyState<'_>]) {
    let _ = sd_notify::notify(false, states);
}

/// A token file, and its state before it was read: a change since then is seen.
struct TokenFile {
    path: PathBuf,
    state: config::FileState,
}

fn read_tokens(path: &Path) -> Result<(TokenFile, Tokens), Failure> {
    let file = TokenFile { path: path.to_owned(), state: config::state_of(path) };
    let read = config::read_tokens(path).map_err(|bad| Failure::Usage(bad.to_string()))?;
    read.warnings.iter().for_each(|warning| output::aside(warning));
    Ok((file, read.tokens))
}

/// All of it as the file would say it. Tokens are in a file of their own, and so are the keys of runners.
fn print_config<'a>(
    settings: &ServerSettings,
    runners: impl Iterator<Item = &'a str>,
    default: &str,
) -> Result<(), Failure> {
    let text = toml::to_string(settings).map_err(|cause| Failure::Usage(cause.to_string()))?;
    let runners = runners.collect::<Vec<_>>().join(", ");
    output::line(&format!("# runners: {runners}\ndefault_runner = {default:?}\n\n[server]\n{}", text.trim_end()))
}

/// Logs the end of what a command printed on stderr: as a warning if its attempt failed.
fn log_stderr(tail: &StderrTail<'_>) {
    let StderrTail { session, run, attempt, text, has_failed } = *tail;
    let stderr = last_chars(text, LOGGED_CHARS_MAX);
    match has_failed {
        true => tracing::warn!(%session, %run, attempt, ?stderr, "a command failed"),
        false => tracing::info!(%session, %run, attempt, ?stderr, "a command printed on stderr"),
    }
}

fn last_chars(text: &str, chars_max: usize) -> &str {
    let from = text.char_indices().rev().nth(chars_max.saturating_sub(1)).map_or(0, |(at, _)| at);
    &text[from..]
}

fn log_to_stderr(settings: &ServerSettings) -> Result<(), Failure> {
    let said = settings.log.as_deref().unwrap_or("info");
    let filter = EnvFilter::try_new(said).map_err(|bad| Failure::Usage(format!("log is {said:?}: {bad}")))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match settings.log_form {
        Some(LogForm::Json) => builder.json().flatten_event(true).with_span_list(false).init(),
        _ => builder.compact().init(),
    }
    Ok(())
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Unprotected { .. } => Failure::Usage(error.to_string()),
            ServeError::Listen { .. } => Failure::Busy(with_causes(&error)),
        }
    }
}
