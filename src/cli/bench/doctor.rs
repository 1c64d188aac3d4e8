//! A look through a whole directory beside reading its journals and counting their lines.

use std::fs;
use std::path::{Path, PathBuf};

use lastword::clock::{Clock, SystemClock};
use lastword::doctor::{self, DoctorOptions};
use lastword::format::LineEncoder;
use lastword::storage::Layout;
use lastword::{Event, NewSession, RunId, SessionId};

use super::Outcomes;
use super::rounds::timed;
use super::scene::{Bench, TOKEN, check};
use super::table::{Line, Target, grouped};

const SESSIONS: usize = 2_000;
const EVENTS_EACH: usize = 400;

pub(super) fn measure(bench: &Bench<'_>) -> Outcomes<()> {
    let (data, sessions) = (bench.folder.join("ward"), bench.size(SESSIONS));
    let files = fill(bench, &data, sessions)?;
    let ours = || timed(1, || look_through(&data, sessions));
    let limit = || timed(1, || count_lines(&files));
    let figures = bench.rounds.side_by_side(7, ours, limit)?;
    let operation = format!("check of {} sessions with a journal each", grouped(sessions));
    let limit = "reading the journals and counting their lines";
    bench.table.add(&Line { operation, limit, figures, target: Target::AtMost(4.0) })
}

/// Copies of one session under as many names, each with a run that has ended.
fn fill(bench: &Bench<'_>, data: &Path, sessions: usize) -> Outcomes<Vec<PathBuf>> {
    let (store, layout) = (bench.open(data)?, Layout::new(data));
    let first = store.create(NewSession::titled("A bench").with_id(SessionId::parse("ward-first")?))?;
    let text = fs::read_to_string(layout.sidecar(&first))?;
    let run = RunId::parse("run-of-bench")?;
    let mut files = Vec::new();
    for at in 0..sessions {
        let session = SessionId::parse(&format!("ward-{at:05}"))?;
        fs::write(layout.sidecar(&session), text.replace(first.as_str(), session.as_str()))?;
        let file = layout.journal(&session, &run);
        fs::create_dir_all(layout.journals_of(&session))?;
        fs::write(&file, journal(&session, &run))?;
        files.push(file);
    }
    Ok(files)
}

fn journal(session: &SessionId, run: &RunId) -> Vec<u8> {
    let (mut lines, now) = (Vec::new(), SystemClock.now());
    let mut encoder = LineEncoder::new(session, run);
    for seq in 1..=EVENTS_EACH as u64 {
        let event = if seq == EVENTS_EACH as u64 { Event::done() } else { Event::token(TOKEN) };
        encoder.encode(seq, now, &event, &mut lines);
    }
    lines
}

fn look_through(data: &Path, sessions: usize) -> Outcomes<()> {
    let summary = doctor::check(data, &DoctorOptions::default())?.summary;
    check(summary.damage == 0 && summary.events == (sessions * EVENTS_EACH) as u64, "every event is there")
}

fn count_lines(files: &[PathBuf]) -> Outcomes<usize> {
    files.iter().try_fold(0, |lines, file| {
        let bytes = fs::read(file)?;
        Ok(lines + bytes.iter().filter(|byte| **byte == b'\n').count())
    })
}
