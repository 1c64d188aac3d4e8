//! One reader of one run: behind, it reads the journal; caught up, it shares the tail; too slow, it is told and reads
//! the journal again. It holds a place and nothing else while nothing happens.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinError;

use super::frame::Frame;
use super::hub::Hub;
use super::tail::{Batch, Ended, Offer, Tail, read_batch};
use crate::http::desk::Reading;
use crate::http::error::ApiError;
use crate::http::time::sleep;
use crate::model::TerminalState;
use crate::store::{After, Follow, StoreError};

/// Frames, and bytes of them, that are handed on at a time: what a reader that takes nothing may keep in memory.
const HANDED_FRAMES_MAX: usize = 64;
const HANDED_BYTES_MAX: usize = 64 * 1024;

/// How often a dead run is looked at again that somebody else is about to end, and how long before that.
const SETTLING_LOOKS: u32 = 40;
const SETTLING_PAUSE: Duration = Duration::from_millis(50);

/// What a reader does that has everything there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Waits {
    /// It waits for more.
    ForMore,
    /// It waits for no more than the end of a run that nobody produces any more.
    ForTheEnd,
    /// It is done.
    No,
}

/// What comes next for a reader.
#[derive(Debug)]
pub(in crate::http) enum Next {
    /// Events, in order.
    Frames(Vec<Frame>),
    /// The reader was too slow. What follows comes from disk, and nothing is missing.
    Gap {
        /// The last event that it has.
        after_seq: u64,
    },
    /// The number that it gave is beyond everything that is there.
    Ahead {
        /// The last event that is there.
        last_seq: u64,
    },
    /// It has everything that is there now. Only for those who do not wait.
    CaughtUp,
    /// The run has ended.
    End(Ended),
    /// The journal could not be read.
    Failed,
}

#[derive(Debug)]
enum Stage {
    /// About to open the journal at this place.
    Unopened(u64),
    /// About to read.
    Behind(Box<Follow>),
    /// About to read again in a moment.
    Pausing(Box<Follow>),
    Reading(Reading<Result<Read, StoreError>>),
    /// Up to this place.
    CaughtUp(u64),
    Over(Ended),
    Failed,
}

type Read = (Batch, IsLeft, Box<Follow>);

/// Whether nobody produces the run any more, although it was not ended.
type IsLeft = bool;

/// A reader of a run.
#[derive(Debug)]
pub(in crate::http) struct Follower {
    hub: Arc<Hub>,
    tail: Arc<Tail>,
    news: watch::Receiver<u64>,
    stage: Stage,
    after_seq: u64,
    last_seq: u64,
    last_end: Option<TerminalState>,
    waits: Waits,
    /// How often it looked whether a dead run has ended.
    looks: u32,
    /// The right to hold its file open between two reads, while it is behind.
    file_place: Option<OwnedSemaphorePermit>,
}

impl Follower {
    /// A reader who has everything up to this event; 0 for nothing. If the tail still has what it lacks, nothing is read.
    pub(in crate::http) fn new(hub: &Arc<Hub>, tail: Arc<Tail>, after_seq: u64, waits: Waits) -> Self {
        let news = tail.subscribe();
        let is_live = waits == Waits::ForMore;
        let shared = Some(after_seq).filter(|seq| *seq > 0 && is_live).and_then(|seq| tail.place_behind(seq));
        let stage = shared.map_or(Stage::Unopened(0), Stage::CaughtUp);
        let hub = hub.clone();
        let (last_seq, last_end, looks, file_place) = (after_seq, None, 0, None);
        Follower { hub, tail, news, stage, after_seq, last_seq, last_end, waits, looks, file_place }
    }

    /// The last event that it was given, or said to have.
    pub(in crate::http) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    pub(in crate::http) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    pub(in crate::http) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Takes what is there, and waits for no more.
    pub(in crate::http) fn stop_waiting(&mut self) {
        self.waits = Waits::No;
    }

    /// Another run has begun, so that this one has ended or will be ended. Reads the rest from disk.
    pub(in crate::http) fn settle(&mut self) {
        self.waits = Waits::ForTheEnd;
        if let Stage::CaughtUp(place) = self.stage {
            (self.stage, self.after_seq) = (Stage::Unopened(place), 0);
        }
    }

    /// Waits for more after all.
    pub(in crate::http) fn wait_on(&mut self) {
        if self.waits != Waits::ForMore {
            self.settle();
            self.waits = Waits::ForMore;
        }
    }

    /// Begins again with the first event.
    pub(in crate::http) fn start_over(&mut self) {
        (self.stage, self.after_seq, self.last_seq) = (Stage::Unopened(0), 0, 0);
    }

    /// What comes next. Whoever stops waiting for it loses nothing.
    pub(in crate::http) async fn next(&mut self) -> Next {
        loop {
            match &mut self.stage {
                Stage::Unopened(_) | Stage::Behind(_) => self.begin_reading(),
                Stage::Pausing(_) => {
                    sleep(SETTLING_PAUSE).await;
                    self.begin_reading();
                }
                Stage::Reading(reading) => {
                    let read = reading.await;
                    if let Some(next) = self.take_read(read) {
                        return next;
                    }
                }
                Stage::CaughtUp(place) => {
                    let place = *place;
                    self.news.mark_unchanged();
                    match self.tail.offer(place, HANDED_FRAMES_MAX, HANDED_BYTES_MAX) {
                        Offer::NotYet if self.waits != Waits::ForMore => return Next::CaughtUp,
                        // The tail is held, and so is whoever tells.
                        Offer::NotYet => drop(self.news.changed().await),
                        offer => {
                            if let Some(next) = self.take_offer(place, offer) {
                                return next;
                            }
                        }
                    }
                }
                Stage::Over(ended) => return Next::End(*ended),
                Stage::Failed => return Next::Failed,
            }
        }
    }

    fn begin_reading(&mut self) {
        if self.file_place.is_none() {
            self.file_place = self.hub.reader_files.clone().try_acquire_owned().ok();
        }
        let keeps_file = self.file_place.is_some();
        let (store, tail, after) = (self.hub.store().clone(), self.tail.clone(), After::Seq(self.last_seq));
        let waits = self.waits;
        let stage = std::mem::replace(&mut self.stage, Stage::Failed);
        self.stage = Stage::Reading(self.hub.desk.read(move || {
            let mut follow = match stage {
                Stage::Behind(follow) | Stage::Pausing(follow) => follow,
                Stage::Unopened(place) => Box::new(store.follow_at(&tail.session, &tail.run, after, place)?),
                _ => unreachable!("it is about to read"),
            };
            let batch = read_batch(&mut follow, &tail.run, waits != Waits::No)?;
            let is_left = waits == Waits::ForTheEnd && batch.is_caught_up && !batch.is_over && follow.is_abandoned()?;
            if !keeps_file && !batch.is_caught_up {
                follow.rest();
            }
            Ok((batch, is_left, follow))
        }));
    }

    fn take_read(&mut self, read: Result<Result<Result<Read, StoreError>, ApiError>, JoinError>) -> Option<Next> {
        self.stage = Stage::Failed;
        let (batch, is_left, follow) = match read {
            Ok(Ok(Ok(read))) => read,
            Ok(Ok(Err(error))) => {
                tracing::warn!(session = %self.tail.session, run = %self.tail.run, %error, "a journal could not be read");
                return Some(Next::Failed);
            }
            Ok(Err(_)) | Err(_) => return Some(Next::Failed),
        };
        if batch.is_caught_up && batch.frames.is_empty() && follow.last_seq() < self.after_seq {
            return Some(Next::Ahead { last_seq: follow.last_seq() });
        }
        let Batch { frames, is_caught_up, is_over } = batch;
        self.note(&frames);
        // Whoever comes back behind the last event is not given the one that says how the run ended.
        self.last_end = self.last_end.or(follow.ending());
        self.stage = match is_over {
            true => Stage::Over(self.last_end.map_or(Ended::Gone, Ended::As)),
            false if !is_caught_up => Stage::Behind(follow),
            false if self.waits == Waits::ForMore => self.join(follow),
            // The next look finds nothing to give, and ends it.
            false if is_left && !frames.is_empty() => Stage::Behind(follow),
            false if is_left && self.looks < SETTLING_LOOKS => {
                self.looks += 1;
                Stage::Pausing(follow)
            }
            false => Stage::CaughtUp(follow.read_to()),
        };
        if !matches!(self.stage, Stage::Behind(_) | Stage::Pausing(_)) {
            self.file_place = None;
        }
        (!frames.is_empty()).then_some(Next::Frames(frames))
    }

    /// Shares the tail, if that has everything from here on; else goes on reading.
    fn join(&self, follow: Box<Follow>) -> Stage {
        self.tail.join(follow, &self.hub).map_or_else(Stage::Behind, Stage::CaughtUp)
    }

    fn take_offer(&mut self, place: u64, offer: Offer) -> Option<Next> {
        match offer {
            Offer::Frames(frames, next) => {
                self.hub.note_lag(self.tail.lag(place));
                self.stage = Stage::CaughtUp(next);
                self.note(&frames);
                Some(Next::Frames(frames))
            }
            Offer::Ended(ended) => {
                self.stage = Stage::Over(ended);
                None
            }
            Offer::Behind => Some(self.fall_back(place)),
            Offer::Failed | Offer::NotYet => {
                self.stage = Stage::Failed;
                None
            }
        }
    }

    /// The tail has gone on without it.
    fn fall_back(&mut self, place: u64) -> Next {
        self.hub.note_gap();
        (self.stage, self.after_seq) = (Stage::Unopened(place), 0);
        Next::Gap { after_seq: self.last_seq }
    }

    /// Whoever leaves is read nothing for.
    fn stop_reading(&mut self) {
        if let Stage::Reading(reading) = &self.stage {
            reading.abort();
        }
    }

    fn note(&mut self, frames: &[Frame]) {
        for frame in frames {
            self.last_seq = frame.seq.unwrap_or(self.last_seq);
            self.last_end = frame.terminal.or(self.last_end);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop_reading();
    }
}
