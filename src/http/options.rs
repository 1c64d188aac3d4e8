//! What a server can be told when it is started. The defaults are meant for one machine and one user.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::base_path::BasePath;
use super::forwarded::AddressRange;
use super::token::Tokens;
use crate::limits::LINE_BYTES_MAX;

/// How a server behaves.
#[derive(Debug)]
pub struct ServerOptions {
    /// The data directory, for the doctor to look through.
    pub data: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who may do what. Without any token everybody may do everything, which only a loopback address is good for.
    pub tokens: Tokens,
    /// The path under which a proxy offers it.
    pub base_path: BasePath,
    /// Names by which it may be called, beside `localhost` and addresses.
    pub hosts: Vec<String>,
    /// Origins of pages of other servers that may use it from a browser.
    pub origins: Vec<String>,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Bytes of all requests' bodies in memory. A request whose body finds no room is refused.
    pub bodies_bytes_max: usize,
    /// Connections at the same time. Further ones wait for a moment, and are refused then. An eighth of them is kept for requests: streams beyond that are
    /// refused.
    pub connections_max: usize,
    /// Connections of one address at the same time, loopback addresses aside; for clients of a trusted proxy, their requests.
    /// An eighth of all, and at least 8, if it is not said.
    pub connections_per_address_max: Option<usize>,
    /// Proxies whose word is taken on who their clients are.
    pub trusted_proxies: Vec<AddressRange>,
    /// Journal files that readers who are behind hold open between two reads. Others open theirs for each read.
    pub reader_files_max: usize,
    /// How long an outside producer counts as alive after its last sign of life, unless it says otherwise.
    pub lease: Duration,
    /// How often a silent stream says that it is still there.
    pub heartbeat: Duration,
    /// How long a reader is told to wait before it connects again.
    pub retry: Duration,
    /// How long `wait=true` waits for an event.
    pub long_poll: Duration,
    /// How long a client may take for the head of a request.
    pub head_timeout: Duration,
    /// How long it may take for the body.
    pub body_timeout: Duration,
    /// How long it may take nothing of an answer that is there for it.
    pub write_timeout: Duration,
    /// How long runs may take to end when the server is asked to.
    pub drain: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            data: PathBuf::from("lastword-data"),
            listen: SocketAddr::from(([127, 0, 0, 1], 4437)),
            tokens: Tokens::default(),
            base_path: BasePath::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
            body_bytes_max: 2 * LINE_BYTES_MAX,
            bodies_bytes_max: 256 * 1024 * 1024,
            connections_max: 16_384,
            connections_per_address_max: None,
            trusted_proxies: Vec::new(),
            reader_files_max: 16_384,
            lease: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            retry: Duration::from_secs(2),
            long_poll: Duration::from_secs(20),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            drain: Duration::from_secs(20),
        }
    }
}
