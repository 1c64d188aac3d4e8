//! One reader of one run: behind, it reads the journal; caught up, it shares the tail; too slow, it is told and reads
//! the journal again. It holds a place and nothing else while nothing happens.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinError;

use super::frame::Frame;
use super::hub::Hub;
use super::tail::{Batch, Offer, Tail, read_batch};
use crate::http::blocking_pool::Reading;
use crate::http::error::ApiError;
use crate::model::RunState;
use crate::store::{After, Follow, StoreError};

/// Frames, and bytes of them, that are handed on at a time: what a reader that takes nothing may keep in memory.
const HANDED_FRAMES_MAX: usize = 64;
const HANDED_BYTES_MAX: usize = 64 * 1024;

/// What a reader does that has everything there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum Waits {
    /// It waits for more, until the run is over.
    ForMore,
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
    /// It has everything that is there now, or everything up to its bound. Not for readers that wait without a bound.
    CaughtUp,
    /// The run has ended.
    End(RunState),
    /// The journal could not be read.
    Failed,
}

#[derive(Debug)]
enum Stage {
    /// About to open the journal at this place.
    Unopened(u64),
    /// About to read.
    Behind(Box<Follow>),
    Reading(Reading<Result<Read, StoreError>>),
    /// Up to this place.
    CaughtUp(u64),
    Over(RunState),
    Failed,
}

type Read = (Batch, Box<Follow>);

/// A reader of a run.
#[derive(Debug)]
pub(in crate::http) struct Follower {
    hub: Arc<Hub>,
    tail: Arc<Tail>,
    news: watch::Receiver<u64>,
    stage: Stage,
    after_seq: u64,
    last_seq: u64,
    waits: Waits,
    /// The last event that it gives: what follows belongs to a later part of its session's stream.
    until_seq: Option<u64>,
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
        let (last_seq, until_seq, file_place) = (after_seq, None, None);
        Follower { hub, tail, news, stage, after_seq, last_seq, waits, until_seq, file_place }
    }

    /// The last event that it was given, or said to have.
    pub(in crate::http) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// How the run has ended, if it knows that already; it may have events to give before.
    pub(super) fn known_end(&self) -> Option<RunState> {
        if let Stage::Over(state) = self.stage { Some(state) } else { None }
    }

    /// Whether there may be more to read than it was given.
    pub(super) fn is_behind(&self) -> bool {
        !matches!(self.stage, Stage::CaughtUp(_) | Stage::Over(_))
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

    /// Gives nothing after this event.
    pub(in crate::http) fn stop_after(&mut self, seq: u64) {
        self.until_seq = Some(self.until_seq.map_or(seq, |until| until.min(seq)));
    }

    /// Whether it has given everything up to its bound.
    fn is_at_bound(&self) -> bool {
        self.until_seq.is_some_and(|until| self.last_seq >= until)
    }

    /// The frames up to its bound. If some come after it, it has everything before them.
    pub(in crate::http) fn within_bound(&mut self, mut frames: Vec<Frame>) -> Vec<Frame> {
        let Some(until) = self.until_seq else { return frames };
        if let Some(at) = frames.iter().position(|frame| frame.seq.is_some_and(|seq| seq > until)) {
            frames.truncate(at);
            self.last_seq = until;
        }
        frames
    }

    /// Begins again with the first event.
    pub(in crate::http) fn start_over(&mut self) {
        (self.stage, self.after_seq, self.last_seq) = (Stage::Unopened(0), 0, 0);
    }

    /// What comes next. A caller that stops waiting for it loses nothing.
    pub(in crate::http) async fn next(&mut self) -> Next {
        loop {
            if self.is_at_bound() {
                return Next::CaughtUp;
            }
            match &mut self.stage {
                Stage::Unopened(_) | Stage::Behind(_) => self.begin_reading(),
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
                        // The tail is held, and with it the sender.
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
        let stage = std::mem::replace(&mut self.stage, Stage::Failed);
        self.stage = Stage::Reading(self.hub.blocking.read(move || {
            let mut follow = match stage {
                Stage::Behind(follow) => follow,
                Stage::Unopened(place) => Box::new(store.follow_at(&tail.session, &tail.run, after, place)?),
                _ => unreachable!("it is about to read"),
            };
            let batch = read_batch(&mut follow, &tail.run)?;
            if !keeps_file && !batch.is_caught_up {
                follow.rest();
            }
            Ok((batch, follow))
        }));
    }

    fn take_read(&mut self, read: Result<Result<Result<Read, StoreError>, ApiError>, JoinError>) -> Option<Next> {
        self.stage = Stage::Failed;
        let (batch, follow) = match read {
            Ok(Ok(Ok(read))) => read,
            Ok(Ok(Err(StoreError::RunNotFound { .. }))) => {
                self.stage = Stage::Over(RunState::Gone);
                return None;
            }
            Ok(Ok(Err(error))) => {
                tracing::warn!(session = %self.tail.session, run = %self.tail.run, %error, "a journal could not be read");
                return Some(Next::Failed);
            }
            Ok(Err(_)) | Err(_) => return Some(Next::Failed),
        };
        if batch.is_caught_up && batch.frames.is_empty() && follow.last_seq() < self.after_seq {
            return Some(Next::Ahead { last_seq: follow.last_seq() });
        }
        let Batch { frames, is_caught_up, ended } = batch;
        self.stage = match ended {
            Some(ended) => Stage::Over(ended),
            None if !is_caught_up => Stage::Behind(follow),
            None if self.waits == Waits::ForMore => self.join(follow),
            None => Stage::CaughtUp(follow.read_to()),
        };
        if !matches!(self.stage, Stage::Behind(_)) {
            self.file_place = None;
        }
        self.give(frames)
    }

    /// Gives frames, as far as its bound.
    fn give(&mut self, frames: Vec<Frame>) -> Option<Next> {
        self.last_seq = frames.iter().rev().find_map(|frame| frame.seq).unwrap_or(self.last_seq);
        let frames = self.within_bound(frames);
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
                self.give(frames)
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

    /// Nothing more is read for a reader that leaves.
    fn stop_reading(&mut self) {
        if let Stage::Reading(reading) = &self.stage {
            reading.abort();
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop_reading();
    }
}
