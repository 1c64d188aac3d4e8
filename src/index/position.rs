//! Where a session stands in the list, also as a text that somebody can hold on to between two pages.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use crate::model::SessionId;

/// A place in the list of sessions: behind those that changed later, before those that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    rank: Rank,
    id: SessionId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Bits whose order is that of the seconds.
    Changed(Reverse<u64>),
    Unreadable,
}

/// A text that is no position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no position in the list of sessions: use one that came with a page, or none to begin")]
pub struct InvalidPosition {
    /// What was given, cut to a length that fits a message.
    pub given: String,
}

impl Position {
    pub(super) fn of(id: &SessionId, updated_at: Option<f64>) -> Self {
        let rank = updated_at.map_or(Rank::Unreadable, |seconds| Rank::Changed(Reverse(sortable(seconds))));
        Position { rank, id: id.clone() }
    }
}

/// Bits of a number that sort as the numbers do.
fn sortable(number: f64) -> u64 {
    let bits = number.to_bits();
    if number.is_sign_negative() { !bits } else { bits | (1 << 63) }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Rank::Changed(Reverse(bits)) => write!(f, "{bits:016x}-{}", self.id),
            Rank::Unreadable => write!(f, "-{}", self.id),
        }
    }
}

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        parse(text).ok_or_else(|| InvalidPosition { given: text.chars().take(40).collect() })
    }
}

fn parse(text: &str) -> Option<Position> {
    let (bits, id) = text.split_once('-')?;
    let rank = match bits.len() {
        0 => Rank::Unreadable,
        16 => Rank::Changed(Reverse(u64::from_str_radix(bits, 16).ok()?)),
        _ => return None,
    };
    Some(Position { rank, id: SessionId::parse(id).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(id: &str, updated_at: Option<f64>) -> Position {
        Position::of(&SessionId::parse(id).unwrap(), updated_at)
    }

    #[test]
    fn the_one_changed_last_comes_first_and_what_cannot_be_read_last() {
        let sorted = [
            at("b", Some(2.5)),
            at("a", Some(2.0)),
            at("c", Some(2.0)),
            at("z", Some(0.0)),
            at("d", Some(-1.0)),
            at("a", None),
        ];
        assert!(sorted.is_sorted(), "{sorted:?}");
    }

    #[test]
    fn a_position_survives_being_a_text() {
        for position in [at("a-b", Some(1_700_000_000.25)), at("-x", Some(-1.0)), at("_a", None), at("a-b", None)] {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for bad in ["", "x", "12-a", "-", "-%5Fa", "zzzzzzzzzzzzzzzz-a", "0000000000000000", "-a/b"] {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
    }
}
