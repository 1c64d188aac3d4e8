//! What an earlier process left behind, durable, and how it is resolved.

use lastword::storage::sim::SimDisk;
use lastword::{Event, NewSession, Outcome, Run, RunId, Store, StoreError, UserTurn};
use serde_json::json;

use super::files::{PROMPT, RUN, TORN, add_to_journal, line, put_waiting_session};
use super::judge::Expected;
use crate::machine::{NOW, id, open, open_at};

/// When the process begins that recovers.
pub(super) const LATER: i64 = NOW + 3_600;
/// Ids for the next turn.
pub(super) const NEXT_RUNS: [&str; 3] = ["next-1", "next-2", "next-3"];
/// What every run has said before anything happens to it.
pub(super) const HALF: &[&str] = &["To the", "hm"];
const NEXT_PROMPT: &str = "And then?";

/// A state of the disk, what resolves it, and what must be there afterwards.
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) lay: fn(&SimDisk),
    pub(super) resolve: fn(&SimDisk) -> Result<(), StoreError>,
    pub(super) texts: &'static [&'static str],
    pub(super) has_tool: bool,
    pub(super) markers: usize,
}

impl Scene {
    /// One that a full read resolves. Whatever has texts has called a tool.
    pub(super) fn read(name: &'static str, lay: fn(&SimDisk), texts: &'static [&'static str], markers: usize) -> Self {
        Scene { name, lay, resolve: read, texts, has_tool: !texts.is_empty(), markers }
    }

    pub(super) fn expected(&self) -> Expected {
        let texts = self.texts.iter().map(|text| (*text).to_owned()).collect();
        let tools = if self.has_tool { vec!["map".to_owned()] } else { Vec::new() };
        Expected { texts, tools, markers: self.markers..self.markers + 1 }
    }
}

/// All of them.
pub(super) fn scenes() -> Vec<Scene> {
    vec![
        Scene::read("a turn without an end", interrupted, HALF, 1),
        Scene::read("a turn without an end, of the reference program", foreign_interrupted, HALF, 1),
        Scene::read("a turn whose last event is torn", torn, HALF, 1),
        Scene::read("a turn without a journal", put_waiting_session, &[], 1),
        Scene::read("an armed marker whose journal appears", appeared, HALF, 1),
        Scene::read("a run that ended and was not saved", |disk| ended(disk, Outcome::Completed), HALF, 0),
        Scene::read("a run that ended, of the reference program", |disk| foreign_ended(disk, "done"), HALF, 0),
        Scene::read("a run that the user stopped", |disk| ended(disk, Outcome::InterruptedByUser), HALF, 1),
        Scene::read("a stopped run of the reference program", |disk| foreign_ended(disk, "cancel"), HALF, 1),
        Scene::read("a failed run of the reference program", |disk| foreign_ended(disk, "apperror"), HALF, 1),
        Scene::read("events behind a marker", grown, &["To the", "hm", "sea."], 1),
        Scene::read("an end behind a marker", ended_late, HALF, 0),
        Scene { resolve: begin_next, ..Scene::read("a new turn over a dead one", interrupted, HALF, 1) },
    ]
}

/// A full read by a new process.
pub(super) fn read(disk: &SimDisk) -> Result<(), StoreError> {
    open_at(disk, LATER)?.get_session(&id()).map(drop)
}

/// The next turn, unless it was begun before. A run's id stays taken after a restart of the machine, so that the turn
/// may need another one.
fn begin_next(disk: &SimDisk) -> Result<(), StoreError> {
    let store = open_at(disk, LATER)?;
    if store.get_session_for_scan(&id())?.pending_turn().is_some_and(|turn| turn.message == NEXT_PROMPT) {
        return Ok(());
    }
    let begin = |run: &&str| store.begin_run(&id(), UserTurn::text(NEXT_PROMPT).with_run(RunId::parse(run).unwrap()));
    let begun = NEXT_RUNS.iter().map(begin).find(|begun| !matches!(begun, Err(StoreError::RunTaken { .. })));
    begun.expect("an id is free").map(drop)
}

pub(super) fn begun(store: &Store) -> Run {
    store.create(NewSession::titled("A talk").with_id(id())).unwrap();
    let run = store.begin_run(&id(), UserTurn::text(PROMPT).with_run(RunId::parse(RUN).unwrap())).unwrap();
    stream(&run, &[Event::token("To the "), tool("tool"), Event::new("reasoning", r#"{"text":"hm"}"#).unwrap()]);
    run
}

fn tool(name: &str) -> Event {
    Event::new(name, r#"{"name":"map","preview":"found"}"#).unwrap()
}

fn stream(run: &Run, events: &[Event]) {
    for event in events {
        run.append_durable(event.clone()).unwrap().ticket.wait().unwrap().expect("proof");
    }
}

/// A turn whose producer died after a few events.
pub(super) fn interrupted(disk: &SimDisk) {
    begun(&open(disk).unwrap());
}

/// The same, and it died in the middle of a line.
fn torn(disk: &SimDisk) {
    interrupted(disk);
    add_to_journal(disk, TORN);
}

/// A run that is sealed, whose writer died before it could save the answer.
fn ended(disk: &SimDisk, outcome: Outcome) {
    let run = begun(&open(disk).unwrap());
    seal_unsaved(disk, &run, outcome, false);
}

/// The end is written to the journal and to the log, which is synced; the next operation belongs to the sidecar. A log
/// that this process has not used yet has its names and a header synced first.
fn seal_unsaved(disk: &SimDisk, run: &Run, outcome: Outcome, is_log_new: bool) {
    let beginning = if is_log_new { 4 } else { 0 };
    disk.stop_before(disk.operations() + 4 + beginning);
    assert!(run.finish(outcome).is_err() && run.is_sealed(), "sealed, and not saved");
    disk.kill();
}

/// A turn that was given up with half of its answer.
fn given_up(disk: &SimDisk) -> Store {
    interrupted(disk);
    read(disk).unwrap();
    open_at(disk, LATER).unwrap()
}

fn grown(disk: &SimDisk) {
    let run = given_up(disk).resume_run(&id(), &RunId::parse(RUN).unwrap()).unwrap();
    stream(&run, &[tool("tool_complete"), Event::token("sea.")]);
}

fn ended_late(disk: &SimDisk) {
    let run = given_up(disk).resume_run(&id(), &RunId::parse(RUN).unwrap()).unwrap();
    seal_unsaved(disk, &run, Outcome::Completed, true);
}

fn foreign_lines() -> String {
    [("token", json!({"text": "To the "})), ("tool", json!({"name": "map"})), ("reasoning", json!({"text": "hm"}))]
        .iter()
        .zip(1..)
        .map(|((name, payload), seq)| line(seq, name, payload))
        .collect()
}

fn foreign_interrupted(disk: &SimDisk) {
    put_waiting_session(disk);
    add_to_journal(disk, &foreign_lines());
}

fn foreign_ended(disk: &SimDisk, name: &str) {
    foreign_interrupted(disk);
    add_to_journal(disk, &line(4, name, &json!({"type": "quota", "message": "The quota is used up."})));
}

/// A marker was written while there was no journal yet.
fn appeared(disk: &SimDisk) {
    put_waiting_session(disk);
    read(disk).unwrap();
    add_to_journal(disk, &foreign_lines());
}
