//! Walks through a sidecar's JSON and finds the places of keys and rows, at the speed at which strings can be skipped.
//!
//! Checks all that JSON asks for, but says no more than yes or no: whoever gets a no lets the JSON reader say why. Depth
//! is bounded by memory, not by the stack.

use std::ops::Range;

use crate::model::{Entry, List, Piece, Slot};

/// The keys and values of the JSON object that the text is; nothing if it is none.
pub(super) fn walk(text: &str) -> Option<Vec<Entry>> {
    let mut walker = Walker { bytes: text.as_bytes(), at: 0, controls: 0 };
    // More than the keys of most sessions.
    let mut entries = Vec::with_capacity(24);
    walker.expect(b'{')?;
    if !walker.takes(b'}') {
        loop {
            let key = walker.key()?;
            let is_list = List::ALL.iter().any(|list| list.key() == &text[key.clone()]);
            let slot = if is_list { walker.list()? } else { Slot::Value(piece(walker.value()?)) };
            entries.push(Entry { key: piece(key), slot });
            if !walker.takes(b',') {
                break;
            }
        }
        walker.expect(b'}')?;
    }
    walker.blanks();
    // Control bytes may stand between values only. Counting all of them is quicker than looking into every string.
    let is_clean = || walker.controls == controls(text.as_bytes());
    (walker.at == text.len() && is_clean()).then_some(entries)
}

fn controls(bytes: &[u8]) -> usize {
    // So few at a time that their number fits a byte.
    let few = |part: &[u8]| part.iter().fold(0u8, |count, byte| count + u8::from(*byte < 0x20));
    bytes.chunks(128).map(|part| usize::from(few(part))).sum()
}

fn piece(place: Range<usize>) -> Piece {
    Piece::Shared { start: place.start, end: place.end }
}

/// A place in a JSON text.
struct Walker<'t> {
    bytes: &'t [u8],
    at: usize,
    /// How many control bytes stood between values so far.
    controls: usize,
}

impl Walker<'_> {
    fn next(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while let Some(blank @ (b' ' | b'\n' | b'\r' | b'\t')) = self.next() {
            self.at += 1;
            self.controls += usize::from(blank < 0x20);
        }
    }

    /// Goes on behind the next byte that is no blank, if it is this one.
    fn takes(&mut self, byte: u8) -> bool {
        self.blanks();
        let is_there = self.next() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.takes(byte).then_some(())
    }

    /// The place of a key, without its quotes; goes on behind its colon.
    fn key(&mut self) -> Option<Range<usize>> {
        self.expect(b'"')?;
        let start = self.at;
        self.string()?;
        let key = start..self.at - 1;
        self.expect(b':')?;
        Some(key)
    }

    /// The value of one of the three lists. Null is an empty list; any other value is kept as it is.
    fn list(&mut self) -> Option<Slot> {
        self.blanks();
        match self.next()? {
            b'[' => self.items(),
            b'n' => self.value().map(|_| Slot::Items(Vec::new())),
            _ => self.value().map(piece).map(Slot::Value),
        }
    }

    fn items(&mut self) -> Option<Slot> {
        let mut items = Vec::new();
        self.expect(b'[')?;
        if self.takes(b']') {
            return Some(Slot::Items(items));
        }
        loop {
            items.push(piece(self.value()?));
            if !self.takes(b',') {
                break;
            }
        }
        self.expect(b']')?;
        Some(Slot::Items(items))
    }

    /// The place of a value, however deep it is.
    fn value(&mut self) -> Option<Range<usize>> {
        self.blanks();
        let start = self.at;
        let mut closers = Vec::new();
        loop {
            let is_whole = self.begin_value(&mut closers)?;
            if is_whole && self.end_values(&mut closers)? {
                return Some(start..self.at);
            }
        }
    }

    /// Begins a value. Says whether it is whole already; a list or an object with something in it is not.
    fn begin_value(&mut self, closers: &mut Vec<u8>) -> Option<bool> {
        self.blanks();
        let first = self.next()?;
        self.at += 1;
        match first {
            b'"' => self.string()?,
            b'{' if !self.takes(b'}') => {
                self.key()?;
                closers.push(b'}');
                return Some(false);
            }
            b'[' if !self.takes(b']') => {
                closers.push(b']');
                return Some(false);
            }
            b'{' | b'[' => {}
            b't' => self.word(b"rue")?,
            b'f' => self.word(b"alse")?,
            b'n' => self.word(b"ull")?,
            b'-' => self.number(*self.bytes.get(self.at)?, self.at + 1)?,
            digit => self.number(digit, self.at)?,
        }
        Some(true)
    }

    /// Behind a whole value: closes what ends here. Says whether everything is closed, or else another value follows.
    fn end_values(&mut self, closers: &mut Vec<u8>) -> Option<bool> {
        while let Some(closer) = closers.last() {
            if self.takes(*closer) {
                closers.pop();
                continue;
            }
            self.expect(b',')?;
            if *closer == b'}' {
                self.key()?;
            }
            return Some(false);
        }
        Some(true)
    }

    fn word(&mut self, rest: &[u8]) -> Option<()> {
        let is_there = self.bytes[self.at..].starts_with(rest);
        self.at += rest.len();
        is_there.then_some(())
    }

    /// A number whose first digit is this one; `behind` is the place behind it.
    fn number(&mut self, first: u8, behind: usize) -> Option<()> {
        self.at = behind;
        match first {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return None,
        }
        if self.next() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.next(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.next(), Some(b'+' | b'-')));
            self.some_digits()?;
        }
        Some(())
    }

    fn digits(&mut self) {
        while matches!(self.next(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Option<()> {
        let before = self.at;
        self.digits();
        (self.at > before).then_some(())
    }

    /// The rest of a string, its first quote already gone.
    fn string(&mut self) -> Option<()> {
        loop {
            self.at += memchr::memchr2(b'"', b'\\', &self.bytes[self.at..])?;
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return Some(());
            }
            self.escape()?;
        }
    }

    fn escape(&mut self) -> Option<()> {
        let kind = *self.bytes.get(self.at + 1)?;
        self.at += 2;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
            b'u' => {
                let digits = self.bytes.get(self.at..self.at + 4)?;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                self.at += 4;
            }
            _ => return None,
        }
        Some(())
    }
}
