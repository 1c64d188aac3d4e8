//! What a store can be told when it is opened.

use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::entropy::{Entropy, SystemEntropy};
use crate::storage::Durability;

/// How a store behaves. The defaults are meant for production.
#[derive(Debug, Clone)]
pub struct Options {
    /// How lasting an append is before it returns and is shown, unless it asks for more.
    pub durability: Durability,
    /// Accept a network file system, although its locks may not keep other machines out.
    pub allow_network_fs: bool,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Gives ids and unique names.
    pub entropy: Arc<dyn Entropy>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Buffered,
            allow_network_fs: false,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
        }
    }
}
