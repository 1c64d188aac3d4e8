//! The server over real sockets: what it promises to whoever speaks HTTP, in whatever language.

#![allow(clippy::disallowed_methods, reason = "a real server takes real time")]
mod attachments;
mod bodies;
mod bounds;
mod chat_client;
mod chat_history;
mod chat_turns;
mod chats;
mod depth;
mod door;
mod encodings;
mod house;
mod lists;
mod login;
mod long_poll;
mod neighbours;
mod operations;
mod producers;
mod proxied;
mod rotation;
mod runs;
mod sessions;
mod slow;
mod streams;
mod tickets;
mod wire;
