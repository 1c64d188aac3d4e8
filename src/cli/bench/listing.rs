//! The list of very many sessions beside what the file system allows.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lastword::storage::Layout;
use lastword::{NewSession, Row, SaveOptions, Session, SessionId, Store};

use super::Outcomes;
use super::rounds::timed;
use super::scene::{Bench, check};
use super::table::{Line, Target, grouped};

const SESSIONS: usize = 100_000;
const PAGE: usize = 50;
const MILLISECOND_MICROS: f64 = 1_000.0;

pub(super) fn measure(bench: &Bench<'_>) -> Outcomes<()> {
    let many = Many { bench, data: bench.folder.join("many"), sessions: bench.size(SESSIONS) };
    many.fill()?;
    bench.table.add(&many.open()?)?;
    bench.table.add(&many.first_page()?)?;
    bench.table.add(&many.save(&bench.folder.join("one"))?)
}

/// A data directory with very many sessions.
struct Many<'a> {
    bench: &'a Bench<'a>,
    data: PathBuf,
    sessions: usize,
}

impl Many<'_> {
    /// Copies of one session under as many names, and the index that a first listing makes of them.
    fn fill(&self) -> Outcomes<()> {
        let (store, layout) = (self.bench.open(&self.data)?, Layout::new(&self.data));
        let id = create_first(&store)?;
        let text = fs::read_to_string(layout.sidecar(&id))?;
        for at in 1..self.sessions {
            let other = session(at)?;
            let text: String = text.lines().map(|line| self.changed(line, at)).collect();
            fs::write(layout.sidecar(&other), text.replace(id.as_str(), other.as_str()))?;
        }
        check(store.list()?.len() == self.sessions, "every session is listed")
    }

    /// The line, with another moment of change for each session, in no order.
    fn changed(&self, line: &str, at: usize) -> String {
        match line.trim_start().starts_with("\"updated_at\"") {
            true => format!("\"updated_at\": {},\n", 1_700_000_000 + at * 7_919 % self.sessions),
            false => format!("{line}\n"),
        }
    }

    fn open(&self) -> Outcomes<Line> {
        let ours = || {
            timed(1, || {
                let store = self.bench.open(&self.data)?;
                let page = store.list_page(None, PAGE)?;
                check(page.sessions.len() == PAGE.min(self.sessions), "a page is full")?;
                Ok((page, store))
            })
        };
        let limit = || timed(1, || look_at_each(&self.data));
        let figures = self.bench.rounds.side_by_side(7, ours, limit)?;
        let operation = format!("open and first page, {} sessions", grouped(self.sessions));
        Ok(Line { operation, limit: "readdir + statx of each", figures, target: Target::AtMost(2.0) })
    }

    fn first_page(&self) -> Outcomes<Line> {
        let store = self.bench.open(&self.data)?;
        store.list_page(None, PAGE)?;
        let ours = || timed(1, || Ok(store.list_page(None, PAGE)?));
        let figures = self.bench.rounds.side_by_side(101, ours, || Ok(MILLISECOND_MICROS))?;
        let operation = format!("first page of {} sessions", grouped(self.sessions));
        Ok(Line { operation, limit: "a millisecond", figures, target: Target::AtMost(1.0) })
    }

    fn save(&self, one: &Path) -> Outcomes<Line> {
        let (many, one) = (self.bench.open(&self.data)?, self.bench.open(one)?);
        create_first(&one)?;
        for store in [&many, &one] {
            store.list_page(None, PAGE)?;
        }
        let (ours, limit) = (|| timed(1, || save_one(&many)), || timed(1, || save_one(&one)));
        let figures = self.bench.rounds.side_by_side(101, ours, limit)?;
        let operation = format!("save one of {} sessions", grouped(self.sessions));
        Ok(Line { operation, limit: "save one of one", figures, target: Target::AtMost(1.2) })
    }
}

fn create_first(store: &Store) -> Outcomes<SessionId> {
    Ok(store.create(NewSession::titled("Plan a trip to the seaside").with_id(session(0)?))?)
}

fn session(at: usize) -> Outcomes<SessionId> {
    Ok(SessionId::parse(&format!("session-{at:06}"))?)
}

fn look_at_each(data: &Path) -> Outcomes<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(data)? {
        bytes += fs::metadata(entry?.path())?.len();
    }
    Ok(bytes)
}

fn save_one(store: &Store) -> Outcomes<Arc<Session>> {
    let mut pushed = Ok(());
    let saved = store.update(&session(0)?, SaveOptions::default(), |session| {
        pushed = session.push_message(&Row::user("One more question.", 1));
    })?;
    pushed?;
    Ok(saved)
}
