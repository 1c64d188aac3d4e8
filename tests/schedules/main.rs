//! The store with its threads, under every schedule of them that one or two deviations give, and many more by seeds, with the
//! power cut at every disk operation.
//!
//! The suites in tests/crash drive the store by hand, in one thread. Here the thread that commits, the one that tends the log,
//! the timer and the caller's own threads run, one at a time, in the order that a schedule says
//! (`lastword::storage::sim::schedule`), and time is the schedule's own. `LASTWORD_SCHEDULES` multiplies how many are tried.

mod attachments;
mod bound;
mod deleted;
mod durable;
mod faults;
mod promises;
mod readers;
mod turns;
mod world;
