//! The one answer to "is this run over?": a pure function of facts and time.
//!
//! It reads no clock and no file. `facts.rs` gathers what it needs, and the table in its tests is the rule.

use std::time::Duration;

/// Whether a run is over, and what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Its producer is alive, or may still be.
    Live {
        /// After this much awake time the answer may be another one; none while a producer in this process holds the run.
        for_at_most: Option<Duration>,
    },
    /// Its journal holds its end.
    Sealed,
    /// Its producer is dead, and its journal is not sealed.
    Orphaned,
    /// Another program wrote its journal, and no turn waits for it any more. It is never sealed by this program.
    Foreign,
    /// It has no journal, or its session was deleted.
    Gone,
}

/// What lies where a run's journal should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Journal {
    Missing,
    Empty,
    Unsealed,
    Sealed,
}

/// Where a run comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This program began it. A run that takes no more appends, because the machine was restarted since, has no producer that
    /// a lease could keep alive.
    Ours { takes_appends: bool },
    /// Another program began it, or its record is lost.
    Foreign,
}

/// The last sign of life of an outside producer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LastSign {
    /// In awake time of this process, which has heard of it or grants it.
    Awake(Duration),
    /// In seconds of the wall clock, as the run's files say.
    Wall(f64),
}

/// The lease of an outside producer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LeaseFacts {
    pub(crate) seconds: f64,
    pub(crate) last_sign: LastSign,
}

/// When a run began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Began {
    /// In this process, at this awake time.
    Awake(Duration),
    /// At this second of the wall clock.
    Wall(f64),
    /// Nothing usable says when: long ago.
    Unknown,
}

/// Everything that the answer depends on, but the time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RunFacts {
    pub(crate) is_session_deleted: bool,
    pub(crate) journal: Journal,
    pub(crate) origin: Origin,
    /// A runner, a handle without a lease, or a request of its producer works on it.
    pub(crate) is_held: bool,
    /// Whether its session names it as the run that answers the pending turn.
    pub(crate) is_awaited: bool,
    pub(crate) lease: Option<LeaseFacts>,
    pub(crate) began: Began,
}

/// What time it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Now {
    pub(crate) awake: Duration,
    /// Seconds of the wall clock.
    pub(crate) wall: f64,
    /// When the process that holds the directory took it, in seconds of the wall clock.
    pub(crate) holder_began: f64,
    /// How long a turn is left alone after it began.
    pub(crate) grace: Duration,
}

/// Says whether a run is over.
pub(crate) fn judge(facts: &RunFacts, now: &Now) -> Liveness {
    match (facts.is_session_deleted, facts.journal) {
        (true, _) => return Liveness::Gone,
        (false, Journal::Sealed) => return Liveness::Sealed,
        _ => {}
    }
    if facts.is_held {
        return Liveness::Live { for_at_most: None };
    }
    // A journal that a turn waits for may still appear; any other one was removed.
    if facts.journal == Journal::Missing && !facts.is_awaited {
        return Liveness::Gone;
    }
    let left = lease_left(facts, now).max(grace_left(facts, now));
    match (left, facts.origin, facts.journal) {
        (Some(left), ..) => Liveness::Live { for_at_most: Some(left) },
        (None, _, Journal::Missing) => Liveness::Gone,
        (None, Origin::Foreign, _) => Liveness::Foreign,
        (None, Origin::Ours { .. }, _) => Liveness::Orphaned,
    }
}

fn usable_lease(facts: &RunFacts) -> Option<LeaseFacts> {
    facts.lease.filter(|_| facts.origin == Origin::Ours { takes_appends: true })
}

/// How much of its lease a producer has left; none if it has lapsed, or there is none.
fn lease_left(facts: &RunFacts, now: &Now) -> Option<Duration> {
    let lease = usable_lease(facts)?;
    let length = duration(lease.seconds);
    match lease.last_sign {
        LastSign::Awake(at) => (at + length).checked_sub(now.awake),
        LastSign::Wall(at) => {
            let age = now.wall - at;
            // A sign of life from further in the future than the lease comes from a wrong clock.
            (-lease.seconds..=lease.seconds).contains(&age).then(|| duration(lease.seconds - age))
        }
    }
}

/// How much of its grace a run has left. A run of another program has one while a turn waits for it.
fn grace_left(facts: &RunFacts, now: &Now) -> Option<Duration> {
    let left = match facts.began {
        _ if facts.origin == Origin::Foreign && !facts.is_awaited => None,
        Began::Awake(at) => (at + now.grace).checked_sub(now.awake),
        Began::Wall(at) => wall_grace_left(at, usable_lease(facts).is_some(), now),
        Began::Unknown => None,
    };
    left.filter(|left| !left.is_zero())
}

/// A run without a lease that began before the present holder of the directory has no producer: its process is gone. A
/// beginning further in the future than the grace comes from a wrong clock.
fn wall_grace_left(began: f64, has_lease: bool, now: &Now) -> Option<Duration> {
    let (age, grace) = (now.wall - began, now.grace.as_secs_f64());
    let is_of_holder = has_lease || began >= now.holder_began;
    (is_of_holder && (-grace..grace).contains(&age)).then(|| duration(grace - age))
}

/// Seconds as a duration; no less than nothing and no more than can be added.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.0, 1e9)).unwrap_or_default()
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
