//! Which runs are live: one pure function ([`judge`]), the facts that it needs, and one timer.
//!
//! A reader that waits for a run registers it. When the run is orphaned, the timer seals it and wakes the reader. A run that
//! no reader waits for is never sealed, and takes late appends.

mod facts;
mod judge;
mod registry;
mod seal;
mod timer;

pub(super) use self::facts::Seen;
pub use self::judge::Liveness;
pub(crate) use self::judge::{Began, Journal, LastSign, LeaseFacts, Now, Origin, RunFacts, judge};
pub use self::registry::KeptAlive;
pub(super) use self::registry::{Lease, Registry, Waiting};
pub(super) use self::seal::Examined;
pub(super) use self::timer::TimerThread;
