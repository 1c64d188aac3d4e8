//! Bad input of every kind: each bad thing is named, stops nobody else, and stays as it is.
#![cfg(unix)]

mod anything;
mod data;
mod ids;
mod input;
mod journals;
#[path = "../shared/seeds.rs"]
mod seeds;
mod show;
mod sidecars;
mod strangers;
