//! The real server under load: very many followers, many writers, readers that are slow or stuck, very many sessions.
//!
//! What is asserted holds on a machine that is busy with other things: nothing is lost, memory does not grow, and ratios of
//! what is measured in turns. Sizes are small by default; the environment names larger ones, and a release build:
//!
//! | variable | is | usually |
//! |---|---|---|
//! | `LASTWORD_LOAD_SECONDS` | how long writers write | 15 |
//! | `LASTWORD_LOAD_RATE` | batches a second of each of them | 5 |
//! | `LASTWORD_LOAD_IDLE` | idle followers | 1,000 |
//! | `LASTWORD_LOAD_IDLE_SECONDS` | how long they are watched | 3 |
//! | `LASTWORD_LOAD_SESSIONS` | sessions of a long list | 5,000 |
//! | `LASTWORD_BINARY` | the server | the one built with the test |

#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(clippy::disallowed_methods, reason = "a test of load waits in real time, with deadlines")]

mod crowd;
mod idle;
mod lists;
mod measure;
#[allow(dead_code, reason = "not all of a server is needed here")]
mod served;
mod wire;

use std::env;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A number that the environment may name.
fn size(name: &str, usual: usize) -> usize {
    env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// One load at a time: each measures what the machine has left.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    lastword::storage::raise_open_files();
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread holds all connections.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
