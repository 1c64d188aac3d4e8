//! Runs: begun with a durable prompt, appended to, ended with a durable, folded and saved answer.

use std::cell::RefCell;
use std::slice;
use std::sync::Arc;

use super::again::{Again, Room, make_room};
use super::gates::Gate;
use super::read::Cached;
use super::sessions::check_length;
use super::{Change, Shared, Store, StoreError};
use crate::journal::{
    AppendError, Appended, JournalEvent, ReadOptions, Replay, ReplayLimits, RunEvents, RunJournal, RunReader,
    RunSummary, read_events, replay_session, runs_as_begun, summarize, summarize_within,
};
use crate::limits::LEASE_SECONDS_MAX;
use crate::model::{Cursor, Event, PendingTurn, RunId, Session, SessionId};
use crate::recovery::keep_unanswered;
use crate::sidecar::{SaveIntent, SaveOptions, SidecarError};
use crate::storage::{Birth, Durability, OpenedJournal, StorageError, Ticket};

/// What a user says, to be answered by a run.
#[derive(Debug, Clone, Default)]
pub struct UserTurn {
    /// The message.
    pub message: String,
    /// The run's id; a fresh one if none is given.
    pub run: Option<RunId>,
    /// Attachments, a JSON list; empty for none.
    pub attachments: String,
    /// Where the message came from, unless it is the web UI.
    pub source: Option<String>,
    /// For how long after its last append an outside producer counts as alive.
    pub lease_seconds: Option<f64>,
    /// Whether it was asked before and is to be answered anew: it and everything behind it leave the transcript with the
    /// save that begins this turn. The version with them is kept.
    pub again: Option<Again>,
}

impl UserTurn {
    /// A message without attachments, answered by a run with a fresh id.
    pub fn text(message: &str) -> Self {
        UserTurn { message: message.to_owned(), ..UserTurn::default() }
    }

    /// The same turn, answered by a run with an id of the caller's choice.
    pub fn with_run(self, run: RunId) -> Self {
        UserTurn { run: Some(run), ..self }
    }

    fn pending(&self) -> Result<PendingTurn, StoreError> {
        check_length("message", &self.message)?;
        if self.message.is_empty() {
            return Err(StoreError::EmptyMessage);
        }
        let attachments = if self.attachments.is_empty() { "[]" } else { self.attachments.trim() };
        if serde_json::from_str::<Vec<serde::de::IgnoredAny>>(attachments).is_err() {
            return Err(StoreError::BadAttachments);
        }
        if self.lease_seconds.is_some_and(|seconds| !(0.0..=LEASE_SECONDS_MAX).contains(&seconds)) {
            return Err(StoreError::BadLease { max: LEASE_SECONDS_MAX });
        }
        Ok(PendingTurn {
            message: self.message.clone(),
            attachments: attachments.to_owned(),
            started_at: None,
            source: self.source.clone(),
        })
    }
}

/// The part of a document that is left for the answer when a turn begins.
const ANSWER_PART: u64 = 16;

/// How a run ends.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The answer is complete.
    Completed,
    /// The user stopped it. What arrived is kept.
    Stopped,
    /// It failed. What arrived is kept.
    Failed {
        /// A word for programs.
        kind: String,
        /// A sentence for people.
        message: String,
    },
}

impl Outcome {
    fn event(&self) -> Event {
        match self {
            Outcome::Completed => Event::done(),
            Outcome::Stopped => Event::cancel(),
            Outcome::Failed { kind, message } => Event::error(kind, message),
        }
    }
}

/// A run that is open for events. Clones are the same run.
#[derive(Debug, Clone)]
pub struct Run {
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    journal: Arc<RunJournal>,
    /// For how long its producer counts as alive after a sign of life, if it is outside of this process.
    lease: Option<Arc<LeaseHold>>,
}

/// Notes the last sign of life of a producer outside when the last handle to its run goes.
#[derive(Debug)]
struct LeaseHold {
    shared: Arc<Shared>,
    journal: Arc<RunJournal>,
    seconds: f64,
}

impl LeaseHold {
    fn renew(&self) {
        self.shared.gates.renew_lease(self.journal.session(), self.journal.run(), self.seconds);
    }
}

impl Drop for LeaseHold {
    fn drop(&mut self) {
        let gate = self.shared.gates.of(self.journal.session());
        match gate.lease(self.journal.run()) {
            Some(lease) if !self.journal.seal().is_sealed() => gate.renew_lease(self.journal.run(), lease),
            _ => {}
        }
    }
}

impl Run {
    /// Its id.
    pub fn id(&self) -> &RunId {
        self.journal.run()
    }

    /// Its session.
    pub fn session(&self) -> &SessionId {
        self.journal.session()
    }

    /// The number of its last event.
    pub fn last_seq(&self) -> u64 {
        self.journal.last_seq()
    }

    /// Whether it has ended.
    pub fn is_sealed(&self) -> bool {
        self.journal.seal().is_sealed()
    }

    /// For how long its producer counts as alive after a sign of life, if it is outside of this process.
    pub fn lease_seconds(&self) -> Option<f64> {
        self.lease.as_ref().map(|lease| lease.seconds)
    }

    /// Calls back, once, when the run has ended, whoever ended it, or takes no more events because its session was deleted
    /// or its journal failed. At once if that was before. The call must not wait, and must not use the store.
    pub fn on_end(&self, tell: impl FnOnce() + Send + 'static) {
        self.journal.on_end(tell);
    }

    /// Appends an event. When this returns, it survives the death of the process, or a power cut if the store's options
    /// ask for that; an event that ends the run is durable, folded and saved by then.
    #[inline]
    pub fn append(&self, event: Event) -> Result<Appended, StoreError> {
        match self.shared.options.durability {
            Durability::Buffered => self.append_all(slice::from_ref(&event), Durability::Buffered),
            Durability::Durable => self.append_and_wait(&event),
        }
    }

    fn append_and_wait(&self, event: &Event) -> Result<Appended, StoreError> {
        let appended = self.append_all(slice::from_ref(event), Durability::Durable)?;
        appended.ticket.clone().wait()?;
        Ok(appended)
    }

    /// Appends an event that is to survive a power cut: wait for its ticket.
    pub fn append_durable(&self, event: Event) -> Result<Appended, StoreError> {
        self.append_all(&[event], Durability::Durable)
    }

    /// Appends events with one write. If one cannot be taken, none is. Only the last may end the run, or a `done` with
    /// its `stream_end` behind it.
    ///
    /// A store that is told to be durable shows nothing before it is: there a buffered append returns at once too, and is
    /// shown when it is durable.
    pub fn append_all(&self, events: &[Event], durability: Durability) -> Result<Appended, StoreError> {
        if events.iter().any(|event| event.terminal_state().is_some()) {
            return self.append_end(events);
        }
        match self.shared.options.durability {
            Durability::Buffered => Ok(self.journal.append(events, durability)?),
            Durability::Durable => self.append_to_durable(events),
        }
    }

    fn append_to_durable(&self, events: &[Event]) -> Result<Appended, StoreError> {
        let appended = self.journal.append(events, Durability::Durable)?;
        let (shared, gate, journal) = (Arc::downgrade(&self.shared), self.gate.clone(), self.journal.clone());
        appended.ticket.when_settled(move |is_durable| {
            // What is not durable stays hidden for as long as the store is open.
            if let Some(shared) = shared.upgrade().filter(|_| !is_durable) {
                shared.keep_hidden(&gate, &journal);
            }
        });
        Ok(appended)
    }

    /// Says that the producer is alive although it has nothing to append. Only a producer with a lease needs to.
    pub fn renew_lease(&self) {
        if let Some(lease) = &self.lease {
            lease.renew();
        }
    }

    /// Followers are shown the end when it is durable and the answer is saved. Until then the journal is held open: the next
    /// read, a repeat, or a follower who asks whether the run is over saves it.
    fn append_end(&self, events: &[Event]) -> Result<Appended, StoreError> {
        let _alone = self.gate.document.lock();
        let appended = self.append_durably(events).and_then(|appended| {
            self.gate.end_lease(self.id());
            self.shared.settle(self.session(), self.id())?;
            Ok(appended)
        });
        match &appended {
            Ok(_) => self.shared.show_saved_end(&self.gate, self.id()),
            Err(_) if self.journal.hidden_end().is_some() => self.shared.keep_hidden(&self.gate, &self.journal),
            Err(_) => {}
        }
        appended
    }

    fn append_durably(&self, events: &[Event]) -> Result<Appended, StoreError> {
        let appended = self.journal.append(events, Durability::Durable)?;
        appended.ticket.clone().wait()?;
        Ok(appended)
    }

    /// Ends the run: sealed, folded into the transcript, saved. If an earlier call sealed it and could not save, this
    /// one saves, and the earlier outcome stands.
    pub fn finish(&self, outcome: Outcome) -> Result<Appended, StoreError> {
        match self.append(outcome.event()) {
            Err(StoreError::Append(AppendError::Sealed { .. })) if self.settle_again()? => {
                let last_seq = self.last_seq();
                Ok(Appended { first_seq: last_seq, last_seq, ticket: Ticket::buffered() })
            }
            finished => finished,
        }
    }

    fn settle_again(&self) -> Result<bool, StoreError> {
        let _alone = self.gate.document.lock();
        self.shared.save_end(&self.gate, self.session(), self.id())
    }

    /// The run's events as its producer knows them: those too that followers are not shown yet.
    pub fn own_events(&self, options: ReadOptions) -> Result<RunEvents, StoreError> {
        Ok(read_events(&self.shared.storage, self.session(), self.id(), options, None)?)
    }
}

impl Store {
    /// Begins a turn: the user's message is durable, and the run is there to be appended to.
    ///
    /// What a crash leaves: a journal without events, which a repeat takes over; or that and the pending turn. A turn that is
    /// refused leaves nothing.
    pub fn begin_run(&self, session: &SessionId, turn: UserTurn) -> Result<Run, StoreError> {
        let pending = turn.pending()?;
        let shared = &self.shared;
        let gate = shared.gates.of(session);
        let _alone = gate.document.lock();
        let mut document = shared.ready_for_turn(&gate, session)?;
        let run = turn.run.clone().unwrap_or_else(|| RunId::fresh(&*shared.entropy));
        if document.mentions(&run) {
            return Err(StoreError::RunTaken { session: session.clone(), run });
        }
        let now = shared.clock.now();
        let birth = Birth { begun_at: now.seconds(), lease_seconds: turn.lease_seconds, ..Birth::default() };
        let intent = shared.make_room(&mut document, &turn)?;
        document.set_pending(&run, &pending, now);
        shared.refuse_too_large(&document)?;
        let opened = shared.storage.create_journal(session, &run, &birth)?;
        let saved = shared.save(&document, SaveOptions { intent, ..SaveOptions::default() });
        if let Err(error) = saved {
            drop(opened);
            shared.take_back(session, &run);
            return Err(error);
        }
        let journal = shared.new_journal(session, &run, opened);
        gate.note_run(&journal);
        let begun = shared.run(&gate, journal, turn.lease_seconds);
        shared.news.tell(&Change::Begun(session.clone(), run));
        Ok(begun)
    }

    /// Opens a run that was begun before, in this process or an earlier one.
    pub fn resume_run(&self, session: &SessionId, run: &RunId) -> Result<Run, StoreError> {
        let gate = self.shared.gates.of(session);
        let _alone = gate.document.lock();
        let journal = self.shared.open_journal(&gate, session, run)?;
        let lease_seconds = self.shared.storage.birth(session, run)?.and_then(|birth| birth.lease_seconds);
        Ok(self.shared.run(&gate, journal, lease_seconds))
    }

    /// Stops a run, whoever produces it: it ends as stopped, what arrived is kept, and its producer's next append is
    /// refused. `false` if it had ended before.
    pub fn stop_run(&self, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        let open = self.resume_run(session, run)?;
        let had_ended = open.is_sealed();
        match open.finish(Outcome::Stopped) {
            // It ended by itself before this could, and is saved.
            Err(StoreError::Append(AppendError::Sealed { .. })) => Ok(false),
            stopped => stopped.map(|_| !had_ended),
        }
    }

    /// Opens the journal of a run that no turn has begun, and creates it if it is not there. For importing what other
    /// programs recorded; the session itself need not be there.
    pub fn adopt_run(&self, session: &SessionId, run: &RunId) -> Result<Run, StoreError> {
        let shared = &self.shared;
        let gate = shared.gates.of(session);
        let _alone = gate.document.lock();
        let journal = match shared.open_journal(&gate, session, run) {
            Err(StoreError::RunNotFound { .. }) => {
                let birth = Birth { begun_at: shared.clock.now().seconds(), ..Birth::default() };
                let opened = shared.storage.create_journal(session, run, &birth)?;
                let journal = shared.new_journal(session, run, opened);
                gate.note_run(&journal);
                journal
            }
            opened => opened?,
        };
        Ok(shared.run(&gate, journal, None))
    }

    /// A run's events one at a time, for journals too large to hold.
    pub fn events(&self, session: &SessionId, run: &RunId, options: ReadOptions) -> Result<RunReader, StoreError> {
        let reader = RunReader::open(&self.shared.storage, session, run, options)?;
        let reader = reader.map(|reader| reader.up_to(self.shared.shown(session, run)));
        reader.ok_or_else(|| StoreError::RunNotFound { session: session.clone(), run: run.to_string() })
    }

    /// A run's events, each once, and the damage in its journal.
    pub fn read_events(&self, session: &SessionId, run: &RunId, options: ReadOptions) -> Result<RunEvents, StoreError> {
        let storage = &self.shared.storage;
        self.shared.read_shown(session, |shown| read_events(storage, session, run, options, shown(run)))
    }

    /// What a run's journal says of the run; nothing if it has none.
    pub fn run_summary(&self, session: &SessionId, run: &RunId) -> Result<Option<RunSummary>, StoreError> {
        let storage = &self.shared.storage;
        self.shared.read_shown(session, |shown| summarize_within(storage, session, run, shown(run)))
    }

    /// Whether a session has a run of this id, with a journal.
    pub fn has_run(&self, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        Ok(self.shared.storage.journal_len(session, run)?.is_some())
    }

    /// The runs of a session that have a journal.
    pub fn runs(&self, session: &SessionId) -> Result<Vec<RunId>, StoreError> {
        Ok(self.shared.storage.journals(session)?)
    }

    /// The same in the order in which they began.
    pub fn runs_as_begun(&self, session: &SessionId) -> Result<Vec<RunId>, StoreError> {
        Ok(runs_as_begun(&self.shared.storage, session)?)
    }

    /// The events of all of a session's runs behind a cursor.
    pub fn replay(&self, session: &SessionId, cursor: Option<&Cursor>) -> Result<Replay, StoreError> {
        let (storage, limits) = (&self.shared.storage, ReplayLimits::default());
        self.shared.read_shown(session, |shown| replay_session(storage, session, cursor, limits, shown))
    }

    /// Moves a run's journal to the trash. Its id is not taken again. Refused while the run is not folded yet.
    pub fn remove_run(&self, session: &SessionId, run: &RunId) -> Result<(), StoreError> {
        let gate = self.shared.gates.of(session);
        let _alone = gate.document.lock();
        self.shared.refuse_unfolded(&gate, session, run)?;
        if let Some(open) = gate.open_run(run) {
            open.fence("it was removed");
        }
        match self.shared.storage.remove_journal(session, run)? {
            true => Ok(()),
            false => Err(StoreError::RunNotFound { session: session.clone(), run: run.to_string() }),
        }
    }
}

impl Shared {
    fn run(self: &Arc<Self>, gate: &Arc<Gate>, journal: Arc<RunJournal>, lease_seconds: Option<f64>) -> Run {
        let hold = |seconds| LeaseHold { shared: self.clone(), journal: journal.clone(), seconds };
        let lease = lease_seconds.map(|seconds| Arc::new(hold(seconds)));
        let run = Run { shared: self.clone(), gate: gate.clone(), journal, lease };
        run.renew_lease();
        run
    }

    /// Refuses a turn whose document leaves too little room for an answer.
    fn refuse_too_large(&self, document: &Session) -> Result<(), StoreError> {
        let max = self.options.document_bytes_max;
        let (bytes, max) = (document.json_bytes(), max - max / ANSWER_PART);
        if bytes > max {
            return Err(SidecarError::TooLarge { session: document.id().clone(), bytes, max }.into());
        }
        Ok(())
    }

    /// Takes back a journal whose turn could not be saved, unless it was: a failure may come after that.
    fn take_back(&self, session: &SessionId, run: &RunId) {
        let is_saved = |read: Arc<Cached>| read.session.active_run().as_deref() == Some(run.as_str());
        if self.read(session).is_ok_and(|read| !is_saved(read)) {
            // If that fails too, the journal is as empty as after a crash here.
            let _ = self.storage.discard_journal(session, run);
        }
    }

    /// How far a run may be shown, if not all of it: a store that is told to be durable shows nothing that a power cut could
    /// take back, and no store shows the end of an answer that is not saved.
    fn shown(&self, session: &SessionId, run: &RunId) -> Option<u64> {
        self.shown_of(&self.gates.of(session), run)
    }

    fn shown_of(&self, gate: &Gate, run: &RunId) -> Option<u64> {
        let open = gate.open_run(run)?;
        match self.options.durability {
            Durability::Durable => Some(open.shown_extent()),
            Durability::Buffered => open.hidden_end(),
        }
    }

    /// Reads no further than may be shown. A run that is opened or ends meanwhile may hold events that may not be: then it is
    /// read again.
    fn read_shown<T>(
        &self,
        session: &SessionId,
        read: impl Fn(&dyn Fn(&RunId) -> Option<u64>) -> Result<T, StorageError>,
    ) -> Result<T, StoreError> {
        let gate = self.gates.of(session);
        loop {
            let read_whole = RefCell::new(Vec::new());
            let found = read(&|run| {
                let shown = self.shown_of(&gate, run);
                if shown.is_none() {
                    read_whole.borrow_mut().push(run.clone());
                }
                shown
            })?;
            if read_whole.into_inner().iter().all(|run| self.shown_of(&gate, run).is_none()) {
                return Ok(found);
            }
        }
    }

    /// From which place on a run's journal is not to be shown yet.
    pub(super) fn hidden_from(&self, gate: &Gate, run: &RunId) -> u64 {
        self.shown_of(gate, run).unwrap_or(u64::MAX)
    }

    /// Keeps a journal open, so that what its followers must not see stays hidden.
    pub(super) fn keep_hidden(&self, gate: &Arc<Gate>, journal: &Arc<RunJournal>) {
        let mut hidden = self.hidden.lock();
        if !hidden.iter().any(|(_, known)| Arc::ptr_eq(known, journal)) {
            hidden.push((gate.clone(), journal.clone()));
        }
    }

    /// Shows followers the end of a run, which is durable and whose answer is saved.
    pub(super) fn show_saved_end(&self, gate: &Gate, run: &RunId) {
        let Some(journal) = gate.open_run(run).filter(|journal| journal.seal().is_sealed()) else { return };
        journal.show_end();
        self.hidden.lock().retain(|(_, known)| !Arc::ptr_eq(known, &journal));
    }

    /// The journal of a run, the one that is open if there is one: a journal has one writer.
    pub(super) fn open_journal(
        &self,
        gate: &Arc<Gate>,
        session: &SessionId,
        run: &RunId,
    ) -> Result<Arc<RunJournal>, StoreError> {
        let failed = match gate.open_run(run) {
            Some(open) if !open.has_failed() => return Ok(open),
            failed => failed,
        };
        let opened = self.storage.open_journal(session, run)?;
        let journal = self.new_journal(session, run, opened);
        if let Some(failed) = failed {
            self.hide_as_before(gate, &journal, &failed);
        }
        gate.note_run(&journal);
        Ok(journal)
    }

    /// Hides from followers what was hidden when a journal failed that was opened again.
    fn hide_as_before(&self, gate: &Arc<Gate>, journal: &Arc<RunJournal>, failed: &Arc<RunJournal>) {
        if let Some(place) = failed.hidden_end().filter(|_| journal.seal().is_sealed()) {
            journal.hide_end_from(place);
            self.keep_hidden(gate, journal);
        }
        self.hidden.lock().retain(|(_, known)| !Arc::ptr_eq(known, failed));
    }

    fn new_journal(&self, session: &SessionId, run: &RunId, opened: OpenedJournal) -> Arc<RunJournal> {
        RunJournal::new(session, run, opened, self.clock.clone(), self.open_files.clone(), self.meter())
    }

    /// A run's journal goes only when its session holds what it says. What can be resolved is resolved first.
    fn refuse_unfolded(&self, gate: &Arc<Gate>, session: &SessionId, run: &RunId) -> Result<(), StoreError> {
        let read = match self.resolve_alone(gate, session) {
            Err(StoreError::NotFound { .. }) => return Ok(()),
            read => read?,
        };
        if read.session.active_run().as_deref() == Some(run.as_str()) {
            return Err(StoreError::RunInProgress { session: session.clone(), run: run.to_string() });
        }
        match read.watch.armed.iter().any(|retry| retry.run == run.as_str()) {
            true => Err(StoreError::RunNotFolded { session: session.clone(), run: run.clone() }),
            false => Ok(()),
        }
    }

    /// The session, with no run unfinished. One that is dead is recovered first, as by any full read; one that ended but
    /// was not folded before a crash is folded now.
    fn ready_for_turn(&self, gate: &Arc<Gate>, session: &SessionId) -> Result<Session, StoreError> {
        let read = self.resolve_alone(gate, session)?;
        let Some(active) = read.session.active_run() else { return self.keep_prompt(&read.session) };
        let busy = || StoreError::RunInProgress { session: session.clone(), run: active.to_string() };
        let Ok(run) = RunId::parse(&active) else { return self.keep_prompt(&read.session) };
        let is_sealed = summarize(&self.storage, session, &run)?.is_some_and(|summary| summary.seal.is_sealed());
        if !is_sealed && !self.is_dead(gate, &read.session) {
            return Err(busy());
        }
        if self.settle(session, &run)? {
            self.meter().recoveries.folded.add(1);
        }
        self.read(session).map(|read| (*read.session).clone())
    }

    /// Takes out what is to be answered anew, and says what the save that begins the turn means to do.
    fn make_room(&self, session: &mut Session, turn: &UserTurn) -> Result<SaveIntent, StoreError> {
        let Some(again) = turn.again else { return Ok(SaveIntent::Keep) };
        let id = session.id().clone();
        let room = make_room(session, &turn.message, again);
        match room.map_err(|source| StoreError::WrongShape { session: id.clone(), source })? {
            Room::Made => Ok(SaveIntent::Shrink),
            Room::NotNeeded => Ok(SaveIntent::Keep),
            Room::NotThere => Err(StoreError::NotAsked { session: id }),
        }
    }

    /// A prompt that no run was ever begun for stays in the transcript when the next one comes.
    fn keep_prompt(&self, session: &Session) -> Result<Session, StoreError> {
        let mut session = session.clone();
        let kept = keep_unanswered(&mut session, self.clock.now());
        kept.map_err(|source| StoreError::WrongShape { session: session.id().clone(), source })?;
        Ok(session)
    }
}

impl JournalEvent {
    /// The id that clients resume from.
    pub fn event_id(&self, run: &RunId) -> String {
        format!("{run}:{}", self.seq.unwrap_or(0))
    }
}
