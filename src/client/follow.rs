//! Following a run or a session over any number of connections.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderName};
use reqwest::{Method, Url};

use super::outage::{Outage, Patience};
use super::resume::{Resume, Scope, Step};
use super::told::Told;
use super::transport::Answer;
use super::wait::Moment;
use super::{Client, ClientError};
use crate::clock::{Steady, SystemSteady};
use crate::entropy::{Entropy, SystemEntropy};
use crate::format::sse::{EventStream, Sent};
use crate::model::{RunId, SessionId};

pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub(super) const EVENT_STREAM: &str = "text/event-stream";

/// A connection that lasted so long was a good one, whatever it told.
const STEADY_AFTER: Duration = Duration::from_secs(5);

/// How a follower behaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct FollowOptions {
    /// How long it tries to get a connection again. The first connection is tried once.
    pub patience: Patience,
}

/// Where a follower of a session begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Start {
    /// With the first event of the first run.
    #[default]
    First,
    /// Behind this event of this run.
    Behind(RunId, u64),
    /// With what happens from now on.
    Now,
}

impl Client {
    /// Follows a run from behind an event (0: from the first one) until it has ended.
    pub fn follow(&self, session: &SessionId, run: &RunId, after_seq: u64, options: FollowOptions) -> Follow {
        let url = self.place(&["v1", "sessions", session.as_str(), "runs", run.as_str(), "events"]);
        let cursor = Some((run.clone(), after_seq)).filter(|_| after_seq > 0);
        let resume = Resume::new(Scope::Run(run.clone()), cursor);
        Follow::new(Line::new(self, url, format!("follow run {run} of session {session}"), options), resume)
    }

    /// Follows all runs of a session until it is deleted.
    pub fn follow_session(&self, session: &SessionId, start: Start, options: FollowOptions) -> Follow {
        let url = self.place(&["v1", "sessions", session.as_str(), "events"]);
        let resume = match start {
            Start::First => Resume::new(Scope::Session, None),
            Start::Behind(run, seq) => Resume::new(Scope::Session, Some((run, seq))),
            Start::Now => Resume::from_now(Scope::Session),
        };
        Follow::new(Line::new(self, url, format!("follow session {session}"), options), resume)
    }
}

/// What a run or a session says, as it comes. No event is told twice or left out, however often the connection breaks.
#[derive(Debug)]
pub struct Follow {
    line: Line,
    resume: Resume,
    told: VecDeque<Told>,
    /// What went wrong behind all that is to be told.
    failure: Option<ClientError>,
}

impl Follow {
    fn new(line: Line, resume: Resume) -> Self {
        Follow { line, resume, told: VecDeque::new(), failure: None }
    }

    /// The next thing there is to tell; nothing behind the end. Whoever stops waiting misses nothing, and behind an error
    /// it goes on where it was, if the server lets it.
    pub async fn next(&mut self) -> Result<Option<Told>, ClientError> {
        loop {
            if let Some(told) = self.told.pop_front() {
                return Ok(Some(told));
            }
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if self.resume.is_over() {
                return Ok(None);
            }
            if let Err(error) = self.advance().await {
                self.failure = self.line.endure(error, self.resume.has_connected()).err();
            }
        }
    }

    async fn advance(&mut self) -> Result<(), ClientError> {
        if !self.line.is_open() {
            let id = self.resume.last_event_id();
            self.line.open(id.as_deref(), self.resume.is_from_now()).await?;
            self.told.extend(self.resume.connected());
        }
        for sent in self.line.listen().await? {
            match self.resume.take(sent) {
                Ok(Step::Tell(told)) => self.tell(told),
                Ok(Step::Nothing) => {}
                Ok(Step::Again(why)) => return Err(self.line.broken(&why)),
                Err(reason) => return Err(self.line.garbled(&reason)),
            }
            if self.resume.is_over() {
                break;
            }
        }
        self.resume.begin_at(self.line.last_id());
        Ok(())
    }

    fn tell(&mut self, told: Told) {
        if matches!(told, Told::Event(_) | Told::Ended(_)) {
            self.line.is_good();
        }
        self.told.push_back(told);
    }
}

/// A line to the server that is opened again when it breaks.
#[derive(Debug)]
pub(super) struct Line {
    client: Client,
    url: Url,
    attempt: String,
    patience: Patience,
    outage: Outage,
    clock: SystemSteady,
    connection: Option<Connection>,
    /// When the next connection may be made.
    not_before: Option<Moment>,
    /// How long the server asks to wait before that.
    retry: Option<Duration>,
}

struct Connection {
    answer: Answer,
    stream: EventStream,
    since: Duration,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("since", &self.since).finish_non_exhaustive()
    }
}

impl Line {
    pub(super) fn new(client: &Client, url: Url, attempt: String, options: FollowOptions) -> Self {
        Line {
            client: client.clone(),
            url,
            attempt,
            patience: options.patience,
            outage: Outage::default(),
            clock: SystemSteady::default(),
            connection: None,
            not_before: None,
            retry: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Makes a connection, when it is time.
    pub(super) async fn open(&mut self, last_event_id: Option<&str>, is_from_now: bool) -> Result<(), ClientError> {
        if let Some(moment) = self.not_before {
            moment.wait().await;
        }
        let mut url = self.url.clone();
        if is_from_now {
            url.query_pairs_mut().append_pair("after", "now");
        }
        let mut request = self.client.request_at(Method::GET, url, &self.attempt).header(ACCEPT, EVENT_STREAM);
        if let Some(id) = last_event_id {
            request = request.header(LAST_EVENT_ID, id);
        }
        let answer = request.send().await?.of_kind(EVENT_STREAM)?;
        self.connection = Some(Connection { answer, stream: EventStream::default(), since: self.clock.now() });
        Ok(())
    }

    /// Waits for more, and gives the events that came with it.
    pub(super) async fn listen(&mut self) -> Result<Vec<Sent>, ClientError> {
        let Some(Connection { answer, stream, .. }) = &mut self.connection else { return Ok(Vec::new()) };
        match answer.piece().await? {
            Some(piece) => {
                let sent = stream.take(&piece).map_err(|cause| answer.asked().bad_answer(cause.to_string()))?;
                self.retry = stream.retry().or(self.retry);
                Ok(sent)
            }
            None => Err(answer.asked().broken_off("the server closed it before the end")),
        }
    }

    /// The last id that the server said over this connection.
    pub(super) fn last_id(&self) -> &str {
        self.connection.as_ref().map_or("", |connection| connection.stream.last_id())
    }

    /// The connection brought something new.
    pub(super) fn is_good(&mut self) {
        self.outage.is_over();
    }

    /// Ends a connection that is no good.
    pub(super) fn broken(&mut self, why: &str) -> ClientError {
        let connection = self.connection.as_ref().map(|connection| connection.answer.asked().broken_off(why));
        connection.expect("something came over it")
    }

    /// Something came that is not understood.
    pub(super) fn garbled(&mut self, reason: &str) -> ClientError {
        let connection = self.connection.as_ref().map(|connection| connection.answer.asked().bad_answer(reason));
        connection.expect("something came over it")
    }

    /// Bears a failure, if it may pass and there was a connection once, and patience is left.
    pub(super) fn endure(&mut self, error: ClientError, has_connected: bool) -> Result<(), ClientError> {
        let now = self.clock.now();
        if let Some(connection) = self.connection.take()
            && now.saturating_sub(connection.since) >= STEADY_AFTER
        {
            self.outage.is_over();
        }
        if !has_connected || !error.is_transient() {
            return Err(error);
        }
        let asked = error.asked_pause().or(self.retry);
        match self.outage.pause(now, asked, SystemEntropy.next(), &self.patience) {
            Some(pause) => self.not_before = Some(Moment::after(pause)),
            None => return Err(gave_up(error, self.outage.lasted(now))),
        }
        Ok(())
    }
}

pub(super) fn gave_up(error: ClientError, lasted: Duration) -> ClientError {
    match lasted.is_zero() {
        true => error,
        false => ClientError::GaveUp { seconds: lasted.as_secs_f64(), last: Box::new(error) },
    }
}
