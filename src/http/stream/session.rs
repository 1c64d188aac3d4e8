//! The stream of a whole session: its runs one after the other, then what begins or goes on, until the session is gone.
//!
//! The order of the stream is that of the stored segments: a run that goes on after another one began does so in a segment of
//! its own, after that run. So one event id says what a reader has seen, and nothing is skipped or sent twice.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::feed::{Feed, Piece};
use super::follower::{Follower, Next, Waits};
use super::frame::{lone_id, notice};
use super::hub::{Hub, SessionNews};
use super::run::{end, events, gap, snapshot};
use crate::http::error::ApiError;
use crate::journal::Segment;
use crate::limits::SEQ_MAX;
use crate::model::{Cursor, RunId, RunState, SessionId};
use crate::store::{After, StoreError};

/// Where a follower of a session begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum StartAt {
    /// With the first event of the first run.
    Start,
    /// With the first event of the run that is live, or the next one.
    Now,
    /// After this event.
    After(RunId, u64),
    /// Its cursor means nothing.
    Unusable(&'static str),
}

impl StartAt {
    /// Reads the cursor of a follower of a session: `run:seq`, `0` for everything, or `now`.
    pub(in crate::http) fn parse(text: &str) -> Self {
        match text.trim() {
            "0" => StartAt::Start,
            "now" => StartAt::Now,
            text => Self::after(&Cursor::parse(text)).unwrap_or(StartAt::Unusable("unknown")),
        }
    }

    fn after(cursor: &Cursor) -> Option<Self> {
        Some(StartAt::After(RunId::parse(cursor.run.as_deref()?).ok()?, cursor.seq?))
    }
}

/// A session's runs, as a feed.
#[derive(Debug)]
pub(in crate::http) struct SessionFeed {
    hub: Arc<Hub>,
    session: SessionId,
    news: broadcast::Receiver<SessionNews>,
    _listening: Arc<broadcast::Sender<SessionNews>>,
    /// Sent first.
    opening: VecDeque<Bytes>,
    /// The segments that are to be shown after the present one.
    to_show: VecDeque<Segment>,
    current: Option<Follower>,
    /// What it said, and what was not sent yet.
    said: Option<Next>,
    /// The last run, if it was over. It may go on where it stands, if it is not sealed, or sealed with `done`, after which a
    /// `stream_end` may come. Any other run that goes on does so in a segment of its own.
    left: Option<LeftRun>,
    /// A run whose end the reader was told, and whose rest is shown.
    ended_before: Option<RunId>,
    /// The present run was opened again, so that it is not over although that was just reported.
    is_resumed: bool,
    /// The segments that it knows of, shown or not: each run with its place.
    known: HashSet<(RunId, u64)>,
    /// The session is gone.
    is_deleted: bool,
    is_over: bool,
    has_missed: bool,
}

/// A run that was over when it was left.
#[derive(Debug)]
struct LeftRun {
    run: RunId,
    /// The last event that was shown.
    last_seq: u64,
    /// Whether the reader was told how it ended.
    is_sealed: bool,
}

/// The segments of a session as they are found, and the run that answers its pending turn.
struct Segments {
    in_order: Vec<Segment>,
    live: Option<RunId>,
}

impl SessionFeed {
    pub(in crate::http) async fn begin(
        hub: &Arc<Hub>,
        session: &SessionId,
        start_at: StartAt,
    ) -> Result<Self, ApiError> {
        // A run that begins from here on is heard of.
        let (_listening, news) = hub.listen(session);
        let segments = find_segments(hub, session).await?;
        let mut feed = SessionFeed {
            hub: hub.clone(),
            session: session.clone(),
            news,
            _listening,
            opening: VecDeque::new(),
            to_show: VecDeque::new(),
            current: None,
            said: None,
            left: None,
            ended_before: None,
            is_resumed: false,
            known: segments.in_order.iter().map(key_of).collect(),
            is_deleted: false,
            is_over: false,
            has_missed: false,
        };
        feed.plan(segments, start_at).await?;
        Ok(feed)
    }

    async fn plan(&mut self, segments: Segments, start_at: StartAt) -> Result<(), ApiError> {
        let (first, after_seq) = match start_at {
            StartAt::Start => (0, 0),
            StartAt::Now => return self.start_now(segments).await,
            StartAt::After(run, seq) => match segments.holding(&run, seq) {
                Some(at) => (at, seq),
                None => return self.start_over(segments, "foreign").await,
            },
            StartAt::Unusable(reason) => return self.start_over(segments, reason).await,
        };
        self.to_show = segments.in_order.into_iter().skip(first).collect();
        if let Some(first) = self.to_show.front_mut() {
            first.after_seq = first.after_seq.max(after_seq);
        }
        Ok(())
    }

    /// Begins with what is live, and says first from where on a reader goes on that is cut before its first event.
    async fn start_now(&mut self, segments: Segments) -> Result<(), ApiError> {
        let place = match segments.live_place() {
            Some(at) => {
                self.to_show = segments.in_order.into_iter().skip(at).collect();
                self.to_show.front().map(|live| (live.run.clone(), live.after_seq))
            }
            None => match segments.in_order.last() {
                Some(last) => Some(self.leave_last(&last.run).await?),
                None => None,
            },
        };
        self.opening.push_back(lone_id(place.as_ref().map(|(run, seq)| (run, *seq))));
        Ok(())
    }

    /// Leaves out the last run, unless it has events that are not shown yet, and says where it ends now.
    async fn leave_last(&mut self, run: &RunId) -> Result<(RunId, u64), ApiError> {
        let RunTail { last_seq, is_sealed, has_more } = tail_now(&self.hub, &self.session, run).await?;
        match has_more {
            true => {
                self.to_show.push_back(Segment { run: run.clone(), after_seq: last_seq, until_seq: None, order: 0 })
            }
            false => self.left = Some(LeftRun { run: run.clone(), last_seq, is_sealed }),
        }
        Ok((run.clone(), last_seq))
    }

    async fn start_over(&mut self, segments: Segments, reason: &'static str) -> Result<(), ApiError> {
        self.hub.note_snapshot();
        self.opening.push_back(snapshot(reason, None, None));
        self.start_now(segments).await
    }

    fn hear(&mut self, news: Result<SessionNews, RecvError>) {
        match news {
            Ok(SessionNews::Begun(segment)) => self.add(segment),
            // One that it knows may have been left before it was continued.
            Ok(SessionNews::Continued(segment)) if self.known.contains(&key_of(&segment)) => self.resume(&segment.run),
            Ok(SessionNews::Continued(segment)) => self.add(segment),
            Ok(SessionNews::Resumed(run)) => self.resume(&run),
            Ok(SessionNews::Deleted) | Err(RecvError::Closed) => self.is_deleted = true,
            Err(RecvError::Lagged(_)) => self.has_missed = true,
        }
    }

    /// Hears all that there is to hear. After something that it missed it has to look for itself, or runs would change places.
    fn hear_all(&mut self) {
        while !self.has_missed
            && let Some(news) = heard(&mut self.news)
        {
            self.hear(news);
        }
    }

    /// Shows a segment after all others, unless it is known. The segment of its run before it ends where it begins.
    fn add(&mut self, segment: Segment) {
        if !self.known.insert(key_of(&segment)) {
            return;
        }
        self.end_before(&segment);
        self.left = None;
        self.to_show.push_back(segment);
    }

    fn end_before(&mut self, segment: &Segment) {
        let is_its = |current: &&mut Follower| current.tail().run == segment.run;
        self.current.as_mut().filter(is_its).into_iter().for_each(|current| current.stop_after(segment.after_seq));
        let earlier = self.to_show.iter_mut().filter(|shown| shown.run == segment.run && shown.until_seq.is_none());
        earlier.for_each(|shown| shown.until_seq = Some(segment.after_seq));
    }

    /// A run that was over takes events again.
    fn resume(&mut self, run: &RunId) {
        self.is_resumed |= self.current.as_ref().is_some_and(|current| current.tail().run == *run);
        if let Some(left) = self.left.take_if(|left| left.run == *run) {
            self.show_again(left);
        }
    }

    /// Shows the rest of a run that was left.
    fn show_again(&mut self, left: LeftRun) {
        let LeftRun { run, last_seq: after_seq, is_sealed } = left;
        self.ended_before = is_sealed.then(|| run.clone());
        self.to_show.push_front(Segment { run, after_seq, until_seq: None, order: 0 });
    }

    /// Looks for what it was not told of.
    async fn catch_up_on_segments(&mut self) -> Result<(), ApiError> {
        let segments = find_segments(&self.hub, &self.session).await?;
        self.has_missed = false;
        // What it was not told of may have been more of the last run, which comes before the rest.
        if let Some(left) = self.left.take() {
            self.show_again(left);
        }
        segments.in_order.into_iter().for_each(|segment| self.add(segment));
        Ok(())
    }

    /// The next thing that happens.
    async fn step(&mut self) -> Step {
        match &mut self.current {
            Some(current) => tokio::select! {
                biased;
                next = current.next() => Step::Said(next),
                news = self.news.recv() => Step::Heard(news),
            },
            None => Step::Heard(self.news.recv().await),
        }
    }

    /// What the reader is sent of what its run had to say.
    fn say(&mut self, next: Next) -> Option<Bytes> {
        let follower = self.current.as_mut()?;
        let run = follower.tail().run.clone();
        match next {
            Next::Frames(frames) => {
                let frames = follower.within_bound(frames);
                (!frames.is_empty()).then(|| events(&frames))
            }
            Next::Gap { after_seq } => Some(gap(&run, after_seq)),
            Next::Ahead { last_seq } => {
                follower.start_over();
                self.hub.note_snapshot();
                Some(snapshot("ahead", Some(&run), Some(last_seq)))
            }
            Next::End(ended) => self.leave(ended),
            Next::CaughtUp => {
                self.current = None;
                None
            }
            // Going on with the next run would hide the rest of this one for good: the reader comes back with its cursor.
            Next::Failed => {
                self.is_over = true;
                None
            }
        }
    }

    /// Leaves a run that is over. It may go on.
    fn leave(&mut self, ended: RunState) -> Option<Bytes> {
        let follower = self.current.take()?;
        let (run, last_seq) = (follower.tail().run.clone(), follower.last_seq());
        let is_known = self.ended_before.take_if(|known| *known == run).is_some();
        let left = LeftRun { run: run.clone(), last_seq, is_sealed: ended.end().is_some() };
        if std::mem::take(&mut self.is_resumed) && !is_known {
            let notice = left.is_sealed.then(|| end(&run, last_seq, ended));
            self.show_again(left);
            return notice;
        }
        self.left = Some(left);
        (!is_known).then(|| end(&run, last_seq, ended))
    }

    fn take_next_segment(&mut self) {
        if self.current.is_none()
            && let Some(Segment { run, after_seq, until_seq, .. }) = self.to_show.pop_front()
        {
            let tail = self.hub.tail(&self.session, &run);
            let mut follower = Follower::new(&self.hub, tail, after_seq, Waits::ForMore);
            until_seq.into_iter().for_each(|until| follower.stop_after(until));
            (self.current, self.is_resumed) = (Some(follower), false);
        }
    }
}

/// What there is to hear now.
fn heard(news: &mut broadcast::Receiver<SessionNews>) -> Option<Result<SessionNews, RecvError>> {
    match news.try_recv() {
        Ok(news) => Some(Ok(news)),
        Err(TryRecvError::Lagged(missed)) => Some(Err(RecvError::Lagged(missed))),
        Err(TryRecvError::Empty | TryRecvError::Closed) => None,
    }
}

enum Step {
    Said(Next),
    Heard(Result<SessionNews, RecvError>),
}

impl Feed for SessionFeed {
    async fn next(&mut self) -> Option<Piece> {
        if let Some(opening) = self.opening.pop_front() {
            return Some(Ok(opening));
        }
        while !self.is_over {
            // Before what a run said is sent: it may have gone on elsewhere, after other runs.
            self.hear_all();
            if self.has_missed && !self.is_deleted && self.catch_up_on_segments().await.is_err() {
                return None;
            }
            if let Some(sent) = self.said.take().and_then(|next| self.say(next)) {
                return Some(Ok(sent));
            }
            if self.is_deleted {
                self.is_over = true;
                let end = json!({ "run_id": null, "last_seq": null, "state": "deleted" });
                return Some(Ok(notice("end", &end)));
            }
            self.take_next_segment();
            match self.step().await {
                Step::Said(next) => self.said = Some(next),
                Step::Heard(news) => self.hear(news),
            }
        }
        None
    }
}

impl Segments {
    /// Where the last segment of the live run stands.
    fn live_place(&self) -> Option<usize> {
        let live = self.live.as_ref()?;
        self.in_order.iter().rposition(|segment| segment.run == *live)
    }

    /// The segment that holds an event.
    fn holding(&self, run: &RunId, seq: u64) -> Option<usize> {
        let holds = |segment: &Segment| segment.run == *run && segment.until_seq.is_none_or(|until| seq <= until);
        self.in_order.iter().position(holds)
    }
}

fn key_of(segment: &Segment) -> (RunId, u64) {
    (segment.run.clone(), segment.order)
}

async fn find_segments(hub: &Arc<Hub>, session: &SessionId) -> Result<Segments, ApiError> {
    let (store, session) = (hub.store().clone(), session.clone());
    let found = hub.blocking.read(move || {
        let in_order = store.segments(&session)?;
        let live = store.metadata(&session)?.active_run().and_then(|run| RunId::parse(&run).ok());
        Ok::<_, StoreError>(Segments { in_order, live })
    });
    Ok(found.await.map_err(|broken| ApiError::broken(broken.to_string()))???)
}

/// The end of a run's journal, as far as it is shown.
struct RunTail {
    last_seq: u64,
    is_sealed: bool,
    /// Whether there are events that are not shown yet.
    has_more: bool,
}

/// Reads the end of a run's journal, and leaves the run if it has no more.
async fn tail_now(hub: &Arc<Hub>, session: &SessionId, run: &RunId) -> Result<RunTail, ApiError> {
    let (store, session, run) = (hub.store().clone(), session.clone(), run.clone());
    let found = hub.blocking.read(move || {
        let mut follow = store.follow(&session, &run, After::Seq(SEQ_MAX))?;
        follow.poll()?;
        let (has_more, is_sealed) = (!follow.leave(), follow.is_sealed());
        Ok::<_, StoreError>(RunTail { last_seq: follow.last_seq(), is_sealed, has_more })
    });
    Ok(found.await.map_err(|broken| ApiError::broken(broken.to_string()))???)
}

#[cfg(test)]
mod tests;
