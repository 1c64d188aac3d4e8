//! How long to wait before the next attempt: a pure function of the attempts made, what the backend asked for, and a
//! random number.

use std::time::Duration;

/// Attempts and the pauses between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Attempts of one run, the first included.
    pub attempts_max: u32,
    /// The pause behind the first; each further one is twice as long.
    pub first_pause: Duration,
    /// The longest of these.
    pub pause_max: Duration,
    /// The longest pause that a backend may ask for. One that asks for more is not asked again.
    pub asked_pause_max: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Retries {
            attempts_max: 3,
            first_pause: Duration::from_secs(1),
            pause_max: Duration::from_secs(30),
            asked_pause_max: Duration::from_secs(120),
        }
    }
}

/// The pause behind an attempt that failed; none if there is to be no further one.
///
/// `asked` is what the backend asked for and is always waited out, with a little more on top; `chance` is any number,
/// and spreads the pauses of many runs that failed together.
pub(super) fn pause_after(attempt: u32, asked: Option<Duration>, chance: u128, retries: &Retries) -> Option<Duration> {
    if attempt >= retries.attempts_max || asked.is_some_and(|asked| asked > retries.asked_pause_max) {
        return None;
    }
    let doubled = retries.first_pause.saturating_mul(1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
    let pause = doubled.min(retries.pause_max);
    let part = (chance % 1_000) as f64 / 1_000.0;
    Some(match asked {
        Some(asked) => asked + retries.first_pause.mul_f64(part / 4.0),
        None => pause.mul_f64(0.5 + part / 2.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRIES: Retries = Retries {
        attempts_max: 9,
        first_pause: Duration::from_secs(1),
        pause_max: Duration::from_secs(30),
        asked_pause_max: Duration::from_secs(120),
    };

    #[test]
    fn pauses_double_up_to_a_bound_and_the_last_attempt_is_the_last() {
        let longest = |attempt| pause_after(attempt, None, 999, &RETRIES).map(|pause| pause.as_secs_f64().round());
        let pauses: Vec<_> = (1..=9).map(longest).collect();
        let expected = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0].map(Some);
        assert_eq!(pauses[..8], expected);
        assert_eq!(pauses[8], None);
        assert_eq!(pause_after(u32::MAX, None, 0, &Retries { attempts_max: 0, ..RETRIES }), None);
    }

    #[test]
    fn chance_spreads_a_pause_over_its_upper_half() {
        let pause = |chance| pause_after(3, None, chance, &RETRIES).unwrap();
        assert_eq!(pause(0), Duration::from_secs(2));
        assert!((0..5_000).map(pause).all(|pause| (2.0..4.0).contains(&pause.as_secs_f64())));
        assert_ne!(pause(1), pause(500));
    }

    #[test]
    fn what_a_backend_asks_for_is_waited_out_unless_it_is_too_long() {
        let asked = Duration::from_secs(90);
        let pause = pause_after(1, Some(asked), 999, &RETRIES).unwrap();
        assert!(asked <= pause && pause < asked + Duration::from_secs(1));
        assert_eq!(pause_after(1, Some(Duration::from_secs(121)), 0, &RETRIES), None);
        assert_eq!(pause_after(1, Some(Duration::ZERO), 0, &RETRIES), Some(Duration::ZERO));
    }
}
