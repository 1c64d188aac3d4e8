//! Which numbers of a run's events were there already: small whatever is missing, as long as most come in order.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Numbers that were seen, as ranges without a gap.
#[derive(Debug, Clone)]
pub struct SeenSeqs {
    /// The range that the last number was added to; empty at first.
    first: u64,
    last: u64,
    /// The others, by their first number. No two touch.
    others: BTreeMap<u64, u64>,
}

impl Default for SeenSeqs {
    fn default() -> Self {
        SeenSeqs { first: 1, last: 0, others: BTreeMap::new() }
    }
}

impl SeenSeqs {
    /// Whether this number is new; it no longer is afterwards.
    #[inline]
    pub fn insert(&mut self, seq: u64) -> bool {
        if seq == self.last.wrapping_add(1) && self.others.is_empty() {
            self.last = seq;
            return true;
        }
        self.insert_anywhere(seq)
    }

    fn insert_anywhere(&mut self, seq: u64) -> bool {
        if self.contains(seq) {
            return false;
        }
        if self.first <= self.last {
            self.others.insert(self.first, self.last);
        }
        let touching = self.before(seq).filter(|(_, last)| *last + 1 == seq);
        self.first = touching.map_or(seq, |(first, _)| first);
        self.others.remove(&self.first);
        self.last = seq;
        if let Some(last) = self.others.remove(&seq.wrapping_add(1)) {
            self.last = last;
        }
        true
    }

    /// Whether this number was seen.
    pub fn contains(&self, seq: u64) -> bool {
        (self.first..=self.last).contains(&seq) || self.before(seq).is_some_and(|(_, last)| last >= seq)
    }

    /// Whether any of these numbers was seen.
    pub fn contains_any(&self, numbers: &RangeInclusive<u64>) -> bool {
        let (start, end) = (*numbers.start(), *numbers.end());
        let touches = |(first, last): (u64, u64)| first <= end && last >= start;
        touches((self.first, self.last)) && self.first <= self.last || self.before(end).is_some_and(touches)
    }

    /// The range among the others that begins last, but not behind this number.
    fn before(&self, seq: u64) -> Option<(u64, u64)> {
        self.others.range(..=seq).next_back().map(|(first, last)| (*first, *last))
    }

    /// The highest number; 0 if there is none.
    pub fn highest(&self) -> u64 {
        self.others.values().next_back().copied().unwrap_or(0).max(self.last)
    }

    /// The numbers from 1 to the highest that were not seen.
    pub fn gaps(&self) -> Vec<RangeInclusive<u64>> {
        let mut ranges: Vec<(u64, u64)> = self.others.iter().map(|(first, last)| (*first, *last)).collect();
        ranges.extend((self.first <= self.last).then_some((self.first, self.last)));
        ranges.sort_unstable();
        let mut next = 1;
        let mut gaps = Vec::new();
        for (first, last) in ranges {
            if next < first {
                gaps.push(next..=first - 1);
            }
            next = last + 1;
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::seeds::config("seqs"))]

        #[test]
        fn it_is_a_set_of_numbers_that_knows_its_gaps(seqs in prop::collection::vec(1_u64..40, 0..60)) {
            let (mut seen, mut plain) = (SeenSeqs::default(), BTreeSet::new());
            for seq in seqs {
                prop_assert_eq!(seen.insert(seq), plain.insert(seq));
            }
            let highest = plain.last().copied().unwrap_or(0);
            prop_assert_eq!(seen.highest(), highest);
            let missing: Vec<u64> = (1..=highest).filter(|seq| !plain.contains(seq)).collect();
            prop_assert_eq!(seen.gaps().into_iter().flatten().collect::<Vec<_>>(), missing);
            prop_assert!((1..45).all(|seq| seen.contains(seq) == plain.contains(&seq)));
            for (start, end) in (1..44).flat_map(|start| (start..45).map(move |end| (start, end))) {
                prop_assert_eq!(seen.contains_any(&(start..=end)), plain.range(start..=end).next().is_some());
            }
        }
    }
}
