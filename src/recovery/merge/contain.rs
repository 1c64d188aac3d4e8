//! Which of some rows contains a text, for many texts at once, in one pass over the rows.
//!
//! A rolling hash over the first bytes of every text finds the places worth comparing.

use std::collections::HashMap;

/// A shorter text may stand in another by accident.
pub(super) const CONTAINED_CHARS_MIN: usize = 24;

/// The length of the hashed beginning: a text of so many characters has at least so many bytes.
const WINDOW: usize = CONTAINED_CHARS_MIN;
const BASE: u64 = 0x9e37_79b9_7f4a_7c15 | 1;

/// Texts that are looked for, by the hash of their beginning.
pub(super) struct Sought<'t> {
    by_hash: HashMap<u64, Vec<usize>>,
    texts: HashMap<usize, &'t str>,
    /// How many places may still be compared. Texts that all begin alike would make too many worth it; what is not found
    /// then is added once more, and not lost.
    comparisons_left: usize,
}

/// Comparisons that a text may cost, more or less.
const COMPARISONS_PER_TEXT: usize = 1_000;

impl<'t> Sought<'t> {
    /// Texts and the numbers that they are known by. One that is too short is not looked for.
    pub(super) fn new(texts: impl Iterator<Item = (usize, &'t str)>) -> Self {
        let mut sought = Sought { by_hash: HashMap::new(), texts: HashMap::new(), comparisons_left: 0 };
        for (number, text) in texts.filter(|(_, text)| text.chars().nth(CONTAINED_CHARS_MIN - 1).is_some()) {
            sought.by_hash.entry(hash(&text.as_bytes()[..WINDOW])).or_default().push(number);
            sought.texts.insert(number, text);
            sought.comparisons_left += COMPARISONS_PER_TEXT;
        }
        sought
    }

    /// Takes away and gives the first of the texts, in the order of their numbers, that this row contains.
    pub(super) fn take_contained_in(&mut self, row: &str) -> Option<usize> {
        let found = self.first_in(row.as_bytes())?;
        self.texts.remove(&found);
        Some(found)
    }

    fn first_in(&mut self, row: &[u8]) -> Option<usize> {
        let mut first = None;
        if self.texts.is_empty() || row.len() < WINDOW {
            return None;
        }
        let mut rolling = hash(&row[..WINDOW]);
        let out = (1..WINDOW).fold(1u64, |power, _| power.wrapping_mul(BASE));
        for at in 0..=row.len() - WINDOW {
            if let Some(numbers) = self.by_hash.get(&rolling) {
                let candidates = numbers.iter().take_while(|number| first.is_none_or(|first| **number < first));
                let mut left = self.comparisons_left;
                let is_here = |number: &&usize| {
                    left = left.saturating_sub(1);
                    self.texts.get(number).is_some_and(|text| row[at..].starts_with(text.as_bytes()))
                };
                first = candidates.take(self.comparisons_left).find(is_here).copied().or(first);
                self.comparisons_left = left;
            }
            if let Some(next) = row.get(at + WINDOW) {
                let rest = rolling.wrapping_sub(u64::from(row[at]).wrapping_mul(out));
                rolling = rest.wrapping_mul(BASE).wrapping_add(u64::from(*next));
            }
        }
        first
    }
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |hash: u64, byte| hash.wrapping_mul(BASE).wrapping_add(u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_anywhere_in_a_row_and_only_once() {
        let (long, other) = ("x".repeat(24), "a sentence that is long enough".to_owned());
        let mut sought = Sought::new([(0, "short"), (1, other.as_str()), (2, long.as_str())].into_iter());
        assert_eq!(sought.take_contained_in("short, and nothing else that is long enough"), None);
        assert_eq!(sought.take_contained_in(&format!("Well: {long}!")), Some(2));
        assert_eq!(sought.take_contained_in(&format!("{long} {other}")), Some(1));
        assert_eq!(sought.take_contained_in(&format!("{long} {other}")), None);
    }

    #[test]
    fn the_text_with_the_lowest_number_comes_first() {
        let (first, second) = ("b".repeat(30), "a".repeat(30));
        let mut sought = Sought::new([(0, first.as_str()), (1, second.as_str())].into_iter());
        let row = format!("{second}{first}");
        assert_eq!((sought.take_contained_in(&row), sought.take_contained_in(&row)), (Some(0), Some(1)));
    }

    #[test]
    fn twenty_four_characters_are_enough_and_twenty_three_are_not() {
        let (enough, too_short) = ("\u{e9}".repeat(24), "\u{e9}".repeat(23));
        let row = "\u{e9}".repeat(60);
        let taken = |text: &str| Sought::new([(7, text)].into_iter()).take_contained_in(&row);
        assert_eq!((taken(&enough), taken(&too_short)), (Some(7), None));
    }

    /// Every place of every row is worth comparing with every text, which without a bound takes minutes. Once the bound
    /// is reached, nothing more is found.
    #[test]
    fn texts_that_all_begin_alike_cost_a_bounded_number_of_comparisons() {
        let texts: Vec<String> = (0..1_000).map(|n| format!("{}!", "a".repeat(500 + n))).collect();
        let mut sought = Sought::new(texts.iter().map(String::as_str).enumerate());
        assert_eq!(sought.take_contained_in(&texts[999]), Some(0), "the shortest stands at the end of the longest");
        let rows = (0..5_000).map(|n| "a".repeat(30 + n % 400));
        assert_eq!(rows.filter_map(|row| sought.take_contained_in(&row)).count(), 0);
        assert_eq!((sought.comparisons_left, sought.take_contained_in(&texts[999])), (0, None));
    }
}
