//! The order of use: who was used least recently.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;

use crate::model::SessionId;

/// Ticks are the same for all orders, so that two can be compared.
static TICKS: AtomicU64 = AtomicU64::new(0);

/// Ids in the order of their last use.
#[derive(Debug, Default)]
pub(super) struct Order {
    by_tick: BTreeMap<u64, SessionId>,
}

fn next_tick() -> u64 {
    TICKS.fetch_add(1, Ordering::Relaxed)
}

impl Order {
    /// Adds an id as the one used last, and gives its tick.
    pub(super) fn add(&mut self, id: &SessionId) -> u64 {
        let tick = next_tick();
        self.by_tick.insert(tick, id.clone());
        tick
    }

    /// Makes an id the one used last, and gives its new tick.
    pub(super) fn renew(&mut self, tick: u64) -> u64 {
        if self.by_tick.last_key_value().is_some_and(|(last, _)| *last == tick) {
            return tick;
        }
        let Some(id) = self.by_tick.remove(&tick) else { return tick };
        let tick = next_tick();
        self.by_tick.insert(tick, id);
        tick
    }

    /// Takes an id out.
    pub(super) fn take(&mut self, tick: u64) {
        self.by_tick.remove(&tick);
    }

    /// The id used least recently.
    pub(super) fn oldest(&self) -> Option<&SessionId> {
        self.by_tick.first_key_value().map(|(_, id)| id)
    }
}
