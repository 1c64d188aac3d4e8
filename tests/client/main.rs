//! The client against a server that misbehaves: cut connections, repeated events, restarts, silence, nonsense. What was
//! sent arrives once, what was told is told once, and a failure is said in words.

mod calls;
mod command;
mod follow;
mod journal;
mod producer;
mod server;
