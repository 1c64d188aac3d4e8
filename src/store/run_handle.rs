//! A handle to a run that is open for events: appending, renewing its lease, ending it.

use std::slice;
use std::sync::Arc;

use super::liveness::{KeptAlive, Lease};
use super::session_locks::SessionLock;
use super::{Change, Shared, StoreError};
use crate::journal::{AppendError, Appended, ReadOptions, RunEvents, RunJournal, read_events};
use crate::model::{Event, RunEnd, RunId, SessionId};
use crate::storage::{Continuation, Durability, Ticket};

/// A run that is open for events. Clones are the same run.
#[derive(Debug, Clone)]
pub struct Run {
    shared: Arc<Shared>,
    lock: Arc<SessionLock>,
    journal: Arc<RunJournal>,
    hold: Hold,
}

/// Why its producer counts as alive.
#[derive(Debug, Clone)]
enum Hold {
    /// It is in this process: as long as a handle lives.
    Held { _kept_alive: Arc<KeptAlive> },
    /// It is outside: for so long after its last sign of life.
    Leased(Arc<Lease>),
}

impl Shared {
    /// A handle to an open run. An outside producer gives a sign of life by asking for it.
    pub(super) fn run(
        self: &Arc<Self>,
        lock: &Arc<SessionLock>,
        journal: Arc<RunJournal>,
        lease_seconds: Option<f64>,
        began: Option<f64>,
    ) -> Run {
        let (session, run) = (journal.session(), journal.run());
        let hold = match lease_seconds {
            Some(seconds) => Hold::Leased(self.liveness.lease(session, run, seconds, began)),
            None => Hold::Held { _kept_alive: Arc::new(self.liveness.keep_alive(session, run)) },
        };
        Run { shared: self.clone(), lock: lock.clone(), journal, hold }
    }

    /// Announces that a run goes on which its readers have left. If another run of the session began since, the further events
    /// come after that one's in the session's stream. The caller holds the session's lock, so that no run begins meanwhile.
    fn announce(&self, lock: &SessionLock, journal: &RunJournal) -> Result<(), StoreError> {
        let (session, run) = (journal.session(), journal.run());
        match self.is_superseded(lock, session, run)? {
            true => self.note_continuation(journal)?,
            false => self.news.tell(&Change::Resumed(session.clone(), run.clone())),
        }
        journal.set_left(false);
        Ok(())
    }

    /// The same before the event that seals an orphaned run.
    pub(super) fn announce_end(&self, lock: &SessionLock, journal: &RunJournal) -> Result<(), StoreError> {
        if journal.is_left() { self.announce(lock, journal) } else { Ok(()) }
    }

    /// Whether another run of the session began since a run's last segment.
    fn is_superseded(&self, lock: &SessionLock, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        if self.is_awaited(session, run) {
            return Ok(false);
        }
        let birth = self.storage.birth(session, run)?.unwrap_or_default();
        let own = birth.continued.last().map(|last| last.order).or(birth.order).unwrap_or(0);
        Ok(own < self.last_begun(lock, session)?)
    }

    /// The number of the run that began last in a session; 0 if none has a number. Looks at every run once.
    fn last_begun(&self, lock: &SessionLock, session: &SessionId) -> Result<u64, StoreError> {
        if let Some(last) = lock.last_begun() {
            return Ok(last);
        }
        let mut last = 0;
        for run in self.storage.journals(session)? {
            let order = self.storage.birth(session, &run)?.and_then(|birth| birth.order);
            last = last.max(order.unwrap_or(0));
        }
        lock.note_begun(last);
        Ok(last)
    }

    /// Notes that a run goes on although another one began since.
    ///
    /// What a crash leaves: a continuation without an event, which changes nothing.
    fn note_continuation(&self, journal: &RunJournal) -> Result<(), StoreError> {
        let (session, run, after_seq) = (journal.session(), journal.run(), journal.last_seq());
        let order = self.storage.next_order()?;
        self.storage.note_continuation(session, run, Continuation { after_seq, order })?;
        let (session, run) = (session.clone(), run.clone());
        self.news.tell(&Change::Continued { session, run, after_seq, order });
        Ok(())
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
        match &self.hold {
            Hold::Leased(lease) => Some(lease.seconds),
            Hold::Held { .. } => None,
        }
    }

    /// Calls back, once, when the run has ended or takes no more events because its session was deleted or its journal
    /// failed. At once if that was before. The call must not wait, and must not use the store.
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
    /// its `stream_end` after it. An append is a sign of life of an outside producer.
    ///
    /// A store that is told to be durable shows nothing before it is: there a buffered append returns at once too, and is
    /// shown when it is durable.
    pub fn append_all(&self, events: &[Event], durability: Durability) -> Result<Appended, StoreError> {
        if let Hold::Leased(lease) = &self.hold {
            lease.renew(self.shared.liveness.sign_time());
        }
        if events.iter().any(|event| event.terminal_state().is_some()) {
            return self.append_end(events);
        }
        match self.shared.options.durability {
            Durability::Buffered => self.append_in_place(events, durability),
            Durability::Durable => self.append_to_durable(events),
        }
    }

    /// Appends events. If readers have left the run, it is announced first that it goes on.
    #[inline]
    fn append_in_place(&self, events: &[Event], durability: Durability) -> Result<Appended, StoreError> {
        loop {
            match self.journal.append(events, durability) {
                Err(AppendError::Left { .. }) => self.go_on()?,
                appended => return Ok(appended?),
            }
        }
    }

    #[cold]
    fn go_on(&self) -> Result<(), StoreError> {
        let _alone = self.lock.document.lock();
        self.go_on_alone()
    }

    fn go_on_alone(&self) -> Result<(), StoreError> {
        match self.journal.is_left() {
            true => self.shared.announce(&self.lock, &self.journal),
            false => Ok(()),
        }
    }

    fn append_to_durable(&self, events: &[Event]) -> Result<Appended, StoreError> {
        let appended = self.append_in_place(events, Durability::Durable)?;
        let (shared, lock, journal) = (Arc::downgrade(&self.shared), self.lock.clone(), self.journal.clone());
        appended.ticket.when_settled(move |is_durable| {
            // What is not durable stays hidden for as long as the store is open.
            if let Some(shared) = shared.upgrade().filter(|_| !is_durable) {
                shared.keep_hidden(&lock, &journal);
            }
        });
        Ok(appended)
    }

    /// Says that the producer is alive although it has nothing to append. Only a producer with a lease needs to.
    ///
    /// The renewal is noted beside the journal, so that it holds for a reader in another process, and after the death of this
    /// one.
    pub fn renew_lease(&self) {
        let Hold::Leased(lease) = &self.hold else { return };
        lease.renew(self.shared.liveness.sign_time());
        // If it cannot be noted, the lease holds in this process all the same.
        let _ = self.shared.storage.note_renewal(self.session(), self.id(), self.shared.clock.now().seconds());
    }

    /// Followers are shown the end when it is durable and the answer is saved. Until then the journal is held open: the next
    /// read, a repeat, or the timer saves it.
    fn append_end(&self, events: &[Event]) -> Result<Appended, StoreError> {
        let _alone = self.lock.document.lock();
        self.go_on_alone()?;
        let appended = self.append_durably(events).and_then(|appended| {
            self.shared.end_lease(self.session(), self.id());
            self.shared.settle(self.session(), self.id())?;
            Ok(appended)
        });
        match &appended {
            Ok(_) => self.shared.show_saved_end(&self.lock, self.id()),
            Err(_) if self.journal.hidden_end().is_some() => self.shared.keep_hidden(&self.lock, &self.journal),
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
    /// one saves, and the earlier end stands.
    pub fn finish(&self, end: RunEnd) -> Result<Appended, StoreError> {
        self.finish_with(Event::end(end))
    }

    /// Ends the run because it failed. `kind` is a word for programs, `message` a sentence for people.
    pub fn fail(&self, kind: &str, message: &str) -> Result<Appended, StoreError> {
        self.finish_with(Event::error(kind, message))
    }

    fn finish_with(&self, event: Event) -> Result<Appended, StoreError> {
        match self.append(event) {
            Err(StoreError::Append(AppendError::Sealed { .. })) if self.settle_again()? => {
                let last_seq = self.last_seq();
                Ok(Appended { first_seq: last_seq, last_seq, ticket: Ticket::buffered() })
            }
            finished => finished,
        }
    }

    fn settle_again(&self) -> Result<bool, StoreError> {
        let _alone = self.lock.document.lock();
        self.shared.save_end(&self.lock, self.session(), self.id())
    }

    /// The run's events as its producer knows them: those too that followers are not shown yet.
    pub fn own_events(&self, options: ReadOptions) -> Result<RunEvents, StoreError> {
        Ok(read_events(&self.shared.storage, self.session(), self.id(), options, None)?)
    }
}
