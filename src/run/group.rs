//! Process groups of our own: noted before they go to work, ended when their work is, and reaped by the next writer if
//! this one dies first.
//!
//! A process that is started waits until its group is noted; if we die before that, it ends by itself. If we die later,
//! [`reap`] finds the note.

use std::time::Duration;

use super::process::{self, Left, Signal};
use super::sleep::{block, sleep};
use crate::entropy::{SystemEntropy, uuid4};
use crate::model::{RunId, SessionId};
use crate::storage::ProcessGroup;
use crate::store::{Store, StoreError};

/// How long processes may take to end when they are asked to.
pub(super) const TERM_GRACE: Duration = Duration::from_secs(2);

/// How long the kernel may take to end them when they are not asked.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// How often it is looked whether they have ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Where groups are noted.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    store: Store,
}

impl Groups {
    pub(super) fn of(store: &Store) -> Self {
        Groups { store: store.clone() }
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
            started_ticks: process::started_ticks(first),
            boot_id: self.store.boot_id(),
            session_id: session.to_string(),
            run_id: run.to_string(),
            owner_id: own,
            owner_started_ticks: process::started_ticks(own),
        };
        // Whoever holds this ends the group, also if the note cannot be written.
        let hold = GroupHold { groups: self.clone(), group, is_over: false };
        self.store.note_group(&hold.group)?;
        Ok(hold)
    }
}

/// A group at work. It does not outlive this value.
#[derive(Debug)]
pub(super) struct GroupHold {
    groups: Groups,
    group: ProcessGroup,
    is_over: bool,
}

impl GroupHold {
    /// Ends whoever is left: first asked, then not. Returns when they are gone, or cannot be made to go.
    pub(super) async fn end(mut self, term_grace: Duration) {
        if self.signal(Signal::Term) && !self.is_gone_within(term_grace).await {
            self.signal(Signal::Kill);
            self.is_gone_within(KILL_GRACE).await;
        }
        self.is_over = self.left() == Left::Nobody;
        if self.is_over {
            // A note of a group that is gone harms nobody.
            let _ = self.groups.store.forget_group(&self.group.token);
        }
    }

    fn signal(&self, signal: Signal) -> bool {
        process::signal(&self.group, &self.group.boot_id, signal)
    }

    fn left(&self) -> Left {
        process::look_for(&self.group, &self.group.boot_id)
    }

    async fn is_gone_within(&self, grace: Duration) -> bool {
        let mut waited = Duration::ZERO;
        while self.left() != Left::Nobody {
            if waited >= grace {
                return false;
            }
            sleep(LOOK_EVERY).await;
            waited += LOOK_EVERY;
        }
        true
    }
}

impl Drop for GroupHold {
    fn drop(&mut self) {
        if !self.is_over {
            self.signal(Signal::Kill);
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
/// To be called by whoever has opened a directory as its writer, before any run is started. Blocks for a few seconds at
/// most, and only if there is anybody to wait for.
pub fn reap(store: &Store) -> Result<Vec<Reaped>, StoreError> {
    let boot_id = store.boot_id();
    if boot_id.is_empty() {
        // Where the system does not tell one boot from another, nobody can be known for certain.
        return Ok(Vec::new());
    }
    let left: Vec<ProcessGroup> = store.noted_groups()?.into_iter().filter(|group| !is_own(group)).collect();
    let alive = signal_all(&left, &boot_id, Signal::Term);
    if !alive.is_empty() && !are_gone_within(&alive, &boot_id, TERM_GRACE) {
        signal_all(&left, &boot_id, Signal::Kill);
        are_gone_within(&alive, &boot_id, KILL_GRACE);
    }
    let is_gone = |group: &ProcessGroup| process::look_for(group, &boot_id) == Left::Nobody;
    for group in left.iter().filter(|group| is_gone(group)) {
        store.forget_group(&group.token)?;
    }
    Ok(alive.into_iter().map(|group| told(group, is_gone(group))).collect())
}

/// Whether this very process started a group.
fn is_own(group: &ProcessGroup) -> bool {
    let own = std::process::id();
    group.owner_id == own && group.owner_started_ticks == process::started_ticks(own)
}

/// Signals the groups, and gives those of which anybody was left.
fn signal_all<'g>(groups: &'g [ProcessGroup], boot_id: &str, signal: Signal) -> Vec<&'g ProcessGroup> {
    groups.iter().filter(|group| process::signal(group, boot_id, signal)).collect()
}

fn are_gone_within(groups: &[&ProcessGroup], boot_id: &str, grace: Duration) -> bool {
    let mut waited = Duration::ZERO;
    while groups.iter().any(|group| process::look_for(group, boot_id) != Left::Nobody) {
        if waited >= grace {
            return false;
        }
        block(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
    true
}

fn told(group: &ProcessGroup, is_gone: bool) -> Reaped {
    Reaped { session: group.session_id.clone(), run: group.run_id.clone(), group: group.id, is_gone }
}
