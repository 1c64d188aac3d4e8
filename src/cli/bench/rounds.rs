//! Taking turns: both sides of a row in the same run, round by round, and the medians.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Outcomes;
use super::table::{Figures, Unit};

/// How long a row may take unless its rounds were asked for. Rounds under way are completed.
const ROW_TIME_MAX: Duration = Duration::from_secs(2);
/// However slow the machine is, one odd round must not decide.
const ROUNDS_MIN: usize = 3;

/// How many rounds a row has.
pub(super) struct Rounds {
    pub(super) asked_for: Option<usize>,
}

impl Rounds {
    /// Runs both sides in turns and takes the medians of the microseconds they give.
    pub(super) fn side_by_side(
        &self,
        most: usize,
        mut ours: impl FnMut() -> Outcomes<f64>,
        mut limit: impl FnMut() -> Outcomes<f64>,
    ) -> Outcomes<Figures> {
        let begin = Instant::now();
        let (mut our_times, mut limit_times) = (Vec::new(), Vec::new());
        while self.wants_another(our_times.len(), most, begin.elapsed()) {
            our_times.push(ours()?);
            limit_times.push(limit()?);
        }
        let rounds = our_times.len();
        Ok(Figures { ours: median(our_times), limit: median(limit_times), unit: Unit::Micros, rounds })
    }

    fn wants_another(&self, done: usize, most: usize, taken: Duration) -> bool {
        match self.asked_for {
            Some(asked_for) => done < asked_for,
            None => done < most && (done < ROUNDS_MIN || taken < ROW_TIME_MAX),
        }
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// How many microseconds each of so many operations takes. What the work gives is dropped afterwards.
pub(super) fn timed<T>(times: usize, work: impl FnOnce() -> Outcomes<T>) -> Outcomes<f64> {
    let begin = Instant::now();
    let given = black_box(work()?);
    let taken = begin.elapsed();
    drop(given);
    Ok(micros_each(taken, times))
}

pub(super) fn micros_each(taken: Duration, times: usize) -> f64 {
    taken.as_secs_f64() * 1e6 / times as f64
}
