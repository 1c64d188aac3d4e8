//! The budget of wrong logins, for all callers together: a bound on the work and the log lines of a flood. It does not keep a
//! right token out, and it is not what makes tokens hard to guess: their length is.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Steady, SystemSteady};

/// Wrong logins that are answered as such within one second. Further ones are refused until the next.
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
    /// Takes a wrong login out of the budget; `false` if none is left in this second.
    pub(in crate::http) fn take(&self) -> bool {
        self.counted.lock().take(self.steady.now())
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
