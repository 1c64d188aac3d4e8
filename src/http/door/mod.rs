//! Authentication: bearer tokens, login cookies, tickets, and what happens to open streams when a token is removed.
//!
//! A cookie or a ticket never holds a token. It is signed with a key that is derived from one (`signed`), so that it
//! survives a restart and ends with its token. `credentials` is the one place that turns a request into a [`Caller`].
//!
//! [`Caller`]: super::token::Caller

mod budget;
mod cookie;
mod credentials;
mod handle;
mod removal;
mod signed;
mod ticket;

pub(super) use cookie::{cleared_cookie, login_cookie};
pub(super) use credentials::{caller_of, names_own_origin};
pub(super) use handle::Door;
pub use handle::TokenHandle;
pub(super) use removal::{ended_by_removal, removed};
pub(super) use signed::{KeyId, SigningKey};
pub(super) use ticket::{PATH_RULE, TicketPath, issue};
