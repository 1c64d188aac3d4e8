//! The doctor: what it finds in a data directory, what a repair makes of it, and what both leave alone.
#![cfg(unix)]

mod accidents;
mod anything;
mod codes;
mod command;
mod data;
mod live;
mod markers;
mod objects;
mod odd;
mod permissions;
mod rebuild;
mod recorded;
mod repairs;
mod replaced;
mod rows;
mod scenes;
#[path = "../shared/seeds.rs"]
mod seeds;
mod values;
