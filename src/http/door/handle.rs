//! Who may use the server: the tokens, replaceable while it runs.

use std::sync::Arc;

use tokio::sync::watch;

use super::budget::LoginBudget;
use crate::http::token::{BadTokens, Tokens};

/// The tokens that hold now, and what goes with them.
#[derive(Debug)]
pub(in crate::http) struct Door {
    tokens: watch::Sender<Arc<Tokens>>,
    pub(in crate::http) logins: LoginBudget,
}

impl Door {
    pub(in crate::http) fn new(tokens: Tokens) -> Self {
        Door { tokens: watch::Sender::new(Arc::new(tokens)), logins: LoginBudget::default() }
    }

    /// The tokens that hold now. No lock is held when this returns.
    pub(in crate::http) fn tokens(&self) -> Arc<Tokens> {
        self.tokens.borrow().clone()
    }

    /// The tokens that hold now, and those that take their place later.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<Tokens>> {
        self.tokens.subscribe()
    }
}

/// Replaces the tokens of a server while it serves: [`Server::token_handle`](crate::http::Server::token_handle) gives one.
#[derive(Debug, Clone)]
pub struct TokenHandle(Arc<Door>);

impl TokenHandle {
    pub(in crate::http) fn new(door: &Arc<Door>) -> Self {
        TokenHandle(door.clone())
    }

    /// Puts these tokens in the place of the present ones, for all requests that begin from now on. Streams and waiting
    /// requests that were opened with a token that is not among them end; a token that may only read by now keeps its
    /// streams. The same holds for what was opened with a login or a ticket of that token.
    ///
    /// An empty set is refused, and changes nothing: it would let everyone in.
    pub fn replace(&self, tokens: Tokens) -> Result<(), BadTokens> {
        if tokens.is_empty() {
            return Err(BadTokens::None);
        }
        self.0.tokens.send_replace(Arc::new(tokens));
        Ok(())
    }
}
