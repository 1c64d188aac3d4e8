//! The doctor's repair, interrupted at every step: on the simulated disk before every operation, and as a real process
//! before every system call that changes the disk.
//!
//! One damaged data directory holds every kind of damage that a repair treats. A repair that nothing disturbs says what
//! it becomes. Wherever a repair is interrupted, nothing that lay there is lost, what was sound is as it was, and the
//! next repair leads to the same directory.

mod damage;
mod deleted;
mod every_operation;
mod faults;
mod judge;
mod numbers;
#[cfg(target_os = "linux")]
#[path = "../kill_append/process.rs"]
#[allow(dead_code, reason = "not every way to talk to a process is needed here")]
mod process;
#[cfg(target_os = "linux")]
mod real_process;
mod scene;
mod view;
