//! What a writing process is told to do, and the texts that it sends: repeatable, no two the same.

use std::path::PathBuf;
use std::time::Duration;

use lastword::{CommitOptions, Options};
use serde::{Deserialize, Serialize};

/// Streams that are written at the same time, each a run of its own session.
pub(crate) const STREAMS: usize = 8;

/// How lasting the events of a process are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Manner {
    Buffered,
    Durable,
    Mixed,
}

/// How an event is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Buffered,
    /// Durable, and waited for.
    Waited,
    /// Durable, and told of by a callback.
    Told,
}

/// What the process does when everything is sent and acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Afterwards {
    /// It closes its store.
    Close,
    /// It keeps the store open, so that the commit log stays as it is.
    Stay,
}

/// Everything that a writing process has to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) data: PathBuf,
    pub(crate) seed: u64,
    /// How many processes wrote to this directory before, and this one.
    pub(crate) round: u64,
    pub(crate) manner: Manner,
    /// Whether the log is so small that it fills, is swept and used again all the time.
    pub(crate) has_small_log: bool,
    /// Whether some events are longer than anything that the log takes.
    pub(crate) has_huge_events: bool,
    /// Events of each stream.
    pub(crate) events: u64,
    pub(crate) afterwards: Afterwards,
}

impl Order {
    pub(crate) fn options(&self) -> Options {
        let small =
            CommitOptions { segment_bytes: 65_536, log_bytes: 262_144, background: Some(Duration::from_millis(5)) };
        Options { commit: if self.has_small_log { small } else { CommitOptions::default() }, ..Options::default() }
    }

    pub(crate) fn way(&self, stream: usize, seq: u64) -> Way {
        let durable = if stream.is_multiple_of(2) { Way::Waited } else { Way::Told };
        match self.manner {
            Manner::Buffered => Way::Buffered,
            Manner::Durable => durable,
            Manner::Mixed => match self.dice(self.round, stream, seq).below(3) {
                0 => Way::Waited,
                1 => Way::Told,
                _ => Way::Buffered,
            },
        }
    }

    fn dice(&self, round: u64, stream: usize, seq: u64) -> Dice {
        Dice(self.seed ^ (round << 48) ^ ((stream as u64) << 40) ^ (seq << 8))
    }

    /// What this process sends as this event.
    pub(crate) fn text(&self, stream: usize, seq: u64) -> String {
        self.text_of_round(self.round, stream, seq)
    }

    /// What the process of a round sends as this event. It tells its round.
    pub(crate) fn text_of_round(&self, round: u64, stream: usize, seq: u64) -> String {
        let mut dice = self.dice(round, stream, seq);
        let letters = ["a", "é", "漢字", "🦀", "\"", "\\", "\n", "\u{2028}"];
        let bytes = match dice.below(1000) {
            0 if self.has_huge_events => 1_050_000 + dice.below(150_000),
            1..=15 => 5_000 + dice.below(50_000),
            _ => 30 + dice.below(250),
        };
        let phrase: String = (0..7).map(|_| letters[dice.below(8) as usize]).collect();
        let phrases = phrase.repeat(bytes as usize / phrase.len() + 1);
        // White space at the end of an answer is not kept in the transcript.
        format!("{round}/{stream}/{seq}:{phrases}.")
    }
}

/// The round that a text tells.
pub(crate) fn round_of(text: &str) -> u64 {
    text.split_once('/').and_then(|(round, _)| round.parse().ok()).expect("a text begins with its round")
}

/// Repeatable chance (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }
}
