//! The stream of a whole session: its runs one after the other, then whatever begins, until the session is gone.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::feed::Feed;
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
    /// The newest run that it knows of.
    newest: Option<RunId>,
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
            newest: None,
            is_deleted: false,
            is_over: false,
            has_missed: false,
        };
        feed.plan(&runs, from);
        feed.pass_over(&runs);
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
        self.to_show.push_back(Shown { run: run.clone(), after_seq, is_live: true });
        self.newest = Some(run);
    }

    fn hear(&mut self, news: Result<SessionNews, RecvError>) {
        match news {
            Ok(SessionNews::Begun(run)) => self.expect(run),
            Ok(SessionNews::Deleted) | Err(RecvError::Closed) => self.is_deleted = true,
            Err(RecvError::Lagged(_)) => self.has_missed = true,
        }
    }

    /// Hears all that there is to hear: of a run that begins before there is anything in it.
    fn hear_all(&mut self) {
        while let Some(news) = heard(&mut self.news) {
            self.hear(news);
        }
    }

    /// Hears what there is to hear of runs that were found already.
    fn pass_over(&mut self, runs: &Runs) {
        while let Some(news) = heard(&mut self.news) {
            match &news {
                Ok(SessionNews::Begun(run)) if runs.in_order.contains(run) && !self.is_to_come(run) => {}
                _ => self.hear(news),
            }
        }
    }

    fn is_to_come(&self, run: &RunId) -> bool {
        self.to_show.iter().any(|shown| shown.run == *run)
    }

    /// A run has begun. Its journal may have been found before.
    fn expect(&mut self, run: RunId) {
        if let Some(current) = self.current.as_mut().filter(|current| current.tail().run == run) {
            return current.wait_on();
        }
        let planned = self.to_show.iter().position(|shown| shown.run == run).and_then(|at| self.to_show.remove(at));
        let left = self.left.take_if(|(left, _)| *left == run);
        match (planned, left) {
            (Some(planned), _) => self.await_last(run, planned.after_seq),
            (None, Some((_, after_seq))) => self.await_last(run, after_seq),
            // It has ended already.
            (None, None) if self.newest.as_ref() == Some(&run) => {}
            (None, None) => self.await_last(run, 0),
        }
    }

    /// Looks for what it was not told of.
    async fn catch_up_on_runs(&mut self) {
        let found = find_runs(&self.hub, &self.session).await;
        self.has_missed = false;
        let Ok(runs) = found else { return };
        let known = self.newest.as_ref().and_then(|newest| runs.in_order.iter().position(|run| run == newest));
        self.show(&runs, known.map_or(runs.live_place(), |at| at + 1), 0);
        self.pass_over(&runs);
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
                Some(snapshot("ahead", Some(&run), Some(last_seq)))
            }
            Next::End(ended) => {
                let last_seq = follower.last_seq();
                self.current = None;
                Some(end(&run, last_seq, ended))
            }
            Next::CaughtUp | Next::Failed => {
                self.left = Some((run, follower.last_seq()));
                self.current = None;
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
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(reason) = self.unusable.take() {
            return Some(snapshot(reason, None, None));
        }
        while !self.is_over {
            self.hear_all();
            if self.is_deleted {
                self.is_over = true;
                return Some(notice("end", &json!({ "run_id": null, "last_seq": null, "state": "deleted" })));
            }
            if self.has_missed {
                self.catch_up_on_runs().await;
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
                return said;
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
        let mut in_order = store.runs_in_order(&session)?;
        let metadata = store.metadata(&session)?;
        let live = metadata.active_run().and_then(|run| RunId::parse(&run).ok());
        // A run without an event stands behind those that have one, however old it is.
        if let Some(at) = live.as_ref().and_then(|live| in_order.iter().position(|run| run == live)) {
            in_order[at..].rotate_left(1);
        }
        Ok::<_, StoreError>(Runs { in_order, live })
    });
    Ok(found.await.map_err(|broken| ApiError::broken(broken.to_string()))???)
}
