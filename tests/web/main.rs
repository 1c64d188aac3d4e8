//! What people talk to the server with, as they use it: the AI SDK's packages, a browser and its EventSource, curl, and
//! the page. The server is the whole program, killed in the middle of answers and started again at the same address.
//!
//! Each test plays a scene: a script under `js/scenes`, which asks for the server's death when it wants it, and which
//! fails if anybody is shown a word twice, too late, or never. `.ci/setup` installs what the scripts need.

#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(clippy::disallowed_methods, reason = "a test of processes waits in real time, with deadlines")]

mod browser;
mod chat;
mod house;
#[path = "../kill_append/process.rs"]
#[allow(dead_code, reason = "not every way to talk to a process is needed here")]
mod process;
