//! What must hold after a crash: what was acknowledged is there, the rest is absent or whole, and the store goes on.

use lastword::format::DamageKind;
use lastword::storage::sim::{Crash, SimDisk};
use lastword::storage::{Access, Disk};
use lastword::{Event, NewSession, Outcome, ReadOptions, RunId, Store, StoreError, UserTurn};

use crate::machine::{DATA, End, Machine, Memory, id, open};
use crate::told::{Told, Turn};

impl Memory for Told {
    fn check(&self, _: &Machine, disk: &SimDisk, end: End, what: &str) {
        check_aftermath(disk, self, end, what);
    }
}

pub(crate) fn check_aftermath(disk: &SimDisk, told: &Told, end: End, what: &str) {
    let context = || format!("{what}\n{told:#?}\n{}", disk.log().join("\n"));
    interrupt_opening(disk, told, end, &context);
    let first = observe(disk, told, end).unwrap_or_else(|wrong| panic!("{wrong}: {}", context()));
    let second = observe(disk, told, end).unwrap_or_else(|wrong| panic!("{wrong} the second time: {}", context()));
    assert_eq!(first, second, "opening again changed something: {}", context());
    goes_on(disk, told, end).unwrap_or_else(|wrong| panic!("{wrong}: {}", context()));
}

/// Opening after a crash is itself cut short at each of its operations; that changes nothing that was promised.
pub(crate) fn interrupt_opening(disk: &SimDisk, told: &Told, end: End, context: &dyn Fn() -> String) {
    for operation in 1.. {
        let disk = disk.copy();
        disk.stop_before(disk.operations() + operation);
        drop(open(&disk));
        let is_through = !disk.has_stopped();
        match end {
            End::Kill => disk.kill(),
            End::Power(_) => disk.power_cut(Crash::Seeded(operation)),
        }
        observe(&disk, told, end).unwrap_or_else(|wrong| panic!("{wrong} after a second crash: {}", context()));
        if is_through {
            return;
        }
    }
}

/// What a reader finds, after checking that it is what was promised.
pub(crate) fn observe(disk: &SimDisk, told: &Told, end: End) -> Result<String, String> {
    let store = open(disk).map_err(|error| format!("the store does not open: {error:?}"))?;
    let session = match store.get_session(&id()) {
        Ok(session) if told.deleted => return Err(format!("a deleted session is back: {session:?}")),
        Ok(session) => session,
        Err(StoreError::NotFound { .. }) if told.deleting || !told.created => return Ok("nothing".to_owned()),
        Err(error) => return Err(format!("an acknowledged session is gone: {error:?}")),
    };
    let listed = store.list().map_err(|error| format!("{error:?}"))?;
    if listed.len() != 1 || listed[0].summary.is_err() {
        return Err(format!("the list does not show the session: {listed:?}"));
    }
    let rows: Vec<String> = session.messages().map(|row| row.content().into_owned()).collect();
    let mut seen = format!("{} {rows:?} {:?}", session.title(), session.pending_turn());
    check_title(told, &session.title())?;
    check_cut(disk, told, rows.len())?;
    for (number, turn) in told.turns.iter().enumerate() {
        let is_last = number + 1 == told.turns.len();
        seen.push_str(&check_turn(&store, &session, turn, is_last, told.cutting, end)?);
    }
    Ok(seen)
}

pub(crate) fn check_title(told: &Told, title: &str) -> Result<(), String> {
    let saved = told.titles_saved;
    let allowed = saved.checked_sub(1).map_or("title 0", |last| &told.titles[last]);
    let tried = told.titles.get(saved).map(String::as_str);
    if title == allowed || Some(title) == tried { Ok(()) } else { Err(format!("title {title:?}, not {allowed:?}")) }
}

/// What a stated cut replaces is kept: the old version stands in its place or under `_kept`.
pub(crate) fn check_cut(disk: &SimDisk, told: &Told, rows: usize) -> Result<(), String> {
    if told.cut && rows != 1 {
        return Err(format!("{rows} rows after a cut to one"));
    }
    if !told.cutting || rows > 1 {
        return Ok(());
    }
    let folder = std::path::Path::new(DATA).join("_kept/s");
    let names = disk.read_dir(&folder).map_err(|cause| format!("nothing was kept: {cause}"))?;
    let is_whole = names.iter().any(|entry| {
        let file = disk.open(&folder.join(&entry.name), Access::Read).unwrap();
        let mut bytes = vec![0; file.stat().unwrap().len as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let kept: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
        kept.is_some_and(|kept| kept["messages"].as_array().is_some_and(|rows| rows.len() > 1))
    });
    if is_whole { Ok(()) } else { Err(format!("no whole old version among {names:?}")) }
}

pub(crate) fn check_turn(
    store: &Store,
    session: &lastword::Session,
    turn: &Turn,
    is_last: bool,
    is_cut: bool,
    end: End,
) -> Result<String, String> {
    let run = RunId::parse(&turn.run).unwrap();
    let found = store.read_events(&id(), &run, ReadOptions::default()).map_err(|error| format!("{error:?}"))?;
    let texts = token_texts(&found.events)?;
    let promised = if end.is_power() { turn.durable } else { turn.appended };
    let expected: Vec<&str> = turn.sent.iter().map(String::as_str).collect();
    if texts.len() < promised || texts.len() > expected.len() || texts[..] != expected[..texts.len()] {
        return Err(format!("run {run} has {texts:?}, promised were {promised} of {expected:?}"));
    }
    if !end.is_power() && found.damage.iter().any(|damage| damage.kind != DamageKind::TornTail) {
        return Err(format!("a kill cannot do this: {:?}", found.damage));
    }
    if !is_cut {
        check_transcript(session, turn, is_last)?;
    }
    Ok(format!(" {texts:?}"))
}

pub(crate) fn token_texts(events: &[lastword::JournalEvent]) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if event.seq != Some(at as u64 + 1) {
            return Err(format!("event {:?} stands at place {}", event.seq, at + 1));
        }
        if event.name == "token" {
            let payload: serde_json::Value = serde_json::from_str(event.payload()).unwrap();
            texts.push(payload["text"].as_str().unwrap().to_owned());
        }
    }
    Ok(texts)
}

/// A finished turn is in the transcript once and whole; an unfinished one is pending, or in it whole, or never began.
pub(crate) fn check_transcript(session: &lastword::Session, turn: &Turn, is_last: bool) -> Result<(), String> {
    let rows: Vec<String> = session.messages().map(|row| row.content().into_owned()).collect();
    let answer = turn.sent.concat();
    let times = rows.windows(2).filter(|pair| pair[0] == turn.prompt && pair[1] == answer.trim()).count();
    let prompts = rows.iter().filter(|row| **row == turn.prompt).count();
    let is_pending = session.pending_turn().is_some_and(|pending| pending.message == turn.prompt);
    let is_fine = match (times, prompts, is_pending) {
        (1, 1, false) => true,
        (0, 0, true) => is_last && !turn.has_finished,
        (0, 0, false) => !turn.has_begun,
        _ => false,
    };
    if is_fine { Ok(()) } else { Err(format!("{times} times, {prompts} prompts, pending {is_pending}: {rows:?}")) }
}

/// After any crash the store takes new work, and an unsealed run goes on only where no number can repeat.
pub(crate) fn goes_on(disk: &SimDisk, told: &Told, end: End) -> Result<(), String> {
    let store = open(disk).map_err(|error| format!("{error:?}"))?;
    let other = store.create(NewSession::titled("other")).map_err(|error| format!("no new session: {error:?}"))?;
    let run = store.begin_run(&other, UserTurn::text("hello")).map_err(|error| format!("no new turn: {error:?}"))?;
    run.finish(Outcome::Completed).map_err(|error| format!("no end: {error:?}"))?;
    match told.turns.last() {
        Some(turn) if turn.has_begun && !told.deleting && !told.cutting => resumes(&store, turn, end),
        _ => Ok(()),
    }
}

pub(crate) fn resumes(store: &Store, turn: &Turn, end: End) -> Result<(), String> {
    let run = RunId::parse(&turn.run).unwrap();
    let summary = store.run_summary(&id(), &run).unwrap().unwrap_or_default();
    let resumed = store.resume_run(&id(), &run).and_then(|open| open.append(Event::token("late")));
    match resumed {
        Ok(appended) if !end.is_power() && !summary.seal.is_sealed() => {
            let is_next = appended.last_seq == summary.last_seq + 1;
            if is_next { Ok(()) } else { Err(format!("event {} follows {}", appended.last_seq, summary.last_seq)) }
        }
        Ok(appended) => Err(format!("event {} was taken after {end:?}", appended.last_seq)),
        Err(_) if end.is_power() => Ok(()),
        Err(error) if summary.seal.is_sealed() => match store.begin_run(&id(), UserTurn::text("next")) {
            Ok(_) => Ok(()),
            Err(next) => Err(format!("{error:?}, and no new turn either: {next:?}")),
        },
        Err(error) => Err(format!("the run does not go on: {error:?}")),
    }
}
