//! Appending: a number, a line, a write. Whoever comes while another is writing has its events written with the next
//! write, together with everybody else's who waits.

use crate::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use crate::sync::{Mutex, MutexGuard};

use super::open_file_budget::OpenFileBudget;
use super::progress::{AppendWaker, Attached, Progress};
use crate::clock::{Clock, Timestamp};
use crate::format::{LineEncoder, LineShape, Record, Scanner};
use crate::limits::{IDLE_LINES_BYTES_MAX, SEQ_MAX};
use crate::meter::{Answered, Meter, Tally};
use crate::model::{Event, InvalidEvent, RunId, SessionId};
use crate::storage::{AppendFailure, Durability, Durable, JournalWriter, OpenedJournal, Seal, StorageError, Ticket};

/// Why an append was not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// The run has ended.
    #[error("run {run} has ended and takes no `{event}`: begin another run")]
    Sealed {
        /// The run.
        run: RunId,
        /// The event that was refused.
        event: Box<str>,
    },
    /// The event cannot be journalled.
    #[error(transparent)]
    Invalid(#[from] InvalidEvent),
    /// Readers have left the run: another run began since, or they were told that it is over. The store announces that it goes
    /// on, and appends again.
    #[error("run {run} was left by its readers")]
    Left {
        /// The run.
        run: RunId,
    },
    /// The journal failed. Some of the events may have been appended before that.
    #[error("could not append to run {run}{}", so_far(appended_to))]
    Failed {
        /// The run.
        run: RunId,
        /// The last of these events that was appended, if any was.
        appended_to: Option<u64>,
        /// Why it failed.
        source: Box<StorageError>,
    },
}

fn so_far(appended_to: &Option<u64>) -> String {
    appended_to.map(|seq| format!(" beyond event {seq}")).unwrap_or_default()
}

/// Events that were appended: they survive the death of the process.
#[derive(Debug, Clone)]
pub struct Appended {
    /// The number of the first.
    pub first_seq: u64,
    /// The number of the last.
    pub last_seq: u64,
    /// Done when they survive a power cut too.
    pub ticket: Ticket,
}

impl Appended {
    /// Waits until the events survive a power cut. `None` if that was not asked for.
    pub fn wait(self) -> Result<Option<Durable>, StorageError> {
        self.ticket.wait()
    }

    /// Calls back, once, when they do.
    pub fn on_durable(self, callback: impl FnOnce(Result<Option<Durable>, StorageError>) + Send + 'static) {
        self.ticket.on_durable(callback);
    }
}

/// The journal of a run that is open for appending. Shared by all who append to the run.
#[derive(Debug)]
pub struct RunJournal {
    session: SessionId,
    run: RunId,
    clock: Arc<dyn Clock>,
    pen: Mutex<Pen>,
    waiting: Mutex<Vec<Arc<Request>>>,
    waiting_count: AtomicUsize,
    progress: Arc<Progress>,
    /// Where the end of the run begins while it is not shown.
    hidden_end: AtomicU64,
    /// When it was last appended to. Nobody who asks need know exactly.
    last_used_micros: AtomicI64,
    open_files: Arc<OpenFileBudget>,
    /// Only whoever holds the pen counts.
    tally: Tally,
    own: Weak<RunJournal>,
}

/// A journal whose appenders wait.
#[derive(Debug)]
pub(crate) struct HeldJournal<'j> {
    progress: &'j Progress,
    pen: MutexGuard<'j, Pen>,
}

impl HeldJournal<'_> {
    /// Lets them go on, to be refused.
    pub(crate) fn fence(mut self, why: &'static str) {
        self.pen.writer.fence(why);
        self.progress.end();
    }
}

/// Where the next line goes. Whoever holds it writes.
#[derive(Debug)]
struct Pen {
    writer: Box<dyn JournalWriter>,
    encoder: LineEncoder,
    position: Position,
    /// Lines that are planned and not yet written.
    lines: Vec<u8>,
    planned: Position,
    extent: u64,
    /// Whether the writer holds no file open, and has no place in the open-file budget.
    is_resting: bool,
    has_failed: bool,
    /// Readers have left it, and are to be told before the next event.
    is_left: bool,
}

#[derive(Debug, Clone, Copy)]
struct Position {
    last_seq: u64,
    seal: Seal,
}

impl Position {
    /// Where whole lines lead that got through before a failure. One of them may have ended the run.
    #[cold]
    fn after_kept(mut self, shape: &LineShape, lines: &[u8]) -> Self {
        let mut scanner = Scanner::new(shape.clone(), 0);
        let fed: Result<usize, std::convert::Infallible> = scanner.feed(lines.len(), |room| {
            room.copy_from_slice(lines);
            Ok(lines.len())
        });
        fed.expect("bytes in memory can be read");
        while let Some(record) = scanner.next_record() {
            if let Record::Event(event) = record {
                self.last_seq += 1;
                self.seal = self.seal.after_found(&event);
            }
        }
        self
    }
}

/// The place of an end that is not hidden.
const SHOWN: u64 = u64::MAX;

/// Events whose appender waits for the pen.
#[derive(Debug)]
struct Request {
    events: Vec<Event>,
    durability: Durability,
    answer: Mutex<Option<Result<Appended, AppendError>>>,
}

/// The lines of one request among those planned.
#[derive(Debug, Clone, Copy)]
struct Plan {
    first_seq: u64,
    last_seq: u64,
    start: usize,
    end: usize,
}

impl RunJournal {
    /// Takes over a journal that storage has opened.
    pub fn new(
        session: &SessionId,
        run: &RunId,
        opened: OpenedJournal,
        clock: Arc<dyn Clock>,
        open_files: Arc<OpenFileBudget>,
        meter: &Arc<Meter>,
    ) -> Arc<Self> {
        let position = Position { last_seq: opened.tail.last_seq, seal: opened.tail.seal };
        let progress = Progress::default();
        progress.publish(opened.tail.extent);
        Arc::new_cyclic(|own| RunJournal {
            session: session.clone(),
            run: run.clone(),
            clock,
            pen: Mutex::new(Pen {
                writer: opened.writer,
                encoder: LineEncoder::new(session, run),
                position,
                lines: Vec::new(),
                planned: position,
                extent: opened.tail.extent,
                is_resting: true,
                has_failed: false,
                is_left: false,
            }),
            waiting: Mutex::new(Vec::new()),
            waiting_count: AtomicUsize::new(0),
            progress: Arc::new(progress),
            hidden_end: AtomicU64::new(SHOWN),
            last_used_micros: AtomicI64::new(0),
            open_files,
            tally: meter.tally(),
            own: own.clone(),
        })
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// The session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The number of the last event.
    pub fn last_seq(&self) -> u64 {
        self.pen.lock().position.last_seq
    }

    /// Whether the run has ended, and how.
    pub fn seal(&self) -> Seal {
        self.pen.lock().position.seal
    }

    /// Appends events with one write. All of them are refused if one cannot be taken.
    // What an append goes through is one function: behind a system call the processor mispredicts every return, so that
    // each call on the way costs a hundredth of the write itself.
    #[inline(always)]
    pub fn append(&self, events: &[Event], durability: Durability) -> Result<Appended, AppendError> {
        let now = self.clock.now();
        self.last_used_micros.store(now.micros(), Ordering::Relaxed);
        // A chain and not a match: a match would hold the pen while the other arm waits for it.
        if self.waiting_count.load(Ordering::Acquire) == 0
            && let Some(mut pen) = self.pen.try_lock()
        {
            return self.append_alone(&mut pen, events, durability, now);
        }
        self.append_with_others(events, durability, now)
    }

    /// Shows followers the end of the run. To be called when its answer is saved.
    pub(crate) fn show_end(&self) {
        let pen = self.pen.lock();
        self.progress.publish(pen.extent);
        self.hidden_end.store(SHOWN, Ordering::Release);
        match pen.position.seal {
            Seal::Open => {}
            Seal::Done => self.progress.tell_end(),
            Seal::Closed => self.progress.end(),
        }
    }

    /// Hides the end of the run, which begins at this place, until [`RunJournal::show_end`].
    pub(crate) fn hide_end_from(&self, place: u64) {
        let _pen = self.pen.lock();
        self.hidden_end.store(place, Ordering::Release);
        self.progress.publish(place);
    }

    /// Calls back, once, when the run has ended or its journal takes no more. The call must neither wait nor append.
    pub(crate) fn on_end(&self, tell: impl FnOnce() + Send + 'static) {
        let pen = self.pen.lock();
        self.progress.on_end(pen.position.seal.is_sealed(), Box::new(tell));
    }

    /// Counts a follower from now on, and wakes it whenever there is more.
    pub(crate) fn attach(&self, waker: AppendWaker) -> Attached {
        let _pen = self.pen.lock();
        Attached::new(&self.progress, waker)
    }

    /// Whether a follower is one of this journal's.
    pub(crate) fn is_followed_by(&self, follower: &Attached) -> bool {
        follower.follows(&self.progress)
    }

    /// Notes whether readers have left the run: then appends are refused until it is announced that it goes on.
    pub(crate) fn set_left(&self, is_left: bool) {
        let mut pen = self.pen.lock();
        pen.is_left = is_left && pen.position.seal != Seal::Closed;
    }

    /// Notes that a reader which has read this far leaves the run. `false` if there is more, shown or not yet.
    pub(crate) fn leave_at(&self, read_to: u64) -> bool {
        let mut pen = self.pen.lock();
        let has_all = pen.extent <= read_to;
        pen.is_left |= has_all && pen.position.seal != Seal::Closed;
        has_all
    }

    /// Whether readers have left the run, and are to be told before the next event.
    pub(crate) fn is_left(&self) -> bool {
        self.pen.lock().is_left
    }

    /// Whether the journal is closed since a failure.
    pub(crate) fn has_failed(&self) -> bool {
        self.pen.lock().has_failed
    }

    /// Takes no more, because the session is gone.
    pub(crate) fn fence(&self, why: &'static str) {
        self.hold().fence(why);
    }

    /// Keeps all appenders waiting for as long as this value lives.
    pub(crate) fn hold(&self) -> HeldJournal<'_> {
        HeldJournal { progress: &self.progress, pen: self.pen.lock() }
    }

    /// Where the end of its run begins, if followers are not shown it: it is not written or not durable yet, or the answer is
    /// not saved.
    pub(crate) fn hidden_end(&self) -> Option<u64> {
        Some(self.hidden_end.load(Ordering::Acquire)).filter(|place| *place != SHOWN)
    }

    /// Whether it is sealed, without waiting for whoever appends: then it is not, as far as anybody knows.
    pub fn is_surely_sealed(&self) -> bool {
        self.pen.try_lock().is_some_and(|pen| pen.position.seal.is_sealed())
    }

    /// How far it may be shown.
    pub(crate) fn shown_extent(&self) -> u64 {
        self.progress.extent()
    }

    /// When it was last appended to; 0 if never.
    pub fn last_used_micros(&self) -> i64 {
        self.last_used_micros.load(Ordering::Relaxed)
    }

    /// Closes the file until the next append, and says whether it could: not while somebody appends.
    pub(super) fn try_rest(&self) -> bool {
        let Some(mut pen) = self.pen.try_lock() else { return false };
        pen.is_resting = true;
        if pen.writer.rest().is_err() {
            // Whoever appends next is told why.
            pen.has_failed = true;
            self.progress.end();
        }
        true
    }

    #[inline(always)]
    fn append_alone(
        &self,
        pen: &mut Pen,
        events: &[Event],
        durability: Durability,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let answer = match self.plan(pen, events, now) {
            Ok(plan) => {
                let written = self.write(pen, durability);
                self.answer(plan, durability, &written)
            }
            Err(refusal) => Err(refusal),
        };
        self.tally.answered(answered(&answer));
        answer
    }

    #[cold]
    fn append_with_others(
        &self,
        events: &[Event],
        durability: Durability,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        let request = Arc::new(Request { events: events.to_vec(), durability, answer: Mutex::new(None) });
        self.waiting_count.fetch_add(1, Ordering::AcqRel);
        self.waiting.lock().push(request.clone());
        let mut pen = self.pen.lock();
        if let Some(answer) = request.answer.lock().take() {
            return answer;
        }
        self.append_waiting(&mut pen, now);
        request.answer.lock().take().expect("it was among the waiting, and all of them were answered")
    }

    /// One write for all who wait.
    fn append_waiting(&self, pen: &mut Pen, now: Timestamp) {
        let requests = std::mem::take(&mut *self.waiting.lock());
        self.waiting_count.fetch_sub(requests.len(), Ordering::AcqRel);
        let plans: Vec<_> = requests.iter().map(|request| self.plan(pen, &request.events, now)).collect();
        let is_durable = requests.iter().any(|request| request.durability == Durability::Durable);
        let written = self.write(pen, if is_durable { Durability::Durable } else { Durability::Buffered });
        for (request, plan) in requests.iter().zip(plans) {
            let answer = plan.and_then(|plan| self.answer(plan, request.durability, &written));
            self.tally.answered(answered(&answer));
            *request.answer.lock() = Some(answer);
        }
    }

    /// Gives the events their numbers and their lines, behind those already planned. Refused events leave no trace.
    #[inline(always)]
    fn plan(&self, pen: &mut Pen, events: &[Event], now: Timestamp) -> Result<Plan, AppendError> {
        if pen.is_left {
            return Err(AppendError::Left { run: self.run.clone() });
        }
        let before = pen.planned;
        let start = pen.lines.len();
        for event in events {
            if let Err(refusal) = self.plan_one(pen, event, now) {
                pen.planned = before;
                pen.lines.truncate(start);
                return Err(refusal);
            }
        }
        Ok(Plan { first_seq: before.last_seq + 1, last_seq: pen.planned.last_seq, start, end: pen.lines.len() })
    }

    #[inline(always)]
    fn plan_one(&self, pen: &mut Pen, event: &Event, now: Timestamp) -> Result<(), AppendError> {
        event.check_length()?;
        if !pen.planned.seal.admits(event.name()) {
            return Err(AppendError::Sealed { run: self.run.clone(), event: event.name().into() });
        }
        if pen.planned.last_seq >= SEQ_MAX {
            let source = Box::new(StorageError::Fenced { run: self.run.clone(), why: "its numbers are used up" });
            return Err(AppendError::Failed { run: self.run.clone(), appended_to: None, source });
        }
        pen.planned.last_seq += 1;
        pen.planned.seal = pen.planned.seal.after(event.name(), event.terminal_state().is_some());
        pen.encoder.encode(pen.planned.last_seq, now, event, &mut pen.lines);
        Ok(())
    }

    /// Writes what is planned, and shows it to followers: not what should be durable and is not, and not the end of a
    /// run before its answer is saved.
    #[inline(always)]
    fn write(&self, pen: &mut Pen, durability: Durability) -> Written {
        if pen.lines.is_empty() {
            return Written { outcome: Ok(Ticket::buffered()), bytes: 0, last_seq: pen.position.last_seq };
        }
        if std::mem::take(&mut pen.is_resting) {
            self.open_files.take_place(&self.own);
        }
        let before = pen.position.last_seq;
        if pen.planned.seal != pen.position.seal {
            // Before a byte of it can be read.
            self.hidden_end.fetch_min(pen.extent, Ordering::AcqRel);
        }
        let written = pen.write(durability);
        self.tally.wrote(written.last_seq - before, written.bytes as u64);
        if written.outcome.as_ref().map_or(true, Ticket::has_failed) {
            self.note_failure(pen, durability);
        } else if pen.position.seal == Seal::Open {
            match durability {
                Durability::Buffered => self.progress.publish_in_turn(pen.extent),
                Durability::Durable => self.publish_when_durable(pen.extent, &written),
            }
        }
        written
    }

    fn publish_when_durable(&self, extent: u64, written: &Written) {
        let (Ok(ticket), Some(own)) = (&written.outcome, self.own.upgrade()) else { return };
        self.progress.hold_back(extent);
        // The journal stays open until then: without it nobody would know what is not to be shown yet.
        ticket.when_settled(move |is_durable| own.progress.settle(extent, is_durable));
    }

    /// Whole lines that got through before a failure are shown, unless they should be durable.
    #[cold]
    fn note_failure(&self, pen: &Pen, durability: Durability) {
        if pen.position.seal == Seal::Open {
            self.hidden_end.store(SHOWN, Ordering::Release);
        }
        if durability == Durability::Buffered && pen.position.seal == Seal::Open {
            self.progress.publish_in_turn(pen.extent);
        }
        if pen.has_failed {
            self.progress.end();
        }
    }

    #[inline(always)]
    fn answer(&self, plan: Plan, durability: Durability, written: &Written) -> Result<Appended, AppendError> {
        let ticket = match &written.outcome {
            Err(error) if plan.end > written.bytes => {
                return Err(AppendError::Failed {
                    run: self.run.clone(),
                    appended_to: (plan.start < written.bytes).then_some(written.last_seq),
                    source: error.clone(),
                });
            }
            _ if durability == Durability::Buffered => Ticket::buffered(),
            Ok(ticket) => ticket.clone(),
            Err(error) => Ticket::failed(error.clone()),
        };
        Ok(Appended { first_seq: plan.first_seq, last_seq: plan.last_seq, ticket })
    }
}

#[inline(always)]
fn answered(answer: &Result<Appended, AppendError>) -> Answered {
    match answer {
        Ok(_) => Answered::Taken,
        Err(AppendError::Failed { .. }) => Answered::Failed,
        Err(_) => Answered::Refused,
    }
}

/// What became of the planned lines.
#[derive(Debug)]
struct Written {
    outcome: Result<Ticket, Box<StorageError>>,
    /// How many bytes of them count as appended, whole lines all.
    bytes: usize,
    /// The number of the last event that was appended.
    last_seq: u64,
}

impl Pen {
    #[inline(always)]
    fn write(&mut self, durability: Durability) -> Written {
        let (outcome, bytes) = match self.writer.append(&self.lines, durability) {
            Ok(ticket) => (Ok(ticket), self.lines.len()),
            Err(AppendFailure { kept_bytes, is_over, error }) => {
                self.has_failed |= is_over;
                (Err(error), kept_bytes)
            }
        };
        self.extent += bytes as u64;
        // A last line that lacks only its line feed is there.
        let bytes = bytes + usize::from(bytes > 0 && self.lines.get(bytes) == Some(&b'\n'));
        if bytes == self.lines.len() {
            self.position = self.planned;
        } else {
            self.position = self.position.after_kept(self.encoder.shape(), &self.lines[..bytes]);
            self.planned = self.position;
        }
        self.lines.clear();
        self.lines.shrink_to(IDLE_LINES_BYTES_MAX);
        Written { outcome, bytes, last_seq: self.position.last_seq }
    }
}

#[cfg(test)]
mod tests;
