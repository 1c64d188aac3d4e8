//! The command line: one file a subcommand. Results on stdout, everything else on stderr.

mod append;
mod bench;
mod check;
mod config;
mod failure;
mod input;
mod ls;
mod new;
mod output;
mod progress;
mod remote;
mod repair;
mod rotation;
mod run;
mod screen;
mod serve;
mod show;
mod signals;
mod tail;
mod turn;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use lastword::doctor::DoctorOptions;
use lastword::run::Reaped;
use lastword::storage::OnFinding;
use lastword::{CommitOptions, Durability, Finding, Options, RunId, SessionId, Store};

use self::failure::Failure;
use self::remote::Server;

/// The crash-proof session store behind a chat UI for AI agents.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_CODES)]
struct Cli {
    /// The data directory.
    #[arg(long, global = true, env = "LASTWORD_DATA", default_value = "lastword-data", value_name = "DIR")]
    data: PathBuf,

    /// Ask a running server instead of the data directory.
    #[arg(long, global = true, env = "LASTWORD_SERVER", value_name = "URL")]
    server: Option<String>,

    /// The file whose first token that server is shown.
    #[arg(long, global = true, env = "LASTWORD_TOKEN_FILE", value_name = "FILE")]
    server_token_file: Option<PathBuf>,

    /// Results for machines: JSON.
    #[arg(long, global = true)]
    json: bool,

    /// The folder of the transcripts that the agent keeps itself, which help to recover a session that has none.
    #[arg(long, global = true, value_name = "DIR")]
    core: Option<PathBuf>,

    /// Everything appended becomes durable within so many milliseconds, unasked; 0 turns that off.
    #[arg(long, global = true, env = "LASTWORD_SYNC_WITHIN_MS", default_value_t = 50, value_name = "MS")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=SYNC_WITHIN_MS_MAX))]
    sync_within_ms: u64,

    /// Write to a network file system, although its lock may not keep other machines out.
    #[arg(long, global = true)]
    allow_network_fs: bool,

    #[command(subcommand)]
    command: Command,
}

const SYNC_WITHIN_MS_MAX: u64 = 60_000;

const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 the answer is no (not found, refused, damage found), 2 usage, 3 busy, 4 storage failure.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a session and print its id.
    New(new::Args),
    /// List the sessions, the one changed last first.
    Ls(ls::Args),
    /// Show a session.
    Show(show::Args),
    /// Begin a turn and print the id of its run.
    Turn(turn::Args),
    /// Let a runner answer: begin a turn, stream the answer, and keep every word of it. Ctrl-C stops it.
    Run(run::Args),
    /// Append events to a run: JSON lines {"event","payload"} on stdin, {"seq"} on stdout for each.
    Append(append::Args),
    /// Print the events of a run as its journal has them.
    Tail(tail::Args),
    /// Serve sessions and runs over HTTP, and a page. Ctrl-C or SIGTERM lets runs end first.
    Serve(Box<serve::Args>),
    /// Look through the whole directory, or some sessions, and say what is wrong. Changes nothing.
    Check(check::Args),
    /// Say what a repair would do, and do it with --apply. Whatever is replaced is kept.
    Repair(repair::Args),
    /// Measure this machine: appends, saves, loads, recovery, each beside the raw system calls.
    Bench(bench::Args),
}

/// How lasting an event is before it is acknowledged.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Lasting {
    /// It survives kill -9.
    Buffered,
    /// It survives a power cut.
    Durable,
}

impl From<Lasting> for Durability {
    fn from(lasting: Lasting) -> Self {
        match lasting {
            Lasting::Buffered => Durability::Buffered,
            Lasting::Durable => Durability::Durable,
        }
    }
}

/// What every subcommand is told.
#[derive(Debug)]
struct Context {
    data: PathBuf,
    json: bool,
    core: Option<PathBuf>,
    sync_within_ms: u64,
    allow_network_fs: bool,
}

impl Context {
    fn options(&self) -> Options {
        let background = Some(Duration::from_millis(self.sync_within_ms)).filter(|limit| !limit.is_zero());
        Options {
            allow_network_fs: self.allow_network_fs,
            core_dir: self.core.clone(),
            commit: CommitOptions { background, ..CommitOptions::default() },
            on_finding: Some(OnFinding::new(|finding| {
                output::aside(&format!("{} ({})", finding.message, finding.code))
            })),
            ..Options::default()
        }
    }

    /// The data directory, to be written. Busy if another process writes it. What was wrong with it is said, and the
    /// processes that an earlier writer left behind are ended.
    fn writer(&self) -> Result<Store, Failure> {
        let store = Store::open(&self.data, self.options())?;
        greet(&store);
        Ok(store)
    }

    /// How the doctor looks at the data directory.
    fn doctor(&self, sessions: Vec<SessionId>) -> DoctorOptions {
        DoctorOptions {
            sessions,
            core_dir: self.core.clone(),
            allow_network_fs: self.allow_network_fs,
            ..DoctorOptions::default()
        }
    }

    /// The data directory, to be read beside whoever writes it.
    fn reader(&self) -> Result<Store, Failure> {
        Ok(Store::open_read_only(&self.data, self.options())?)
    }
}

/// What a writer does first.
fn greet(store: &Store) {
    tell_findings(store);
    end_leftovers(store);
}

fn end_leftovers(store: &Store) {
    match lastword::run::reap(store) {
        Ok(reaped) => reaped.iter().for_each(tell_reaped),
        Err(error) => output::aside(&format!("could not look for processes that were left behind: {error}")),
    }
}

fn tell_reaped(Reaped { session, run, group, is_gone }: &Reaped) {
    let done = if *is_gone { "was ended" } else { "could not be ended" };
    output::aside(&format!("process group {group}, left behind by run {run} of session {session}, {done}"));
}

fn tell_findings(store: &Store) {
    for Finding { code, file, offset, message, .. } in store.findings() {
        let place = offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default();
        output::aside(&format!("{}{place}: {message} ({code})", file.display()));
    }
}

/// The id of a session that should be there. One that breaks the rules cannot be.
fn session_to_find(text: &str) -> Result<SessionId, Failure> {
    SessionId::parse(text).map_err(|cause| Failure::No(format!("there is no such session: {cause}")))
}

/// The id of a run that should be there.
fn run_to_find(text: &str) -> Result<RunId, Failure> {
    RunId::parse(text).map_err(|cause| Failure::No(format!("there is no such run: {cause}")))
}

pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let Cli { data, server, server_token_file, json, core, sync_within_ms, allow_network_fs, command } = cli;
    let context = Context { data, json, core, sync_within_ms, allow_network_fs };
    let done = match server {
        Some(address) => remote::run(&context, Server { address, token_file: server_token_file }, command),
        None => act(&context, command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Does it on the data directory.
fn act(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::New(args) => new::run(context, args),
        Command::Ls(args) => ls::run(context, args),
        Command::Show(args) => show::run(context, args),
        Command::Turn(args) => turn::run(context, args),
        Command::Run(args) => run::run(context, args),
        Command::Append(args) => append::run(context, args),
        Command::Tail(args) => tail::run(context, args),
        Command::Serve(args) => serve::run(context, *args),
        Command::Check(args) => check::run(context, args),
        Command::Repair(args) => repair::run(context, args),
        Command::Bench(args) => bench::run(context, args),
    }
}
