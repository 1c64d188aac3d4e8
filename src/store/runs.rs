//! Runs: begun with a durable prompt, appended to, ended with a durable, folded and saved answer.

use std::cell::RefCell;
use std::sync::Arc;

use super::read::Cached;
use super::regenerate::{Asked, Replaces};
use super::session_locks::SessionLock;
use super::sessions::check_length;
use super::{Change, Run, Shared, Store, StoreError};
use crate::journal::{
    JournalEvent, ReadOptions, Replay, ReplayLimits, RunEvents, RunJournal, RunReader, RunSummary, Segment,
    read_events, replay_session, runs_as_begun, segments, summarize, summarize_within,
};
use crate::limits::{LEASE_SECONDS_MAX, MESSAGE_ID_CHARS_MAX, MESSAGE_METADATA_BYTES_MAX};
use crate::model::{
    Cursor, List, ONLY_ATTACHMENTS, PendingTurn, RunId, Session, SessionId, TurnNote, shows_nothing, title_of,
};
use crate::recovery::{keep_unanswered, without_replaced};
use crate::sidecar::{SaveOptions, SidecarError};
use crate::storage::{Birth, Durability, ObjectKind, OpenedJournal, StorageError};

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
    /// The client's id of the message, of 1 to 256 characters.
    pub message_id: Option<String>,
    /// The client's metadata of the message: a JSON object of at most 32 KiB.
    pub metadata: Option<String>,
    /// The turn that it replaces, with all that follows it; none if it comes at the end.
    pub replaces: Option<Replaces>,
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

    /// The turn that gives another answer to the last question.
    pub fn last_answer_again() -> Self {
        UserTurn { replaces: Some(Replaces::LastAnswer), ..UserTurn::default() }
    }

    /// What is noted of it that the client gave.
    pub(super) fn note(&self) -> Result<TurnNote, StoreError> {
        let is_id =
            |id: &String| (1..=MESSAGE_ID_CHARS_MAX).contains(&id.chars().count()) && !id.chars().any(char::is_control);
        if !self.message_id.as_ref().is_none_or(is_id) {
            return Err(StoreError::BadMessageId { max: MESSAGE_ID_CHARS_MAX });
        }
        let metadata = self.metadata.as_deref().map(on_one_line);
        let is_object = |json: &String| {
            let parsed = serde_json::from_str::<std::collections::BTreeMap<String, serde::de::IgnoredAny>>(json);
            json.len() <= MESSAGE_METADATA_BYTES_MAX && parsed.is_ok()
        };
        if !metadata.as_ref().is_none_or(is_object) {
            return Err(StoreError::BadMetadata { max: MESSAGE_METADATA_BYTES_MAX });
        }
        Ok(TurnNote { message_id: self.message_id.clone(), metadata, ..TurnNote::default() })
    }

    /// Checks what can be told without the session. [`Store::begin_run`] refuses what this refuses.
    pub fn check(&self) -> Result<(), StoreError> {
        self.note()?;
        if self.replaces.is_none() {
            self.pending()?;
        }
        Ok(())
    }

    /// The words of the message. Where it shows nothing they name its attachments; a blank message without any is refused.
    pub fn words(&self) -> Result<&str, StoreError> {
        let attached = serde_json::from_str::<Vec<serde::de::IgnoredAny>>(self.attachments_list());
        let has_attachments = !attached.map_err(|_| StoreError::BadAttachments)?.is_empty();
        match shows_nothing(&self.message) {
            false => Ok(&self.message),
            true if has_attachments => Ok(ONLY_ATTACHMENTS),
            true => Err(StoreError::EmptyMessage),
        }
    }

    fn attachments_list(&self) -> &str {
        if self.attachments.is_empty() { "[]" } else { self.attachments.trim() }
    }

    pub(super) fn pending(&self) -> Result<PendingTurn, StoreError> {
        check_length("message", &self.message)?;
        let message = self.words()?.to_owned();
        if self.lease_seconds.is_some_and(|seconds| !(0.0..=LEASE_SECONDS_MAX).contains(&seconds)) {
            return Err(StoreError::BadLease { max: LEASE_SECONDS_MAX });
        }
        Ok(PendingTurn {
            message,
            attachments: self.attachments_list().to_owned(),
            started_at: None,
            source: self.source.clone(),
        })
    }
}

/// Gives a session without a title and without rows the first words of its first message as its title, in the same save as
/// the turn: a crash leaves both or neither. A title that a person gave stays.
fn title_untitled(document: &mut Session, message: &str) {
    let title = title_of(message);
    if document.is_untitled() && document.len(List::Messages) == 0 && !title.is_empty() {
        document.set_text("title", &title);
    }
}

/// JSON without what stands between its tokens on lines of their own: in a string no control character stands as it is.
fn on_one_line(json: &str) -> String {
    json.trim().chars().filter(|c| *c >= ' ').collect()
}

/// The part of a document that is left for the answer when a turn begins.
const ANSWER_PART: u64 = 16;

impl Store {
    /// Begins a turn: the user's message is durable, and the run is there to be appended to.
    ///
    /// A session without a title takes the first words of its first message as its title.
    ///
    /// What a crash leaves: a journal without events, which a repeat takes over; or that and the pending turn. A turn that is
    /// refused leaves nothing.
    pub fn begin_run(&self, session: &SessionId, turn: UserTurn) -> Result<Run, StoreError> {
        turn.check()?;
        let shared = &self.shared;
        let lock = shared.locks.of(session);
        let _alone = lock.document.lock();
        let mut document = shared.ready_for_turn(&lock, session)?;
        let run = shared.free_run(&document, &turn)?;
        let Asked { pending, note } = shared.asked(&document, &turn)?;
        let now = shared.clock.now();
        document.set_pending(&run, &pending, now);
        title_untitled(&mut document, &pending.message);
        shared.refuse_too_large(without_replaced(&document, &note).as_ref().unwrap_or(&document))?;
        let order = shared.next_order(&lock, &document)?;
        let (begun_at, lease_seconds) = (now.seconds(), turn.lease_seconds);
        let turn_note = Some(note).filter(|note| !note.is_empty());
        let birth = Birth { begun_at, lease_seconds, order: Some(order), turn: turn_note, ..Birth::default() };
        let opened = shared.storage.create_journal(session, &run, &birth)?;
        let saved = shared.save(&document, SaveOptions::default());
        if let Err(error) = saved {
            drop(opened);
            shared.take_back(session, &run);
            return Err(error);
        }
        lock.note_order(order);
        lock.open_runs().iter().for_each(|earlier| earlier.set_left(true));
        let journal = shared.new_journal(session, &run, opened);
        shared.note_open(&lock, &journal);
        let begun = shared.run(&lock, journal, turn.lease_seconds, None);
        shared.news.tell(&Change::Begun { session: session.clone(), run, order });
        Ok(begun)
    }

    /// Opens a run that was begun before, in this process or an earlier one.
    pub fn resume_run(&self, session: &SessionId, run: &RunId) -> Result<Run, StoreError> {
        let lock = self.shared.locks.of(session);
        let _alone = lock.document.lock();
        let was_open = lock.open_run(run).is_some();
        let journal = self.shared.open_journal(&lock, session, run)?;
        let birth = self.shared.storage.birth(session, run)?.unwrap_or_default();
        if !was_open {
            // Readers may have left it while it was closed.
            journal.set_left(true);
        }
        Ok(self.shared.run(&lock, journal, birth.lease_seconds, Some(birth.begun_at)))
    }

    /// Opens the journal of a run that no turn has begun, and creates it if it is not there. For importing what other
    /// programs recorded; the session itself need not be there.
    pub fn adopt_run(&self, session: &SessionId, run: &RunId) -> Result<Run, StoreError> {
        let shared = &self.shared;
        let lock = shared.locks.of(session);
        let _alone = lock.document.lock();
        let journal = match shared.open_journal(&lock, session, run) {
            Err(StoreError::RunNotFound { .. }) => {
                let birth = Birth { begun_at: shared.clock.now().seconds(), ..Birth::default() };
                let opened = shared.storage.create_journal(session, run, &birth)?;
                let journal = shared.new_journal(session, run, opened);
                shared.note_open(&lock, &journal);
                journal
            }
            opened => {
                let journal = opened?;
                // Readers may have left it while it was closed.
                journal.set_left(true);
                journal
            }
        };
        Ok(shared.run(&lock, journal, None, None))
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

    /// When a run began, in seconds, if that was noted.
    pub fn run_began_at(&self, session: &SessionId, run: &RunId) -> Result<Option<f64>, StoreError> {
        Ok(self.shared.storage.birth(session, run)?.map(|birth| birth.begun_at))
    }

    /// The runs of a session that have a journal.
    pub fn runs(&self, session: &SessionId) -> Result<Vec<RunId>, StoreError> {
        Ok(self.shared.storage.journals(session)?)
    }

    /// The same in the order in which they began.
    pub fn runs_as_begun(&self, session: &SessionId) -> Result<Vec<RunId>, StoreError> {
        Ok(runs_as_begun(&self.shared.storage, session)?)
    }

    /// The parts of a session's stream in their order: its runs, and where runs went on after another one had begun.
    pub fn segments(&self, session: &SessionId) -> Result<Vec<Segment>, StoreError> {
        Ok(segments(&self.shared.storage, session)?)
    }

    /// The events of all of a session's runs behind a cursor.
    pub fn replay(&self, session: &SessionId, cursor: Option<&Cursor>) -> Result<Replay, StoreError> {
        let (storage, limits) = (&self.shared.storage, ReplayLimits::default());
        self.shared.read_shown(session, |shown| replay_session(storage, session, cursor, limits, shown))
    }

    /// Moves a run's journal to the trash. Its id is not taken again. Refused while the run is not folded yet.
    pub fn remove_run(&self, session: &SessionId, run: &RunId) -> Result<(), StoreError> {
        let lock = self.shared.locks.of(session);
        let _alone = lock.document.lock();
        self.shared.refuse_unfolded(&lock, session, run)?;
        if let Some(open) = lock.open_run(run) {
            open.fence("it was removed");
        }
        let is_removed = self.shared.storage.remove_journal(session, run)?;
        self.shared.end_lease(session, run);
        self.shared.liveness.wake(session, run);
        match is_removed {
            true => Ok(()),
            false => Err(StoreError::RunNotFound { session: session.clone(), run: run.to_string() }),
        }
    }
}

impl Shared {
    /// Notes that a run's journal is open, and has its readers follow it.
    fn note_open(&self, lock: &SessionLock, journal: &Arc<RunJournal>) {
        lock.note_run(journal);
        self.liveness.wake(journal.session(), journal.run());
    }

    /// The id of a run that begins: none that anything in the session belongs to.
    fn free_run(&self, document: &Session, turn: &UserTurn) -> Result<RunId, StoreError> {
        let Some(run) = turn.run.clone() else { return Ok(RunId::fresh(&*self.entropy)) };
        // The branch of a failed attempt may be all that is left of what was asked.
        let names_branch = || self.storage.object_len(document.id(), ObjectKind::Branch, run.as_str());
        match document.mentions(&run) || names_branch()?.is_some() {
            true => Err(StoreError::RunTaken { session: document.id().clone(), run }),
            false => Ok(run),
        }
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
        self.shown_of(&self.locks.of(session), run)
    }

    fn shown_of(&self, lock: &SessionLock, run: &RunId) -> Option<u64> {
        let open = lock.open_run(run)?;
        match self.options.durability {
            Durability::Durable => Some(open.shown_extent()),
            Durability::Buffered => open.hidden_end(),
        }
    }

    /// Reads no further than may be shown. A run that is opened or ends meanwhile may hold events that may not be: then it is
    /// read again.
    pub(super) fn read_shown<T>(
        &self,
        session: &SessionId,
        read: impl Fn(&dyn Fn(&RunId) -> Option<u64>) -> Result<T, StorageError>,
    ) -> Result<T, StoreError> {
        let lock = self.locks.of(session);
        loop {
            let read_whole = RefCell::new(Vec::new());
            let found = read(&|run| {
                let shown = self.shown_of(&lock, run);
                if shown.is_none() {
                    read_whole.borrow_mut().push(run.clone());
                }
                shown
            })?;
            if read_whole.into_inner().iter().all(|run| self.shown_of(&lock, run).is_none()) {
                return Ok(found);
            }
        }
    }

    /// From which place on a run's journal is not to be shown yet.
    pub(super) fn hidden_from(&self, lock: &SessionLock, run: &RunId) -> u64 {
        self.shown_of(lock, run).unwrap_or(u64::MAX)
    }

    /// Keeps a journal open, so that what its followers must not see stays hidden.
    pub(super) fn keep_hidden(&self, lock: &Arc<SessionLock>, journal: &Arc<RunJournal>) {
        let mut hidden = self.hidden.lock();
        if !hidden.iter().any(|(_, known)| Arc::ptr_eq(known, journal)) {
            hidden.push((lock.clone(), journal.clone()));
        }
    }

    /// Shows followers the end of a run, which is durable and whose answer is saved.
    pub(super) fn show_saved_end(&self, lock: &SessionLock, run: &RunId) {
        let Some(journal) = lock.open_run(run).filter(|journal| journal.seal().is_sealed()) else { return };
        journal.show_end();
        self.hidden.lock().retain(|(_, known)| !Arc::ptr_eq(known, &journal));
    }

    /// The journal of a run, the one that is open if there is one: a journal has one writer.
    pub(super) fn open_journal(
        &self,
        lock: &Arc<SessionLock>,
        session: &SessionId,
        run: &RunId,
    ) -> Result<Arc<RunJournal>, StoreError> {
        let failed = match lock.open_run(run) {
            Some(open) if !open.has_failed() => return Ok(open),
            failed => failed,
        };
        let opened = self.storage.open_journal(session, run)?;
        let journal = self.new_journal(session, run, opened);
        if let Some(failed) = failed {
            journal.set_left(failed.is_left());
            self.hide_as_before(lock, &journal, &failed);
        }
        self.note_open(lock, &journal);
        Ok(journal)
    }

    /// Hides from followers what was hidden when a journal failed that was opened again.
    fn hide_as_before(&self, lock: &Arc<SessionLock>, journal: &Arc<RunJournal>, failed: &Arc<RunJournal>) {
        if let Some(place) = failed.hidden_end().filter(|_| journal.seal().is_sealed()) {
            journal.hide_end_from(place);
            self.keep_hidden(lock, journal);
        }
        self.hidden.lock().retain(|(_, known)| !Arc::ptr_eq(known, failed));
    }

    fn new_journal(&self, session: &SessionId, run: &RunId, opened: OpenedJournal) -> Arc<RunJournal> {
        RunJournal::new(session, run, opened, self.clock.clone(), self.open_files.clone(), self.meter())
    }

    /// A run's journal goes only when its session holds what it says. What can be resolved is resolved first.
    fn refuse_unfolded(&self, lock: &Arc<SessionLock>, session: &SessionId, run: &RunId) -> Result<(), StoreError> {
        let read = match self.resolve_alone(lock, session) {
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
    pub(super) fn ready_for_turn(&self, lock: &Arc<SessionLock>, session: &SessionId) -> Result<Session, StoreError> {
        let read = self.resolve_alone(lock, session)?;
        let Some(active) = read.session.active_run() else { return self.keep_prompt(&read.session) };
        let busy = || StoreError::RunInProgress { session: session.clone(), run: active.to_string() };
        let Ok(run) = RunId::parse(&active) else { return self.keep_prompt(&read.session) };
        let is_sealed = summarize(&self.storage, session, &run)?.is_some_and(|summary| summary.seal.is_sealed());
        if !is_sealed && !self.is_dead(lock, &read.session) {
            return Err(busy());
        }
        if self.settle(session, &run)? {
            self.meter().recoveries.folded.add(1);
        }
        self.read(session).map(|read| (*read.session).clone())
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
