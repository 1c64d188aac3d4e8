//! What must hold of a store with several sessions and runs after a crash, whoever opens it first.

use lastword::format::DamageKind;
use lastword::storage::sim::{Crash, SimDisk};
use lastword::{Event, NewSession, Outcome, Store, StoreError, UserTurn};

use crate::ledger::{Ledger, RunTold, SessionTold, run_id, session_id};
use crate::machine::{End, Machine, Memory, NOW};
use crate::view::{RunSeen, SessionSeen, View, view};

/// When a process begins that recovers everything.
const LATER: i64 = NOW + 3_600;

impl Memory for Ledger {
    fn check(&self, machine: &Machine, disk: &SimDisk, end: End, what: &str) {
        let seen = Verdict { machine, ledger: self, end }.pass(disk);
        seen.unwrap_or_else(|wrong| panic!("{wrong}: {what}\n{self:#?}\n{}", disk.log().join("\n")));
    }
}

/// What a ledger says of a disk after this end.
pub(crate) struct Verdict<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) ledger: &'a Ledger,
    pub(crate) end: End,
}

impl Verdict<'_> {
    /// Opens the store in every way that there is, and gives what was found.
    pub(crate) fn pass(&self, disk: &SimDisk) -> Result<View, String> {
        self.interrupt_opening(disk)?;
        let read = self.read_only(disk)?;
        let seen = self.open(disk)?;
        if read.is_some_and(|read| read != seen) {
            return Err(format!("a reader saw something else than the writer behind it: {seen:#?}"));
        }
        same(&seen, &self.open(disk)?, "opening again changed something")?;
        self.recovers(&disk.copy(), &seen)?;
        self.goes_on(&disk.copy(), &seen)?;
        Ok(seen)
    }

    /// What a reader finds, which changes nothing. Nothing if there is no directory yet.
    fn read_only(&self, disk: &SimDisk) -> Result<Option<View>, String> {
        let before = disk.files();
        let seen = match self.machine.open_to_read(disk) {
            Err(lastword::StorageError::NoDirectory { .. }) => None,
            Err(error) => return Err(format!("it cannot be read: {error:?}")),
            Ok(store) => Some(view(&store, self.ledger)?),
        };
        if disk.files() != before {
            return Err("a reader changed something".to_owned());
        }
        Ok(seen)
    }

    /// What a writer finds, which is what was promised.
    fn open(&self, disk: &SimDisk) -> Result<View, String> {
        let zeroes = zeroes(disk);
        let store = self.machine.open(disk).map_err(|error| format!("the store does not open: {error:?}"))?;
        if self::zeroes(disk) > zeroes {
            return Err("opening has left a hole in a journal".to_owned());
        }
        let wrong = store.findings().into_iter().find(|finding| finding.code != "checksum_mismatch");
        if let Some(finding) = wrong {
            return Err(format!("nobody but us was here: {finding:?}"));
        }
        let seen = view(&store, self.ledger)?;
        self.ledger.sessions.iter().try_for_each(|(name, told)| self.check_session(told, &seen[name]))?;
        self.check_list(&store)?;
        Ok(seen)
    }

    /// An opening that is itself cut short, at one of its operations, leads to the same. Which one depends on the disk,
    /// so that all have their turn.
    fn interrupt_opening(&self, disk: &SimDisk) -> Result<(), String> {
        let whole = disk.copy();
        let first = whole.operations();
        drop(self.machine.open(&whole).map_err(|error| format!("the store does not open: {error:?}"))?);
        let turn = whole.log().len() as u64;
        self.interrupt_opening_at(disk, 1 + turn % (whole.operations() - first), turn)
    }

    /// The same, at this operation.
    pub(crate) fn interrupt_opening_at(&self, disk: &SimDisk, operation: u64, seed: u64) -> Result<(), String> {
        let cut = disk.copy();
        cut.stop_before(cut.operations() + operation);
        drop(self.machine.open(&cut));
        match self.end {
            End::Kill => cut.kill(),
            End::Power(_) => cut.power_cut(Crash::Seeded(seed)),
        }
        let again = |wrong| format!("{wrong}, after the opening was cut before operation {operation}");
        let read = self.read_only(&cut).map_err(again)?;
        let seen = self.open(&cut).map_err(again)?;
        read.map_or(Ok(()), |read| same(&read, &seen, "a reader saw something else")).map_err(again)
    }

    fn check_list(&self, store: &Store) -> Result<(), String> {
        let listed = store.list().map_err(|error| format!("{error:?}"))?;
        let is_listed = |name: &str| listed.iter().any(|one| one.id == session_id(name) && one.summary.is_ok());
        for (name, told) in &self.ledger.sessions {
            if told.created && !told.deleting && !is_listed(name) || told.deleted && is_listed(name) {
                return Err(format!("the list is wrong about {name}: {listed:?}"));
            }
        }
        Ok(())
    }

    fn check_session(&self, told: &SessionTold, seen: &SessionSeen) -> Result<(), String> {
        let Some(document) = &seen.document else {
            let may_be_gone = !told.created || told.deleting;
            return if may_be_gone { Ok(()) } else { Err(format!("an acknowledged session is gone: {told:?}")) };
        };
        if told.deleted {
            return Err(format!("a deleted session is back: {seen:?}"));
        }
        if !told.titles.contains(&document.title) {
            return Err(format!("title {:?} is none of {:?}", document.title, told.titles));
        }
        told.runs.iter().try_for_each(|(name, run)| self.check_run(name, run, seen))
    }

    fn check_run(&self, name: &str, told: &RunTold, session: &SessionSeen) -> Result<(), String> {
        let (seen, is_listed) = (&session.runs[name], session.listed.contains(&run_id(name)));
        if told.removed && (is_listed || *seen != RunSeen::nothing()) {
            return Err(format!("run {name}, which was removed, is back: {seen:?}"));
        }
        if told.removing && !is_listed {
            return Ok(());
        }
        if told.has_begun && !is_listed {
            return Err(format!("run {name} is gone"));
        }
        self.check_events(name, told, seen)?;
        self.check_rows(name, told, session)
    }

    /// What was acknowledged is there; of the rest, any lines may be gone after a power cut, and the last ones after
    /// the death of the process.
    fn check_events(&self, name: &str, told: &RunTold, seen: &RunSeen) -> Result<(), String> {
        let promised = if self.end.is_power() { told.durable } else { told.appended };
        let is_prefix_whole = seen.tokens.get(..promised) == Some(&told.sent[..promised]);
        let is_in_order = match self.end {
            End::Power(_) => is_subsequence(&seen.tokens, &told.sent),
            End::Kill => told.sent.starts_with(&seen.tokens),
        };
        if !is_prefix_whole || !is_in_order {
            return Err(format!("run {name} has {seen:?}, promised were {promised} of {:?}", told.sent));
        }
        let is_ended = seen.others.iter().any(|(_, name)| name == "done");
        if told.has_ended && !is_ended || is_ended && !told.is_ending || seen.others.len() > 1 {
            return Err(format!("run {name} ends with {:?}", seen.others));
        }
        let is_kill_damage = |kind| kind == DamageKind::TornTail;
        if !self.end.is_power() && !told.is_fenced && !seen.damage.iter().all(|damage| is_kill_damage(damage.kind)) {
            return Err(format!("a kill cannot do this to {name}: {:?}", seen.damage));
        }
        Ok(())
    }

    /// A turn that ended is in the transcript once and whole; one that began is pending or in it.
    fn check_rows(&self, name: &str, told: &RunTold, session: &SessionSeen) -> Result<(), String> {
        let (Some(prompt), Some(document)) = (&told.prompt, &session.document) else { return Ok(()) };
        let prompts = document.rows.iter().filter(|row| *row == prompt).count();
        let is_pending = document.pending.as_ref() == Some(prompt);
        let is_answered = document.rows.windows(2).any(|pair| pair[0] == *prompt && pair[1] == told.answer());
        let is_fine = match (prompts, is_pending) {
            (1, false) => is_answered || told.is_fenced || told.sent.is_empty(),
            (0, true) => !told.has_ended,
            (0, false) => !told.has_begun,
            _ => false,
        };
        if is_fine { Ok(()) } else { Err(format!("run {name}: {document:?}")) }
    }

    /// A process that comes much later folds what is there, once, and finds nothing more to do the next time.
    fn recovers(&self, disk: &SimDisk, seen: &View) -> Result<(), String> {
        let recovered = self.recovered(disk, seen)?;
        same(&recovered, &self.recovered(disk, seen)?, "recovering again changed something")
    }

    fn recovered(&self, disk: &SimDisk, seen: &View) -> Result<View, String> {
        let store = self.machine.open_at(disk, LATER).map_err(|error| format!("{error:?}"))?;
        for (name, _) in seen.iter().filter(|(_, seen)| seen.document.is_some()) {
            let session = store.get_session(&session_id(name)).map_err(|error| format!("no recovery: {error:?}"))?;
            let rows: String = session.messages().map(|row| row.content().into_owned()).collect();
            let turns = self.ledger.sessions[name].runs.iter().filter(|(_, run)| run.prompt.is_some());
            for (run, _) in turns.filter(|(run, _)| seen[name].listed.contains(&run_id(run))) {
                let lost = |(_, text): &&(u64, String)| rows.matches(text.as_str()).count() != 1;
                if let Some(text) = seen[name].runs[run].tokens.iter().find(lost) {
                    return Err(format!("{text:?} is not in the transcript once: {rows}"));
                }
            }
        }
        view(&store, self.ledger)
    }

    /// The store takes new work, and what that is told holds after another power cut.
    fn goes_on(&self, disk: &SimDisk, seen: &View) -> Result<(), String> {
        let store = self.machine.open(disk).map_err(|error| format!("{error:?}"))?;
        let new = new_turn(&store).map_err(|error| format!("no new turn: {error:?}"))?;
        let mut later = self.ledger.clone();
        for (name, told) in self.ledger.sessions.iter().filter(|(name, _)| seen[*name].document.is_some()) {
            for (run, _) in told.runs.iter().filter(|(_, run)| run.has_begun && !run.removing) {
                self.resume(&store, &mut later, seen, (name, run))?;
            }
        }
        drop(store);
        disk.power_cut(Crash::LoseAll);
        let store = self.machine.open(disk).map_err(|error| format!("{error:?}"))?;
        let rows = store.get_session(&new).map_err(|error| format!("what was begun since is gone: {error:?}"))?;
        if rows.messages().count() != 2 {
            return Err(format!("what was said since is gone: {rows:?}"));
        }
        let after = view(&store, &later)?;
        let verdict = Verdict { machine: self.machine, ledger: &later, end: End::Power(Crash::LoseAll) };
        later.sessions.iter().try_for_each(|(name, told)| verdict.check_session(told, &after[name]))
    }

    /// An unsealed run goes on where no number can repeat, and nowhere else.
    fn resume(&self, store: &Store, later: &mut Ledger, seen: &View, at: (&str, &str)) -> Result<(), String> {
        let (told, seen) = (later.run(at.0, at.1), &seen[at.0].runs[at.1]);
        told.settle(seen, self.end.is_power());
        let is_open = !told.is_fenced && !told.is_ending;
        let resumed = later.resume(store, at.0, at.1);
        match resumed.and_then(|run| later.append_durable(&run, 0)) {
            Ok(()) if is_open => Ok(()),
            Err(_) if !is_open => {
                later.run(at.0, at.1).settle(seen, self.end.is_power());
                Ok(())
            }
            other => Err(format!("run {} was resumed: {other:?}", at.1)),
        }
    }
}

impl RunSeen {
    fn nothing() -> Self {
        RunSeen { tokens: Vec::new(), others: Vec::new(), damage: Vec::new() }
    }
}

impl Ledger {
    /// Knows from now on what was found after a crash. What a power cut left is durable, and what it took will never be
    /// there; the death of a process settles nothing but which events were appended.
    pub(crate) fn settle(&mut self, seen: &View, is_power: bool) {
        for (name, told) in &mut self.sessions {
            let seen = &seen[name];
            told.runs.iter_mut().for_each(|(run, told)| told.settle(&seen.runs[run], is_power));
            if is_power {
                told.settle_names(seen);
            }
        }
    }
}

impl SessionTold {
    fn settle_names(&mut self, seen: &SessionSeen) {
        self.created = seen.document.is_some();
        self.deleted |= self.deleting && !self.created;
        self.deleting = self.deleted;
        self.titles.splice(.., seen.document.iter().map(|document| document.title.clone()));
        for (name, run) in &mut self.runs {
            let is_listed = seen.listed.contains(&run_id(name));
            run.removed |= run.removing && !is_listed;
            run.removing = run.removed;
            run.has_begun = is_listed && run.prompt.as_ref().is_none_or(|prompt| seen.mentions(prompt));
        }
    }
}

impl SessionSeen {
    fn mentions(&self, prompt: &String) -> bool {
        let document = self.document.as_ref();
        document.is_some_and(|known| known.pending.as_ref() == Some(prompt) || known.rows.contains(prompt))
    }
}

impl RunTold {
    fn answer(&self) -> String {
        self.sent.iter().map(|(_, text)| text.as_str()).collect::<String>().trim().to_owned()
    }

    /// Knows from now on what was found after a crash: after a power cut all of it is on the medium.
    pub(crate) fn settle(&mut self, seen: &RunSeen, is_power: bool) {
        self.sent.clone_from(&seen.tokens);
        self.appended = self.sent.len();
        self.durable = if is_power { self.appended } else { self.durable.min(self.appended) };
        self.is_fenced |= is_power;
        self.is_held = false;
        self.is_ending = !seen.others.is_empty();
        self.last_seq = seen.tokens.iter().chain(&seen.others).map(|(seq, _)| *seq).max().unwrap_or(0);
    }
}

fn new_turn(store: &Store) -> Result<lastword::SessionId, StoreError> {
    let session = store.create(NewSession::titled("new"))?;
    let run = store.begin_run(&session, UserTurn::text("hello"))?;
    run.append_durable(Event::token("hello"))?.wait()?;
    run.finish(Outcome::Completed)?;
    Ok(session)
}

/// How many bytes of journals are zeroes.
fn zeroes(disk: &SimDisk) -> usize {
    let files = disk.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "jsonl"));
    files.map(|(_, bytes)| bytes.iter().filter(|byte| **byte == 0).count()).sum()
}

fn is_subsequence<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|one| rest.any(|other| other == one))
}

fn same(one: &View, other: &View, what: &str) -> Result<(), String> {
    if one == other { Ok(()) } else { Err(format!("{what}: {one:#?}\nthen {other:#?}")) }
}
