//! What happens to bytes: a file is cut, or one bit of it changes.

use lastword::entropy::SeededEntropy;

/// Up to here every cut and every bit is tried, beyond it a sample.
pub(crate) const ALL_BYTES_MAX: usize = 16 * 1024;

const SEED: u64 = 0x6c61_7374_776f_7264;

/// One accident.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Mutation {
    /// Only so many bytes are left.
    Cut(usize),
    /// This bit of the byte at this place is another.
    Flip(usize, u8),
}

impl Mutation {
    pub(crate) fn of(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Mutation::Cut(len) => bytes[..len].to_vec(),
            Mutation::Flip(at, bit) => {
                let mut flipped = bytes.to_vec();
                flipped[at] ^= 1 << bit;
                flipped
            }
        }
    }

    /// The first byte that is not as it was.
    pub(crate) fn at(self) -> usize {
        let (Mutation::Cut(at) | Mutation::Flip(at, _)) = self;
        at
    }
}

pub(crate) fn cuts(len: usize) -> impl Iterator<Item = Mutation> {
    (0..len).map(Mutation::Cut)
}

pub(crate) fn flips(len: usize) -> impl Iterator<Item = Mutation> {
    (0..len).flat_map(|at| (0..8).map(move |bit| Mutation::Flip(at, bit)))
}

pub(crate) fn all(len: usize) -> impl Iterator<Item = Mutation> {
    assert!(len <= ALL_BYTES_MAX, "too large to try everything");
    cuts(len).chain(flips(len))
}

/// The same few accidents every time, one cut for two flips.
pub(crate) fn sample(len: usize, count: usize) -> impl Iterator<Item = Mutation> {
    let entropy = SeededEntropy::new(SEED ^ len as u64);
    (0..count).map(move |number| {
        let at = (entropy.next_u64() % len as u64) as usize;
        if number % 3 == 0 { Mutation::Cut(at) } else { Mutation::Flip(at, (entropy.next_u64() % 8) as u8) }
    })
}
