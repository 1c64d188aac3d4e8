//! Who may use the server: the tokens, replaceable while it runs.

use std::sync::Arc;

use tokio::sync::watch;

use super::budget::LoginBudget;
use crate::http::token::Tokens;

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
}
