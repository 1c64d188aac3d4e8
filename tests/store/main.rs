//! The store as its users see it: sessions, runs, followers, many threads at once, on real files.

mod attachments;
mod branches;
mod durable;
mod fixture;
mod follow;
mod meter;
mod regenerate;
mod replay;
mod run_list;
mod runs;
mod sessions;
mod together;
