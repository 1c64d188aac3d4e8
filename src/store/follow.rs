//! Following a run: what its journal holds, then what is added, until it ends. A slow follower reads from the journal
//! at its own pace; nothing is held in memory for it, and the writer does not know it.

use std::time::Duration;

use super::close::Closing;
use super::{Store, StoreError};
use crate::format::Record;
use crate::journal::{Attached, JournalEvent, JournalReader};
use crate::limits::FOLLOW_RECHECK;
use crate::model::{RunId, SeenSeqs, SessionId};
use crate::storage::Seal;

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
    reader: Option<JournalReader>,
    /// The tie to the run's journal while it is written in this process.
    attached: Option<Attached>,
    after_seq: u64,
    seen: SeenSeqs,
    seal: Seal,
    /// Nothing more can come, although nobody said so in the journal.
    is_over: bool,
}

impl Store {
    /// Follows a run that this or another process writes.
    pub fn follow(&self, session: &SessionId, run: &RunId, after: After) -> Result<Follow, StoreError> {
        let reader = JournalReader::open(&self.shared.storage, session, run)?;
        if reader.is_none() {
            return Err(StoreError::RunNotFound { session: session.clone(), run: run.to_string() });
        }
        Ok(Follow {
            store: self.clone(),
            session: session.clone(),
            run: run.clone(),
            reader,
            attached: None,
            after_seq: if let After::Seq(seq) = after { seq } else { 0 },
            seen: SeenSeqs::default(),
            seal: Seal::Open,
            is_over: false,
        })
    }
}

impl Follow {
    /// The next event if there is one now. `None` means not yet, or never: see [`Follow::has_ended`].
    pub fn poll(&mut self) -> Result<Option<JournalEvent>, StoreError> {
        let extent = self.visible_extent();
        let Some(reader) = &mut self.reader else { return Ok(None) };
        while let Some(record) = reader.next_whole(extent)? {
            let Record::Event(event) = record else { continue };
            self.seal = self.seal.after_found(&event);
            let is_new = event.seq.is_none_or(|seq| self.seen.insert(seq));
            if is_new && event.seq.is_none_or(|seq| seq > self.after_seq) {
                return Ok(Some((&event).into()));
            }
        }
        Ok(None)
    }

    /// Whether the run has ended and everything was given.
    pub fn has_ended(&self) -> bool {
        self.seal == Seal::Closed || self.reader.is_none() || self.is_over
    }

    /// Lets a run whose producer is gone end for those who wait for it, if this store may write.
    fn close_if_dead(&mut self) -> Result<(), StoreError> {
        self.is_over = self.store.shared.close_if_dead(&self.session, &self.run)? == Closing::Over;
        Ok(())
    }

    /// Waits until there may be more, at most so long. Returns early when this process appends to the run.
    pub fn wait(&mut self, limit: Duration) {
        let seen = self.reader.as_ref().map_or(0, JournalReader::read_to);
        // A journal that failed here may be opened again; until then there is nobody to wake us.
        match self.attached.as_ref().filter(|attached| !attached.has_ended()) {
            Some(attached) => attached.wait_beyond(seen, limit),
            None => Attached::to_nothing().wait_beyond(seen, limit),
        }
    }

    /// How far may be looked. Behind what this process has shown there may be lines that it takes back.
    fn visible_extent(&mut self) -> u64 {
        let open = self.store.shared.gates.of(&self.session).open_run(&self.run);
        let attached = self.attached.take();
        self.attached = open.map(|open| match attached {
            Some(attached) if open.is_followed_by(&attached) => attached,
            _ => open.attach(),
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
