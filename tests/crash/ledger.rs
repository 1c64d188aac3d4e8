//! A plain model of a store with several sessions and runs: what was asked of it, and what it acknowledged.

use std::collections::BTreeMap;

use lastword::{
    AppendError, Event, NewSession, Outcome, Run, RunId, SaveOptions, SessionId, Store, StoreError, Ticket, UserTurn,
};

/// Everything that was asked and told.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ledger {
    pub(crate) sessions: BTreeMap<String, SessionTold>,
}

/// One session.
#[derive(Debug, Default, Clone)]
pub(crate) struct SessionTold {
    pub(crate) created: bool,
    /// The title that was acknowledged, and behind it those that were tried since.
    pub(crate) titles: Vec<String>,
    pub(crate) deleting: bool,
    pub(crate) deleted: bool,
    pub(crate) runs: BTreeMap<String, RunTold>,
}

/// One run.
#[derive(Debug, Default, Clone)]
pub(crate) struct RunTold {
    /// What the user said; nothing for a run without a turn.
    pub(crate) prompt: Option<String>,
    pub(crate) has_begun: bool,
    /// The events that were sent, with the numbers that they must have.
    pub(crate) sent: Vec<(u64, String)>,
    /// How many of them survive the death of the process, and how many a power cut.
    pub(crate) appended: usize,
    pub(crate) durable: usize,
    pub(crate) is_ending: bool,
    pub(crate) has_ended: bool,
    pub(crate) removing: bool,
    pub(crate) removed: bool,
    /// Whether the power was cut since it began, so that it takes nothing more.
    pub(crate) is_fenced: bool,
    /// Whether the process that lives now has it open.
    pub(crate) is_held: bool,
    /// The number of its last event, whether or not that is one of those above.
    pub(crate) last_seq: u64,
}

/// A ticket, and how many events of which run it covers.
pub(crate) struct Claim {
    ticket: Ticket,
    session: String,
    run: String,
    count: usize,
}

pub(crate) fn session_id(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

pub(crate) fn run_id(name: &str) -> RunId {
    RunId::parse(name).unwrap()
}

impl Ledger {
    pub(crate) fn session(&mut self, name: &str) -> &mut SessionTold {
        self.sessions.entry(name.to_owned()).or_default()
    }

    pub(crate) fn run(&mut self, session: &str, run: &str) -> &mut RunTold {
        self.session(session).runs.entry(run.to_owned()).or_default()
    }

    fn of(&mut self, run: &Run) -> &mut RunTold {
        self.run(run.session().as_str(), run.id().as_str())
    }

    pub(crate) fn create(&mut self, store: &Store, name: &str) -> Result<(), StoreError> {
        let title = format!("{name} 0");
        self.session(name).titles = vec![title.clone()];
        store.create(NewSession::titled(&title).with_id(session_id(name)))?;
        self.session(name).created = true;
        Ok(())
    }

    /// Begins a turn.
    pub(crate) fn begin(&mut self, store: &Store, session: &str, run: &str) -> Result<Run, StoreError> {
        let prompt = format!("prompt {session} {run}");
        self.run(session, run).prompt = Some(prompt.clone());
        let begun = store.begin_run(&session_id(session), UserTurn::text(&prompt).with_run(run_id(run)))?;
        let told = self.run(session, run);
        (told.has_begun, told.is_held) = (true, true);
        Ok(begun)
    }

    /// Begins a run that belongs to no turn.
    pub(crate) fn adopt(&mut self, store: &Store, session: &str, run: &str) -> Result<Run, StoreError> {
        self.run(session, run);
        let begun = store.adopt_run(&session_id(session), &run_id(run))?;
        let told = self.run(session, run);
        (told.has_begun, told.is_held) = (true, true);
        Ok(begun)
    }

    /// Opens a run again, which makes durable what is there.
    pub(crate) fn resume(&mut self, store: &Store, session: &str, run: &str) -> Result<Run, StoreError> {
        let resumed = store.resume_run(&session_id(session), &run_id(run))?;
        let told = self.run(session, run);
        (told.is_held, told.durable) = (true, told.appended);
        Ok(resumed)
    }

    fn send(&mut self, run: &Run, bytes: usize) -> Event {
        let told = self.of(run);
        told.last_seq += 1;
        let text = format!("<{} {} {}{}>", run.session(), run.id(), told.last_seq, "é".repeat(bytes / 2));
        told.sent.push((told.last_seq, text.clone()));
        Event::token(&text)
    }

    /// What was refused has no number, unless all of it but the answer arrived.
    fn refused(&mut self, run: &Run, error: StoreError) -> StoreError {
        let told = self.of(run);
        let appended_to = match &error {
            StoreError::Append(AppendError::Failed { appended_to, .. }) => *appended_to,
            _ => None,
        };
        if appended_to != Some(told.last_seq) {
            told.sent.pop();
            told.last_seq -= 1;
        }
        error
    }

    fn note_appended(&mut self, run: &Run) -> usize {
        let told = self.of(run);
        told.appended = told.sent.len();
        told.appended
    }

    /// Appends an event with about so many bytes more than a usual one.
    pub(crate) fn append(&mut self, run: &Run, bytes: usize) -> Result<(), StoreError> {
        let event = self.send(run, bytes);
        run.append(event).map_err(|error| self.refused(run, error))?;
        self.note_appended(run);
        Ok(())
    }

    /// The same, and it is to be durable.
    pub(crate) fn claim(&mut self, run: &Run, bytes: usize) -> Result<Claim, StoreError> {
        let event = self.send(run, bytes);
        let ticket = run.append_durable(event).map_err(|error| self.refused(run, error))?.ticket;
        let count = self.note_appended(run);
        Ok(Claim { ticket, session: run.session().to_string(), run: run.id().to_string(), count })
    }

    pub(crate) fn wait(&mut self, claim: Claim) -> Result<(), StoreError> {
        claim.ticket.wait()?.expect("it was asked for");
        let told = self.run(&claim.session, &claim.run);
        told.durable = told.durable.max(claim.count);
        Ok(())
    }

    pub(crate) fn append_durable(&mut self, run: &Run, bytes: usize) -> Result<(), StoreError> {
        let claim = self.claim(run, bytes)?;
        self.wait(claim)
    }

    pub(crate) fn commit(&mut self, store: &Store) -> Result<(), StoreError> {
        store.commit()?;
        self.note_durable();
        Ok(())
    }

    /// Everything that this process appended is durable.
    pub(crate) fn note_durable(&mut self) {
        let runs = self.sessions.values_mut().flat_map(|session| session.runs.values_mut());
        runs.filter(|run| run.is_held).for_each(|run| run.durable = run.appended);
    }

    pub(crate) fn finish(&mut self, run: &Run) -> Result<(), StoreError> {
        self.of(run).is_ending = true;
        run.finish(Outcome::Completed)?;
        let told = self.of(run);
        told.has_ended = true;
        told.durable = told.appended;
        Ok(())
    }

    pub(crate) fn save_title(&mut self, store: &Store, session: &str, title: &str) -> Result<(), StoreError> {
        self.session(session).titles.push(title.to_owned());
        store.update(&session_id(session), SaveOptions::default(), |session| session.set_text("title", title))?;
        self.session(session).titles = vec![title.to_owned()];
        Ok(())
    }

    pub(crate) fn delete(&mut self, store: &Store, session: &str) -> Result<(), StoreError> {
        self.session(session).deleting = true;
        store.delete(&session_id(session))?;
        self.session(session).deleted = true;
        Ok(())
    }

    pub(crate) fn remove_run(&mut self, store: &Store, session: &str, run: &str) -> Result<(), StoreError> {
        self.run(session, run).removing = true;
        store.remove_run(&session_id(session), &run_id(run))?;
        self.run(session, run).removed = true;
        Ok(())
    }
}
