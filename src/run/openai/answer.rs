//! An answer as it arrives: chunk by chunk, or whole. How it ends decides whether it is complete.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;

use super::calls::Calls;
use super::chunk::{Chunk, Delta, ErrorWords};
use super::connection_failure;
use super::key::Secret;
use super::refusal::streamed_error;
use super::sse::EventStream;
use crate::limits::LINE_BYTES_MAX;
use crate::model::{Event, Object};
use crate::run::runner::{Failure, Finish, Outlet};
use crate::run::sleep::Deadline;

/// What ends a stream.
const DONE: &str = "[DONE]";

/// How long an answer that said that it is complete is waited for: the usage comes behind that, and not every server
/// says that nothing more follows.
const LINGER: Duration = Duration::from_secs(2);

/// What has arrived of an answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    secret: Secret,
    calls: Calls,
    has_spoken: bool,
    finish_reason: Option<String>,
    usage: Option<Value>,
    model: Option<String>,
    is_done: bool,
    /// When it is waited for no longer, once it has said that it is complete.
    linger: Option<Deadline>,
}

impl Answer {
    /// An answer of which nothing has arrived, to a request that was made with a key.
    pub(super) fn asked_with(secret: Secret) -> Self {
        Answer { secret, ..Answer::default() }
    }

    /// Takes a stream of events.
    pub(super) async fn take_stream(mut self, mut response: Response, outlet: &Outlet) -> Result<Finish, Failure> {
        let mut events = EventStream::default();
        while !self.is_done {
            let arrived = tokio::select! {
                arrived = response.chunk() => arrived,
                () = Deadline::wait(self.linger) => break,
            };
            let piece = match arrived {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    self.is_done = events.rest().trim() == DONE;
                    break;
                }
                // The answer said that it was complete; how the connection ended is of no interest.
                Err(_) if self.finish_reason.is_some() => break,
                Err(cause) => return Err(connection_failure(&cause)),
            };
            for data in events.take(&piece).map_err(|_| too_long())? {
                self.take_data(&data, outlet).await?;
            }
        }
        self.finish(outlet).await
    }

    /// Takes an answer that comes as one document.
    pub(super) async fn take_whole(mut self, mut response: Response, outlet: &Outlet) -> Result<Finish, Failure> {
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|cause| connection_failure(&cause))? {
            body.extend_from_slice(&piece);
            if body.len() > LINE_BYTES_MAX {
                return Err(too_long());
            }
        }
        self.take_data(&String::from_utf8_lossy(&body), outlet).await?;
        self.finish(outlet).await
    }

    async fn take_data(&mut self, data: &str, outlet: &Outlet) -> Result<(), Failure> {
        if self.is_done || data.trim() == DONE {
            self.is_done = true;
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_str(data).map_err(|_| broken_stream())?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(streamed_error(&ErrorWords::of(&error).without(&self.secret)));
        }
        self.usage = chunk.usage.filter(|usage| !usage.is_null()).or(self.usage.take());
        self.model = chunk.model.and_then(|model| model.as_str().map(str::to_owned)).or(self.model.take());
        let Some(choice) = chunk.choices.into_iter().flatten().next() else { return Ok(()) };
        if let Some(delta) = choice.delta.or(choice.message) {
            self.take_delta(delta, outlet).await?;
        }
        // Some servers give an empty reason with every chunk that is not the last.
        if let Some(Value::String(reason)) = choice.finish_reason
            && !reason.is_empty()
        {
            self.finish_reason = Some(reason);
        }
        self.linger = self.finish_reason.is_some().then(|| Deadline::after(LINGER));
        Ok(())
    }

    async fn take_delta(&mut self, delta: Delta, outlet: &Outlet) -> Result<(), Failure> {
        let (reasoning, text) = (delta.reasoning(), delta.text());
        if delta.has_role() && reasoning.is_empty() && text.is_empty() {
            outlet.stir().await?;
        }
        if !reasoning.is_empty() {
            self.say(Event::reasoning(&reasoning), outlet).await?;
        }
        if !text.is_empty() {
            self.say(Event::token(&text), outlet).await?;
        }
        for part in delta.tool_calls.unwrap_or_default() {
            if let Some(event) = self.calls.add(part) {
                self.say(event, outlet).await?;
            }
        }
        Ok(())
    }

    async fn say(&mut self, event: Event, outlet: &Outlet) -> Result<(), Failure> {
        self.has_spoken = true;
        Ok(outlet.say(event).await?)
    }

    /// A stream that ended without saying that the answer is complete was cut off.
    async fn finish(mut self, outlet: &Outlet) -> Result<Finish, Failure> {
        if !self.is_done && self.finish_reason.is_none() {
            return Err(cut_off());
        }
        if !self.has_spoken {
            return Err(empty_answer(self.finish_reason.as_deref()));
        }
        for event in std::mem::take(&mut self.calls).finish() {
            self.say(event, outlet).await?;
        }
        if let Some(usage) = self.usage.take().and_then(|usage| Event::new("usage", &usage.to_string()).ok()) {
            self.say(usage, outlet).await?;
        }
        Ok(Finish::done_with(&self.notes()))
    }

    fn notes(&self) -> Object {
        let mut notes = Object::default();
        for (key, value) in [("finish_reason", &self.finish_reason), ("model", &self.model)] {
            if let Some(value) = value {
                notes.set_text(key, value);
            }
        }
        notes
    }
}

fn broken_stream() -> Failure {
    let message =
        "The backend sent something that is no part of an answer. What had arrived is kept; please try again.";
    Failure::new("broken_stream", message).retryable().closed_by("broken_stream")
}

fn cut_off() -> Failure {
    let message =
        "The backend ended the stream before the answer was complete. What had arrived is kept; please try again.";
    Failure::new("cut_off", message).retryable().closed_by("cut_off")
}

fn empty_answer(finish_reason: Option<&str>) -> Failure {
    let why = finish_reason.map(|reason| format!(" (finish_reason {reason:?})")).unwrap_or_default();
    Failure::new("empty_answer", format!("The backend ended without an answer{why}. Please try again."))
        .retryable()
        .closed_by("empty")
}

fn too_long() -> Failure {
    let message = format!("The backend sent more than {LINE_BYTES_MAX} bytes at once, which cannot be written down.");
    Failure::new("too_long", message).closed_by("too_long")
}
