//! How long to wait before the next try, and when to try no more: a function of the time, the failures, what the server
//! asked for, and a random number.

use std::time::Duration;

/// How long a client goes on trying while nothing succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For how long it goes on, from the first failure; for ever if there is no limit.
    pub lasting: Option<Duration>,
    /// The pause behind the first failure, unless the server asks for another; each further one is twice as long.
    pub first_pause: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            lasting: Some(Duration::from_secs(120)),
            first_pause: Duration::from_millis(500),
            pause_max: Duration::from_secs(30),
        }
    }
}

impl Patience {
    /// No second try.
    pub fn none() -> Self {
        Patience { lasting: Some(Duration::ZERO), ..Patience::default() }
    }
}

/// No pause is shorter, whatever a server asks for.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// A time in which nothing succeeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outage {
    failures: u32,
    began: Option<Duration>,
}

impl Outage {
    /// Something succeeded.
    pub(super) fn is_over(&mut self) {
        *self = Outage::default();
    }

    /// How long it has lasted.
    pub(super) fn lasted(&self, now: Duration) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now.saturating_sub(began))
    }

    /// The pause behind another failure; none if it was the last. `asked` is what the server asked for; `chance` is any
    /// number, and spreads the tries of many clients that failed together.
    pub(super) fn pause(
        &mut self,
        now: Duration,
        asked: Option<Duration>,
        chance: u128,
        patience: &Patience,
    ) -> Option<Duration> {
        self.began.get_or_insert(now);
        let left = patience.lasting.map(|lasting| lasting.saturating_sub(self.lasted(now)));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        let first = asked.unwrap_or(patience.first_pause).max(PAUSE_MIN);
        let doubled = first.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures += 1;
        let part = (chance % 1_000) as f64 / 1_000.0;
        let pause = doubled.min(patience.pause_max).mul_f64(1.0 + part / 4.0);
        Some(left.map_or(pause, |left| pause.min(left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        lasting: Some(Duration::from_secs(100)),
        first_pause: Duration::from_secs(1),
        pause_max: Duration::from_secs(30),
    };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pauses_double_up_to_a_bound_until_patience_ends() {
        let (mut outage, mut now, mut pauses) = (Outage::default(), seconds(7), Vec::new());
        while let Some(pause) = outage.pause(now, None, 0, &PATIENCE) {
            now += pause;
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 9]);
        assert_eq!(outage.lasted(now), seconds(100));
    }

    #[test]
    fn a_success_begins_anew() {
        let mut outage = Outage::default();
        outage.pause(seconds(0), None, 0, &PATIENCE);
        outage.pause(seconds(50), None, 0, &PATIENCE);
        outage.is_over();
        assert_eq!(outage.pause(seconds(99), None, 0, &PATIENCE), Some(seconds(1)));
        assert_eq!(outage.lasted(seconds(100)), seconds(1));
    }

    #[test]
    fn a_server_may_ask_for_another_pause_but_not_for_none() {
        let pause = |asked, chance| Outage::default().pause(seconds(0), Some(asked), chance, &PATIENCE).unwrap();
        assert_eq!(pause(seconds(2), 0), seconds(2));
        assert_eq!(pause(seconds(3_600), 0), seconds(30));
        assert_eq!(pause(Duration::ZERO, 0), PAUSE_MIN);
        assert!(
            (0..5_000).map(|chance| pause(seconds(2), chance)).all(|pause| seconds(2) <= pause && pause < seconds(3))
        );
        assert_ne!(pause(seconds(2), 1), pause(seconds(2), 500));
    }

    #[test]
    fn patience_may_be_without_end_or_none_at_all() {
        let endless = Patience { lasting: None, ..PATIENCE };
        let mut outage = Outage::default();
        assert!((0..100).all(|hour| outage.pause(seconds(hour * 3_600), None, 999, &endless).is_some()));
        assert_eq!(Outage::default().pause(seconds(5), None, 0, &Patience::none()), None);
    }
}
