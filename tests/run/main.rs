//! Supervised runs on a real data directory, with producers that follow a script and time that passes when nobody works.

mod agent;
mod disk;
mod drain;
#[allow(dead_code, reason = "commands and endpoints are tested in the same house")]
mod house;
mod outside;
mod retry;
mod stop;
mod thousand;
mod watchdog;
