//! Real files, real processes, real signals, a really full disk: many streams under `kill -9`, pages lost as by a power
//! cut, and a device without room.
//!
//! The writers are this same program, started again with an order in its environment; see `child`.

#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(clippy::disallowed_methods, reason = "a test of processes waits in real time, with deadlines")]

mod attachments;
mod child;
mod data;
mod full_disk;
mod log_without_room;
mod lost_pages;
mod many_streams;
mod moment;
mod order;
#[path = "../kill_append/process.rs"]
#[allow(dead_code, reason = "not every way to talk to a process is needed here")]
mod process;
mod readers;
mod small_disk;
