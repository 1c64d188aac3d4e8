//! An answer as it arrives: chunk by chunk, or whole. How it ends decides whether it is complete.

use std::time::Duration;

use reqwest::Response;

use super::calls::Calls;
use super::chunk::{Any, Choice, Chunk, Delta, ErrorWords, text};
use super::connection_failure;
use super::key::Secrets;
use super::refusal::streamed_error;
use super::usage::usage_event;
use crate::format::sse::{EventStream, Sent};
use crate::limits::{LINE_BYTES_MAX, SKIPPED_CHUNKS_MAX};
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
    secrets: Secrets,
    /// What is said before the first word.
    preface: Vec<Event>,
    calls: Calls,
    has_spoken: bool,
    finish_reason: Option<String>,
    usage: Any,
    model: Option<String>,
    /// How many chunks could not be read.
    skipped_chunks: usize,
    is_done: bool,
    /// When it is waited for no longer, once it has said that it is complete.
    linger: Option<Deadline>,
}

impl Answer {
    /// An answer of which nothing has arrived, to a request that was made with these secrets. The preface is said before
    /// the first word, and not earlier: what the user has seen keeps a failed attempt from being made again.
    pub(super) fn asked_with(secrets: Secrets, preface: Vec<Event>) -> Self {
        Answer { secrets, preface, ..Answer::default() }
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
            for sent in events.take(&piece).map_err(|_| too_long())? {
                self.take_sent(&sent, outlet).await?;
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

    /// Data that holds nothing only keeps the connection open.
    async fn take_sent(&mut self, sent: &Sent, outlet: &Outlet) -> Result<(), Failure> {
        match sent.data.trim() {
            _ if self.is_done => Ok(()),
            "" => Ok(()),
            DONE => {
                self.is_done = true;
                Ok(())
            }
            words if sent.name == "error" => Err(self.failure(ErrorWords::of_body(words))),
            data => self.take_data(data, outlet).await,
        }
    }

    fn failure(&self, words: ErrorWords) -> Failure {
        streamed_error(&words.without(&self.secrets))
    }

    async fn take_data(&mut self, data: &str, outlet: &Outlet) -> Result<(), Failure> {
        let Ok(mut chunk) = serde_json::from_str::<Chunk>(data) else { return self.skip() };
        if let Some(words) = chunk.failure(data) {
            return Err(self.failure(words));
        }
        outlet.stir().await?;
        self.usage = chunk.usage.take().filter(|usage| usage.get() != "null").or(self.usage.take());
        self.model = Some(text(&chunk.model)).filter(|model| !model.is_empty()).or(self.model.take());
        for choice in chunk.answer() {
            self.take_choice(choice, outlet).await?;
        }
        Ok(())
    }

    /// Leaves out a chunk that cannot be read. One among good ones takes no answer down; many are no stream.
    fn skip(&mut self) -> Result<(), Failure> {
        self.skipped_chunks += 1;
        if self.skipped_chunks > SKIPPED_CHUNKS_MAX { Err(self.broken_stream()) } else { Ok(()) }
    }

    async fn take_choice(&mut self, mut choice: Choice, outlet: &Outlet) -> Result<(), Failure> {
        if let Some(delta) = choice.delta.take().or(choice.message.take()) {
            self.take_delta(delta, outlet).await?;
        }
        if let Some(words) = choice.failure() {
            return Err(self.failure(words));
        }
        // Some servers give an empty reason with every chunk that is not the last.
        let reason = text(&choice.finish_reason);
        if !reason.is_empty() {
            self.finish_reason = Some(reason);
            self.linger.get_or_insert_with(|| Deadline::after(LINGER));
        }
        Ok(())
    }

    async fn take_delta(&mut self, mut delta: Delta, outlet: &Outlet) -> Result<(), Failure> {
        for thought in delta.thoughts() {
            self.say(piece("reasoning", &thought)?, outlet).await?;
        }
        for words in delta.words() {
            self.say(piece("token", &words)?, outlet).await?;
        }
        for event in self.calls.add(delta.calls()) {
            self.say(event, outlet).await?;
        }
        Ok(())
    }

    async fn say(&mut self, event: Event, outlet: &Outlet) -> Result<(), Failure> {
        self.has_spoken = true;
        if event.name() != "reasoning" {
            self.say_preface(outlet).await?;
        }
        Ok(outlet.say(event).await?)
    }

    async fn say_preface(&mut self, outlet: &Outlet) -> Result<(), Failure> {
        for event in std::mem::take(&mut self.preface) {
            outlet.say(event).await?;
        }
        Ok(())
    }

    /// A stream that ended without saying that the answer is complete was cut off.
    async fn finish(mut self, outlet: &Outlet) -> Result<Finish, Failure> {
        if !self.has_spoken && self.skipped_chunks > 0 {
            return Err(self.broken_stream());
        }
        if !self.is_done && self.finish_reason.is_none() {
            return Err(cut_off());
        }
        if !self.has_spoken {
            return Err(empty_answer(self.finish_reason.as_deref()));
        }
        self.say_preface(outlet).await?;
        for event in std::mem::take(&mut self.calls).finish() {
            self.say(event, outlet).await?;
        }
        if let Some(usage) = self.usage.take().and_then(|usage| usage_event(usage.get(), self.model.as_deref())) {
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
        if self.skipped_chunks > 0 {
            notes.set("skipped_chunks", self.skipped_chunks.to_string());
        }
        notes
    }

    fn broken_stream(&self) -> Failure {
        let message =
            "The backend sent something that is no part of an answer. What had arrived is kept; please try again.";
        let failure = Failure::new("broken_stream", message).retryable().closed_by("broken_stream");
        failure.noting("skipped_chunks", self.skipped_chunks.to_string())
    }
}

/// An event of words that are JSON already.
fn piece(name: &str, words: &str) -> Result<Event, Failure> {
    Event::new(name, &format!("{{\"text\":{words}}}")).map_err(|_| too_long())
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
