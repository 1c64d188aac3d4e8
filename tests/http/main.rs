//! The server over real sockets: what it promises to whoever speaks HTTP, in whatever language.

mod bounds;
mod door;
mod house;
mod lists;
mod operations;
mod producers;
mod sessions;
mod slow;
mod streams;
mod wire;
