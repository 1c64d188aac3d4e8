//! Following a run: what its journal holds, then what is added, until it ends. A slow follower reads from the journal
//! at its own pace; nothing is held in memory for it, and the writer does not know it.

use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

use super::liveness::{Examined, Liveness, Seen, Waiting};
use super::session_locks::SessionLock;
use super::{Store, StoreError};
use crate::format::{EventRef, Record};
use crate::journal::{AppendWaker, Attached, JournalEvent, JournalReader, TerminalScan, own_events};
use crate::limits::FOLLOW_CHUNK_BYTES;
use crate::model::{RunEnd, RunId, RunState, SeenSeqs, SessionId};
use crate::storage::{Seal, StorageError};

/// How often a run is examined on a disk that is driven by hand.
const BY_HAND_RECHECK: Duration = Duration::from_millis(20);

/// Where a follower begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// With the first event.
    Start,
    /// After the event of this number.
    Seq(u64),
}

/// The events of a run as they come. Ends when the run is over: see [`Follow::ended`].
#[derive(Debug)]
pub struct Follow {
    store: Store,
    session: SessionId,
    run: RunId,
    lock: Arc<SessionLock>,
    reader: Option<JournalReader>,
    /// Where it goes on reading if it has closed its file.
    resting_at: Option<u64>,
    /// From where on what was read may not be shown.
    hidden_from: u64,
    signal: Arc<Signal>,
    /// Called when there may be more to read.
    waker: AppendWaker,
    /// The tie to the run's journal while it is written in this process.
    attached: Option<Attached>,
    /// The tie to the store's timer while it waits.
    waiting: Option<Waiting>,
    after_seq: u64,
    last_seq: u64,
    seen: SeenSeqs,
    /// How the run ended, as far as this reader has come.
    end: TerminalScan,
    has_failed: bool,
}

/// Whether a blocking reader was woken.
#[derive(Debug, Default)]
struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until it is set, at most this long, and resets it.
    fn wait(&self, limit: Duration) {
        let mut is_set = self.is_set.lock();
        if !*is_set {
            self.changed.wait_for(&mut is_set, limit);
        }
        *is_set = false;
    }
}

impl Store {
    /// Follows a run that this or another process writes.
    pub fn follow(&self, session: &SessionId, run: &RunId, after: After) -> Result<Follow, StoreError> {
        self.follow_at(session, run, after, 0)
    }

    /// The same, by a reader that has read up to this place of the journal, where a line begins: [`Follow::read_to`].
    pub fn follow_at(&self, session: &SessionId, run: &RunId, after: After, offset: u64) -> Result<Follow, StoreError> {
        let lock = self.shared.locks.of(session);
        self.shared.save_or_hide_end(&lock, session, run)?;
        let reader = match after {
            // Numbers of other programs may be in any order.
            After::Seq(seq @ 1..) if offset == 0 && self.shared.storage.birth(session, run)?.is_some() => {
                JournalReader::open_before(&self.shared.storage, session, run, seq)?.map(small)
            }
            _ => open_reader(self, session, run, offset)?,
        };
        if reader.is_none() {
            return Err(StoreError::RunNotFound { session: session.clone(), run: run.to_string() });
        }
        let signal = Arc::new(Signal::default());
        let waker = AppendWaker(Arc::new({
            let signal = signal.clone();
            move || signal.set()
        }));
        Ok(Follow {
            store: self.clone(),
            lock,
            session: session.clone(),
            run: run.clone(),
            reader,
            resting_at: None,
            hidden_from: u64::MAX,
            signal,
            waker,
            attached: None,
            waiting: None,
            after_seq: if let After::Seq(seq) = after { seq } else { 0 },
            last_seq: 0,
            seen: SeenSeqs::default(),
            end: TerminalScan::default(),
            has_failed: false,
        })
    }
}

impl Follow {
    /// The next event if there is one now. `None` means not yet, or never: see [`Follow::ended`].
    pub fn poll(&mut self) -> Result<Option<JournalEvent>, StoreError> {
        self.poll_as(|event| event.into())
    }

    /// The same, as whatever the caller makes of it.
    pub(crate) fn poll_as<T>(&mut self, make: impl Fn(&EventRef<'_>) -> T) -> Result<Option<T>, StoreError> {
        loop {
            // How far may be read is asked once a read, not for each event.
            while let Some(record) = self.reader.as_mut().and_then(JournalReader::next_read) {
                let Record::Event(event) = record else { continue };
                if event.offset >= self.hidden_from {
                    // The run was opened meanwhile, and this is not to be seen yet.
                    (self.resting_at, self.reader) = (Some(event.offset), None);
                    return Ok(None);
                }
                self.end.add(&event);
                self.last_seq = self.last_seq.max(event.seq.unwrap_or(0));
                let is_new = event.seq.is_none_or(|seq| self.seen.insert(seq));
                if is_new && event.seq.is_none_or(|seq| seq > self.after_seq) {
                    return Ok(Some(make(&event)));
                }
            }
            if !self.read_on()? {
                return Ok(None);
            }
        }
    }

    /// Reads on as far as may be read. `false` when there is no more yet.
    fn read_on(&mut self) -> Result<bool, StoreError> {
        let extent = self.visible_extent();
        self.wake_reader()?;
        let Some(reader) = &mut self.reader else { return Ok(false) };
        let has_more = reader.read_on(extent)?;
        let is_unbounded = extent == u64::MAX;
        self.hidden_from = if is_unbounded { self.store.shared.hidden_from(&self.lock, &self.run) } else { extent };
        Ok(has_more)
    }

    /// The highest number of an event that it has come across, given or not.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Whether it has come across an event that ends the run, given or not.
    pub fn is_sealed(&self) -> bool {
        self.end.seal != Seal::Open
    }

    /// How far it has read the journal. After a [`Follow::poll`] that had nothing, a line begins there, or will.
    pub fn read_to(&self) -> u64 {
        self.reader.as_ref().map_or(self.resting_at.unwrap_or(0), JournalReader::read_to)
    }

    /// Gives everything from here on, whatever was passed over before.
    pub fn pass_over_nothing(&mut self) {
        self.after_seq = 0;
    }

    /// Has this called whenever there may be more to read or the run may be over, instead of [`Follow::wait`]. The call must
    /// neither wait nor use the store. From now on the reader waits for the run: if it is orphaned, it is sealed.
    pub fn wake_with(&mut self, wake: Arc<dyn Fn() + Send + Sync>) -> Result<(), StoreError> {
        (self.waker, self.attached, self.waiting) = (AppendWaker(wake), None, None);
        self.begin_to_wait()
    }

    /// Registers with the store's timer, which wakes this reader when the run may be over.
    fn begin_to_wait(&mut self) -> Result<(), StoreError> {
        if self.waiting.is_none() {
            self.waiting = Some(self.store.wait_for(&self.session, &self.run, self.waker.clone())?);
        }
        Ok(())
    }

    /// Closes its file and frees its memory until the next look. What was read and not given out yet is read again.
    pub fn rest(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.resting_at = Some(reader.resume_at());
        }
    }

    fn wake_reader(&mut self) -> Result<(), StoreError> {
        if let Some(offset) = self.resting_at.take() {
            self.reader = open_reader(&self.store, &self.session, &self.run, offset)?;
        }
        Ok(())
    }

    /// How the run ended, for a reader to whom [`Follow::poll`] had nothing to give; none while more may come. An orphaned
    /// run that can be sealed goes on until the store's timer has sealed it for the readers that wait.
    pub fn ended(&mut self) -> Result<Option<RunState>, StoreError> {
        if self.is_sealed() {
            // After `done` one more event may come, and this reader does not wait for it.
            let is_over = self.end.seal == Seal::Closed || self.leave();
            return if is_over { self.state_at_end().map(Some) } else { Ok(None) };
        }
        let shared = &self.store.shared;
        if !shared.storage.can_write() {
            return shared.end_for_reader(&self.session, &self.run);
        }
        if let Some(failure) = shared.liveness.take_failure(&self.session, &self.run) {
            return Err(failure);
        }
        let state = match shared.liveness_seen(&self.lock, &self.session, &self.run, Seen::NoEnd)? {
            Liveness::Gone => RunState::Gone,
            Liveness::Foreign => RunState::Foreign,
            Liveness::Orphaned if !shared.can_seal(&self.session, &self.run)? => RunState::Orphaned,
            Liveness::Orphaned | Liveness::Live { .. } | Liveness::Sealed => return Ok(None),
        };
        Ok(Some(state).filter(|_| self.leave()))
    }

    /// How a run ended whose end this reader has come across.
    fn state_at_end(&self) -> Result<RunState, StoreError> {
        let decided = self.end.terminal.as_ref().and_then(|terminal| RunEnd::parse(&terminal.state));
        // Only another program seals a journal with an event that does not say how.
        Ok(self.end_before()?.or(decided).map_or(RunState::Foreign, RunState::Ended))
    }

    /// How the `done` ended the run that stands before a `stream_end`, where this reader began to read after the `done`.
    fn end_before(&self) -> Result<Option<RunEnd>, StoreError> {
        let terminal = self.end.terminal.as_ref().filter(|terminal| terminal.name == "stream_end");
        let Some(before) = terminal.and_then(|terminal| terminal.seq?.checked_sub(1)).filter(|seq| *seq > 0) else {
            return Ok(None);
        };
        let events = own_events(&self.store.shared.storage, &self.session, &self.run, before..=before)?;
        Ok(events.first().and_then(|event| RunEnd::of(&event.name, event.payload())))
    }

    /// Has the next event of the run announced ([`Change::Resumed`](super::Change::Resumed)), because this reader does not wait
    /// for it. `false` if there is something to read by now.
    pub fn leave(&self) -> bool {
        self.lock.open_run(&self.run).is_none_or(|journal| journal.leave_at(self.read_to()))
    }

    /// The same, after the run was examined as the store's timer does it, on this thread: an orphaned run is sealed, so that
    /// a last event may come after all.
    pub fn is_over(&mut self) -> Result<bool, StoreError> {
        if self.ended()?.is_some() {
            return Ok(true);
        }
        self.store.shared.examine(&self.session, &self.run)?;
        Ok(self.ended()?.is_some())
    }

    /// Waits until there may be more, or the run may be over, at most this long.
    pub fn wait(&mut self, limit: Duration) -> Result<(), StoreError> {
        let is_registered = self.waiting.is_some();
        self.begin_to_wait()?;
        // What happened before it was registered woke no one: the caller looks once more.
        if is_registered {
            self.signal.wait(limit);
        }
        Ok(())
    }

    /// How far may be read. After what this process has shown there may be lines that it takes back.
    fn visible_extent(&mut self) -> u64 {
        let open = self.lock.open_run(&self.run);
        let attached = self.attached.take();
        self.attached = open.map(|open| match attached {
            Some(attached) if open.is_followed_by(&attached) => attached,
            _ => open.attach(self.waker.clone()),
        });
        self.attached.as_ref().map_or(u64::MAX, Attached::extent)
    }

    /// Makes the timer's step on this thread, where the store has no threads of its own.
    fn step_by_hand(&mut self) -> Result<(), StoreError> {
        match self.store.shared.examine(&self.session, &self.run)? {
            Examined::Over => {}
            Examined::Waits(_) => self.signal.wait(BY_HAND_RECHECK),
        }
        Ok(())
    }

    fn next_event(&mut self) -> Result<Option<JournalEvent>, StoreError> {
        loop {
            if let Some(event) = self.poll()? {
                return Ok(Some(event));
            }
            // Registered before the look that decides to wait, so that no wake-up is lost.
            let is_first_look = self.waiting.is_none();
            if self.ended()?.is_some() {
                return Ok(None);
            }
            if self.store.shared.storage.is_by_hand() {
                self.step_by_hand()?;
                continue;
            }
            self.begin_to_wait()?;
            if !is_first_look {
                self.signal.wait(Duration::MAX);
            }
        }
    }
}

/// Many may follow at the same time, and some of them do not go on for long: each holds little.
fn open_reader(
    store: &Store,
    session: &SessionId,
    run: &RunId,
    offset: u64,
) -> Result<Option<JournalReader>, StorageError> {
    Ok(JournalReader::open_at(&store.shared.storage, session, run, offset)?.map(small))
}

fn small(reader: JournalReader) -> JournalReader {
    reader.in_chunks_of(FOLLOW_CHUNK_BYTES)
}

impl Iterator for Follow {
    type Item = Result<JournalEvent, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.next_event().transpose();
        self.has_failed = matches!(next, Some(Err(_)));
        next
    }
}
