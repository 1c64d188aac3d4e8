//! The end of a run's journal, shared by all who have caught up with it: a ring of the last frames, filled by one task
//! that reads the journal whenever there may be more.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};

use super::frame::Frame;
use super::hub::Hub;
use crate::http::blocking_pool::BlockingPool;
use crate::http::time::within;
use crate::model::{RunId, RunState, SessionId};
use crate::store::{Follow, StoreError};

/// Frames that a tail holds for those who are a little behind.
const RING_FRAMES_MAX: usize = 1_024;
/// Bytes of memory for these frames, unless a single one has more.
const RING_BYTES_MAX: usize = 256 * 1024;
/// Events, and bytes of them, that are read at a time: what a reader that takes nothing keeps in memory, and a part of
/// the ring, so that those who share it get to see what is added before it has to go.
const BATCH_EVENTS_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 64 * 1024;

/// After how long a silence the file is closed and the ring is freed.
const REST_AFTER: Duration = Duration::from_secs(1);

/// A run that is followed.
#[derive(Debug)]
pub(in crate::http) struct Tail {
    pub(in crate::http) session: SessionId,
    pub(in crate::http) run: RunId,
    ring: Mutex<Ring>,
    /// Counts what was added.
    changed: watch::Sender<u64>,
    /// Wakes the task that reads.
    bell: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Ring {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// The part of the journal that the frames are all of.
    from: u64,
    to: u64,
    last_seq: u64,
    has_reader: bool,
    ended: Option<RunState>,
    has_failed: bool,
}

/// What a tail has for somebody at a place.
#[derive(Debug)]
pub(in crate::http) enum Offer {
    /// These frames; the next ones begin at this place.
    Frames(Vec<Frame>, u64),
    /// Nothing yet.
    NotYet,
    /// Nothing any more.
    Ended(RunState),
    /// What belongs there is only on disk by now.
    Behind,
    /// The journal could not be read.
    Failed,
}

/// What was read of a journal at a time.
#[derive(Debug)]
pub(in crate::http) struct Batch {
    pub(in crate::http) frames: Vec<Frame>,
    /// Nothing more is there at the moment.
    pub(in crate::http) is_caught_up: bool,
    /// Nothing more will come, because the run is over.
    pub(in crate::http) ended: Option<RunState>,
}

/// Reads a bounded part of what is there.
pub(in crate::http) fn read_batch(follow: &mut Follow, run: &RunId) -> Result<Batch, StoreError> {
    let (mut frames, mut bytes) = (Vec::new(), 0);
    while frames.len() < BATCH_EVENTS_MAX && bytes < BATCH_BYTES_MAX {
        let Some(frame) = follow.poll_as(|event| Frame::new(run, event))? else { break };
        bytes += frame.bytes();
        frames.push(frame);
    }
    let is_caught_up = frames.len() < BATCH_EVENTS_MAX && bytes < BATCH_BYTES_MAX;
    let may_be_over = is_caught_up && frames.last().is_none_or(|last| last.terminal.is_some());
    let ended = if may_be_over { follow.ended()? } else { None };
    Ok(Batch { frames, is_caught_up, ended })
}

impl Tail {
    pub(super) fn new(session: &SessionId, run: &RunId) -> Arc<Self> {
        Arc::new(Tail {
            session: session.clone(),
            run: run.clone(),
            ring: Mutex::default(),
            changed: watch::Sender::new(0),
            bell: Arc::new(Notify::new()),
        })
    }

    /// Whether a follower that comes now needs another one: its journal could not be read, or the run was over, and may have
    /// gone on since.
    pub(super) fn is_spent(&self) -> bool {
        let ring = self.ring.lock();
        ring.has_failed || ring.ended.is_some()
    }

    pub(in crate::http) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The place behind an event that the ring still has.
    pub(in crate::http) fn place_behind(&self, seq: u64) -> Option<u64> {
        let ring = self.ring.lock();
        if !ring.has_reader || ring.has_failed {
            return None;
        }
        if seq == ring.last_seq && ring.last_seq > 0 {
            return Some(ring.to);
        }
        let at = ring.frames.iter().position(|frame| frame.seq == Some(seq))?;
        Some(ring.frames.get(at + 1).map_or(ring.to, |next| next.offset))
    }

    /// Somebody has read everything up to here and goes on with the tail. The `Follow` of the first becomes the tail's
    /// own. One who is not even there where the ring begins gets its own back.
    pub(in crate::http) fn join(self: &Arc<Self>, follow: Box<Follow>, hub: &Hub) -> Result<u64, Box<Follow>> {
        let place = follow.read_to();
        let mut ring = self.ring.lock();
        if ring.has_reader {
            return if place >= ring.from { Ok(place) } else { Err(follow) };
        }
        (ring.from, ring.to, ring.last_seq) = (place, place, follow.last_seq());
        ring.has_reader = true;
        drop(ring);
        let (tail, bell) = (Arc::downgrade(self), self.bell.clone());
        let (blocking, reader_files) = (hub.blocking.clone(), hub.reader_files.clone());
        tokio::spawn(Pump { tail, bell, run: self.run.clone(), blocking, reader_files }.run(*follow));
        Ok(place)
    }

    /// What there is for somebody who has everything before this place.
    pub(in crate::http) fn offer(&self, place: u64, frames_max: usize, bytes_max: usize) -> Offer {
        let ring = self.ring.lock();
        if place < ring.from {
            return Offer::Behind;
        }
        let first = ring.frames.partition_point(|frame| frame.offset < place);
        let (mut frames, mut bytes) = (Vec::new(), 0);
        for frame in ring.frames.range(first..).take(frames_max) {
            if bytes > 0 && bytes + frame.bytes() > bytes_max {
                break;
            }
            bytes += frame.bytes();
            frames.push(frame.clone());
        }
        if frames.is_empty() {
            return match ring.ended {
                Some(ended) => Offer::Ended(ended),
                None if ring.has_failed => Offer::Failed,
                None => Offer::NotYet,
            };
        }
        let next = ring.frames.get(first + frames.len()).map_or(ring.to, |next| next.offset);
        Offer::Frames(frames, next)
    }

    /// How far somebody at this place is behind.
    pub(in crate::http) fn lag(&self, place: u64) -> u64 {
        self.ring.lock().to.saturating_sub(place)
    }

    fn push(&self, frames: Vec<Frame>, to: u64) {
        let mut ring = self.ring.lock();
        for frame in frames {
            ring.last_seq = ring.last_seq.max(frame.seq.unwrap_or(0));
            ring.bytes += frame.memory();
            ring.frames.push_back(frame);
        }
        ring.to = to;
        ring.make_room();
        drop(ring);
        self.tell();
    }

    fn end(&self, ended: Option<RunState>) {
        let mut ring = self.ring.lock();
        ring.has_failed = ended.is_none();
        ring.ended = ended;
        drop(ring);
        self.tell();
    }

    /// Whoever is still behind reads from disk.
    fn clear(&self) {
        let mut ring = self.ring.lock();
        ring.frames = VecDeque::new();
        (ring.bytes, ring.from) = (0, ring.to);
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.bell.notify_one();
    }
}

impl Ring {
    fn make_room(&mut self) {
        while self.frames.len() > RING_FRAMES_MAX || (self.bytes > RING_BYTES_MAX && self.frames.len() > 1) {
            let Some(gone) = self.frames.pop_front() else { break };
            self.bytes -= gone.memory();
            self.from = self.frames.front().map_or(self.to, |next| next.offset);
        }
    }
}

/// The task that fills a tail for as long as a follower holds it.
struct Pump {
    tail: Weak<Tail>,
    bell: Arc<Notify>,
    run: RunId,
    blocking: Arc<BlockingPool>,
    reader_files: Arc<Semaphore>,
}

impl Pump {
    async fn run(self, mut follow: Follow) {
        let bell = self.bell.clone();
        if follow.wake_with(Arc::new(move || bell.notify_one())).is_err() {
            return self.fail();
        }
        follow.pass_over_nothing();
        let mut file_place = None;
        while self.tail.strong_count() > 0 {
            file_place = file_place.or_else(|| self.reader_files.clone().try_acquire_owned().ok());
            let Some((read, given_back)) = self.read(follow).await else { return self.fail() };
            follow = given_back;
            let batch = match read {
                Ok(batch) => batch,
                Err(error) => return self.fail_because(&error),
            };
            let Some(tail) = self.tail.upgrade() else { return };
            if let Some(last) = batch.frames.last() {
                let to = if batch.is_caught_up { follow.read_to() } else { last.end() };
                tail.push(batch.frames, to);
            }
            if batch.ended.is_some() {
                return tail.end(batch.ended);
            }
            drop(tail);
            if file_place.is_none() {
                follow.rest();
            }
            if batch.is_caught_up && !self.is_woken_soon().await {
                file_place = None;
                self.rest(&mut follow);
                self.bell.notified().await;
            }
        }
    }

    async fn read(&self, mut follow: Follow) -> Option<(Result<Batch, StoreError>, Follow)> {
        let run = self.run.clone();
        self.blocking.tail(move || (read_batch(&mut follow, &run), follow)).await.ok()
    }

    async fn is_woken_soon(&self) -> bool {
        within(REST_AFTER, self.bell.notified()).await.is_some()
    }

    /// Holds nothing while nothing happens. Followers that are still behind read from disk.
    fn rest(&self, follow: &mut Follow) {
        follow.rest();
        self.tail.upgrade().iter().for_each(|tail| tail.clear());
    }

    fn fail_because(&self, error: &StoreError) {
        tracing::warn!(run = %self.run, %error, "a run that is followed could not be read or ended");
        self.fail();
    }

    fn fail(&self) {
        self.tail.upgrade().iter().for_each(|tail| tail.end(None));
    }
}

#[cfg(test)]
mod tests;
