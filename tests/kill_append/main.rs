//! Real processes, killed for real: a simulation shares our misconceptions, the kernel does not.
//!
//! Everything is asked of the `lastword` binary through its command line, and judged by what it had acknowledged.

#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(clippy::disallowed_methods, reason = "a test of processes waits in real time, with deadlines")]

mod data;
mod every_step;
mod follow;
mod process;
mod random_moments;
mod recover;
mod set_times;
mod torn_line;
mod two_processes;
