//! Recovery: a long journal read back, folded, and saved.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword::recovery::look;
use lastword::storage::{FileStorage, FilesOptions, Mode, OsDisk, Storage};
use lastword::{CacheOptions, Durability, Event, List, Outcome, Run, SessionId};

use super::Outcomes;
use super::rounds::timed;
use super::scene::{BATCH, Bench, Scene, TOKEN, check};
use super::table::{Line, Target, grouped};

const EVENTS: usize = 50_000;
const RAW_LINES: &str = "reading it, finding lines, checking UTF-8";

pub(super) fn measure(bench: &Bench<'_>) -> Outcomes<()> {
    let scene = bench.scene("recovery", CacheOptions::default())?;
    let long = Long { bench, scene: &scene, events: bench.size(EVENTS) };
    bench.table.add(&long.look_and_fold()?)?;
    bench.table.add(&long.whole_recovery()?)?;
    bench.table.add(&long.finish()?)
}

/// Runs of many events.
struct Long<'a> {
    bench: &'a Bench<'a>,
    scene: &'a Scene,
    events: usize,
}

impl Long<'_> {
    /// A run whose events are durable, and which waits for its end.
    fn run(&self) -> Outcomes<Run> {
        let run = self.scene.begin_run()?;
        let events = vec![Event::token(TOKEN); BATCH];
        for _ in 0..self.events / BATCH {
            run.append_all(&events, Durability::Buffered)?.wait()?;
        }
        run.append_durable(Event::token(TOKEN))?.wait()?;
        Ok(run)
    }

    fn journal(&self, run: &Run) -> PathBuf {
        self.scene.layout().journal(run.session(), run.id())
    }

    /// What a full read does with the journal of a dead run before it decides and saves.
    fn look_and_fold(&self) -> Outcomes<Line> {
        let run = self.run()?;
        let storage = self.read_only_storage()?;
        let path = self.journal(&run);
        let ours = || timed(1, || Ok(look(&storage, run.session(), run.id().as_str())));
        let limit = || timed(1, || raw_lines(&path));
        let figures = self.bench.rounds.side_by_side(31, ours, limit)?;
        let operation = format!("recovery of {} events: look and fold", grouped(self.events));
        Ok(Line { operation, limit: RAW_LINES, figures, target: Target::AtMost(3.0) })
    }

    /// The same with the decision and the save.
    fn whole_recovery(&self) -> Outcomes<Line> {
        let path = self.journal(&self.run()?);
        let ours = || {
            let run = self.run()?;
            let session = run.session().clone();
            drop(run);
            let taken = timed(1, || Ok(self.scene.store.get_session(&session)?))?;
            self.expect_rows(&session, 3, "a question, an answer and a marker")?;
            Ok(taken)
        };
        let text = vec![b'x'; self.events * TOKEN.len()];
        let limit = || timed(1, || raw_lines(&path).and_then(|_| self.scene.raw_save(&text)));
        let figures = self.bench.rounds.side_by_side(9, ours, limit)?;
        let operation = format!("get_session of a dead run, {} events", grouped(self.events));
        Ok(Line { operation, limit: "reading it + a raw save of its text", figures, target: Target::None })
    }

    fn finish(&self) -> Outcomes<Line> {
        let path = self.journal(&self.run()?);
        let ours = || {
            let run = self.run()?;
            let taken = timed(1, || Ok(run.finish(Outcome::Completed)?))?;
            self.expect_rows(run.session(), 2, "a question and its answer")?;
            Ok(taken)
        };
        let limit = || timed(1, || raw_lines(&path));
        let figures = self.bench.rounds.side_by_side(9, ours, limit)?;
        let operation = format!("finish of {} events: seal, fold, save", grouped(self.events));
        Ok(Line { operation, limit: RAW_LINES, figures, target: Target::None })
    }

    fn expect_rows(&self, session: &SessionId, rows: usize, what: &str) -> Outcomes<()> {
        check(self.scene.store.get_session(session)?.len(List::Messages) == rows, what)
    }

    fn read_only_storage(&self) -> Outcomes<Arc<dyn Storage>> {
        let allow_network_fs = self.bench.allow_network_fs;
        let options = FilesOptions { allow_network_fs, ..FilesOptions::in_mode(Mode::ReadOnly) };
        Ok(Arc::new(FileStorage::open(Arc::new(OsDisk), &self.scene.data, options)?))
    }
}

fn raw_lines(path: &Path) -> Outcomes<usize> {
    let bytes = fs::read(path)?;
    let text = std::str::from_utf8(&bytes)?;
    Ok(memchr::memchr_iter(b'\n', text.as_bytes()).count())
}
