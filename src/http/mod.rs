//! The server: sessions and runs over HTTP, for any language and for browsers, resumable by anyone.
//!
//! Handlers are thin: what they do is done by the store, on threads that may block (`blocking_pool`). Streams never hold a thread
//! while nothing happens (`stream`). Who is let in is decided in one place (`guard`, `door`), and what went wrong meets its
//! status in one place (`error`). Nothing below knows HTTP.

mod admission;
mod answer_budget;
mod app;
mod base_path;
mod blocking_pool;
mod body_budget;
mod body_reader;
mod chat;
mod compress;
mod describe;
mod door;
mod error;
mod forwarded;
mod guard;
mod listen;
mod log;
mod metrics;
mod options;
mod page_files;
mod peers;
mod producers;
mod request;
mod routes;
mod server;
mod session_shares;
mod settings;
mod socket;
mod store_metrics;
mod stream;
#[cfg(test)]
mod tests;
mod time;
mod token;

pub use base_path::{BadBasePath, BasePath};
pub use door::TokenHandle;
pub use forwarded::{AddressRange, BadRange};
pub use options::ServerOptions;
pub use server::{ServeError, Server};
pub use settings::{BadSetting, Lasting, LogForm, ServerSettings};
pub use token::{Access, BadTokens, Tokens};
