//! Writes a run's events, off the threads that must not wait: a write takes its time on another one, and what should be
//! durable is waited for on none.
//!
//! A full disk, or a system that lets no more files be opened, is waited for with patience, the events held in memory
//! meanwhile. Every other failure is final.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::attempt::Asked;
use super::ending::Why;
use super::sleep::{Deadline, joined, sleep};
use crate::journal::{AppendError, Appended};
use crate::model::Event;
use crate::storage::{Durability, StorageError};
use crate::store::{Outcome, Run, StoreError};

/// How many documents are read or saved at the same time. More would only wait for each other, a thread each.
const DOCUMENTS_AT_ONCE: usize = 32;

/// The same for lines.
const LINES_AT_ONCE: usize = 32;

const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_millis(250);

/// How long a full disk is waited for when somebody waits for the end.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// Where blocking work is done: by so many threads, however many runs there are.
#[derive(Debug, Clone)]
pub(super) struct Desk {
    documents: Arc<Semaphore>,
    lines: Arc<Semaphore>,
}

impl Default for Desk {
    fn default() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Desk { documents: places(DOCUMENTS_AT_ONCE), lines: places(LINES_AT_ONCE) }
    }
}

impl Desk {
    /// Does something that reads or saves a whole document.
    pub(super) async fn document<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let _place = self.documents.acquire().await.expect("nobody closes it");
        elsewhere(work).await
    }

    /// Does something short.
    async fn line<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let _place = self.lines.acquire().await.expect("nobody closes it");
        elsewhere(work).await
    }
}

async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(tokio::task::spawn_blocking(work)).await
}

/// When a run was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sealed {
    /// With these events.
    Now,
    /// With other events, or by an earlier call.
    Before,
}

/// The one who writes a run's journal.
#[derive(Debug)]
pub(super) struct Scribe {
    pub(super) run: Run,
    pub(super) desk: Desk,
    pub(super) durability: Durability,
    pub(super) disk_patience: Duration,
    /// Whoever wants the run to end does not wait for a full disk.
    pub(super) asked: Asked,
}

impl Scribe {
    /// Appends events, in order. When this returns they can be shown.
    pub(super) async fn append(&self, mut events: Vec<Event>) -> Result<(), StoreError> {
        let deadline = Deadline::after(self.disk_patience);
        while !events.is_empty() {
            let before = self.run.last_seq();
            // What cannot be taken takes only itself down, not those before it.
            let is_takeable = |event: &Event| event.check_length().is_ok();
            let takeable = events.iter().position(|event| !is_takeable(event)).unwrap_or(events.len()).max(1);
            let Err(error) = self.try_append(&events[..takeable]).await else {
                events.drain(..takeable);
                continue;
            };
            if !is_passing(&error) || deadline.is_over() || self.asked.borrow().is_some() {
                return Err(error);
            }
            if let StoreError::Append(AppendError::Failed { appended_to: Some(last), .. }) = error {
                events.drain(..(last.saturating_sub(before) as usize).min(events.len()));
            }
            sleep(LOOK_FOR_ROOM_EVERY).await;
        }
        Ok(())
    }

    async fn try_append(&self, events: &[Event]) -> Result<(), StoreError> {
        let (run, events, durability) = (self.run.clone(), events.to_vec(), self.durability);
        let appended = self.desk.line(move || run.append_all(&events, durability)).await?;
        durable(appended).await
    }

    /// Ends the run with these events, the last ones of its journal: durable, folded and saved when this returns.
    pub(super) async fn end(&self, events: Vec<Event>) -> Result<Sealed, StoreError> {
        let (patience, mut last_patience) = (Deadline::after(self.disk_patience), None);
        let mut has_sealed = false;
        loop {
            if self.is_in_a_hurry() {
                last_patience.get_or_insert_with(|| Deadline::after(LAST_PATIENCE));
            }
            let is_over = patience.is_over() || last_patience.is_some_and(Deadline::is_over);
            let was_sealed = self.run.is_sealed();
            match self.try_end(events.clone()).await {
                Err(error) if is_passing(&error) && !is_over => {
                    has_sealed |= !was_sealed && self.run.is_sealed();
                    sleep(LOOK_FOR_ROOM_EVERY).await;
                }
                Ok(Sealed::Before) if has_sealed => return Ok(Sealed::Now),
                ended => return ended,
            }
        }
    }

    /// If the run was sealed before and could not be saved, it is saved.
    pub(super) async fn try_end(&self, events: Vec<Event>) -> Result<Sealed, StoreError> {
        let run = self.run.clone();
        self.desk.document(move || seal(&run, &events)).await
    }

    /// Whoever stops a run, or ends the program, does not wait for a full disk for long.
    fn is_in_a_hurry(&self) -> bool {
        matches!(*self.asked.borrow(), Some(Why::Stop | Why::Shutdown))
    }
}

fn seal(run: &Run, events: &[Event]) -> Result<Sealed, StoreError> {
    if !run.is_sealed() {
        match run.append_all(events, Durability::Durable) {
            Err(StoreError::Append(AppendError::Sealed { .. })) => {}
            sealed => return sealed.map(|_| Sealed::Now),
        }
    }
    match run.finish(Outcome::Completed) {
        // It is saved, too.
        Err(StoreError::Append(AppendError::Sealed { .. })) => Ok(Sealed::Before),
        saved => saved.map(|_| Sealed::Before),
    }
}

/// Waits until what was appended is as durable as it should be, without keeping a thread.
async fn durable(appended: Appended) -> Result<(), StoreError> {
    let (tell, told) = oneshot::channel();
    appended.on_durable(move |outcome| drop(tell.send(outcome)));
    match told.await {
        Ok(outcome) => Ok(outcome.map(drop)?),
        // Whoever was to tell is gone, and so is the store.
        Err(_) => Ok(()),
    }
}

/// Whether the same may work in a while: the disk is full, or too many files are open.
fn is_passing(error: &StoreError) -> bool {
    error.code() == "no_space" || error.storage().is_some_and(StorageError::is_no_descriptor)
}
