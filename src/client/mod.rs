//! A client of a Lastword server: every call of its interface, followers that go on where a connection broke, producers
//! that may repeat themselves safely.
//!
//! What is decided (`outage.rs`, `resume.rs`, `batch.rs`) knows no connection; only `wait.rs` lets time pass. A token is
//! shown nowhere.

mod address;
mod batch;
mod error;
mod follow;
mod lines;
mod list;
mod outage;
mod producer;
mod resume;
mod runs;
mod sessions;
mod token;
mod told;
mod transport;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::address::Address;
pub use self::error::ClientError;
pub use self::follow::{Follow, FollowOptions, Start};
pub use self::lines::EventLines;
pub use self::list::{FollowList, ListTold};
pub use self::outage::Patience;
pub use self::producer::Producer;
pub use self::runs::{AppendOptions, EventBatch, NewRun};
pub use self::sessions::{
    Change, Created, Document, IfMatch, ListQuery, ListedSession, RowsQuery, SessionPage, UnreadableSession,
};
pub use self::token::Token;
pub use self::told::{EndNotice, SentEvent, Told};

/// How a server is talked to.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Who asks, if the server wants to know.
    pub token: Option<Token>,
    /// How long a connection may take to be made.
    pub connect_within: Duration,
    /// How long the server may say nothing at all, also no heartbeat, before the connection counts as broken.
    pub silence_max: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions { token: None, connect_within: Duration::from_secs(10), silence_max: Duration::from_secs(60) }
    }
}

/// Talks to one server. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    address: Address,
    options: ClientOptions,
    http: reqwest::Client,
}

impl Client {
    /// A client of the server at an address like `http://127.0.0.1:4437`. Nothing is sent yet.
    pub fn new(address: &str, options: ClientOptions) -> Result<Self, ClientError> {
        let address = Address::parse(address).map_err(|reason| ClientError::BadSetup { reason })?;
        let http = address.client(&options).map_err(|reason| ClientError::BadSetup { reason })?;
        Ok(Client { inner: Arc::new(Inner { address, options, http }) })
    }

    /// The server's address.
    pub fn address(&self) -> &str {
        self.inner.address.as_str()
    }
}

/// Names the server and nothing that is secret.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("address", &self.address()).finish_non_exhaustive()
    }
}
