//! Anything that a store can be asked for, in any order, over several lives of it, against a plain model.

use lastword::storage::sim::{Crash, SimDisk};
use lastword::{Run, Store, StoreError};
use proptest::prelude::*;

use crate::ledger::{Claim, Ledger, RunTold, session_id};
use crate::machine::{End, Machine, USUAL, log_of};
use crate::seeds;
use crate::verdict::Verdict;

const SESSIONS: [&str; 3] = ["a", "_a", "_"];

/// When somebody wants to know whether an event is durable.
#[derive(Debug, Clone, Copy)]
enum Wait {
    Now,
    Later,
    Never,
}

/// How a life of the store ends.
#[derive(Debug, Clone, Copy)]
enum Last {
    Close,
    Kill,
    Power(u64),
}

/// What is asked of the store, or happens to it. Numbers choose among what is there.
#[derive(Debug, Clone, Copy)]
enum Act {
    Create(usize),
    Begin(usize),
    Adopt(usize),
    Resume(usize),
    Append(usize, usize),
    Claim(usize, usize, Wait),
    WaitForAll,
    Commit,
    Finish(usize),
    Title(usize, u32),
    Delete(usize),
    RemoveRun(usize),
    Get(usize),
    List,
    Fill,
    MakeRoom,
    BreakSyncs,
    End(Last),
}

fn any_act() -> impl Strategy<Value = Act> {
    let at = || 0usize..6;
    let bytes = || prop_oneof![8 => Just(0usize), 2 => 1usize..300, 1 => Just(1_200)];
    let wait = prop_oneof![Just(Wait::Now), Just(Wait::Later), Just(Wait::Never)];
    let last = prop_oneof![
        2 => Just(Last::Close),
        2 => Just(Last::Kill),
        1 => Just(Last::Power(0)),
        4 => any::<u64>().prop_map(Last::Power),
    ];
    prop_oneof![
        1 => at().prop_map(Act::Create),
        3 => at().prop_map(Act::Begin),
        2 => at().prop_map(Act::Adopt),
        3 => at().prop_map(Act::Resume),
        8 => (at(), bytes()).prop_map(|(at, bytes)| Act::Append(at, bytes)),
        8 => (at(), bytes(), wait).prop_map(|(at, bytes, wait)| Act::Claim(at, bytes, wait)),
        2 => Just(Act::WaitForAll),
        2 => Just(Act::Commit),
        2 => at().prop_map(Act::Finish),
        2 => (at(), any::<u32>()).prop_map(|(at, title)| Act::Title(at, title)),
        1 => at().prop_map(Act::Delete),
        1 => at().prop_map(Act::RemoveRun),
        1 => at().prop_map(Act::Get),
        1 => Just(Act::List),
        1 => Just(Act::Fill),
        2 => Just(Act::MakeRoom),
        1 => Just(Act::BreakSyncs),
        4 => last.prop_map(Act::End),
    ]
}

/// A machine whose log is tiny or not, and whose pages are small or not.
fn any_machine() -> impl Strategy<Value = Machine> {
    let log = prop_oneof![Just(log_of(1024, 2)), Just(log_of(1024, 4)), Just(log_of(4096, 4))];
    (log, prop_oneof![Just(64usize), Just(512), Just(4096)]).prop_map(|(log, page_bytes)| Machine {
        log,
        page_bytes,
        ..USUAL
    })
}

/// A store in one of its lives, and what is known of it.
struct World {
    machine: Machine,
    disk: SimDisk,
    store: Store,
    ledger: Ledger,
    /// Runs that are open.
    runs: Vec<Run>,
    /// Tickets that nobody has waited for yet.
    claims: Vec<Claim>,
    /// Whether the disk is in trouble, so that anything may be refused.
    is_troubled: bool,
    /// Whether that is because syncs fail.
    are_syncs_broken: bool,
    /// How many runs were ever begun.
    begun: usize,
}

impl World {
    fn new(machine: Machine) -> Self {
        let disk = machine.disk();
        let (store, ledger) = (machine.open(&disk).unwrap(), Ledger::default());
        let (runs, claims) = (Vec::new(), Vec::new());
        let (is_troubled, are_syncs_broken) = (false, false);
        let mut world = World { machine, disk, store, ledger, runs, claims, is_troubled, are_syncs_broken, begun: 0 };
        (0..SESSIONS.len()).for_each(|at| world.act(Act::Create(at)));
        world
    }

    fn act(&mut self, act: Act) {
        let outcome = match act {
            Act::End(last) => return self.end(last),
            Act::Fill | Act::MakeRoom | Act::BreakSyncs => return self.trouble(act),
            Act::Create(at) => self.create(SESSIONS[at % SESSIONS.len()]),
            Act::Begin(at) => self.begin(SESSIONS[at % SESSIONS.len()]),
            Act::Adopt(at) => self.adopt(SESSIONS[at % SESSIONS.len()]),
            Act::Resume(at) => self.resume(at),
            Act::Append(at, bytes) => self.with_run(at, |ledger, run| ledger.append(run, bytes)),
            Act::Claim(at, bytes, wait) => self.claim(at, bytes, wait),
            Act::WaitForAll => self.claims.split_off(0).into_iter().rev().try_for_each(|one| self.ledger.wait(one)),
            Act::Commit => self.ledger.commit(&self.store),
            Act::Finish(at) => self.with_run(at, |ledger, run| ledger.finish(run)),
            Act::Title(at, title) => self.save_title(SESSIONS[at % SESSIONS.len()], &title.to_string()),
            Act::Delete(at) => self.delete(SESSIONS[at % SESSIONS.len()]),
            Act::RemoveRun(at) => self.remove_run(at),
            Act::Get(at) => self.get(SESSIONS[at % SESSIONS.len()]),
            Act::List => self.store.list().map(drop),
        };
        let is_fine = outcome.is_ok() || self.is_troubled;
        assert!(is_fine, "{act:?}: {outcome:?}\n{:#?}\n{}", self.ledger, self.disk.log().join("\n"));
    }

    fn is_there(&self, session: &str) -> bool {
        self.ledger.sessions.get(session).is_some_and(|told| told.created && !told.deleting)
    }

    fn create(&mut self, session: &str) -> Result<(), StoreError> {
        let is_known = self.ledger.sessions.contains_key(session);
        if is_known { Ok(()) } else { self.ledger.create(&self.store, session) }
    }

    fn next_run(&mut self) -> String {
        self.begun += 1;
        format!("r{}", self.begun)
    }

    /// A session takes a turn when the last one is over.
    fn begin(&mut self, session: &str) -> Result<(), StoreError> {
        let is_over = |run: &RunTold| run.prompt.is_none() || run.has_ended;
        if self.is_there(session) && self.ledger.sessions[session].runs.values().all(is_over) {
            let run = self.next_run();
            self.runs.push(self.ledger.begin(&self.store, session, &run)?);
        }
        Ok(())
    }

    fn adopt(&mut self, session: &str) -> Result<(), StoreError> {
        if self.is_there(session) {
            let run = self.next_run();
            self.runs.push(self.ledger.adopt(&self.store, session, &run)?);
        }
        Ok(())
    }

    /// One of the runs that this holds of, and its session.
    fn choose(&self, at: usize, is_fit: impl Fn(&RunTold) -> bool) -> Option<(String, String)> {
        let sessions = self.ledger.sessions.iter().filter(|(session, _)| self.is_there(session));
        let runs = sessions.flat_map(|(session, told)| told.runs.iter().map(move |(run, told)| (session, run, told)));
        let fit: Vec<_> = runs.filter(|(_, _, told)| is_fit(told)).collect();
        fit.get(at % fit.len().max(1)).map(|(session, run, _)| ((*session).clone(), (*run).clone()))
    }

    fn resume(&mut self, at: usize) -> Result<(), StoreError> {
        let is_fit = |run: &RunTold| run.takes_more() && !run.is_held;
        let Some((session, run)) = self.choose(at, is_fit) else { return Ok(()) };
        self.runs.push(self.ledger.resume(&self.store, &session, &run)?);
        Ok(())
    }

    /// Does something with one of the open runs that take more.
    fn with_run<T: Default>(
        &mut self,
        at: usize,
        work: impl FnOnce(&mut Ledger, &Run) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Some((session, name)) = self.choose(at, |run| run.takes_more() && run.is_held) else {
            return Ok(T::default());
        };
        let is_it = |run: &&Run| run.session().as_str() == session && run.id().as_str() == name;
        let run = self.runs.iter().rfind(is_it).expect("what is held is open").clone();
        work(&mut self.ledger, &run)
    }

    fn claim(&mut self, at: usize, bytes: usize, wait: Wait) -> Result<(), StoreError> {
        let claimed = self.with_run(at, |ledger, run| ledger.claim(run, bytes).map(Some))?;
        match (claimed, wait) {
            (Some(claim), Wait::Now) => self.ledger.wait(claim),
            (Some(claim), Wait::Later) => {
                self.claims.push(claim);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn save_title(&mut self, session: &str, title: &str) -> Result<(), StoreError> {
        if self.is_there(session) { self.ledger.save_title(&self.store, session, title) } else { Ok(()) }
    }

    fn delete(&mut self, session: &str) -> Result<(), StoreError> {
        if self.is_there(session) { self.ledger.delete(&self.store, session) } else { Ok(()) }
    }

    fn remove_run(&mut self, at: usize) -> Result<(), StoreError> {
        let is_fit = |run: &RunTold| run.has_begun && !run.removing && (run.prompt.is_none() || run.has_ended);
        let Some((session, run)) = self.choose(at, is_fit) else { return Ok(()) };
        self.ledger.remove_run(&self.store, &session, &run)
    }

    fn get(&self, session: &str) -> Result<(), StoreError> {
        if self.is_there(session) { self.store.get_session(&session_id(session)).map(drop) } else { Ok(()) }
    }

    /// The disk is in trouble from the next operation on, or has room again. Syncs that fail stop the store until it is
    /// opened again, on a full disk too.
    fn trouble(&mut self, act: Act) {
        match act {
            Act::Fill => self.disk.fill(self.disk.operations() + 1),
            Act::BreakSyncs => {
                self.disk.break_syncs(self.disk.operations() + 1);
                self.are_syncs_broken = true;
            }
            _ => return self.disk.make_room(),
        }
        self.is_troubled = true;
    }

    /// One life ends, and somebody has seen to the disk before the next one begins.
    fn end(&mut self, last: Last) {
        let was_closed = self.leave(last);
        self.disk.make_room();
        self.disk.mend_syncs();
        let end = match last {
            Last::Power(seed) => End::Power(Crash::Seeded(seed)),
            Last::Close | Last::Kill => End::Kill,
        };
        if was_closed {
            self.ledger.note_durable();
        }
        let verdict = Verdict { machine: &self.machine, ledger: &self.ledger, end };
        let seen = verdict.pass(&self.disk.copy());
        let seen = seen.unwrap_or_else(|wrong| panic!("{wrong}\n{:#?}\n{}", self.ledger, self.disk.log().join("\n")));
        self.ledger.settle(&seen, end.is_power());
        self.store = self.machine.open(&self.disk).unwrap();
        (self.is_troubled, self.are_syncs_broken) = (false, false);
    }

    /// Lets go of the store, and says whether it was closed in order.
    fn leave(&mut self, last: Last) -> bool {
        match last {
            Last::Power(seed) => self.disk.power_cut(Crash::Seeded(seed)),
            Last::Kill => self.disk.kill(),
            Last::Close => {}
        }
        self.claims.clear();
        self.runs.clear();
        // Another store takes the place of the one that closes.
        self.store = self.machine.open(&SimDisk::new()).unwrap();
        matches!(last, Last::Close) && !self.is_troubled
    }
}

impl RunTold {
    /// Whether it must take another event.
    fn takes_more(&self) -> bool {
        self.has_begun && !self.is_ending && !self.is_fenced && !self.removing
    }
}

/// A few seconds of it, or longer if `PROPTEST_CASES` says so.
fn config() -> ProptestConfig {
    let cases = 6 * ProptestConfig::default().cases;
    ProptestConfig { cases, ..seeds::config("anything") }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_is_asked_and_whatever_happens_the_store_keeps_its_word(
        machine in any_machine(),
        acts in prop::collection::vec(any_act(), 1..60),
    ) {
        let mut world = World::new(machine);
        acts.into_iter().for_each(|act| world.act(act));
        world.end(Last::Power(1));
    }
}
