//! Commands that answer: real child processes, polite and otherwise, under a supervisor, in real time.

#![cfg(all(target_os = "linux", feature = "cli"))]

mod agent;
mod answers;
mod ends;
mod forgets;
mod gate;
#[path = "../run/house.rs"]
#[allow(dead_code, reason = "not everything in the house is needed here")]
mod house;
mod leftovers;
mod many;
mod stops;
