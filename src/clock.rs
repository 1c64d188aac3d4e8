//! The only reader of the time. Everything else is told what time it is.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const MICROS_PER_SECOND: i64 = 1_000_000;

/// A moment, in microseconds since 1970. Files hold it as a JSON number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    micros: i64,
}

impl Timestamp {
    /// The moment that many microseconds after 1970.
    pub fn from_micros(micros: i64) -> Self {
        Timestamp { micros: micros.max(0) }
    }

    /// The moment that many seconds after 1970. What is before 1970, or no number, becomes 1970.
    pub fn from_seconds(seconds: f64) -> Self {
        Self::from_micros((seconds * MICROS_PER_SECOND as f64).round() as i64)
    }

    /// Microseconds since 1970.
    pub fn micros(self) -> i64 {
        self.micros
    }

    /// Seconds since 1970, with their fraction.
    pub fn seconds(self) -> f64 {
        self.micros as f64 / MICROS_PER_SECOND as f64
    }

    /// Seconds since 1970, cut to a whole number as transcript rows carry it.
    pub fn whole_seconds(self) -> i64 {
        self.micros / MICROS_PER_SECOND
    }
}

/// A JSON number of seconds with six decimals, the form in which journals and sidecars hold a moment.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.micros / MICROS_PER_SECOND, self.micros % MICROS_PER_SECOND)
    }
}

/// Tells how long something takes, whatever the clocks show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    begun: Instant,
    /// When it was started, in the time of the schedule that its thread runs under.
    #[cfg(any(test, feature = "sim"))]
    scheduled: Option<Duration>,
}

impl Stopwatch {
    /// Begins now.
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
    pub(crate) fn start() -> Self {
        Stopwatch {
            begun: Instant::now(),
            #[cfg(any(test, feature = "sim"))]
            scheduled: crate::sync::schedule::now(),
        }
    }

    /// What has passed since.
    pub(crate) fn elapsed(self) -> Duration {
        #[cfg(any(test, feature = "sim"))]
        if let (Some(begun), Some(now)) = (self.scheduled, crate::sync::schedule::now()) {
            return now.saturating_sub(begun);
        }
        self.begun.elapsed()
    }
}

/// A clock that only moves forward, whatever is done to the machine's date. It need not tell what time it is.
pub trait Steady: Send + Sync + fmt::Debug {
    /// How long ago some fixed moment was.
    fn now(&self) -> Duration;
}

/// The machine's own. On Linux and macOS it stands still while the machine sleeps.
#[derive(Debug, Clone, Copy)]
pub struct SystemSteady {
    since: Stopwatch,
}

impl Default for SystemSteady {
    fn default() -> Self {
        SystemSteady { since: Stopwatch::start() }
    }
}

impl Steady for SystemSteady {
    fn now(&self) -> Duration {
        self.since.elapsed()
    }
}

/// Tells the time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the time")]
    fn now(&self) -> Timestamp {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(since_1970.as_secs() as i64 * MICROS_PER_SECOND + i64::from(since_1970.subsec_micros()))
    }
}

/// A clock that stands still until it is told otherwise, for tests.
#[derive(Debug)]
pub struct ManualClock {
    micros: AtomicI64,
}

impl ManualClock {
    /// A clock that shows this moment.
    pub fn at(now: Timestamp) -> Self {
        ManualClock { micros: AtomicI64::new(now.micros) }
    }

    /// Shows another moment from now on.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.micros, Ordering::SeqCst);
    }

    /// Shows a later moment from now on.
    pub fn advance(&self, by: Duration) {
        self.micros.fetch_add(by.as_micros() as i64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }
}

/// A monotonic clock that stands still until it is advanced, for tests.
#[derive(Debug, Default)]
pub struct ManualSteady {
    micros: AtomicI64,
}

impl ManualSteady {
    /// Shows a later moment from now on.
    pub fn advance(&self, by: Duration) {
        self.micros.fetch_add(by.as_micros() as i64, Ordering::SeqCst);
    }
}

impl Steady for ManualSteady {
    fn now(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::SeqCst) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_seconds_with_six_decimals() {
        assert_eq!(Timestamp::from_seconds(1_800_000_000.25).to_string(), "1800000000.250000");
        assert_eq!(Timestamp::from_seconds(f64::NAN).to_string(), "0.000000");
        assert_eq!(Timestamp::from_seconds(-5.0).whole_seconds(), 0);
    }
}
