//! Following a run: what its journal holds, then what is added, until it ends. A slow follower reads from the journal
//! at its own pace; nothing is held in memory for it, and the writer does not know it.

use std::sync::Arc;
use std::time::Duration;

use super::close::Closing;
use super::gates::Gate;
use super::{Store, StoreError};
use crate::format::{EventRef, Record};
use crate::journal::{Attached, Bell, JournalEvent, JournalReader};
use crate::limits::{FOLLOW_CHUNK_BYTES, FOLLOW_RECHECK};
use crate::model::{RunId, SeenSeqs, SessionId, TerminalState};
use crate::storage::{Seal, StorageError};

/// Where a follower begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// With the first event.
    Start,
    /// Behind the event of this number.
    Seq(u64),
}

/// The events of a run as they come. Ends when the run has ended, or is removed, or its session is deleted.
#[derive(Debug)]
pub struct Follow {
    store: Store,
    session: SessionId,
    run: RunId,
    gate: Arc<Gate>,
    reader: Option<JournalReader>,
    /// Where it goes on reading if it has let go of its file.
    resting_at: Option<u64>,
    /// From where on what was read may not be shown.
    hidden_from: u64,
    bell: Option<Bell>,
    /// The tie to the run's journal while it is written in this process.
    attached: Option<Attached>,
    after_seq: u64,
    last_seq: u64,
    seen: SeenSeqs,
    seal: Seal,
    ending: Option<TerminalState>,
    /// Nothing more can come, although nobody said so in the journal.
    is_over: bool,
    is_foreign: Option<bool>,
}

impl Store {
    /// Follows a run that this or another process writes.
    pub fn follow(&self, session: &SessionId, run: &RunId, after: After) -> Result<Follow, StoreError> {
        self.follow_at(session, run, after, 0)
    }

    /// The same, by somebody who has read up to this place of the journal, where a line begins: [`Follow::read_to`].
    pub fn follow_at(&self, session: &SessionId, run: &RunId, after: After, offset: u64) -> Result<Follow, StoreError> {
        let gate = self.shared.gates.of(session);
        self.shared.save_or_hide_end(&gate, session, run)?;
        let reader = match after {
            // Numbers of other programs may be in any order.
            After::Seq(seq @ 1..) if offset == 0 && self.shared.storage.birth(session, run)?.is_some() => {
                JournalReader::open_behind(&self.shared.storage, session, run, seq)?.map(small)
            }
            _ => open_reader(self, session, run, offset)?,
        };
        if reader.is_none() {
            return Err(StoreError::RunNotFound { session: session.clone(), run: run.to_string() });
        }
        Ok(Follow {
            store: self.clone(),
            gate,
            session: session.clone(),
            run: run.clone(),
            reader,
            resting_at: None,
            hidden_from: u64::MAX,
            bell: None,
            attached: None,
            after_seq: if let After::Seq(seq) = after { seq } else { 0 },
            last_seq: 0,
            seen: SeenSeqs::default(),
            seal: Seal::Open,
            ending: None,
            is_over: false,
            is_foreign: None,
        })
    }
}

impl Follow {
    /// The next event if there is one now. `None` means not yet, or never: see [`Follow::has_ended`].
    pub fn poll(&mut self) -> Result<Option<JournalEvent>, StoreError> {
        self.poll_as(|event| event.into())
    }

    /// The same, as whatever the caller makes of it.
    pub(crate) fn poll_as<T>(&mut self, make: impl Fn(&EventRef<'_>) -> T) -> Result<Option<T>, StoreError> {
        loop {
            // How far may be looked is asked once a read, not for each event.
            while let Some(record) = self.reader.as_mut().and_then(JournalReader::next_read) {
                let Record::Event(event) = record else { continue };
                if event.offset >= self.hidden_from {
                    // Somebody had opened the run meanwhile, and this was not to be seen yet.
                    (self.resting_at, self.reader) = (Some(event.offset), None);
                    return Ok(None);
                }
                self.seal = self.seal.after_found(&event);
                if event.is_terminal() {
                    self.ending = TerminalState::of(&event.name, event.payload.unwrap_or_default()).or(self.ending);
                }
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

    /// Reads on as far as may be looked. `false` when there is no more yet.
    fn read_on(&mut self) -> Result<bool, StoreError> {
        let extent = self.visible_extent();
        self.wake()?;
        let Some(reader) = &mut self.reader else { return Ok(false) };
        let has_more = reader.read_on(extent)?;
        let is_unbounded = extent == u64::MAX;
        self.hidden_from = if is_unbounded { self.store.shared.hidden_from(&self.gate, &self.run) } else { extent };
        Ok(has_more)
    }

    /// Whether the run has ended and everything was given.
    pub fn has_ended(&self) -> bool {
        self.seal == Seal::Closed || (self.reader.is_none() && self.resting_at.is_none()) || self.is_over
    }

    /// The highest number of an event that it has come across, given or not.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// How the run ended, by an event that it has come across, given or not.
    pub fn ending(&self) -> Option<TerminalState> {
        self.ending
    }

    /// How far it has read the journal. Behind a [`Follow::poll`] that had nothing, a line begins there, or will.
    pub fn read_to(&self) -> u64 {
        self.reader.as_ref().map_or(self.resting_at.unwrap_or(0), JournalReader::read_to)
    }

    /// Gives everything from here on, whatever was passed over before.
    pub fn pass_over_nothing(&mut self) {
        self.after_seq = 0;
    }

    /// Has a bell rung whenever this process appends to the run, instead of waiting for that. The call must neither wait
    /// nor use the store. Whoever relies on it looks again now and then: a run of another process rings no bell.
    pub fn ring(&mut self, bell: Arc<dyn Fn() + Send + Sync>) {
        self.bell = Some(Bell(bell));
        self.attached = None;
    }

    /// Closes its file and frees its memory until the next look. What was read and not given out yet is read again.
    pub fn rest(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.resting_at = Some(reader.resume_at());
        }
    }

    fn wake(&mut self) -> Result<(), StoreError> {
        if let Some(offset) = self.resting_at.take() {
            self.reader = open_reader(&self.store, &self.session, &self.run, offset)?;
        }
        Ok(())
    }

    /// Whether nothing more will come, as far as the journal says, for somebody to whom [`Follow::poll`] had nothing to give.
    pub fn is_silent(&mut self) -> Result<bool, StoreError> {
        Ok(self.has_ended() || self.rest_is_silence()?)
    }

    /// Whether nothing more will come, for somebody to whom [`Follow::poll`] had nothing to give. A run whose producer is
    /// gone is ended first, so that a last event may come after all, if this store may write.
    pub fn is_over(&mut self) -> Result<bool, StoreError> {
        if self.is_silent()? {
            return Ok(true);
        }
        self.close_if_dead()?;
        Ok(self.is_over)
    }

    /// Lets a run whose producer is gone end for those who wait for it, if this store may write.
    fn close_if_dead(&mut self) -> Result<(), StoreError> {
        self.is_over = self.store.shared.close_if_dead(&self.session, &self.run)? == Closing::Over;
        Ok(())
    }

    /// Whether nobody ever ends the run for those who wait: it has not said a word, and may still, or it is another
    /// program's.
    pub fn is_nobodys_to_end(&mut self) -> Result<bool, StoreError> {
        Ok(self.read_to() == 0 || self.is_foreign()?)
    }

    /// Whether another program's. That does not change, and is looked at once.
    fn is_foreign(&mut self) -> Result<bool, StoreError> {
        if let Some(is_foreign) = self.is_foreign {
            return Ok(is_foreign);
        }
        let is_foreign = self.store.shared.storage.birth(&self.session, &self.run)?.is_none();
        self.is_foreign = Some(is_foreign);
        Ok(is_foreign)
    }

    /// Whether nobody will append to the run any more, as far as anybody knows, whether or not it was ended.
    pub fn is_abandoned(&self) -> Result<bool, StoreError> {
        self.store.shared.is_abandoned(&self.session, &self.run)
    }

    /// Waits until there may be more, at most so long. Returns early when this process appends to the run.
    pub fn wait(&mut self, limit: Duration) {
        let seen = self.read_to();
        // A journal that failed here may be opened again; until then there is nobody to wake us.
        match self.attached.as_ref().filter(|attached| !attached.has_ended()) {
            Some(attached) => attached.wait_beyond(seen, limit),
            None => Attached::to_nothing().wait_beyond(seen, limit),
        }
    }

    /// How far may be looked. Behind what this process has shown there may be lines that it takes back.
    fn visible_extent(&mut self) -> u64 {
        let open = self.gate.open_run(&self.run);
        let attached = self.attached.take();
        self.attached = open.map(|open| match attached {
            Some(attached) if open.is_followed_by(&attached) => attached,
            _ => open.attach(self.bell.clone()),
        });
        self.attached.as_ref().map_or(u64::MAX, Attached::extent)
    }

    /// A run that ended with `done` may get one more event, but nobody waits for it. A deleted session ends all, a
    /// removed journal its run.
    fn rest_is_silence(&mut self) -> Result<bool, StoreError> {
        if self.seal != Seal::Open {
            return Ok(true);
        }
        let storage = &self.store.shared.storage;
        Ok(storage.is_deleted(&self.session)? || storage.journal_bytes(&self.session, &self.run)?.is_none())
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
        loop {
            match self.poll() {
                Ok(Some(event)) => return Some(Ok(event)),
                Err(error) => {
                    self.reader = None;
                    return Some(Err(error));
                }
                Ok(None) => {}
            }
            match self.rest_is_silence() {
                _ if self.has_ended() => return None,
                Ok(true) => return None,
                Ok(false) => self.wait(FOLLOW_RECHECK),
                Err(error) => {
                    self.reader = None;
                    return Some(Err(error));
                }
            }
            if let Err(error) = self.close_if_dead() {
                self.reader = None;
                return Some(Err(error));
            }
        }
    }
}
