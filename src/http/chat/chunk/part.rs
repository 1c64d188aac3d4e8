//! A text or a thought as chunks. White space at its ends is not sent, because the transcript does not keep it.

use super::Frame;
use crate::model::{TextBuffer, is_blank, python_text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Reasoning,
}

/// A part that is being written. It begins with its first whole character that is not white space.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) kind: Kind,
    id: Option<String>,
    text: TextBuffer,
    /// White space that is sent once more words follow.
    blanks: String,
    last: Option<char>,
}

impl Part {
    pub(super) fn new(kind: Kind) -> Self {
        Part { kind, id: None, text: TextBuffer::default(), blanks: String::new(), last: None }
    }

    /// Adds the text of a JSON value and writes what is whole.
    pub(super) fn add(&mut self, value: &str, parts_begun: &mut u64, out: &mut Vec<u8>) {
        match value.starts_with('"') {
            true => self.text.push_literal(value),
            false => self.text.push(&python_text(value)),
        }
        let words = self.text.take_whole();
        self.write(&words, parts_begun, out);
    }

    /// Adds a paragraph.
    pub(super) fn add_paragraph(&mut self, text: &str, parts_begun: &mut u64, out: &mut Vec<u8>) {
        let before = self.text.take();
        self.write(&before, parts_begun, out);
        if self.last.is_some_and(|last| last != '\n' && last != ' ') {
            self.write("\n\n", parts_begun, out);
        }
        self.write(text, parts_begun, out);
    }

    /// Whether anything was added.
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_none() && self.text.is_empty()
    }

    fn write(&mut self, words: &str, parts_begun: &mut u64, out: &mut Vec<u8>) {
        self.last = words.chars().next_back().or(self.last);
        let begun = words.trim_end_matches(is_blank);
        let blanks = &words[begun.len()..];
        if begun.is_empty() {
            return self.blanks.push_str(blanks);
        }
        let [start, delta, _] = self.chunks();
        let mut words = std::mem::replace(&mut self.blanks, blanks.to_owned()) + begun;
        let id = self.id.get_or_insert_with(|| {
            *parts_begun += 1;
            let id = parts_begun.to_string();
            Frame::open(out, start).text("id", &id).close();
            words = words.trim_start_matches(is_blank).to_owned();
            id
        });
        Frame::open(out, delta).text("id", id).text("delta", &words).close();
    }

    pub(super) fn close(mut self, parts_begun: &mut u64, out: &mut Vec<u8>) {
        let rest = self.text.take();
        self.write(&rest, parts_begun, out);
        if let Some(id) = &self.id {
            Frame::open(out, self.chunks()[2]).text("id", id).close();
        }
    }

    /// What the start, a piece and the end of such a part are called.
    fn chunks(&self) -> [&'static str; 3] {
        match self.kind {
            Kind::Text => ["text-start", "text-delta", "text-end"],
            Kind::Reasoning => ["reasoning-start", "reasoning-delta", "reasoning-end"],
        }
    }
}
