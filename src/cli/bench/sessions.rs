//! Sessions: read warm, read cold, and saved, with many rows and with few.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use lastword::limits::METADATA_PREFIX_BYTES;
use lastword::{CacheOptions, Event, NewSession, Options, Outcome, Row, SaveOptions, SessionId, Store, UserTurn};
use parking_lot::Mutex;

use super::Outcomes;
use super::rounds::timed;
use super::scene::{Bench, Scene, TOKEN, check};
use super::table::{Figures, Line, Target, Unit, grouped};
use crate::cli::output;

const ROWS: usize = 10_000;
const ROW_BYTES: usize = 1_020;
const ANSWER: &str = "The short answer is that it depends on the tide \u{2014} and on how deep the harbour is.\n\
    Ask for \"high water\" and leave an hour before it, not later. ";

pub(super) fn measure(bench: &Bench<'_>) -> Outcomes<()> {
    let nothing = CacheOptions { sessions_max: 0, bytes_max: 0 };
    let warm = Large::create(bench, bench.scene("warm", CacheOptions::default())?)?;
    bench.table.add(&warm.read_warm()?)?;
    let cold = Large::create(bench, bench.scene("cold", nothing)?)?;
    bench.table.add(&cold.read_cold()?)?;
    if cfg!(target_os = "linux") {
        bench.table.add(&cold.read_cold_heap()?)?;
    }
    bench.table.add(&cold.metadata()?)?;
    bench.table.add(&warm.save()?)?;
    bench.table.add(&small_turn(bench, &warm.scene)?)
}

/// A session of many rows.
struct Large<'a> {
    bench: &'a Bench<'a>,
    scene: Scene,
    id: SessionId,
    rows: usize,
}

impl<'a> Large<'a> {
    fn create(bench: &'a Bench<'a>, scene: Scene) -> Outcomes<Self> {
        let rows = bench.size(ROWS);
        let id = scene.store.create(NewSession::titled("A long conversation"))?;
        let content = ANSWER.repeat(ROW_BYTES / ANSWER.len() + 1);
        let content = &content[..content.floor_char_boundary(ROW_BYTES)];
        let mut pushed = Ok(());
        scene.store.update(&id, SaveOptions::default(), |session| {
            pushed = (0..rows as i64).try_for_each(|at| session.push_message(&Row::assistant(content, at)));
        })?;
        pushed?;
        Ok(Large { bench, scene, id, rows })
    }

    /// What a warm read cannot do without: a look at the file, and one into a map under a lock.
    fn read_warm(&self) -> Outcomes<Line> {
        let (times, store, id) = (self.bench.size(1_000), &self.scene.store, &self.id);
        let path = self.scene.layout().sidecar(id);
        let held = Mutex::new(HashMap::from([(id.clone(), store.get_session(id)?)]));
        let ours = || timed(times, || Ok((0..times).try_for_each(|_| store.get_session(id).map(drop))?));
        let look_up = || -> Outcomes<()> {
            black_box(fs::metadata(&path)?.len());
            black_box(held.lock().get(id).cloned());
            Ok(())
        };
        let limit = || timed(times, || (0..times).try_for_each(|_| look_up()));
        let figures = self.bench.rounds.side_by_side(101, ours, limit)?;
        let (operation, limit) = ("get_session, warm".to_owned(), "statx of the sidecar + a locked map");
        Ok(Line { operation, limit, figures, target: Target::AtMost(2.0) })
    }

    fn read_cold(&self) -> Outcomes<Line> {
        let path = self.scene.layout().sidecar(&self.id);
        let ours = || timed(1, || Ok(self.scene.store.get_session(&self.id)?));
        let limit = || timed(1, || Ok(fs::read(&path)?));
        let figures = self.bench.rounds.side_by_side(41, ours, limit)?;
        let operation = format!("get_session, cold, {} rows", grouped(self.rows));
        Ok(Line { operation, limit: "reading the bytes", figures, target: Target::AtMost(8.0) })
    }

    /// Asks a process of its own, whose memory holds nothing else.
    fn read_cold_heap(&self) -> Outcomes<Line> {
        let file_bytes = fs::metadata(self.scene.layout().sidecar(&self.id))?.len();
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--data").arg(&self.scene.data).args(["bench", "--heap-of", self.id.as_str()]);
        let told = command.output()?;
        check(told.status.success(), &String::from_utf8_lossy(&told.stderr))?;
        let heap_bytes: f64 = String::from_utf8(told.stdout)?.trim().parse()?;
        let (ours, limit) = (heap_bytes / 1e6, file_bytes as f64 / 1e6);
        let figures = Figures { ours, limit, unit: Unit::Megabytes, rounds: 1 };
        let operation = format!("get_session, cold, {} rows, heap at most", grouped(self.rows));
        Ok(Line { operation, limit: "the file's size", figures, target: Target::AtMost(1.3) })
    }

    fn metadata(&self) -> Outcomes<Line> {
        let (times, path) = (self.bench.size(200), self.scene.layout().sidecar(&self.id));
        let read = || self.scene.store.metadata(&self.id).map(drop);
        let ours = || timed(times, || Ok((0..times).try_for_each(|_| read())?));
        let limit = || timed(times, || (0..times).try_for_each(|_| raw_head(&path)));
        let figures = self.bench.rounds.side_by_side(101, ours, limit)?;
        let operation = "metadata read".to_owned();
        Ok(Line { operation, limit: "open + read 8 KiB + close", figures, target: Target::AtMost(2.5) })
    }

    fn save(&self) -> Outcomes<Line> {
        let mut session = self.scene.store.get_session(&self.id)?;
        let row = Row::user("One more question.", 1);
        let ours = || {
            timed(1, || {
                let mut changed = Arc::unwrap_or_clone(session.clone());
                changed.push_message(&row)?;
                session = self.scene.store.save(&changed, SaveOptions::default())?;
                Ok(())
            })
        };
        let bytes = fs::read(self.scene.layout().sidecar(&self.id))?;
        let limit = || timed(1, || self.scene.raw_save(&bytes));
        let figures = self.bench.rounds.side_by_side(31, ours, limit)?;
        let operation = format!("save after adding one row, {} rows", grouped(self.rows));
        let limit = "temp + fsync + rename + directory fsync";
        Ok(Line { operation, limit, figures, target: Target::AtMost(1.25) })
    }
}

fn raw_head(path: &Path) -> Outcomes<()> {
    let mut head = [0; METADATA_PREFIX_BYTES];
    // At a small scale there may be less.
    black_box(File::open(path)?.read(&mut head)?);
    black_box(&head);
    Ok(())
}

fn small_turn(bench: &Bench<'_>, scene: &Scene) -> Outcomes<Line> {
    let id = scene.store.create(NewSession::titled("Short turns"))?;
    let ours = || {
        timed(1, || {
            let run = scene.store.begin_run(&id, UserTurn::text("How fast?"))?;
            run.append(Event::token(TOKEN))?;
            Ok(run.finish(Outcome::Completed)?)
        })
    };
    let bytes = [b'x'; 4096];
    let limit = || timed(1, || scene.raw_save(&bytes).and_then(|()| scene.raw_save(&bytes)));
    let figures = bench.rounds.side_by_side(101, ours, limit)?;
    let operation = "a small turn: begin_run, append, finish".to_owned();
    Ok(Line { operation, limit: "two raw saves of 4 KiB", figures, target: Target::None })
}

/// Prints by how many bytes this process grew, at the most, while it loaded a session.
pub(super) fn print_heap(data: &Path, id: &SessionId) -> Outcomes<()> {
    let store = Store::open_read_only(data, Options::default())?;
    store.metadata(id)?;
    let before = status_bytes("VmRSS:")?;
    let session = black_box(store.get_session(id)?);
    let grown = status_bytes("VmHWM:")?.saturating_sub(before);
    drop(session);
    output::line(&grown.to_string()).map_err(|_| "could not say how much memory it took".into())
}

fn status_bytes(key: &str) -> Outcomes<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).ok_or("the kernel does not say")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
