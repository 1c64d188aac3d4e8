//! `lastword bench`: what the store costs beside what the machine allows.
//!
//! Each operation stands next to the fewest system calls that could do it, measured in the same run and in turns, on
//! files of the same file system. Absolute times wander with the machine; the ratios are what counts. This is the only
//! part of the command that touches files by itself, and only in a folder of its own.

#![allow(clippy::disallowed_methods, reason = "a benchmark touches files and reads the time")]

mod appends;
mod doctor;
mod driver;
mod folder;
mod listing;
mod recovery;
mod rounds;
mod runs;
mod scene;
mod serve;
mod sessions;
mod table;
mod wire;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use lastword::SessionId;

use self::folder::Folder;
use self::scene::Bench;
use super::Context;
use super::failure::Failure;

type Outcomes<T> = Result<T, Box<dyn Error>>;

#[derive(Debug, clap::Args)]
#[command(after_help = HOW_TO_READ)]
pub(super) struct Args {
    /// Measure only this; may be given more than once.
    #[arg(long, value_enum, value_name = "SUBJECT")]
    only: Vec<Subject>,
    /// Measure every row in so many rounds, however long they take. Without it a row has as many as fit in 2 seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// Multiply every size (events, rows, streams, sessions) by this, up to 1. The targets are for 1.
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// Where the temporary files are put. Without it, beside the data directory, which itself is never touched.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The process that removes the folder once standard input ends.
    #[arg(long, value_name = "FOLDER", hide = true)]
    sweep: Option<PathBuf>,
    /// The process whose memory is measured while it loads the session.
    #[arg(long, value_name = "ID", hide = true)]
    heap_of: Option<String>,
}

const HOW_TO_READ: &str = "\
A line of the table: the operation, what ours takes, what the limit takes, what the limit is (raw system calls on
files of the same file system, measured in turns with ours), the ratio, and the target. `<= 2` wants ours to take at
most twice the limit's time; `>= 0.8` wants at least 0.8 of its speed. A missed target changes no exit code: a busy
machine misses some. With --json, one object a line.

All of it takes some two minutes and 1 GB. The temporary folder (lastword-bench-..) is removed at the end, also after
Ctrl-C. Times mean something only on a disk like the one that is to be used: see --dir.";

/// What can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Events appended, buffered and durable, to one stream and to many.
    Appends,
    /// Sessions read and saved.
    Sessions,
    /// A long journal read back and folded.
    Recovery,
    /// The list of 100,000 sessions.
    Listing,
    /// A look through a whole directory.
    Doctor,
    /// Supervised runs, one and many.
    Runs,
    /// The server: appends, fan-out and catch-up over HTTP.
    Serve,
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Subject::Appends => "appends",
            Subject::Sessions => "sessions",
            Subject::Recovery => "recovery",
            Subject::Listing => "listing",
            Subject::Doctor => "doctor",
            Subject::Runs => "runs",
            Subject::Serve => "serve",
        }
    }

    fn measure(self, bench: &Bench<'_>) -> Outcomes<()> {
        match self {
            Subject::Appends => appends::measure(bench),
            Subject::Sessions => sessions::measure(bench),
            Subject::Recovery => recovery::measure(bench),
            Subject::Listing => listing::measure(bench),
            Subject::Doctor => doctor::measure(bench),
            Subject::Runs => runs::measure(bench),
            Subject::Serve => serve::measure(bench),
        }
    }
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    if let Some(folder) = &args.sweep {
        return folder::sweep(folder);
    }
    if let Some(id) = &args.heap_of {
        let id = SessionId::parse(id).map_err(|cause| Failure::Usage(cause.to_string()))?;
        return sessions::print_heap(&context.data, &id).map_err(|cause| failure("memory", &context.data, cause));
    }
    let place = folder::place(args.dir.as_deref(), &context.data)?;
    warn(&args);
    let folder = Folder::create(&place)?;
    measure(context, &args, &folder)
}

fn measure(context: &Context, args: &Args, folder: &Folder) -> Result<(), Failure> {
    let bench = Bench {
        folder: folder.path(),
        allow_network_fs: context.allow_network_fs,
        rounds: rounds::Rounds { asked_for: args.rounds.map(|rounds| rounds as usize) },
        scale: args.scale,
        table: table::Table { json: context.json, is_judged: args.scale == 1.0 },
    };
    let is_wanted = |subject: &&Subject| args.only.is_empty() || args.only.contains(subject);
    bench.table.begin().map_err(|cause| failure("anything", folder.path(), cause))?;
    for subject in Subject::value_variants().iter().filter(is_wanted) {
        subject.measure(&bench).map_err(|cause| failure(subject.name(), folder.path(), cause))?;
    }
    Ok(())
}

fn warn(args: &Args) {
    if cfg!(debug_assertions) {
        eprintln!("lastword: warning: this is a debug build, whose times mean nothing: build with --release");
    }
    if args.scale != 1.0 {
        eprintln!("lastword: warning: sizes are multiplied by {}: no target is judged", args.scale);
    }
}

fn scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if scale > 0.0 && scale <= 1.0 { Ok(scale) } else { Err("not above 0 and at most 1".to_owned()) }
}

fn failure(subject: &str, folder: &Path, error: Box<dyn Error>) -> Failure {
    let is_unread = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref().is_some_and(is_unread) {
        return Failure::OutputClosed;
    }
    let (folder, cause) = (folder.display(), super::failure::with_causes(&*error));
    Failure::Storage(format!(
        "could not measure {subject} in {folder}: {cause}; see that the disk has 1 GB free and that `ulimit -n` is at \
         least 1024, or name another folder with --dir"
    ))
}
