//! A handle to a run that is open for events: appending, renewing its lease, ending it.

use std::ops::RangeInclusive;
use std::slice;
use std::sync::Arc;

use super::liveness::{KeptAlive, Lease};
use super::session_locks::SessionLock;
use super::{Change, Shared, StoreError};
use crate::journal::{AppendError, Appended, JournalEvent, RunJournal, own_events};
use crate::model::{Event, RunEnd, RunId, Session, SessionId};
use crate::storage::{Birth, Continuation, Durability, Ticket};

/// A run that is open for events. Clones are the same run.
#[derive(Debug, Clone)]
pub struct Run {
    shared: Arc<Shared>,
    lock: Arc<SessionLock>,
    journal: Arc<RunJournal>,
    hold: Hold,
}

/// How readers that have left a run are told that it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GoesOn {
    /// They need not be told, or were: its events have a place of their own.
    Unnoticed,
    /// After the append, by [`Shared::tell_resumed`].
    TellAfter,
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

    /// Lets a run go on which its readers have left, and says how they are told. If a later part of the session's stream belongs
    /// to another run, the further events come after it, and readers are told before; else [`Shared::tell_resumed`] is to be
    /// called after the append. The caller holds the session's lock, so that no run begins meanwhile.
    pub(super) fn let_go_on(&self, lock: &SessionLock, journal: &RunJournal) -> Result<GoesOn, StoreError> {
        if !journal.is_left() {
            return Ok(GoesOn::Unnoticed);
        }
        // A reader that leaves from here on is told again.
        journal.set_left(false);
        let superseded = self.is_superseded(lock, journal.session(), journal.run());
        let noted = superseded.and_then(|is_superseded| match is_superseded {
            true => self.note_continuation(lock, journal).map(|()| GoesOn::Unnoticed),
            false => Ok(GoesOn::TellAfter),
        });
        noted.inspect_err(|_| journal.set_left(true))
    }

    /// Tells readers, and lists, that a run goes on.
    pub(super) fn tell_resumed(&self, session: &SessionId, run: &RunId) {
        self.news.tell(&Change::Resumed(session.clone(), run.clone()));
        self.liveness.expect_lapse(session, run);
        if self.is_awaited(session, run) {
            self.tell_listed_now(session);
        }
    }

    /// Whether a later part of the session's stream belongs to another run.
    fn is_superseded(&self, lock: &SessionLock, session: &SessionId, run: &RunId) -> Result<bool, StoreError> {
        let own = self.storage.birth(session, run)?.as_ref().map_or(0, Birth::last_order);
        Ok(own < self.last_order(lock, session)?)
    }

    /// The last number in a session's stream; 0 if there is none. Looks at every run once.
    fn last_order(&self, lock: &SessionLock, session: &SessionId) -> Result<u64, StoreError> {
        if let Some(last) = lock.last_order() {
            return Ok(last);
        }
        let mut last = 0;
        for run in self.storage.journals(session)? {
            // One that cannot be read costs no other run its events.
            let birth = self.storage.birth(session, &run).ok().flatten();
            last = last.max(birth.as_ref().map_or(0, Birth::last_order));
        }
        lock.note_order(last);
        Ok(last)
    }

    /// A number for a new run of a session: greater than that of the run before it, which may have been copied from another
    /// directory with the session.
    pub(super) fn next_order(&self, lock: &SessionLock, session: &Session) -> Result<u64, StoreError> {
        let last = lock.last_order().unwrap_or_else(|| self.order_of_last_answer(session));
        Ok(self.storage.next_order(last)?)
    }

    fn order_of_last_answer(&self, session: &Session) -> u64 {
        let last = session.messages().rev().find_map(|row| RunId::parse(&row.run()?).ok());
        let Some(run) = last else { return 0 };
        // A record that cannot be read costs no turn.
        let birth = self.storage.birth(session.id(), &run).ok().flatten();
        birth.as_ref().map_or(0, Birth::last_order)
    }

    /// Notes that a run goes on although another one began since.
    ///
    /// What a crash leaves: a continuation without an event, which changes nothing.
    fn note_continuation(&self, lock: &SessionLock, journal: &RunJournal) -> Result<(), StoreError> {
        let (session, run, after_seq) = (journal.session(), journal.run(), journal.last_seq());
        let order = self.storage.next_order(self.last_order(lock, session)?)?;
        self.storage.note_continuation(session, run, Continuation { after_seq, order })?;
        lock.note_order(order);
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
        match self.journal.append(events, durability) {
            Err(AppendError::Left { .. }) => self.append_after_leave(events, durability),
            appended => Ok(appended?),
        }
    }

    /// Appends events to a run that its readers have left.
    #[cold]
    fn append_after_leave(&self, events: &[Event], durability: Durability) -> Result<Appended, StoreError> {
        let _alone = self.lock.document.lock();
        self.append_going_on(|| Ok(self.journal.append(events, durability)?))
    }

    /// Lets the run go on and appends to it. The caller holds the session's lock.
    fn append_going_on(&self, append: impl Fn() -> Result<Appended, StoreError>) -> Result<Appended, StoreError> {
        loop {
            let goes_on = self.shared.let_go_on(&self.lock, &self.journal)?;
            let appended = append();
            if goes_on == GoesOn::TellAfter {
                self.shared.tell_resumed(self.session(), self.id());
            }
            match appended {
                // Another reader has left meanwhile.
                Err(StoreError::Append(AppendError::Left { .. })) => {}
                appended => return appended,
            }
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
        let appended = self.append_going_on(|| self.append_durably(events)).and_then(|appended| {
            self.shared.end_lease(self.session(), self.id());
            self.shared.settle(self.session(), self.id())?;
            Ok(appended)
        });
        if appended.is_err() {
            self.lock.note_branches(false);
        }
        if is_of_stop(events) && appended.as_ref().is_err_and(|error| !is_refusal(error)) && self.is_sealed() {
            self.shared.unreported_stops.note(self.session(), self.id());
        }
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

    /// Ends the run with this event, and says whether it did. A run that has ended is saved, if an earlier call could not.
    pub(super) fn end_unless_ended(&self, event: Event) -> Result<bool, StoreError> {
        if !self.is_sealed() {
            match self.append(event) {
                Err(StoreError::Append(AppendError::Sealed { .. })) => {}
                ended => return ended.map(|_| true),
            }
        }
        self.settle_again().map(|_| false)
    }

    fn settle_again(&self) -> Result<bool, StoreError> {
        let _alone = self.lock.document.lock();
        self.shared.save_end(&self.lock, self.session(), self.id())
    }

    /// The run's events with these numbers as its producer knows them: those too that followers are not shown yet. Costs what
    /// these events cost, however long the journal is, unless another program wrote in it or it is damaged there.
    pub fn own_events(&self, seqs: RangeInclusive<u64>) -> Result<Vec<JournalEvent>, StoreError> {
        Ok(own_events(&self.shared.storage, self.session(), self.id(), seqs)?)
    }
}

fn is_of_stop(events: &[Event]) -> bool {
    events.first().is_some_and(|event| *event == Event::stopped_by_user())
}

/// Whether an append was refused because the run had ended before.
fn is_refusal(error: &StoreError) -> bool {
    matches!(error, StoreError::Append(AppendError::Sealed { .. }))
}

#[cfg(test)]
mod tests;
