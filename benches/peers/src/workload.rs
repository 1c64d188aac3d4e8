//! What is appended, and under which conditions: the same for everybody.

use std::error::Error;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use lastword::clock::{Clock, SystemClock};
use lastword::format::LineEncoder;
use lastword::{Event, RunId, SessionId};

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

pub const TOKEN: &str = "a piece of the answer, ";
/// Ids of this length make a line of about 270 bytes.
pub const ID_CHARS: usize = 12;

/// The bytes that the peers are given: a line as ours writes it.
static LINE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let id = "0".repeat(ID_CHARS);
    let session = SessionId::parse(&id).expect("an id of digits");
    let run = RunId::parse(&id).expect("an id of digits");
    let mut line = Vec::new();
    LineEncoder::new(&session, &run).encode(10_000, SystemClock.now(), &Event::token(TOKEN), &mut line);
    line
});

pub fn line() -> &'static [u8] {
    &LINE
}

/// One event of one stream, for a peer. No two have the same number.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub stream: usize,
    pub number: u64,
    pub line: &'static [u8],
}

/// Numbers the entries.
#[derive(Debug, Default)]
pub struct Numbers(u64);

impl Numbers {
    pub fn next(&mut self, stream: usize) -> Entry {
        self.0 += 1;
        Entry { stream, number: self.0, line: line() }
    }
}

/// What an event that was acknowledged survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// A power cut: it was synced.
    Durable,
    /// The death of the process, where the peer can promise that: nothing is synced.
    Buffered,
}

/// The conditions of one measurement.
#[derive(Debug, Clone)]
pub struct Case {
    pub safety: Safety,
    pub streams: usize,
    /// How many events, each of another stream, one thread may hand over together. For buffered appends.
    pub at_once: usize,
    /// An empty folder, for this measurement alone.
    pub folder: PathBuf,
}

/// How long is measured, after how long a warm-up.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub warm_up: Duration,
    pub measured: Duration,
}
