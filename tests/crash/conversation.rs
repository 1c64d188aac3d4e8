//! A conversation in which questions are asked, asked again, edited, stopped and brought back, over several lives of the store,
//! against a plain model of it.

use lastword::storage::sim::{Crash, SimDisk};
use lastword::{Event, NewSession, Outcome, Replaces, RunId, Session, Store, StoreError, UserTurn};
use proptest::prelude::*;

use crate::machine::{NOW, id, open_at};
use crate::seeds;

/// How a run ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Completes,
    Stops,
    StopsSilently,
    Fails,
    /// The process dies before the run has ended.
    Dies,
    /// The machine loses power after the run has ended.
    EndsAndLosesPower(u64),
}

/// What happens. Numbers choose among what is there.
#[derive(Debug, Clone, Copy)]
enum Act {
    Ask(Ending),
    Again(usize, Ending),
    Edit(usize, Ending),
    Restore(usize),
    Reopen,
}

/// A turn as the model knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Turn {
    question: String,
    run: String,
    /// What was said, and whether a marker follows.
    answer: Option<String>,
    is_marked: bool,
}

/// Turns that are not in the transcript, and the turns before them.
#[derive(Debug, Clone)]
struct Aside {
    before: Vec<(String, Option<String>)>,
    turns: Vec<Turn>,
    reason: &'static str,
}

#[derive(Debug, Default)]
struct Model {
    turns: Vec<Turn>,
    asides: Vec<Aside>,
    runs: usize,
}

fn said(turns: &[Turn]) -> Vec<(String, Option<String>)> {
    turns.iter().map(|turn| (turn.question.clone(), turn.answer.clone())).collect()
}

impl Model {
    fn new_turn(&mut self, question: String, ending: Ending) -> Turn {
        self.runs += 1;
        let answer = !matches!(ending, Ending::StopsSilently);
        let is_marked = !matches!(ending, Ending::Completes | Ending::EndsAndLosesPower(_));
        let run = format!("run{}", self.runs);
        Turn { answer: answer.then(|| format!("answer of {run}")), question, run, is_marked }
    }

    /// A turn takes the place of those from here on, or does not.
    fn replace(&mut self, at: usize, turn: Turn, reason: &'static str, ending: Ending) {
        let before = said(&self.turns[..at]);
        match ending {
            Ending::Completes | Ending::Stops | Ending::EndsAndLosesPower(_) => {
                let turns = self.turns.split_off(at);
                self.asides.push(Aside { before, turns, reason });
                self.turns.push(turn);
            }
            Ending::StopsSilently if reason == "regenerate" => {}
            _ => self.asides.push(Aside { before, turns: vec![turn], reason: "failed" }),
        }
    }

    /// Whether the branch belongs here; then it is put back.
    fn restore(&mut self, nth: usize) -> bool {
        let aside = self.asides[nth].clone();
        let at = aside.before.len();
        if self.turns.len() < at || said(&self.turns[..at]) != aside.before {
            return false;
        }
        let turns = self.turns.split_off(at);
        self.turns.extend(aside.turns);
        self.asides.remove(nth);
        if !turns.is_empty() {
            let reason = if aside.reason == "failed" { "regenerate" } else { aside.reason };
            self.asides.push(Aside { before: aside.before, turns, reason });
        }
        true
    }
}

struct World {
    disk: SimDisk,
    store: Option<Store>,
    model: Model,
    /// Each process begins a minute after the one before.
    minutes: i64,
}

impl World {
    fn new() -> Self {
        let disk = SimDisk::new();
        let store = open_at(&disk, NOW).unwrap();
        store.create(NewSession::titled("x").with_id(id())).unwrap();
        World { disk, store: Some(store), model: Model::default(), minutes: 0 }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    fn reopen(&mut self) {
        self.store = None;
        self.minutes += 1;
        self.store = Some(open_at(&self.disk, NOW + 60 * self.minutes).unwrap());
    }

    /// Begins a run and lets it end.
    fn live(&mut self, turn: UserTurn, told: &Turn, ending: Ending) {
        let run = self.store().begin_run(&id(), turn.with_run(RunId::parse(&told.run).unwrap())).unwrap();
        let before = texts(&self.store().get_session_for_scan(&id()).unwrap());
        if let Some(answer) = &told.answer {
            run.append(Event::token(answer)).unwrap();
        }
        assert_eq!(texts(&self.store().get_session(&id()).unwrap()), before, "the old rows stay");
        let ended = match ending {
            Ending::Completes | Ending::EndsAndLosesPower(_) => run.finish(Outcome::Completed).map(drop),
            Ending::Stops | Ending::StopsSilently => run.finish(Outcome::InterruptedByUser).map(drop),
            Ending::Fails => run.fail("x", "it broke").map(drop),
            Ending::Dies => Ok(()),
        };
        ended.unwrap();
        drop(run);
        match ending {
            Ending::Dies => {
                self.disk.kill();
                self.reopen();
            }
            Ending::EndsAndLosesPower(throw) => {
                self.disk.power_cut(Crash::Seeded(throw));
                self.reopen();
            }
            _ => {}
        }
    }

    fn act(&mut self, act: Act) {
        let count = self.model.turns.len();
        match act {
            Act::Ask(ending) => {
                let turn = self.model.new_turn(format!("question {}", self.model.runs), ending);
                self.live(UserTurn::text(&turn.question), &turn, ending);
                self.model.turns.push(turn);
            }
            Act::Again(nth, ending) if count > 0 => {
                let at = nth % count;
                let old = &self.model.turns[at];
                let (question, run) = (old.question.clone(), old.run.clone());
                let is_last = at + 1 == count && nth % 2 == 0;
                let replaces = if is_last { Replaces::LastAnswer } else { Replaces::Answer(run) };
                let turn = self.model.new_turn(question, ending);
                self.live(UserTurn { replaces: Some(replaces), ..UserTurn::default() }, &turn, ending);
                self.model.replace(at, turn, "regenerate", ending);
            }
            Act::Edit(nth, ending) if count > 0 => {
                let at = nth % count;
                let message = self.message_of(at);
                let turn = self.model.new_turn(format!("edit {}", self.model.runs), ending);
                let replaces = Some(Replaces::Message(message));
                self.live(UserTurn { replaces, ..UserTurn::text(&turn.question) }, &turn, ending);
                self.model.replace(at, turn, "edit", ending);
            }
            Act::Restore(nth) if !self.model.asides.is_empty() => self.restore(nth % self.model.asides.len()),
            Act::Reopen => self.reopen(),
            _ => {}
        }
    }

    /// The UI id of the question of a turn.
    fn message_of(&self, nth: usize) -> String {
        let session = self.store().get_session(&id()).unwrap();
        let mut users = session.messages().enumerate().filter(|(_, row)| row.role() == "user");
        let (at, row) = users.nth(nth).unwrap();
        lastword::model::message_id::user_message_id(&row, at)
    }

    fn restore(&mut self, nth: usize) {
        let run = self.model.asides[nth].turns[0].run.clone();
        let branches = self.store().branches(&id()).unwrap();
        let branch = branches.iter().find(|branch| branch.run_id.as_deref() == Some(&run)).unwrap();
        let restored = self.store().restore_branch(&id(), &branch.branch_id, |_| true);
        match self.model.restore(nth) {
            true => drop(restored.unwrap().unwrap()),
            false => assert!(matches!(restored, Err(StoreError::BranchConflict { .. })), "{restored:?}"),
        }
    }

    fn check(&self) {
        let session = self.store().get_session(&id()).unwrap();
        let mut expected: Vec<(String, String)> = Vec::new();
        for turn in &self.model.turns {
            expected.push((turn.run.clone(), turn.question.clone()));
            expected.extend(turn.answer.iter().map(|answer| (turn.run.clone(), answer.clone())));
            expected.extend(turn.is_marked.then(|| (turn.run.clone(), "!".to_owned())));
        }
        assert_eq!(texts(&session), expected);
        assert_eq!(session.pending_turn(), None);
        let mut found: Vec<(String, &str)> = self
            .store()
            .branches(&id())
            .unwrap()
            .into_iter()
            .map(|branch| (branch.run_id.unwrap(), branch.reason.as_str()))
            .collect();
        let asides = self.model.asides.iter();
        let mut known: Vec<(String, &str)> = asides.map(|aside| (aside.turns[0].run.clone(), aside.reason)).collect();
        found.sort_unstable();
        known.sort_unstable();
        assert_eq!(found, known);
    }
}

/// Each row's run and what it says. A marker says `!`.
fn texts(session: &Session) -> Vec<(String, String)> {
    let text = |row: &lastword::Row| if row.is_error() { "!".to_owned() } else { row.content().into_owned() };
    let mut rows: Vec<(String, String)> = Vec::new();
    for row in session.messages() {
        // Some markers name no run: they close the turn that they stand in.
        let run = row.run().map(|run| run.into_owned());
        let run = run.unwrap_or_else(|| rows.last().map(|(run, _)| run.clone()).unwrap_or_default());
        rows.push((run, text(&row)));
    }
    rows
}

fn endings() -> impl Strategy<Value = Ending> {
    prop_oneof![
        4 => Just(Ending::Completes),
        1 => Just(Ending::Stops),
        1 => Just(Ending::StopsSilently),
        2 => Just(Ending::Fails),
        2 => Just(Ending::Dies),
        1 => any::<u64>().prop_map(Ending::EndsAndLosesPower),
    ]
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => endings().prop_map(Act::Ask),
        4 => (0..8usize, endings()).prop_map(|(nth, ending)| Act::Again(nth, ending)),
        2 => (0..8usize, endings()).prop_map(|(nth, ending)| Act::Edit(nth, ending)),
        3 => (0..8usize).prop_map(Act::Restore),
        1 => Just(Act::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..seeds::config("conversation") })]

    #[test]
    fn a_conversation_is_what_a_plain_model_of_it_says(acts in prop::collection::vec(acts(), 1..24)) {
        let mut world = World::new();
        world.check();
        for act in acts {
            world.act(act);
            world.check();
        }
    }
}
