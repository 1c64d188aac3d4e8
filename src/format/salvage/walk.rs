//! A way through a damaged text: keys of the session, items of its lists, and whatever lies between them.

use super::{Parts, first_value, is_item, is_sure};
use crate::model::{List, text_of};

/// How many times the length of the text may be read in vain.
const EFFORT_MAX: usize = 64;

/// A way through a damaged text.
pub(super) struct Walk<'t> {
    text: &'t str,
    at: usize,
    /// The blanks before the first key, which all keys of the session itself have.
    indent: Option<Option<&'t str>>,
    /// Bytes that were read in vain.
    effort: usize,
}

impl<'t> Walk<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Walk { text, at: 0, indent: None, effort: 0 }
    }

    pub(super) fn gather(&mut self, parts: &mut Parts) {
        self.find_beginning();
        while let Some(key) = self.next_key() {
            match List::ALL.iter().find(|list| list.key() == key) {
                Some(list) if self.skip('[') => self.gather_items(*list, parts),
                _ => match self.value() {
                    Some(value) => parts.add(&key, value),
                    None => self.skip_line(),
                },
            }
        }
    }

    /// The first key; if what stands before it is gone, any line that is set in as far as the key of a list.
    fn find_beginning(&mut self) {
        let begun = self.text.trim_start_matches([' ', '\n', '\r', '\u{feff}']);
        if begun.starts_with('{') {
            self.at = self.text.len() - begun.len() + 1;
            return;
        }
        let blanks_before = |list: List| {
            let at = self.text.find(&format!("\"{}\":", list.key()))?;
            let line = self.text[..at].rfind('\n')? + 1;
            Some(&self.text[line..at]).filter(|blanks| blanks.trim_start().is_empty())
        };
        match List::ALL.into_iter().find_map(blanks_before) {
            Some(blanks) => self.indent = Some(Some(blanks)),
            None => self.at = self.text.len(),
        }
    }

    /// Items wherever they stand; the key of a list before them says which they are, and none, that they are messages.
    pub(super) fn gather_loose(&mut self, parts: &mut Parts) {
        let mut list = List::Messages;
        while !self.is_tired() {
            let Some(start) = self.text[self.at..].find('{').map(|next| self.at + next) else { return };
            if let Some((key, behind)) = self.list_key_before(start) {
                (list, self.at) = (key, behind);
                continue;
            }
            self.at = start;
            match self.value() {
                Some(value) if is_sure(list, value) => {
                    parts.items(list).push(value.to_owned());
                }
                Some(_) => {}
                None => self.at = start + 1,
            }
        }
    }

    fn is_at_list_key(&self) -> bool {
        List::ALL.iter().any(|list| self.text[self.at..].starts_with(&format!("\"{}\"", list.key())))
    }

    /// The key of a list that stands before this place, and where it ends.
    fn list_key_before(&self, end: usize) -> Option<(List, usize)> {
        let find = |list: List| {
            let key = format!("\"{}\"", list.key());
            let at = self.at + self.text[self.at..end].find(&key)?;
            Some((list, at + key.len()))
        };
        List::ALL.into_iter().filter_map(find).min_by_key(|(_, at)| *at)
    }

    fn is_tired(&self) -> bool {
        self.effort > EFFORT_MAX * (self.text.len() + 1)
    }

    /// The next key of the session itself, whatever stands before it.
    fn next_key(&mut self) -> Option<String> {
        while self.at < self.text.len() && !self.is_tired() {
            let indent = self.skip_blanks();
            if self.indent.is_none_or(|known| known == indent)
                && let Some(key) = self.key()
            {
                self.indent.get_or_insert(indent);
                return Some(key);
            }
            self.skip_line();
        }
        None
    }

    fn key(&mut self) -> Option<String> {
        let start = self.at;
        let key = self.value().filter(|value| value.starts_with('"')).and_then(text_of).map(|key| key.into_owned());
        let key = key.filter(|_| self.skip(':'));
        if key.is_none() {
            self.at = start;
        }
        key
    }

    /// The items of a list, up to its end or to a key that stands where only those of the session do. Behind damage only
    /// what stands in as far as the first item is one, and not a part of a damaged one.
    fn gather_items(&mut self, list: List, parts: &mut Parts) {
        let (mut first_indent, mut is_damaged) = (None, false);
        while self.at < self.text.len() && !self.is_tired() {
            let (start, indent) = (self.at, self.skip_blanks());
            let is_outer = self.indent == Some(indent);
            if self.text[self.at..].starts_with(']') && self.ends_list() {
                self.at += 1;
                parts.has_all_messages |= list == List::Messages && !is_damaged;
                return;
            }
            let is_on_one_line = first_indent == Some(None);
            let is_key = is_on_one_line && is_damaged && self.is_at_list_key();
            if self.text[self.at..].starts_with('"') && (is_outer && indent.is_some() || is_key) {
                self.at = start;
                return;
            }
            let may_be_one = !is_damaged || first_indent.is_none_or(|first| first == indent);
            let is_one = |value: &&str| {
                may_be_one && is_item(list, value) && (!is_damaged || !is_on_one_line || is_sure(list, value))
            };
            match self.value().filter(is_one) {
                Some(value) => {
                    first_indent.get_or_insert(indent);
                    parts.items(list).push(value.to_owned());
                }
                None => {
                    is_damaged = true;
                    self.skip_damage(list, first_indent, parts);
                }
            }
        }
    }

    /// Whether the bracket that stands here ends a list of the session: a key follows, or its end.
    fn ends_list(&self) -> bool {
        let rest = self.text[self.at + 1..].trim_start_matches([' ', '\n', '\r', ',']);
        rest.is_empty() || rest.starts_with(['"', '}'])
    }

    /// Passes damage. A row behind garbage at the beginning of its line, or behind a part of another row and as many blanks
    /// as rows are set in, is taken. On one line what follows may be one, and the key of another list ends this one.
    fn skip_damage(&mut self, list: List, first_indent: Option<Option<&str>>, parts: &mut Parts) {
        let rest = &self.text[self.at..];
        let line = &rest[..rest.find('\n').unwrap_or(rest.len())];
        let step = rest.chars().next().map_or(0, char::len_utf8);
        let find = |text: &str| line.get(step..).and_then(|line| line.find(text)).map(|at| self.at + step + at);
        if first_indent == Some(None) {
            let end = find("{").unwrap_or(self.at + line.len());
            self.at = match self.list_key_before(end) {
                Some((key, behind)) => behind - key.key().len() - 2,
                None => end.max(self.at + step),
            };
            return;
        }
        let indent = first_indent.flatten().filter(|indent| indent.len() > 1);
        let is_garbage = |at: &usize| !self.text[self.at..*at].contains('"');
        let behind_part = || indent.and_then(|indent| Some(find(&format!("{indent}{{"))? + indent.len()));
        if let Some(at) = find("{").filter(is_garbage).or_else(behind_part) {
            self.at = at;
            if let Some(value) = self.value().filter(|value| is_sure(list, value)) {
                return parts.items(list).push(value.to_owned());
            }
        }
        self.skip_line();
    }

    /// The JSON value that stands here.
    fn value(&mut self) -> Option<&'t str> {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        match first_value(rest) {
            Ok((value, _)) => {
                self.at += value.len();
                Some(value)
            }
            Err(is_eof) => {
                self.effort += if is_eof { rest.len() } else { 0 };
                None
            }
        }
    }

    fn skip(&mut self, sign: char) -> bool {
        let start = self.at;
        self.skip_blanks();
        let is_there = self.text[self.at..].starts_with(sign);
        self.at = if is_there { self.at + sign.len_utf8() } else { start };
        is_there
    }

    /// Passes blanks and commas, and gives the blanks behind the last line feed, if there is one.
    fn skip_blanks(&mut self) -> Option<&'t str> {
        let rest = &self.text[self.at..];
        let len = rest.len() - rest.trim_start_matches([' ', '\n', '\r', ',']).len();
        self.at += len;
        let blanks = &rest[..len];
        blanks.rfind('\n').map(|at| &blanks[at + 1..])
    }

    /// Passes what is left of the line, up to its line feed.
    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        let step = rest.chars().next().map_or(0, char::len_utf8);
        self.at += rest[step..].find('\n').map_or(rest.len(), |at| step + at);
    }
}
