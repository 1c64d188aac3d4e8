//! Appends: buffered beside raw writes, durable beside writes with their syncs; one stream, and many.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use lastword::{CacheOptions, Durability, Event, Run};

use super::Outcomes;
use super::driver::{driven, synced_by_each, synced_in_turn, write_and_sync};
use super::rounds::timed;
use super::scene::{BATCH, Bench, Scene, TOKEN, line_of};
use super::table::{Figures, Line, Target};

const STREAMS: usize = 64;
const STREAMS_MAX: usize = 256;
/// For how long each side of a round works where many streams are durable.
const SLICE: Duration = Duration::from_millis(100);
const SLICES: usize = 15;

pub(super) fn measure(bench: &Bench<'_>) -> Outcomes<()> {
    let scene = bench.scene("appends", CacheOptions::default())?;
    bench.table.add(&buffered(bench, &scene)?)?;
    bench.table.add(&buffered_batches(bench, &scene)?)?;
    bench.table.add(&durable(bench, &scene)?)?;
    let streams = Streams::begin(bench, &scene)?;
    bench.table.add(&streams.buffered(bench.size(STREAMS))?)?;
    bench.table.add(&streams.durable_beside_a_loop(bench.size(STREAMS))?)?;
    bench.table.add(&streams.durable_beside_threads(bench.size(STREAMS_MAX))?)
}

/// The events are made beforehand on our side, as the bytes are on the other.
fn buffered(bench: &Bench<'_>, scene: &Scene) -> Outcomes<Line> {
    let times = bench.size(1_000);
    let run = scene.begin_run()?;
    let (line, mut file) = (line_of(&run), scene.raw_file("buffered")?);
    let ours = || {
        let events = vec![Event::token(TOKEN); times];
        timed(times, || Ok(events.into_iter().try_for_each(|event| run.append(event).map(drop))?))
    };
    let limit = || timed(times, || Ok((0..times).try_for_each(|_| file.write_all(&line))?));
    let figures = bench.rounds.side_by_side(101, ours, limit)?;
    let operation = "append, buffered, 1 stream".to_owned();
    Ok(Line { operation, limit: "raw write", figures, target: Target::AtLeast(0.8) })
}

fn buffered_batches(bench: &Bench<'_>, scene: &Scene) -> Outcomes<Line> {
    let times = bench.size(200);
    let run = scene.begin_run()?;
    let events = vec![Event::token(TOKEN); BATCH];
    let (lines, mut file) = (line_of(&run).repeat(BATCH), scene.raw_file("batches")?);
    let append = || run.append_all(&events, Durability::Buffered).map(drop);
    let ours = || timed(times, || Ok((0..times).try_for_each(|_| append())?));
    let limit = || timed(times, || Ok((0..times).try_for_each(|_| file.write_all(&lines))?));
    let figures = bench.rounds.side_by_side(101, ours, limit)?;
    let operation = format!("append, buffered, {BATCH} at a time");
    Ok(Line { operation, limit: "one raw write of them all", figures, target: Target::AtLeast(0.7) })
}

/// A round is one append, so that the median is the one that half of them do not exceed.
fn durable(bench: &Bench<'_>, scene: &Scene) -> Outcomes<Line> {
    let run = scene.begin_run()?;
    let (line, mut file) = (line_of(&run), scene.raw_file("durable")?);
    let ours = || timed(1, || Ok(run.append_durable(Event::token(TOKEN))?.wait()?));
    let limit = || timed(1, || Ok(write_and_sync(&mut file, &line)?));
    let figures = bench.rounds.side_by_side(bench.size(1_001), ours, limit)?;
    let operation = "append, durable, 1 stream, p50".to_owned();
    Ok(Line { operation, limit: "one write + fdatasync", figures, target: Target::AtMost(1.3) })
}

/// Runs of as many sessions, all of them open.
struct Streams<'a> {
    bench: &'a Bench<'a>,
    scene: &'a Scene,
    runs: Vec<Run>,
    line: Vec<u8>,
    slice: Duration,
}

impl<'a> Streams<'a> {
    fn begin(bench: &'a Bench<'a>, scene: &'a Scene) -> Outcomes<Self> {
        let runs = scene.begin_runs(bench.size(STREAMS_MAX))?;
        let line = line_of(&runs[0]);
        Ok(Streams { bench, scene, runs, line, slice: SLICE.mul_f64(bench.scale) })
    }

    /// One event to each in turn, again and again.
    fn buffered(&self, count: usize) -> Outcomes<Line> {
        let (turns, runs) = (self.bench.size(16), &self.runs[..count]);
        let mut files = self.scene.raw_files("turns", count)?;
        let ours = || {
            let events = vec![Event::token(TOKEN); turns * count];
            let mut pairs = events.into_iter().zip(runs.iter().cycle());
            timed(turns * count, || Ok(pairs.try_for_each(|(event, run)| run.append(event).map(drop))?))
        };
        let limit = || timed(turns * count, || (0..turns).try_for_each(|_| self.write_to_each(&mut files)));
        let figures = self.bench.rounds.side_by_side(101, ours, limit)?.as_speed();
        let operation = format!("append, buffered, {count} streams");
        Ok(Line { operation, limit: "raw writes to as many open files", figures, target: Target::None })
    }

    fn write_to_each(&self, files: &mut [File]) -> Outcomes<()> {
        Ok(files.iter_mut().try_for_each(|file| file.write_all(&self.line))?)
    }

    fn durable_beside_a_loop(&self, count: usize) -> Outcomes<Line> {
        let limit = "one thread, write + fdatasync in turn";
        let figures = self.durable(count, &mut self.scene.raw_files("loop", count)?, synced_in_turn)?;
        let operation = format!("append, durable, {count} streams");
        Ok(Line { operation, limit, figures, target: Target::AtLeast(20.0) })
    }

    fn durable_beside_threads(&self, count: usize) -> Outcomes<Line> {
        let limit = "a thread a stream, write + fdatasync";
        let figures = self.durable(count, &mut self.scene.raw_files("threads", count)?, synced_by_each)?;
        let operation = format!("append, durable, {count} streams");
        Ok(Line { operation, limit, figures, target: Target::AtLeast(5.0) })
    }

    fn durable(&self, count: usize, files: &mut [File], raw: RawSyncs) -> Outcomes<Figures> {
        let ours = || driven(&self.runs[..count], self.slice);
        let limit = || raw(files, &self.line, self.slice);
        Ok(self.bench.rounds.side_by_side(SLICES, ours, limit)?.as_speed())
    }
}

/// Writes the line to the files and syncs them for a slice of time.
type RawSyncs = fn(&mut [File], &[u8], Duration) -> Outcomes<f64>;
