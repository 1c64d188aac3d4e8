//! Time in which the machine and this process were awake: what a producer's silence is measured in.
//!
//! The wall clock can be set, and a clock that only moves forward still runs on while the process is stopped or the
//! machine it lives on is paused. So somebody looks at such a clock every second, and of a gap between two looks that is
//! far longer than that only a little counts: nobody was awake to listen.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::sleep::sleep;
use crate::clock::Steady;

/// How often the clock is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How much of a gap between two looks counts. A busy machine may well be late by a few seconds.
const GAP_MAX: Duration = Duration::from_secs(5);

/// A clock that stands still while nobody is awake.
#[derive(Debug)]
pub(super) struct AwakeClock {
    steady: Arc<dyn Steady>,
    last: Mutex<Look>,
}

/// What a look at the clock found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    /// What the steady clock showed.
    steady: Duration,
    /// How much of it the machine was awake.
    awake: Duration,
}

impl Look {
    /// The next look, when the steady clock shows this.
    fn then(self, steady: Duration) -> Look {
        let gap = steady.saturating_sub(self.steady).min(GAP_MAX);
        Look { steady, awake: self.awake + gap }
    }
}

impl AwakeClock {
    pub(super) fn new(steady: Arc<dyn Steady>) -> Arc<Self> {
        let last = Mutex::new(Look { steady: steady.now(), awake: Duration::ZERO });
        Arc::new(AwakeClock { steady, last })
    }

    /// How long the machine was awake since this clock was made.
    pub(super) fn now(&self) -> Duration {
        self.last.lock().then(self.steady.now()).awake
    }

    /// Looks at the steady clock every second, as long as anybody holds this one.
    pub(super) async fn keep(clock: Weak<Self>) {
        while let Some(clock) = clock.upgrade() {
            clock.look();
            drop(clock);
            sleep(LOOK_EVERY).await;
        }
    }

    fn look(&self) {
        let mut last = self.last.lock();
        *last = last.then(self.steady.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Look = Look { steady: Duration::from_secs(100), awake: Duration::ZERO };

    #[test]
    fn time_passes_as_long_as_somebody_looks() {
        let look = (101..=160).fold(START, |look, second| look.then(Duration::from_secs(second)));
        assert_eq!(look.awake, Duration::from_secs(60));
    }

    #[test]
    fn hours_in_which_nobody_looked_hardly_count() {
        let night = START.then(Duration::from_secs(100 + 8 * 3600));
        assert_eq!(night.awake, GAP_MAX);
        assert_eq!(night.then(Duration::from_secs(101 + 8 * 3600)).awake, GAP_MAX + LOOK_EVERY);
    }

    #[test]
    fn a_steady_clock_that_goes_back_takes_nothing_away() {
        assert_eq!(START.then(Duration::from_secs(7)).awake, Duration::ZERO);
    }
}
