//! `lastword run` as people use it: the whole program, killed at every stage of a run, and what the next commands find.
//!
//! Everything is asked of the `lastword` binary through its command line; the agents are small shell scripts.

#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(clippy::disallowed_methods, reason = "a test of processes waits in real time, with deadlines")]

mod aftermath;
mod command_line;
#[path = "../kill_append/data.rs"]
#[allow(dead_code, reason = "not every command is given here")]
mod data;
mod every_step;
mod left_behind;
#[path = "../kill_append/process.rs"]
#[allow(dead_code, reason = "not every way to talk to a process is needed here")]
mod process;
mod random_moments;
mod readers;
mod scene;
mod signals;
mod stages;
mod table;
