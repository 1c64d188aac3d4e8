//! What the store costs beside what the machine allows: each operation next to the fewest system calls that could do it.
//!
//! Both are measured in the same run and in turns, on files of the same file system, and the medians are compared.
//! `cargo bench --bench limits` prints the table. Absolute times wander with the machine; the ratios are what counts.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the time")]

mod listing;

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lastword::clock::{Clock, SystemClock};
use lastword::entropy::SystemEntropy;
use lastword::format::LineEncoder;
use lastword::limits::METADATA_PREFIX_BYTES;
use lastword::recovery::look;
use lastword::storage::{FileStorage, FilesOptions, Layout, Mode, OsDisk, Storage};
use lastword::{
    CacheOptions, Durability, Event, List, NewSession, Options, Outcome, RecoveryOptions, Row, Run, RunId, SaveOptions,
    SessionId, Store, UserTurn,
};

use parking_lot::Mutex;

type Outcomes<T> = Result<T, Box<dyn Error>>;

const TOKEN: &str = "a piece of the answer, ";
const ANSWER: &str = "The short answer is that it depends on the tide \u{2014} and on how deep the harbour is.\n\
    Ask for \"high water\" and leave an hour before it, not later. ";
/// Short ids, so that an event of ours has about 270 bytes.
const ID_CHARS: usize = 12;
const ROWS: usize = 10_000;
const ROW_CHARS: usize = 1_020;
const EVENTS: usize = 50_000;
const BATCH: usize = 16;

/// Parts that can be asked for alone, as in `cargo bench --bench limits -- listing`.
const PARTS: [&str; 2] = ["sessions", "listing"];

/// How ours compares with the limit, and how it should.
enum Target {
    /// At least this part of the limit's throughput.
    AtLeast(f64),
    /// At most this many times what the limit takes.
    AtMost(f64),
    /// Shown for itself.
    None,
}

/// One line of the table.
struct Line {
    operation: &'static str,
    limit: &'static str,
    figures: Figures,
    target: Target,
}

/// What was measured: amounts of the same unit, less is better.
struct Figures {
    ours: f64,
    limit: f64,
    unit: &'static str,
}

impl Line {
    fn ratio(&self) -> f64 {
        match self.target {
            Target::AtLeast(_) => self.figures.limit / self.figures.ours,
            Target::AtMost(_) | Target::None => self.figures.ours / self.figures.limit,
        }
    }

    fn print(&self) {
        let Figures { ours, limit, unit } = &self.figures;
        let ratio = self.ratio();
        let (target, verdict) = match self.target {
            Target::AtLeast(least) => (format!(">= {least}"), if ratio >= least { "met" } else { "MISSED" }),
            Target::AtMost(most) => (format!("<= {most}"), if ratio <= most { "met" } else { "MISSED" }),
            Target::None => ("-".to_owned(), "-"),
        };
        let (ours, limit) = (format!("{ours:.2} {unit}"), format!("{limit:.2} {unit}"));
        println!(
            "{:<44} {ours:>12} {limit:>12}  {:<42} {ratio:>6.2} {target:>8} {verdict}",
            self.operation, self.limit
        );
    }
}

/// Runs both sides in turns, each doing the operation `times` times a round, and takes the median of an operation.
fn side_by_side(
    rounds: usize,
    times: usize,
    mut ours: impl FnMut() -> Outcomes<Duration>,
    mut limit: impl FnMut() -> Outcomes<Duration>,
) -> Outcomes<Figures> {
    let (mut our_times, mut limit_times) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        our_times.push(ours()? / times as u32);
        limit_times.push(limit()? / times as u32);
    }
    Ok(Figures { ours: median(our_times), limit: median(limit_times), unit: "us" })
}

/// The median, in microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_nanos() as f64 / 1_000.0
}

/// How long the work takes. What it gives is dropped afterwards.
fn timed<T>(work: impl FnOnce() -> Outcomes<T>) -> Outcomes<Duration> {
    let begin = Instant::now();
    let given = black_box(work()?);
    let taken = begin.elapsed();
    drop(given);
    Ok(taken)
}

/// The store under test, and beside its directory a folder for the raw files.
struct Bench {
    store: Store,
    data: PathBuf,
    raw: PathBuf,
}

impl Bench {
    fn in_folder(folder: &Path, cache: CacheOptions) -> Outcomes<Self> {
        let (data, raw) = (folder.join("data"), folder.join("raw"));
        fs::create_dir_all(&raw)?;
        // A run that nobody holds any more is dead at once.
        let recovery = RecoveryOptions { grace: Duration::ZERO, ..RecoveryOptions::default() };
        let options = Options { recovery, cache, ..Options::default() };
        Ok(Bench { store: Store::open(&data, options)?, data, raw })
    }

    fn begin_run(&self) -> Outcomes<Run> {
        let (session, run) = (SessionId::fresh(&SystemEntropy), RunId::fresh(&SystemEntropy));
        let session = SessionId::parse(&session.as_str()[..ID_CHARS])?;
        let run = RunId::parse(&run.as_str()[..ID_CHARS])?;
        self.store.create(NewSession::titled("A bench").with_id(session.clone()))?;
        Ok(self.store.begin_run(&session, UserTurn::text("How fast?").with_run(run))?)
    }

    fn raw_file(&self, name: &str) -> Outcomes<File> {
        Ok(File::create_new(self.raw.join(name))?)
    }

    fn layout(&self) -> Layout {
        Layout::new(&self.data)
    }

    /// A session of many rows.
    fn large_session(&self) -> Outcomes<SessionId> {
        let id = self.store.create(NewSession::titled("A long conversation"))?;
        let content = ANSWER.repeat(ROW_CHARS / ANSWER.len() + 1);
        let content = &content[..content.floor_char_boundary(ROW_CHARS)];
        let mut pushed = Ok(());
        self.store.update(&id, SaveOptions::default(), |session| {
            pushed = (0..ROWS as i64).try_for_each(|at| session.push_message(&Row::assistant(content, at)));
        })?;
        pushed?;
        Ok(id)
    }
}

/// The line that an event of this run becomes.
fn line_of(run: &Run) -> Vec<u8> {
    let mut line = Vec::new();
    LineEncoder::new(run.session(), run.id()).encode(10_000, SystemClock.now(), &Event::token(TOKEN), &mut line);
    line
}

/// The events are made beforehand on our side, as the bytes are on the other.
fn append_buffered(bench: &Bench) -> Outcomes<Line> {
    const TIMES: usize = 1_000;
    let run = bench.begin_run()?;
    let (line, mut file) = (line_of(&run), bench.raw_file("buffered")?);
    let ours = || {
        let events = vec![Event::token(TOKEN); TIMES];
        timed(|| Ok(events.into_iter().try_for_each(|event| run.append(event).map(drop))?))
    };
    let limit = || timed(|| Ok((0..TIMES).try_for_each(|_| file.write_all(&line))?));
    let figures = side_by_side(101, TIMES, ours, limit)?;
    let target = Target::AtLeast(0.8);
    Ok(Line { operation: "append, buffered, one stream", limit: "raw write", figures, target })
}

fn append_batches(bench: &Bench) -> Outcomes<Line> {
    const TIMES: usize = 200;
    let run = bench.begin_run()?;
    let events = vec![Event::token(TOKEN); BATCH];
    let (lines, mut file) = (line_of(&run).repeat(BATCH), bench.raw_file("batches")?);
    let append = || run.append_all(&events, Durability::Buffered).map(drop);
    let ours = || timed(|| Ok((0..TIMES).try_for_each(|_| append())?));
    let limit = || timed(|| Ok((0..TIMES).try_for_each(|_| file.write_all(&lines))?));
    let figures = side_by_side(101, TIMES, ours, limit)?;
    let target = Target::AtLeast(0.7);
    Ok(Line { operation: "append, buffered, 16 at a time", limit: "one raw write of the 16", figures, target })
}

fn append_durable(bench: &Bench) -> Outcomes<Line> {
    let run = bench.begin_run()?;
    let (line, mut file) = (line_of(&run), bench.raw_file("durable")?);
    let ours = || timed(|| Ok(run.append_durable(Event::token(TOKEN))?.wait()?));
    let limit = || {
        timed(|| {
            file.write_all(&line)?;
            Ok(file.sync_data()?)
        })
    };
    let figures = side_by_side(1_001, 1, ours, limit)?;
    let target = Target::AtMost(1.3);
    Ok(Line { operation: "append, durable, one stream, p50", limit: "one write + fdatasync", figures, target })
}

fn get_session(bench: &Bench, id: &SessionId) -> Outcomes<Line> {
    let path = bench.layout().sidecar(id);
    let ours = || timed(|| Ok(bench.store.get_session(id)?));
    let limit = || timed(|| Ok(fs::read(&path)?));
    let figures = side_by_side(41, 1, ours, limit)?;
    let target = Target::AtMost(8.0);
    Ok(Line { operation: "get_session, cold, 10,000 rows", limit: "reading the bytes", figures, target })
}

/// What a warm read cannot do without: a look at the file, and one into a map under a lock.
fn get_session_warm(bench: &Bench, id: &SessionId) -> Outcomes<Line> {
    const TIMES: usize = 1_000;
    let path = bench.layout().sidecar(id);
    let held = Mutex::new(HashMap::from([(id.clone(), bench.store.get_session(id)?)]));
    let ours = || timed(|| Ok((0..TIMES).try_for_each(|_| bench.store.get_session(id).map(drop))?));
    let look_up = || -> Outcomes<()> {
        black_box(fs::metadata(&path)?.len());
        black_box(held.lock().get(id).cloned());
        Ok(())
    };
    let limit = || timed(|| (0..TIMES).try_for_each(|_| look_up()));
    let figures = side_by_side(101, TIMES, ours, limit)?;
    let target = Target::AtMost(2.0);
    Ok(Line { operation: "get_session, warm", limit: "statx of the sidecar + a locked map", figures, target })
}

/// Asks a process of its own, whose memory holds nothing else.
fn get_session_heap(bench: &Bench, id: &SessionId) -> Outcomes<Line> {
    let file_bytes = fs::metadata(bench.layout().sidecar(id))?.len();
    let told = Command::new(std::env::current_exe()?).arg(HEAP).arg(&bench.data).arg(id.as_str()).output()?;
    let heap_bytes: f64 = String::from_utf8(told.stdout)?.trim().parse()?;
    let figures = Figures { ours: heap_bytes / 1e6, limit: file_bytes as f64 / 1e6, unit: "MB" };
    let target = Target::AtMost(1.3);
    Ok(Line { operation: "get_session, cold, 10,000 rows, heap at most", limit: "the file's size", figures, target })
}

const HEAP: &str = "--heap-of";

/// Prints by how many bytes this process grew, at the most, while it loaded a session.
fn print_heap(data: &Path, id: &SessionId) -> Outcomes<()> {
    let store = Store::open_read_only(data, Options::default())?;
    store.metadata(id)?;
    let before = status_bytes("VmRSS:")?;
    let session = black_box(store.get_session(id)?);
    println!("{}", status_bytes("VmHWM:")?.saturating_sub(before));
    drop(session);
    Ok(())
}

fn status_bytes(key: &str) -> Outcomes<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).ok_or("the kernel does not say")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

fn save(bench: &Bench, id: &SessionId) -> Outcomes<Line> {
    let mut session = bench.store.get_session(id)?;
    let row = Row::user("One more question.", 1);
    let ours = || {
        timed(|| {
            let mut changed = Arc::unwrap_or_clone(session.clone());
            changed.push_message(&row)?;
            session = bench.store.save(&changed, SaveOptions::default())?;
            Ok(())
        })
    };
    let bytes = fs::read(bench.layout().sidecar(id))?;
    let limit = || timed(|| raw_save(&bench.raw, &bytes));
    let figures = side_by_side(31, 1, ours, limit)?;
    let target = Target::AtMost(1.25);
    Ok(Line { operation: "save after adding one row, 10,000 rows", limit: RAW_SAVE, figures, target })
}

const RAW_SAVE: &str = "temp + fsync + rename + directory fsync";

fn raw_save(folder: &Path, bytes: &[u8]) -> Outcomes<()> {
    let temp = folder.join("temp");
    let mut file = File::create(&temp)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temp, folder.join("saved"))?;
    Ok(File::open(folder)?.sync_all()?)
}

fn metadata(bench: &Bench, id: &SessionId) -> Outcomes<Line> {
    const TIMES: usize = 200;
    let path = bench.layout().sidecar(id);
    let ours = || timed(|| Ok((0..TIMES).try_for_each(|_| bench.store.metadata(id).map(drop))?));
    let limit = || timed(|| (0..TIMES).try_for_each(|_| raw_head(&path)));
    let figures = side_by_side(101, TIMES, ours, limit)?;
    let target = Target::AtMost(2.5);
    Ok(Line { operation: "metadata read", limit: "open + read 8 KiB + close", figures, target })
}

fn raw_head(path: &Path) -> Outcomes<()> {
    let mut head = [0; METADATA_PREFIX_BYTES];
    File::open(path)?.read_exact(&mut head)?;
    black_box(&head);
    Ok(())
}

fn small_turn(bench: &Bench) -> Outcomes<Line> {
    let id = bench.store.create(NewSession::titled("Short turns"))?;
    let ours = || {
        timed(|| {
            let run = bench.store.begin_run(&id, UserTurn::text("How fast?"))?;
            run.append(Event::token(TOKEN))?;
            Ok(run.finish(Outcome::Completed)?)
        })
    };
    let bytes = [b'x'; 4096];
    let limit = || timed(|| raw_save(&bench.raw, &bytes).and_then(|()| raw_save(&bench.raw, &bytes)));
    let figures = side_by_side(101, 1, ours, limit)?;
    Ok(Line {
        operation: "a small turn: begin_run, append, finish",
        limit: "two raw saves of 4 KiB",
        figures,
        target: Target::None,
    })
}

/// A run of many events that are durable, and that wait for their end.
fn long_run(bench: &Bench) -> Outcomes<Run> {
    let run = bench.begin_run()?;
    let events = vec![Event::token(TOKEN); BATCH];
    for _ in 0..EVENTS / BATCH {
        run.append_all(&events, Durability::Buffered)?.wait()?;
    }
    run.append_durable(Event::token(TOKEN))?.wait()?;
    Ok(run)
}

const RAW_LINES: &str = "reading it, finding lines, checking UTF-8";

fn raw_lines(path: &Path) -> Outcomes<usize> {
    let bytes = fs::read(path)?;
    let text = std::str::from_utf8(&bytes)?;
    Ok(memchr::memchr_iter(b'\n', text.as_bytes()).count())
}

/// What a full read does with the journal of a dead run before it decides and saves.
fn recovery(bench: &Bench) -> Outcomes<Line> {
    let run = long_run(bench)?;
    let storage = read_only_storage(&bench.data)?;
    let path = bench.layout().journal(run.session(), run.id());
    let ours = || timed(|| Ok(look(&storage, run.session(), run.id().as_str())));
    let limit = || timed(|| raw_lines(&path));
    let figures = side_by_side(31, 1, ours, limit)?;
    let target = Target::AtMost(3.0);
    Ok(Line { operation: "recovery of 50,000 events: look and fold", limit: RAW_LINES, figures, target })
}

/// The same with the decision and the save.
fn whole_recovery(bench: &Bench) -> Outcomes<Line> {
    let other = long_run(bench)?;
    let path = bench.layout().journal(other.session(), other.id());
    let ours = || {
        let run = long_run(bench)?;
        let session = run.session().clone();
        drop(run);
        let taken = timed(|| Ok(bench.store.get_session(&session)?))?;
        assert_eq!(bench.store.get_session(&session)?.len(List::Messages), 3, "question, answer, marker");
        Ok(taken)
    };
    let limit = || timed(|| raw_lines(&path).and_then(|_| raw_save(&bench.raw, &vec![b'x'; EVENTS * TOKEN.len()])));
    let figures = side_by_side(9, 1, ours, limit)?;
    Ok(Line {
        operation: "get_session of a dead run, 50,000 events",
        limit: "reading it + a raw save of its text",
        figures,
        target: Target::None,
    })
}

fn finish(bench: &Bench) -> Outcomes<Line> {
    let other = long_run(bench)?;
    let path = bench.layout().journal(other.session(), other.id());
    let ours = || {
        let run = long_run(bench)?;
        let taken = timed(|| Ok(run.finish(Outcome::Completed)?))?;
        let rows = bench.store.get_session(run.session())?.len(List::Messages);
        assert_eq!(rows, 2, "a question and its answer");
        Ok(taken)
    };
    let limit = || timed(|| raw_lines(&path));
    let figures = side_by_side(9, 1, ours, limit)?;
    Ok(Line { operation: "finish of 50,000 events: seal, fold, save", limit: RAW_LINES, figures, target: Target::None })
}

fn read_only_storage(data: &Path) -> Outcomes<Arc<dyn Storage>> {
    let options = FilesOptions {
        mode: Mode::ReadOnly,
        allow_network_fs: false,
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        core_dir: None,
        commit: lastword::CommitOptions::default(),
    };
    Ok(Arc::new(FileStorage::open(Arc::new(OsDisk), data, options)?))
}

/// `cold` keeps nothing in memory.
fn print_table(bench: &Bench, cold: &Bench) -> Outcomes<()> {
    println!("\nan event: {} bytes; files: {}", line_of(&bench.begin_run()?).len(), bench.data.display());
    append_buffered(bench)?.print();
    append_batches(bench)?.print();
    append_durable(bench)?.print();
    let large = bench.large_session()?;
    get_session_warm(bench, &large)?.print();
    let cold_large = cold.large_session()?;
    get_session(cold, &cold_large)?.print();
    get_session_heap(cold, &cold_large)?.print();
    metadata(cold, &cold_large)?.print();
    save(bench, &large)?.print();
    small_turn(bench)?.print();
    recovery(bench)?.print();
    whole_recovery(bench)?.print();
    finish(bench)?.print();
    Ok(())
}

fn main() -> Outcomes<()> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, data, id] = &*args
        && flag == HEAP
    {
        return print_heap(Path::new(data), &SessionId::parse(id)?);
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let is_asked_for = |part: &&str| args.iter().any(|arg| arg == part);
    let is_wanted = |part: &&str| is_asked_for(part) || !PARTS.iter().any(is_asked_for);
    println!("{:<44} {:>12} {:>12}  {:<42} {:>6} {:>8}", "operation", "ours", "limit", "the limit", "ratio", "target");
    if is_wanted(&PARTS[0]) {
        let nothing = CacheOptions { sessions_max: 0, bytes_max: 0 };
        let warm = Bench::in_folder(&folder.path().join("warm"), CacheOptions::default())?;
        print_table(&warm, &Bench::in_folder(&folder.path().join("cold"), nothing)?)?;
    }
    if is_wanted(&PARTS[1]) {
        listing::print(folder.path())?;
    }
    Ok(())
}
