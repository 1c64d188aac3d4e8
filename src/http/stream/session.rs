//! The stream of a whole session: its runs one after the other, then whatever begins, until the session is gone.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::feed::{Feed, Piece};
use super::follower::{Follower, Next, Waits};
use super::frame::notice;
use super::hub::{Hub, SessionNews};
use super::run::{end, events, gap, snapshot};
use crate::http::error::ApiError;
use crate::model::{Cursor, RunId, SessionId};
use crate::store::StoreError;

/// Where somebody who follows a session begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) enum From {
    /// With the first event of the first run.
    Start,
    /// With the first event of the run that is live, or the next one.
    Now,
    /// Behind this event.
    Behind(RunId, u64),
    /// Its cursor means nothing.
    Unusable(&'static str),
}

impl From {
    /// Reads the cursor of somebody who follows a session: `run:seq`, `0` for everything, or `now`.
    pub(in crate::http) fn parse(text: &str) -> Self {
        match text.trim() {
            "0" => From::Start,
            "now" => From::Now,
            text => Self::behind(&Cursor::parse(text)).unwrap_or(From::Unusable("unknown")),
        }
    }

    fn behind(cursor: &Cursor) -> Option<Self> {
        Some(From::Behind(RunId::parse(cursor.run.as_deref()?).ok()?, cursor.seq?))
    }
}

/// A run that is to be shown.
#[derive(Debug)]
struct Shown {
    run: RunId,
    after_seq: u64,
    /// Whether it may go on, so that it is waited for. Only the last one may.
    is_live: bool,
}

/// A session's runs, as a feed.
#[derive(Debug)]
pub(in crate::http) struct SessionFeed {
    hub: Arc<Hub>,
    session: SessionId,
    news: broadcast::Receiver<SessionNews>,
    _listening: Arc<broadcast::Sender<SessionNews>>,
    /// Said first.
    unusable: Option<&'static str>,
    to_show: VecDeque<Shown>,
    current: Option<Follower>,
    /// A run that was left before its end, and how much of it was shown.
    left: Option<(RunId, u64)>,
    /// The runs that it knows of, shown or not.
    known: HashSet<RunId>,
    /// The session is gone.
    is_deleted: bool,
    is_over: bool,
    has_missed: bool,
}

/// The runs of a session as they are found. The live one is the last, if it is among them.
struct Runs {
    in_order: Vec<RunId>,
    live: Option<RunId>,
}

impl SessionFeed {
    pub(in crate::http) async fn begin(hub: &Arc<Hub>, session: &SessionId, from: From) -> Result<Self, ApiError> {
        // Whoever begins a run from here on is heard of.
        let (_listening, news) = hub.listen(session);
        let runs = find_runs(hub, session).await?;
        let mut feed = SessionFeed {
            hub: hub.clone(),
            session: session.clone(),
            news,
            _listening,
            unusable: None,
            to_show: VecDeque::new(),
            current: None,
            left: None,
            known: runs.in_order.iter().cloned().collect(),
            is_deleted: false,
            is_over: false,
            has_missed: false,
        };
        feed.plan(&runs, from);
        Ok(feed)
    }

    fn plan(&mut self, runs: &Runs, from: From) {
        let (first, after_seq) = match from {
            From::Start => (0, 0),
            From::Now => (runs.live_place(), 0),
            From::Behind(run, seq) => match runs.in_order.iter().position(|known| *known == run) {
                Some(at) => (at, seq),
                None => return self.start_now(runs, "foreign"),
            },
            From::Unusable(reason) => return self.start_now(runs, reason),
        };
        self.show(runs, first, after_seq);
    }

    fn start_now(&mut self, runs: &Runs, reason: &'static str) {
        self.unusable = Some(reason);
        self.show(runs, runs.live_place(), 0);
    }

    /// Whatever is the last may be about to begin, although the session does not say so yet.
    fn show(&mut self, runs: &Runs, first: usize, after_seq: u64) {
        for (nth, run) in runs.in_order.iter().skip(first).enumerate() {
            self.await_last(run.clone(), if nth == 0 { after_seq } else { 0 });
        }
    }

    /// Shows a run behind all others, and waits for it to end. There is one run at a time: those before it have ended, or
    /// will be ended.
    fn await_last(&mut self, run: RunId, after_seq: u64) {
        self.current.iter_mut().for_each(Follower::settle);
        self.to_show.back_mut().into_iter().for_each(|last| last.is_live = false);
        self.to_show.push_back(Shown { run, after_seq, is_live: true });
    }

    fn hear(&mut self, news: Result<SessionNews, RecvError>) {
        match news {
            Ok(SessionNews::Begun(run)) => self.expect(run),
            Ok(SessionNews::Deleted) | Err(RecvError::Closed) => self.is_deleted = true,
            Err(RecvError::Lagged(_)) => self.has_missed = true,
        }
    }

    /// Hears all that there is to hear: of a run that begins before there is anything in it. Behind something that it
    /// missed it has to look for itself, or runs would change places.
    fn hear_all(&mut self) {
        while !self.has_missed
            && let Some(news) = heard(&mut self.news)
        {
            self.hear(news);
        }
    }

    /// A run has begun. Its journal may have been found before.
    fn expect(&mut self, run: RunId) {
        if let Some(current) = self.current.as_mut().filter(|current| current.tail().run == run) {
            return current.wait_on();
        }
        if let Some((run, after_seq)) = self.left.take_if(|(left, _)| *left == run) {
            return self.await_last(run, after_seq);
        }
        // One that is known stands where it belongs, or has been shown.
        if self.known.insert(run.clone()) {
            self.await_last(run, 0);
        }
    }

    /// Looks for what it was not told of.
    async fn catch_up_on_runs(&mut self) -> Result<(), ApiError> {
        let runs = find_runs(&self.hub, &self.session).await?;
        self.has_missed = false;
        for run in runs.in_order {
            if self.known.insert(run.clone()) {
                self.await_last(run, 0);
            }
        }
        Ok(())
    }

    /// The next thing that happens, unless the reader is told first.
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

    /// What the reader is told of what its run had to say.
    fn say(&mut self, next: Next) -> Option<Bytes> {
        let follower = self.current.as_mut()?;
        let run = follower.tail().run.clone();
        match next {
            Next::Frames(frames) => Some(events(&frames)),
            Next::Gap { after_seq } => Some(gap(&run, after_seq)),
            Next::Ahead { last_seq } => {
                follower.start_over();
                self.hub.note_snapshot();
                Some(snapshot("ahead", Some(&run), Some(last_seq)))
            }
            Next::End(ended) => {
                let last_seq = follower.last_seq();
                self.current = None;
                Some(end(&run, last_seq, ended))
            }
            Next::CaughtUp => {
                self.left = Some((run, follower.last_seq()));
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

    fn take_next_run(&mut self) {
        if self.current.is_none()
            && let Some(Shown { run, after_seq, is_live }) = self.to_show.pop_front()
        {
            let tail = self.hub.tail(&self.session, &run);
            let waits = if is_live { Waits::ForMore } else { Waits::ForTheEnd };
            self.current = Some(Follower::new(&self.hub, tail, after_seq, waits));
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
        if let Some(reason) = self.unusable.take() {
            self.hub.note_snapshot();
            return Some(Ok(snapshot(reason, None, None)));
        }
        while !self.is_over {
            self.hear_all();
            if self.is_deleted {
                self.is_over = true;
                let end = json!({ "run_id": null, "last_seq": null, "state": "deleted" });
                return Some(Ok(notice("end", &end)));
            }
            if self.has_missed && self.catch_up_on_runs().await.is_err() {
                return None;
            }
            self.take_next_run();
            let said = match self.step().await {
                Step::Said(next) => self.say(next),
                Step::Heard(news) => {
                    self.hear(news);
                    None
                }
            };
            if said.is_some() {
                return said.map(Ok);
            }
        }
        None
    }
}

impl Runs {
    /// Where the live run stands, or the end.
    fn live_place(&self) -> usize {
        let place = self.live.as_ref().and_then(|live| self.in_order.iter().position(|run| run == live));
        place.unwrap_or(self.in_order.len())
    }
}

async fn find_runs(hub: &Arc<Hub>, session: &SessionId) -> Result<Runs, ApiError> {
    let (store, session) = (hub.store().clone(), session.clone());
    let found = hub.desk.read(move || {
        let mut in_order = store.runs_as_begun(&session)?;
        let metadata = store.metadata(&session)?;
        let live = metadata.active_run().and_then(|run| RunId::parse(&run).ok());
        // Whatever clocks say, the live one began last.
        if let Some(at) = live.as_ref().and_then(|live| in_order.iter().position(|run| run == live)) {
            in_order[at..].rotate_left(1);
        }
        Ok::<_, StoreError>(Runs { in_order, live })
    });
    Ok(found.await.map_err(|broken| ApiError::broken(broken.to_string()))???)
}
