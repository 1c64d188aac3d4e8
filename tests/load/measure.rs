//! What was measured: times in order, memory over time.

use std::time::Duration;

/// The time that so much of all times do not exceed.
pub(crate) fn quantile(times: &mut [Duration], part: f64) -> Duration {
    assert!(!times.is_empty(), "nothing was measured");
    times.sort_unstable();
    times[((times.len() - 1) as f64 * part) as usize]
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(crate) fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
