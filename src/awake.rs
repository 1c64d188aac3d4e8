//! Awake time: the time in which the machine and this process were running. Silence of producers is measured in it.
//!
//! The wall clock can be set, and a monotonic clock runs on while the process is stopped or its virtual machine is paused.
//! So the owner of an [`AwakeClock`] looks at it often, and a gap between two looks that is longer than
//! [`AwakeOptions::gap_max`] is a pause: only `gap_max` of it counts, and the moment of its end is remembered. A machine
//! that was suspended shows no gap on the monotonic clock; there the wall clock has gone ahead of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::Mutex;

use crate::clock::{Clock, Steady};

/// How an awake clock recognizes pauses.
#[derive(Debug, Clone)]
pub(crate) struct AwakeOptions {
    /// The longest time between two looks that is not a pause. `Duration::MAX` recognizes none.
    pub(crate) gap_max: Duration,
    /// The wall clock, if a jump of it is to be taken for a pause of the machine.
    pub(crate) wall: Option<Arc<dyn Clock>>,
}

/// A clock that stands still while the process is paused.
pub(crate) struct AwakeClock {
    steady: Arc<dyn Steady>,
    options: AwakeOptions,
    last: Mutex<Look>,
}

/// What one look at the clocks found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    steady: Duration,
    wall_micros: i64,
    /// How long the process was awake since the clock was made.
    pub(crate) awake: Duration,
    /// When the last pause ended, in awake time; zero if there was none.
    pub(crate) pause_ended: Duration,
}

impl Look {
    /// The next look, when the monotonic clock and the wall clock show this.
    fn then(self, steady: Duration, wall_micros: i64, gap_max: Duration) -> Look {
        let gap = steady.saturating_sub(self.steady);
        let awake = self.awake + gap.min(gap_max);
        let jump = Duration::from_micros(u64::try_from(wall_micros - self.wall_micros).unwrap_or(0));
        let is_pause = gap > gap_max || jump.saturating_sub(gap) > gap_max;
        let pause_ended = if is_pause { awake } else { self.pause_ended };
        // A monotonic clock that goes back is not believed.
        Look { steady: steady.max(self.steady), wall_micros, awake, pause_ended }
    }
}

impl AwakeClock {
    /// A clock that begins now.
    pub(crate) fn new(steady: Arc<dyn Steady>, options: AwakeOptions) -> Self {
        let wall_micros = options.wall.as_ref().map_or(0, |wall| wall.now().micros());
        let last = Look { steady: steady.now(), wall_micros, awake: Duration::ZERO, pause_ended: Duration::ZERO };
        AwakeClock { steady, options, last: Mutex::new(last) }
    }

    /// Looks at the clocks. A pause that ended since the last look is recognized now.
    pub(crate) fn look(&self) -> Look {
        let mut last = self.last.lock();
        let wall_micros = self.options.wall.as_ref().map_or(0, |wall| wall.now().micros());
        *last = last.then(self.steady.now(), wall_micros, self.options.gap_max);
        *last
    }

    /// How long the process was awake since this clock was made.
    pub(crate) fn now(&self) -> Duration {
        self.look().awake
    }
}

impl fmt::Debug for AwakeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwakeClock").field("last", &self.last).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP_MAX: Duration = Duration::from_secs(5);
    const HOUR: u64 = 3600;

    fn start() -> Look {
        let zero = Duration::ZERO;
        Look { steady: Duration::from_secs(100), wall_micros: 0, awake: zero, pause_ended: zero }
    }

    fn then(look: Look, steady_seconds: u64, wall_seconds: i64) -> Look {
        look.then(Duration::from_secs(steady_seconds), wall_seconds * 1_000_000, GAP_MAX)
    }

    #[test]
    fn time_passes_while_the_owner_looks() {
        let look = (101..=160).fold(start(), |look, second| then(look, second, second as i64 - 100));
        assert_eq!((look.awake, look.pause_ended), (Duration::from_secs(60), Duration::ZERO));
    }

    #[test]
    fn a_long_gap_is_a_pause_and_hardly_counts() {
        let night = then(start(), 100 + 8 * HOUR, 8 * HOUR as i64);
        assert_eq!((night.awake, night.pause_ended), (GAP_MAX, GAP_MAX));
        let morning = then(night, 101 + 8 * HOUR, 8 * HOUR as i64 + 1);
        assert_eq!((morning.awake, morning.pause_ended), (GAP_MAX + Duration::from_secs(1), GAP_MAX));
    }

    #[test]
    fn a_suspended_machine_shows_on_the_wall_clock_alone() {
        let woken = then(start(), 101, HOUR as i64);
        assert_eq!((woken.awake, woken.pause_ended), (Duration::from_secs(1), Duration::from_secs(1)));
    }

    #[test]
    fn a_suspended_machine_is_seen_after_the_wall_clock_was_set_back() {
        let back = then(start(), 101, -(8 * HOUR as i64));
        assert_eq!(back.pause_ended, Duration::ZERO);
        let woken = then(back, 102, -(7 * HOUR as i64));
        assert_eq!((woken.awake, woken.pause_ended), (Duration::from_secs(2), Duration::from_secs(2)));
    }

    #[test]
    fn the_wall_clock_tells_of_a_pause_by_what_it_is_ahead_of_the_other_clock() {
        // The machine was busy for as long as is not a pause.
        let busy = then(start(), 105, 5 + GAP_MAX.as_secs() as i64);
        assert_eq!((busy.awake, busy.pause_ended), (GAP_MAX, Duration::ZERO));
        let suspended = then(start(), 105, 6 + GAP_MAX.as_secs() as i64);
        assert_eq!((suspended.awake, suspended.pause_ended), (GAP_MAX, GAP_MAX));
    }

    #[test]
    fn clocks_that_go_back_take_nothing_away_and_are_no_pause() {
        let back = then(start(), 7, -(HOUR as i64));
        assert_eq!((back.awake, back.pause_ended), (Duration::ZERO, Duration::ZERO));
        assert_eq!(then(back, 101, -(HOUR as i64) + 1).awake, Duration::from_secs(1));
    }
}
