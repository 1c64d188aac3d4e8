//! The budget of wrong logins: a bound on guessing tokens, for all callers together.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Steady, SystemSteady};

/// Wrong logins that are answered within one second. Further logins, right or wrong, are refused until the next.
const WRONG_PER_SECOND_MAX: u32 = 10;

/// Counts wrong logins of the present second.
#[derive(Debug, Default)]
pub(in crate::http) struct LoginBudget {
    steady: SystemSteady,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    second: u64,
    taken: u32,
}

impl LoginBudget {
    /// Takes a login out of the budget, before the token is compared; `false` if none is left in this second.
    pub(in crate::http) fn take(&self) -> bool {
        self.counted.lock().take(self.steady.now())
    }

    /// Gives back what a login took that turned out to be right.
    pub(in crate::http) fn give_back(&self) {
        let mut counted = self.counted.lock();
        counted.taken = counted.taken.saturating_sub(1);
    }
}

impl Counted {
    fn take(&mut self, now: Duration) -> bool {
        if self.second != now.as_secs() {
            *self = Counted { second: now.as_secs(), taken: 0 };
        }
        let is_left = self.taken < WRONG_PER_SECOND_MAX;
        self.taken += u32::from(is_left);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_logins_have_a_budget_of_each_second() {
        let mut counted = Counted::default();
        for second in 0..3 {
            let at = Duration::from_millis(second * 1000 + 999);
            let taken = (0..100).filter(|_| counted.take(at)).count();
            assert_eq!(taken, WRONG_PER_SECOND_MAX as usize);
        }
    }
}
