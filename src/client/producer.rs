//! A producer whose events are appended once, in order, whatever happens to the connection or the server.

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::time::Duration;

use super::batch::Sending;
use super::follow::gave_up;
use super::outage::{Outage, Patience};
use super::runs::{AppendOptions, EventBatch};
use super::wait::{Moment, within};
use super::{Client, ClientError};
use crate::clock::{Steady, SystemSteady};
use crate::entropy::{Entropy, SystemEntropy};
use crate::model::{RunId, SessionId};
use crate::storage::Durability;

/// A third of the lease that a server grants unasked.
const RENEW_EVERY: Duration = Duration::from_secs(10);

/// Appends to one run. Each batch says which numbers it is to get, so that it may be sent again.
///
/// A number that somebody else has taken is reported (`seq_conflict`) and never passed over.
#[derive(Debug)]
pub struct Producer {
    client: Client,
    session: SessionId,
    run: RunId,
    /// How lasting events are before they are said to be appended.
    pub durability: Durability,
    /// How long a batch is tried.
    pub patience: Patience,
    /// How often the lease is renewed while the producer waits for something.
    pub renew_every: Duration,
    sending: Sending,
    clock: SystemSteady,
}

impl Client {
    /// A producer for a run whose last event is known: 0 for one that was just begun.
    pub fn producer(&self, session: &SessionId, run: &RunId, last_seq: u64) -> Producer {
        Producer {
            client: self.clone(),
            session: session.clone(),
            run: run.clone(),
            durability: Durability::Buffered,
            patience: Patience::default(),
            renew_every: RENEW_EVERY,
            sending: Sending::behind(last_seq),
            clock: SystemSteady::default(),
        }
    }

    /// A producer that goes on with a run: asks for its last event, and renews its lease thereby.
    pub async fn resume_producer(&self, session: &SessionId, run: &RunId) -> Result<Producer, ClientError> {
        let last_seq = self.renew_lease(session, run).await?;
        Ok(self.producer(session, run, last_seq))
    }
}

impl Producer {
    /// The last event that surely was appended.
    pub fn last_seq(&self) -> u64 {
        self.sending.last_seq()
    }

    /// Whether events were sent of which it is not known whether they were appended.
    pub fn is_unsettled(&self) -> bool {
        self.sending.pending().is_some()
    }

    /// Appends events, all or none, and gives their numbers. Tries for as long as patience lasts. If it ends, or if
    /// nobody waits any more, whether they were appended is not known, and [`Producer::settle`] finds out.
    pub async fn append(&mut self, events: impl Into<EventBatch>) -> Result<RangeInclusive<u64>, ClientError> {
        if !self.sending.begin(events.into()) {
            let attempt = format!("append to run {} of session {}", self.run, self.session);
            return Err(ClientError::Unsettled { attempt, seq: self.sending.next_seq() });
        }
        self.settle().await
    }

    /// Sends what is unsettled again, and gives its numbers; an empty range if nothing is.
    pub async fn settle(&mut self) -> Result<RangeInclusive<u64>, ClientError> {
        let mut outage = Outage::default();
        while self.is_unsettled() {
            let was_in_doubt = self.sending.sent();
            match self.send().await {
                Ok(last_seq) => return self.sending.arrived(last_seq).map_err(|reason| self.not_understood(reason)),
                Err(error) => {
                    self.note(&error, was_in_doubt);
                    self.endure(error, &mut outage).await?;
                }
            }
        }
        Ok(self.sending.next_seq()..=self.sending.last_seq())
    }

    /// Says that the producer is alive. A failure that may pass is none: the next one may succeed.
    pub async fn renew(&mut self) -> Result<(), ClientError> {
        match self.client.renew_lease(&self.session, &self.run).await {
            Err(error) if !error.is_transient() => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits for something to send, and says meanwhile that the producer is alive.
    pub async fn wait_for<T>(&mut self, something: impl Future<Output = T>) -> Result<T, ClientError> {
        let mut something = pin!(something);
        loop {
            match within(Some(self.renew_every), something.as_mut()).await {
                Some(come) => return Ok(come),
                None => self.renew().await?,
            }
        }
    }

    async fn send(&self) -> Result<u64, ClientError> {
        let Some(batch) = self.sending.pending() else { return Ok(self.sending.last_seq()) };
        let options = AppendOptions { durability: self.durability, expect_seq: Some(self.sending.next_seq()) };
        self.client.append(&self.session, &self.run, batch, options).await
    }

    /// What a failure says about the batch: a server that refuses it took none of it.
    fn note(&mut self, error: &ClientError, was_in_doubt: bool) {
        match error {
            ClientError::Unreachable { .. } => self.sending.not_sent(was_in_doubt),
            ClientError::Api { .. } if !error.is_transient() => self.sending.refused(was_in_doubt),
            _ => {}
        }
    }

    async fn endure(&self, error: ClientError, outage: &mut Outage) -> Result<(), ClientError> {
        let now = self.clock.now();
        if !error.is_transient() {
            return Err(error);
        }
        match outage.pause(now, error.asked_pause(), SystemEntropy.next(), &self.patience) {
            Some(pause) => Moment::after(pause).wait().await,
            None => return Err(gave_up(error, outage.lasted(now))),
        }
        Ok(())
    }

    fn not_understood(&self, reason: String) -> ClientError {
        let attempt = format!("append to run {} of session {}", self.run, self.session);
        ClientError::BadAnswer { attempt, server: self.client.address().to_owned(), reason }
    }
}
