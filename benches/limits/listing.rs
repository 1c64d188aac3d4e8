//! The list of 100,000 sessions beside what the file system allows.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lastword::storage::Layout;
use lastword::{NewSession, Options, Row, SaveOptions, SessionId, Store};

use crate::{Figures, Line, Outcomes, Target, side_by_side, timed};

const SESSIONS: usize = 100_000;
const PAGE: usize = 50;

pub(crate) fn print(folder: &Path) -> Outcomes<()> {
    let (many, one) = (folder.join("many"), folder.join("one"));
    fill(&many)?;
    open(&many)?.print();
    first_page(&many)?.print();
    save(&many, &one)?.print();
    Ok(())
}

/// Copies of one session under as many names, and the index that a first listing makes of them.
fn fill(data: &Path) -> Outcomes<()> {
    let store = Store::open(data, Options::default())?;
    let id = store.create(NewSession::titled("Plan a trip to the seaside").with_id(session(0)?))?;
    let bytes = fs::read(Layout::new(data).sidecar(&id))?;
    let text = String::from_utf8(bytes)?;
    for at in 1..SESSIONS {
        let id = session(at)?;
        let text: String = text.lines().map(|line| changed(line, at)).collect();
        fs::write(Layout::new(data).sidecar(&id), text.replace(session(0)?.as_str(), id.as_str()))?;
    }
    assert_eq!(store.list()?.len(), SESSIONS);
    Ok(())
}

/// The line, with another moment of change for each session, in no order.
fn changed(line: &str, at: usize) -> String {
    match line.trim_start().starts_with("\"updated_at\"") {
        true => format!("\"updated_at\": {},\n", 1_700_000_000 + at * 7_919 % SESSIONS),
        false => format!("{line}\n"),
    }
}

fn session(at: usize) -> Outcomes<SessionId> {
    Ok(SessionId::parse(&format!("session-{at:06}"))?)
}

fn open(data: &Path) -> Outcomes<Line> {
    let ours = || {
        timed(|| {
            let store = Store::open(data, Options::default())?;
            let page = store.list_page(None, PAGE)?;
            assert_eq!(page.sessions.len(), PAGE);
            Ok((page, store))
        })
    };
    let limit = || timed(|| look_at_each(data));
    let figures = side_by_side(7, 1, ours, limit)?;
    let operation = "open and first page, 100,000 sessions";
    Ok(Line { operation, limit: "readdir + statx of each", figures, target: Target::AtMost(2.0) })
}

fn look_at_each(data: &Path) -> Outcomes<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(data)? {
        bytes += fs::metadata(entry?.path())?.len();
    }
    Ok(bytes)
}

fn first_page(data: &Path) -> Outcomes<Line> {
    let store = Store::open(data, Options::default())?;
    store.list_page(None, PAGE)?;
    let ours = || timed(|| Ok(store.list_page(None, PAGE)?));
    let measured = side_by_side(101, 1, ours, || timed(|| Ok(())))?;
    let figures = Figures { limit: 1_000.0, ..measured };
    Ok(Line {
        operation: "first page of 100,000 sessions",
        limit: "a millisecond",
        figures,
        target: Target::AtMost(1.0),
    })
}

fn save(many: &Path, one: &Path) -> Outcomes<Line> {
    let (many, one) = (Store::open(many, Options::default())?, Store::open(one, Options::default())?);
    one.create(NewSession::titled("Plan a trip to the seaside").with_id(session(0)?))?;
    for store in [&many, &one] {
        store.list_page(None, PAGE)?;
    }
    let figures = side_by_side(101, 1, || timed(|| save_one(&many)), || timed(|| save_one(&one)))?;
    let operation = "save one of 100,000 sessions";
    Ok(Line { operation, limit: "save one of one", figures, target: Target::AtMost(1.2) })
}

fn save_one(store: &Store) -> Outcomes<Arc<lastword::Session>> {
    let mut pushed = Ok(());
    let saved = store.update(&session(0)?, SaveOptions::default(), |session| {
        pushed = session.push_message(&Row::user("One more question.", 1));
    })?;
    pushed?;
    Ok(saved)
}
