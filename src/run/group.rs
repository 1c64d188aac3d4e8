//! Process groups of our own: noted before they go to work, ended when their work is, and reaped by the next writer if
//! this one dies first.
//!
//! A process that is started waits until its group is noted; if we die before that, it ends by itself. If we die later,
//! [`reap`] finds the note.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::process::{self, Left, Signal};
use super::sleep::{Deadline, block, joined, sleep};
use crate::clock::Stopwatch;
use crate::entropy::{SystemEntropy, uuid4};
use crate::model::{RunId, SessionId};
use crate::storage::ProcessGroup;
use crate::store::{Store, StoreError};

/// How long processes may take to end when they are asked to.
pub(super) const TERM_GRACE: Duration = Duration::from_secs(2);

/// How long the kernel may take to end them when they are not asked.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// How soon it is looked whether they have ended, and how often later at least.
const LOOK_FIRST: Duration = Duration::from_millis(10);
const LOOK_AT_LEAST: Duration = Duration::from_millis(200);

/// Where groups are noted, and how many may be at work at once.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    store: Store,
    places: Arc<Semaphore>,
}

/// Files that a command holds open here: its pipes, and what tells of its end.
const FILES_EACH: usize = 5;

impl Groups {
    /// The groups of a store's runs, which hold at most `files_max` files open together.
    pub(super) fn of(store: &Store, files_max: usize) -> Self {
        let places = (files_max / FILES_EACH).clamp(1, Semaphore::MAX_PERMITS);
        Groups { store: store.clone(), places: Arc::new(Semaphore::new(places)) }
    }

    /// A place, if there is one now.
    pub(super) fn try_place(&self) -> Option<OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Waits for a place.
    pub(super) async fn place(&self) -> OwnedSemaphorePermit {
        self.places.clone().acquire_owned().await.expect("nobody closes it")
    }

    /// Something that marks the processes of a group and nobody else.
    pub(super) fn fresh_token() -> String {
        uuid4(&SystemEntropy)
    }

    /// Notes a group whose first process has started and waits to be let go.
    pub(super) fn note(
        &self,
        first: u32,
        token: String,
        session: &SessionId,
        run: &RunId,
    ) -> Result<GroupHold, StoreError> {
        let own = std::process::id();
        let group = ProcessGroup {
            token,
            id: first,
            started_ticks: process::alive_since(first),
            boot_id: self.store.boot_id(),
            session_id: session.to_string(),
            run_id: run.to_string(),
            owner_id: own,
            owner_started_ticks: process::alive_since(own),
        };
        // Whoever holds this ends the group, also if the note cannot be written.
        let hold = GroupHold { groups: self.clone(), group: Arc::new(group), is_over: false };
        self.store.note_group(&hold.group)?;
        Ok(hold)
    }
}

/// A group at work. It does not outlive this value.
#[derive(Debug)]
pub(super) struct GroupHold {
    groups: Groups,
    group: Arc<ProcessGroup>,
    is_over: bool,
}

impl GroupHold {
    /// Ends whoever is left: first asked, then not. Returns when they are gone, or cannot be made to go.
    pub(super) async fn end(mut self, term_grace: Duration) {
        for (signal, grace) in [(Signal::Term, term_grace), (Signal::Kill, KILL_GRACE)] {
            self.is_over = !self.signal(signal).await || self.is_gone_within(grace).await;
            if self.is_over {
                break;
            }
        }
        if self.is_over {
            // A note of a group that is gone harms nobody.
            let _ = self.groups.store.forget_group(&self.group.token);
        }
    }

    /// Signals whoever is left, and says whether that was anybody.
    async fn signal(&self, signal: Signal) -> bool {
        let group = self.group.clone();
        joined(spawn_blocking(move || process::signal(&group, &group.boot_id, signal))).await
    }

    async fn is_gone(&self) -> bool {
        let group = self.group.clone();
        joined(spawn_blocking(move || process::look_for(&group, &group.boot_id) == Left::Nobody)).await
    }

    async fn is_gone_within(&self, grace: Duration) -> bool {
        let (deadline, mut nap) = (Deadline::after(grace), LOOK_FIRST);
        while !self.is_gone().await {
            if deadline.is_over() {
                return false;
            }
            sleep(nap).await;
            nap = (nap * 2).min(LOOK_AT_LEAST);
        }
        true
    }
}

impl Drop for GroupHold {
    fn drop(&mut self) {
        if !self.is_over && !process::signal(&self.group, &self.group.boot_id, Signal::Kill) {
            let _ = self.groups.store.forget_group(&self.group.token);
        }
    }
}

/// A group that an earlier writer left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    /// The session that it worked for.
    pub session: String,
    /// The run.
    pub run: String,
    /// Its number.
    pub group: u32,
    /// Whether it is gone now.
    pub is_gone: bool,
}

/// Ends the process groups that earlier writers of this directory left behind, and nobody else: a group is known by its
/// number, the boot of the machine and the moment its first process started, or by the mark that its processes carry.
///
/// To be called by whoever has opened a directory as its writer, before any run is started; a reader is refused. Blocks for
/// a few seconds at most, and only if there is anybody to wait for.
pub fn reap(store: &Store) -> Result<Vec<Reaped>, StoreError> {
    let boot_id = store.boot_id();
    if boot_id.is_empty() {
        // Where the system does not tell one boot from another, nobody can be known for certain.
        return Ok(Vec::new());
    }
    let left: Vec<ProcessGroup> = store.noted_groups()?.into_iter().filter(|group| !has_owner(group)).collect();
    let alive = signal_all(left.iter().collect(), &boot_id, Signal::Term);
    let deaf = those_left_after(TERM_GRACE, alive.clone(), &boot_id);
    let stuck = those_left_after(KILL_GRACE, signal_all(deaf, &boot_id, Signal::Kill), &boot_id);
    let is_gone = |group: &ProcessGroup| !stuck.contains(&group);
    for group in left.iter().filter(|group| is_gone(group)) {
        store.forget_group(&group.token)?;
    }
    Ok(alive.into_iter().map(|group| told(group, is_gone(group))).collect())
}

/// Whether the process that started a group still lives: this one, or another that has given the directory away and
/// looks after its own.
fn has_owner(group: &ProcessGroup) -> bool {
    group.owner_started_ticks.is_some() && process::alive_since(group.owner_id) == group.owner_started_ticks
}

/// Signals the groups, and gives those of which anybody was left.
fn signal_all<'g>(groups: Vec<&'g ProcessGroup>, boot_id: &str, signal: Signal) -> Vec<&'g ProcessGroup> {
    groups.into_iter().filter(|group| process::signal(group, boot_id, signal)).collect()
}

/// Those of the groups of which somebody is left when the time is up.
fn those_left_after<'g>(grace: Duration, mut groups: Vec<&'g ProcessGroup>, boot_id: &str) -> Vec<&'g ProcessGroup> {
    let (waiting, mut nap) = (Stopwatch::start(), LOOK_FIRST);
    loop {
        groups.retain(|group| process::look_for(group, boot_id) != Left::Nobody);
        if groups.is_empty() || waiting.elapsed() >= grace {
            return groups;
        }
        block(nap);
        nap = (nap * 2).min(LOOK_AT_LEAST);
    }
}

fn told(group: &ProcessGroup, is_gone: bool) -> Reaped {
    Reaped { session: group.session_id.clone(), run: group.run_id.clone(), group: group.id, is_gone }
}
