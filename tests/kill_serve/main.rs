//! `lastword serve` as people run it: the whole program on a real port, its clients in this process, killed and started
//! again on the same directory while they work.

#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(clippy::disallowed_methods, reason = "a test of processes waits in real time, with deadlines")]

mod chaos;
mod command_line;
mod conversation;
#[path = "../kill_append/data.rs"]
#[allow(dead_code, reason = "not every command is given here")]
mod data;
mod dice;
mod doors;
mod event_source;
mod every_step;
mod fake_clock;
mod host;
mod leases;
mod liveness;
mod logs;
mod objects;
mod own_runner;
#[path = "../kill_append/process.rs"]
#[allow(dead_code, reason = "not every way to talk to a process is needed here")]
mod process;
mod producers;
mod random_moments;
mod rotation;
mod settings;
mod signals;
#[path = "../real/small_disk.rs"]
#[allow(dead_code, reason = "not every way to fill a disk is needed here")]
mod small_disk;
mod storage;
#[path = "../kill_run/table.rs"]
#[allow(dead_code, reason = "signals are all that is needed here")]
mod table;
mod verdict;
mod watchers;
