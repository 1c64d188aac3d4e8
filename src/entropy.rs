//! The only source of randomness: fresh ids and unique temp names. Tests pass a seeded one.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives unpredictable numbers.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// The next number.
    fn next(&self) -> u128;
}

/// The operating system's random numbers.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next(&self) -> u128 {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
        u128::from_ne_bytes(bytes)
    }
}

/// A repeatable sequence, for tests and simulations.
#[derive(Debug)]
pub struct SeededEntropy {
    state: AtomicU64,
}

impl SeededEntropy {
    /// The sequence that belongs to this seed.
    pub fn new(seed: u64) -> Self {
        SeededEntropy { state: AtomicU64::new(seed) }
    }

    /// The next 64 bits: splitmix64 over a counter.
    pub fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Entropy for SeededEntropy {
    fn next(&self) -> u128 {
        (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())
    }
}

/// A random uuid of version 4, as 32 hexadecimal digits.
pub fn uuid4(entropy: &dyn Entropy) -> String {
    const VERSION: u128 = 0xf << 76;
    const VARIANT: u128 = 0x3 << 62;
    let bits = (entropy.next() & !VERSION & !VARIANT) | (0x4 << 76) | (0x2 << 62);
    format!("{bits:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_sequence_twice() {
        let draw = |seed| {
            let entropy = SeededEntropy::new(seed);
            (0..8).map(|_| entropy.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn a_uuid_says_that_it_is_of_version_four() {
        let uuid = uuid4(&SystemEntropy);
        assert_eq!(uuid.len(), 32);
        assert_eq!(&uuid[12..13], "4");
        assert!("89ab".contains(&uuid[16..17]));
    }
}
