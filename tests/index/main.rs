//! The list of sessions: always what the files say, whatever became of the index.

#[cfg(feature = "sim")]
mod cost;
#[cfg(feature = "sim")]
mod crash;
mod damage;
mod find;
mod meanwhile;
#[cfg(feature = "sim")]
mod outside;
mod pages;
#[path = "../shared/seeds.rs"]
mod seeds;
mod shelf;
