//! Ids and names as all providers take them: letters, digits, `_` and `-`, not too long, and no id twice.

use std::collections::{HashMap, HashSet};

/// Characters of a tool call's id; the strictest provider takes 40.
const ID_CHARS_MAX: usize = 40;
/// Characters of an id that got a number, without the number.
const STEM_CHARS_MAX: usize = 29;
/// Characters of a tool's name.
const NAME_CHARS_MAX: usize = 64;

/// The ids that were given.
#[derive(Debug, Default)]
pub(super) struct Ids {
    given: HashSet<String>,
    /// The last number behind each stem, so that a thousand calls of one id cost no more than a thousand others.
    numbers: HashMap<String, u64>,
}

impl Ids {
    /// The id itself if it is free, else one with a number behind it.
    pub(super) fn unique(&mut self, id: &str) -> String {
        let id = plain(id, "call", ID_CHARS_MAX);
        if self.given.insert(id.clone()) {
            return id;
        }
        let stem = &id[..id.len().min(STEM_CHARS_MAX)];
        let number = self.numbers.entry(stem.to_owned()).or_insert(1);
        loop {
            *number += 1;
            let numbered = format!("{stem}-{number}");
            if self.given.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

/// A tool's name.
pub(super) fn name(name: &str) -> String {
    plain(name, "tool", NAME_CHARS_MAX)
}

fn plain(text: &str, default: &str, chars_max: usize) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    match text.is_empty() {
        true => default.to_owned(),
        false => text.chars().map(allowed).take(chars_max).collect(),
    }
}
