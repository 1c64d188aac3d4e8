//! The body of a chat request, read as it arrives: its short fields and the last of its `messages`, however many came
//! before. Checks that all of it is JSON. Pure; what the fields mean is read in `request`.

mod json;
#[cfg(test)]
mod tests;

use json::{JsonReader, Refusal, Step};

use crate::limits::{CHAT_FIELD_BYTES_MAX, ID_CHARS_MAX, JSON_DEPTH_MAX};
use crate::model::text_of;

/// Bytes of a key as it is spelt. A longer one is none that is read here.
const KEY_BYTES_MAX: usize = ID_CHARS_MAX;

/// A field of the body that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChatField {
    Id,
    Trigger,
    MessageId,
    Runner,
    Message,
    Messages,
}

impl ChatField {
    const ALL: [ChatField; 6] = [Self::Id, Self::Trigger, Self::MessageId, Self::Runner, Self::Message, Self::Messages];

    /// How it is spelt.
    pub(crate) fn key(self) -> &'static str {
        match self {
            ChatField::Id => "id",
            ChatField::Trigger => "trigger",
            ChatField::MessageId => "messageId",
            ChatField::Runner => "runner",
            ChatField::Message => "message",
            ChatField::Messages => "messages",
        }
    }

    fn of_key(literal: &[u8]) -> Option<Self> {
        let key = text_of(std::str::from_utf8(literal).ok()?)?;
        Self::ALL.into_iter().find(|field| field.key() == key)
    }
}

/// A body that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadBody {
    #[error("the body is not JSON: byte {at} is not what may stand there")]
    Syntax { at: u64 },
    #[error("the body is not UTF-8: byte {at} is not")]
    Utf8 { at: u64 },
    #[error(
        "line {line} of the body is nested deeper than {JSON_DEPTH_MAX} levels: flatten it, or send the inner part as a text"
    )]
    TooDeep { line: u64 },
    #[error("the body ends in the middle, after {at} bytes")]
    Truncated { at: u64 },
    #[error("the body is not a JSON object {{\"id\":..,\"messages\":[..]}}")]
    NoObject,
    #[error("`messages` is not a list")]
    NoList,
    #[error("`{key}` has more than {max} bytes: shorten it, or upload its files and send their references")]
    TooLarge { key: &'static str, max: usize },
}

/// The text of a value, kept up to a bound.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    is_too_large: bool,
}

impl Kept {
    fn clear(&mut self) {
        self.bytes.clear();
        self.is_too_large = false;
    }

    fn add(&mut self, bytes: &[u8], max: usize) {
        if self.is_too_large || self.bytes.len() + bytes.len() > max {
            *self = Kept { bytes: Vec::new(), is_too_large: true };
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// The fields of a body that are read, as JSON texts. A key that was there twice has its last value.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChatBody {
    fields: [Option<Box<str>>; ChatField::ALL.len()],
}

impl ChatBody {
    /// The text of a field; of `messages` its last element if it is a list with any, else the text `[]`.
    pub(crate) fn get(&self, field: ChatField) -> Option<&str> {
        self.fields[field as usize].as_deref()
    }

    /// Bytes of all of them.
    pub(crate) fn len(&self) -> usize {
        self.fields.iter().flatten().map(|field| field.len()).sum()
    }

    /// Reads a body that is there as a whole.
    #[cfg(test)]
    pub(crate) fn parse(body: &str, message_bytes_max: usize) -> Result<Self, BadBody> {
        let mut scanner = BodyScanner::new(message_bytes_max);
        scanner.feed(body.as_bytes())?;
        scanner.finish()
    }
}

/// Reads a body in pieces.
#[derive(Debug)]
pub(crate) struct BodyScanner {
    json: JsonReader,
    read: u64,
    line_feeds: u64,
    key: Kept,
    is_key: bool,
    fields: [Option<Kept>; ChatField::ALL.len()],
    /// The field whose value is being read.
    field: Option<ChatField>,
    /// Whether the bytes that come belong to a value that is kept.
    is_kept: bool,
    is_in_messages: bool,
    /// Whether `messages` was something else than a list or null.
    is_no_list: bool,
    message_bytes_max: usize,
}

impl BodyScanner {
    /// A scanner that keeps a message of at most so many bytes.
    pub(crate) fn new(message_bytes_max: usize) -> Self {
        BodyScanner {
            json: JsonReader::new(),
            read: 0,
            line_feeds: 0,
            key: Kept::default(),
            is_key: false,
            fields: Default::default(),
            field: None,
            is_kept: false,
            is_in_messages: false,
            is_no_list: false,
            message_bytes_max,
        }
    }

    /// Reads the next bytes, wherever they were cut.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), BadBody> {
        while let Some(&byte) = bytes.first() {
            let taken = match self.json.plain(bytes) {
                0 => self.step(byte)?,
                plain => {
                    self.keep(&bytes[..plain]);
                    plain
                }
            };
            self.read += taken as u64;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// What was read, once all of it is there.
    pub(crate) fn finish(self) -> Result<ChatBody, BadBody> {
        if !self.json.is_over() {
            return Err(BadBody::Truncated { at: self.read });
        }
        if self.is_no_list {
            return Err(BadBody::NoList);
        }
        let mut body = ChatBody::default();
        for (field, kept) in ChatField::ALL.into_iter().zip(self.fields) {
            let Some(kept) = kept else { continue };
            if kept.is_too_large {
                return Err(BadBody::TooLarge { key: field.key(), max: bytes_max(field, self.message_bytes_max) });
            }
            let text = String::from_utf8(kept.bytes).map_err(|_| BadBody::Utf8 { at: self.read })?;
            body.fields[field as usize] = Some(text.into());
        }
        Ok(body)
    }

    /// Bytes of the body that are held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.key.bytes.capacity() + self.fields.iter().flatten().map(|kept| kept.bytes.capacity()).sum::<usize>()
    }

    /// Reads one byte. Gives how many were read: none if a number ended before it.
    fn step(&mut self, byte: u8) -> Result<usize, BadBody> {
        let at = self.read;
        let step = self.json.step(byte).map_err(|refusal| match refusal {
            Refusal::Syntax => BadBody::Syntax { at },
            Refusal::Utf8 => BadBody::Utf8 { at },
            Refusal::TooDeep => BadBody::TooDeep { line: self.line_feeds + 1 },
        })?;
        match step {
            Step::Begins { depth: 0 } if byte != b'{' => return Err(BadBody::NoObject),
            Step::Begins { depth } => self.begin(depth, byte),
            Step::KeyBegins { depth: 1 } => {
                self.key.clear();
                self.is_key = true;
            }
            _ => {}
        }
        if let Step::EndsBefore { depth } = step {
            self.end(depth);
            return Ok(0);
        }
        self.line_feeds += u64::from(byte == b'\n');
        self.keep(&[byte]);
        match step {
            Step::Ends { depth } => self.end(depth),
            Step::KeyEnds { depth: 1 } => {
                self.is_key = false;
                self.field = ChatField::of_key(&self.key.bytes);
            }
            _ => {}
        }
        Ok(1)
    }

    fn begin(&mut self, depth: usize, byte: u8) {
        let Some(field) = self.field else { return };
        if depth == 1 {
            let kept = self.fields[field as usize].insert(Kept::default());
            self.is_in_messages = field == ChatField::Messages && byte == b'[';
            self.is_kept = !self.is_in_messages;
            if field == ChatField::Messages {
                self.is_no_list = !matches!(byte, b'[' | b'n');
            }
            if self.is_in_messages {
                kept.bytes.extend_from_slice(b"[]");
            }
        }
        if depth == 2 && self.is_in_messages {
            // The element before this one was not the last.
            self.fields[field as usize].get_or_insert_default().clear();
            self.is_kept = true;
        }
    }

    fn end(&mut self, depth: usize) {
        match depth {
            1 => (self.is_kept, self.is_in_messages, self.field) = (false, false, None),
            2 if self.is_in_messages => self.is_kept = false,
            _ => {}
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.is_key {
            self.key.add(bytes, KEY_BYTES_MAX);
        }
        if let Some(field) = self.field.filter(|_| self.is_kept) {
            let max = bytes_max(field, self.message_bytes_max);
            self.fields[field as usize].get_or_insert_default().add(bytes, max);
        }
    }
}

fn bytes_max(field: ChatField, message_bytes_max: usize) -> usize {
    match field {
        ChatField::Message | ChatField::Messages => message_bytes_max,
        _ => CHAT_FIELD_BYTES_MAX,
    }
}
