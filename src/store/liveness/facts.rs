//! The facts that decide whether a run is over: what memory knows, then what the files say.

use std::sync::Arc;

use super::judge::{Began, Journal, LastSign, LeaseFacts, Liveness, Now, Origin, RunFacts, judge};
use crate::clock::Timestamp;
use crate::journal::{summarize, summarize_end};
use crate::model::{Metadata, RunId, RunState, Session, SessionId};
use crate::storage::Birth;
use crate::store::session_locks::{JournalEnd, SessionLock};
use crate::store::{Shared, StoreError};

/// What a session says of a run that it waits for.
struct Awaited {
    began: Option<f64>,
}

/// What a caller knows of a run's journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Seen {
    /// Nothing: it is read.
    Nothing,
    /// All of it, and no end.
    NoEnd,
    /// Nothing, and a run that is over anyway may be called orphaned although it is sealed.
    NotWanted,
}

/// What the files say of a run.
struct OnDisk {
    bytes: Option<u64>,
    birth: Option<Birth>,
}

impl Shared {
    /// What time it is, for [`judge`].
    pub(in crate::store) fn time(&self) -> Now {
        let wall = self.clock.now().seconds();
        let holder_began = match self.storage.can_write() {
            true => self.began_at.seconds(),
            // Without a holder, every run began before the next one.
            false => self.storage.held_since().unwrap_or(wall),
        };
        Now { awake: self.liveness.clock.now(), wall, holder_began, grace: self.options.recovery.grace }
    }

    /// Whether a run is over.
    pub(in crate::store) fn liveness_of(
        &self,
        lock: &SessionLock,
        session: &SessionId,
        run: &RunId,
    ) -> Result<Liveness, StoreError> {
        self.liveness_seen(lock, session, run, Seen::Nothing)
    }

    /// The same, for a caller that may have read the run's journal.
    pub(in crate::store) fn liveness_seen(
        &self,
        lock: &SessionLock,
        session: &SessionId,
        run: &RunId,
        seen: Seen,
    ) -> Result<Liveness, StoreError> {
        if self.storage.is_deleted(session)? {
            return Ok(Liveness::Gone);
        }
        if let Some(facts) = self.facts_in_memory(lock, session, run) {
            return Ok(judge(&facts, &self.time()));
        }
        let birth = self.storage.birth(session, run)?;
        let awaited = if birth.is_none() { self.awaited(session, run)? } else { None };
        let on_disk = OnDisk { bytes: self.storage.journal_len(session, run)?, birth };
        Ok(self.judge_on_disk(lock, session, run, &on_disk, awaited.as_ref(), seen))
    }

    /// How a run ended without being sealed, for a process that only reads: only what is gone. Everything else the process that
    /// writes decides, or the next one that does.
    pub(in crate::store) fn end_for_reader(
        &self,
        session: &SessionId,
        run: &RunId,
    ) -> Result<Option<RunState>, StoreError> {
        let is_gone = self.storage.is_deleted(session)? || self.storage.journal_len(session, run)?.is_none();
        Ok(is_gone.then_some(RunState::Gone))
    }

    /// Whether the run that answers a session's pending turn is over. What cannot be read now says nothing: a run without a
    /// record is another program's, and one whose journal cannot be looked at has none. Both are asked again.
    pub(in crate::store) fn liveness_of_turn(&self, lock: &SessionLock, session: &Session) -> Liveness {
        let (id, run) = (session.id(), session.active_run().unwrap_or_default());
        let Ok(run) = RunId::parse(&run) else { return Liveness::Gone };
        if let Some(facts) = self.facts_in_memory(lock, id, &run) {
            return judge(&facts, &self.time());
        }
        let bytes = self.storage.journal_len(id, &run).ok().flatten();
        let on_disk = OnDisk { bytes, birth: self.storage.birth(id, &run).ok().flatten() };
        let awaited = Awaited { began: session.pending_turn().and_then(|turn| turn.started_at) };
        self.judge_on_disk(lock, id, &run, &on_disk, Some(&awaited), Seen::NotWanted)
    }

    /// Judges by what the files say. The journal itself is read only where that may change the verdict: its end, or its last
    /// event, after which the lease lapses.
    fn judge_on_disk(
        &self,
        lock: &SessionLock,
        session: &SessionId,
        run: &RunId,
        on_disk: &OnDisk,
        awaited: Option<&Awaited>,
        seen: Seen,
    ) -> Liveness {
        let has_lease = on_disk.birth.as_ref().is_some_and(|birth| birth.lease_seconds.is_some());
        let needs_last_event = has_lease && self.liveness.lease_on_disk_counts(session, run);
        if seen != Seen::Nothing && !needs_last_event && lock.open_run(run).is_none() {
            let unread = self.facts_on_disk(session, run, on_disk, awaited, JournalEnd::default());
            let liveness = judge(&unread, &self.time());
            if seen == Seen::NoEnd || !matches!(liveness, Liveness::Live { .. }) {
                return liveness;
            }
        }
        let end = self.end_of(lock, session, run, on_disk.bytes, on_disk.birth.is_some());
        judge(&self.facts_on_disk(session, run, on_disk, awaited, end), &self.time())
    }

    /// The facts, if memory alone decides: this process works on the run, or has its journal open and hears of its producer.
    fn facts_in_memory(&self, lock: &SessionLock, session: &SessionId, run: &RunId) -> Option<RunFacts> {
        let known = self.liveness.known(session, run)?;
        let open = lock.open_run(run);
        let is_sealed = open.as_ref().is_some_and(|journal| journal.is_surely_sealed());
        let began = known.began.filter(|_| known.lease.is_some() && open.is_some());
        if !known.is_held && began.is_none() {
            return None;
        }
        Some(RunFacts {
            is_session_deleted: false,
            journal: if is_sealed { Journal::Sealed } else { Journal::Unsealed },
            origin: Origin::Ours { takes_appends: true },
            is_held: known.is_held,
            is_awaited: true,
            lease: known.lease,
            began: began.unwrap_or(Began::Unknown),
        })
    }

    fn facts_on_disk(
        &self,
        session: &SessionId,
        run: &RunId,
        on_disk: &OnDisk,
        awaited: Option<&Awaited>,
        end: JournalEnd,
    ) -> RunFacts {
        let wall = |began: f64| if began > 0.0 { Began::Wall(began) } else { Began::Unknown };
        let began = on_disk.birth.as_ref().map(|birth| birth.begun_at);
        let is_awaited = awaited.is_some();
        RunFacts {
            is_session_deleted: false,
            journal: match on_disk.bytes {
                None => Journal::Missing,
                Some(0) => Journal::Empty,
                Some(_) if end.is_sealed => Journal::Sealed,
                Some(_) => Journal::Unsealed,
            },
            origin: match &on_disk.birth {
                Some(birth) => Origin::Ours { takes_appends: birth.takes_appends },
                None => Origin::Foreign,
            },
            is_held: self.is_held_elsewhere(on_disk.birth.as_ref()),
            is_awaited,
            lease: on_disk.birth.as_ref().and_then(|birth| self.lease_facts(session, run, birth, end)),
            began: began.or(awaited.and_then(|awaited| awaited.began)).map_or(Began::Unknown, wall),
        }
    }

    /// How a run's journal ends, read once for each length. Of a run of ours only the last part is read.
    fn end_of(
        &self,
        lock: &SessionLock,
        session: &SessionId,
        run: &RunId,
        bytes: Option<u64>,
        is_ours: bool,
    ) -> JournalEnd {
        if let Some(journal) = lock.open_run(run) {
            let last_event_at = Some(Timestamp::from_micros(journal.last_used_micros()).seconds());
            return JournalEnd { is_sealed: journal.is_surely_sealed(), last_event_at };
        }
        let Some(bytes) = bytes.filter(|bytes| *bytes > 0) else { return JournalEnd::default() };
        lock.end_at(run, bytes, || {
            let read = if is_ours { summarize_end } else { summarize };
            let summary = read(&self.storage, session, run).ok().flatten().unwrap_or_default();
            JournalEnd { is_sealed: summary.seal.is_sealed(), last_event_at: summary.last_event_at }
        })
    }

    /// A run's lease: as this process knows or grants it, else as the files say.
    fn lease_facts(&self, session: &SessionId, run: &RunId, birth: &Birth, end: JournalEnd) -> Option<LeaseFacts> {
        let seconds = birth.lease_seconds?;
        let known = self.liveness.known(session, run).and_then(|known| known.lease);
        if let Some(lease) = known.or_else(|| self.liveness.granted_lease(seconds)) {
            return Some(lease);
        }
        let signs = [end.last_event_at.unwrap_or(0.0), birth.begun_at, birth.renewed_at.unwrap_or(0.0)];
        Some(LeaseFacts { seconds, last_sign: LastSign::Wall(signs.into_iter().fold(0.0, f64::max)) })
    }

    /// Whether the process that holds the directory may be at work on a run without a lease, for one that only reads.
    fn is_held_elsewhere(&self, birth: Option<&Birth>) -> bool {
        let Some(birth) = birth.filter(|birth| birth.lease_seconds.is_none()) else { return false };
        !self.storage.can_write() && self.storage.held_since().is_some_and(|since| birth.begun_at >= since)
    }

    /// What a session says of a run, if it waits for it.
    fn awaited(&self, session: &SessionId, run: &RunId) -> Result<Option<Awaited>, StoreError> {
        let metadata = match self.metadata(session) {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            metadata => metadata?,
        };
        let is_awaited = |metadata: &Metadata| metadata.active_run().as_deref() == Some(run.as_str());
        let began = |metadata: Metadata| metadata.pending_turn().and_then(|turn| turn.started_at);
        Ok(Some(metadata).filter(is_awaited).map(|metadata| Awaited { began: began(metadata) }))
    }

    /// Whether a run's journal holds its end, which may have been written and not saved.
    pub(in crate::store) fn has_ended(&self, lock: &Arc<SessionLock>, session: &SessionId, run: &RunId) -> bool {
        let bytes = self.storage.journal_len(session, run).ok().flatten();
        let is_ours = matches!(self.storage.birth(session, run), Ok(Some(_)));
        self.end_of(lock, session, run, bytes, is_ours).is_sealed
    }
}
