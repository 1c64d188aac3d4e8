//! JSON kept as text: ordered objects whose values are parsed only when somebody asks, and strings decoded leniently.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Appends `text` as a JSON string literal.
pub fn quote(text: &str, out: &mut String) {
    out.push('"');
    if !needs_escape(text) {
        out.push_str(text);
        return out.push('"');
    }
    let mut written = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[written..at]);
        match short {
            "" => out.push_str(&format!("\\u{byte:04x}")),
            short => out.push_str(short),
        }
        written = at + 1;
    }
    out.push_str(&text[written..]);
    out.push('"');
}

/// Whether JSON wants any of this escaped. Looks at all bytes without a branch, many at a time.
pub(super) fn needs_escape(text: &str) -> bool {
    text.bytes().fold(false, |found, byte| found | (byte < 0x20) | (byte == b'"') | (byte == b'\\'))
}

/// `text` as a JSON string literal.
pub(crate) fn quoted(text: &str) -> Box<str> {
    let mut out = String::with_capacity(text.len() + 2);
    quote(text, &mut out);
    out.into()
}

/// The text of a JSON string literal, or nothing for any other value. Half a surrogate pair becomes U+FFFD.
pub fn text_of(raw: &str) -> Option<Cow<'_, str>> {
    let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inside));
    }
    let mut buffer = TextBuffer::default();
    buffer.push_literal(raw);
    Some(Cow::Owned(buffer.take()))
}

/// Text gathered from many JSON string literals. A surrogate pair that was split between two of them is joined again,
/// which happens when a producer cuts its stream by UTF-16 units.
#[derive(Debug, Default)]
pub struct TextBuffer {
    text: String,
    high: Option<u16>,
}

impl TextBuffer {
    /// Adds plain text.
    pub fn push(&mut self, text: &str) {
        if !text.is_empty() {
            self.settle();
            self.text.push_str(text);
        }
    }

    /// Adds the text of a JSON string literal, quotes included.
    pub fn push_literal(&mut self, raw: &str) {
        let mut rest = raw.trim_matches('"');
        if raw.len() >= 2 {
            rest = &raw[1..raw.len() - 1];
        }
        while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
            self.push(&rest[..at]);
            rest = self.push_escape(&rest[at + 1..]);
        }
        self.push(rest);
    }

    /// Takes one escape, the backslash already gone, and gives what follows it.
    fn push_escape<'a>(&mut self, rest: &'a str) -> &'a str {
        let plain = match rest.as_bytes().first() {
            Some(b'u') => return self.push_unit(&rest[1..]),
            Some(b'b') => "\u{8}",
            Some(b'f') => "\u{c}",
            Some(b'n') => "\n",
            Some(b'r') => "\r",
            Some(b't') => "\t",
            Some(b'"' | b'\\' | b'/') => &rest[..1],
            _ => return rest,
        };
        self.push(plain);
        &rest[1..]
    }

    fn push_unit<'a>(&mut self, rest: &'a str) -> &'a str {
        let Some(unit) = rest.get(..4).and_then(|hex| u16::from_str_radix(hex, 16).ok()) else { return rest };
        match (self.high.take(), unit) {
            (Some(high), 0xdc00..=0xdfff) => {
                self.text.extend(char::decode_utf16([high, unit]).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
            }
            (earlier, 0xd800..=0xdbff) => {
                self.text.extend(earlier.map(|_| char::REPLACEMENT_CHARACTER));
                self.high = Some(unit);
            }
            (earlier, unit) => {
                self.text.extend(earlier.map(|_| char::REPLACEMENT_CHARACTER));
                self.text.push(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        &rest[4..]
    }

    fn settle(&mut self) {
        if self.high.take().is_some() {
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.high.is_none()
    }

    /// The last whole character gathered.
    pub fn last(&self) -> Option<char> {
        self.high.map(|_| char::REPLACEMENT_CHARACTER).or_else(|| self.text.chars().next_back())
    }

    /// What was gathered as far as its characters are whole: half a surrogate pair at the end waits for its other half.
    pub fn take_whole(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Everything gathered, leaving the buffer empty.
    pub fn take(&mut self) -> String {
        self.settle();
        std::mem::take(&mut self.text)
    }
}

/// A JSON object: its keys in their order, each with the text of its value. Of equal keys the last counts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Object {
    fields: Vec<(Box<str>, Box<str>)>,
}

impl Object {
    /// Reads the text of a JSON object; nothing if it is any other value or no JSON at all.
    pub fn parse(text: &str) -> Option<Self> {
        let fields = Fields::parse(text)?;
        let own = |(key, value): (Cow<'_, str>, &str)| (key.into_owned().into_boxed_str(), value.into());
        Some(Object { fields: fields.0.into_iter().map(own).collect() })
    }

    /// The text of a key's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.fields.iter().rev().find(|(k, _)| **k == *key).map(|(_, value)| &**value)
    }

    /// The text of a key whose value is a string.
    pub fn text(&self, key: &str) -> Option<Cow<'_, str>> {
        self.get(key).and_then(text_of)
    }

    /// Whether a key's value is exactly `true`.
    pub fn is_true(&self, key: &str) -> bool {
        self.get(key) == Some("true")
    }

    /// Gives a key another value, in its old place, or as the last key. `value` must be JSON; a save
    /// refuses what is not.
    pub fn set(&mut self, key: &str, value: impl Into<Box<str>>) {
        let value = value.into();
        match self.fields.iter_mut().rev().find(|(k, _)| **k == *key) {
            Some((_, old)) => *old = value,
            None => self.fields.push((key.into(), value)),
        }
    }

    /// Gives a key a string as its value.
    pub fn set_text(&mut self, key: &str, text: &str) {
        self.set(key, quoted(text));
    }

    /// Takes a key away.
    pub fn remove(&mut self, key: &str) {
        self.fields.retain(|(k, _)| **k != *key);
    }

    /// The keys and the texts of their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Compact JSON.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{");
        for (at, (key, value)) in self.fields.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            quote(key, &mut out);
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

/// The keys and values of a JSON object, still part of the text they came from.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Fields<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, value)| *value)
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                    fields.push((text_of(key.get()).unwrap_or_default(), value.get()));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_keeps_order_unknown_keys_and_the_spelling_of_numbers() {
        let text = r#"{"z":1.50,"a":{"deep":[1, 2]},"\u00e9":null,"lone":"\ud800"}"#;
        let mut object = Object::parse(text).unwrap();
        object.set("a", "2");
        object.set("new", "true");
        assert_eq!(object.to_json(), r#"{"z":1.50,"a":2,"é":null,"lone":"\ud800","new":true}"#);
        assert_eq!(object.text("lone").unwrap(), "\u{fffd}");
    }

    #[test]
    fn what_is_no_object_is_none() {
        for text in ["", "[]", "1", "null", "{", r#"{"a":1}x"#, r#"{"a":NaN}"#] {
            assert!(Object::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_surrogate_pair_split_between_two_literals_is_joined() {
        let mut buffer = TextBuffer::default();
        buffer.push_literal(r#""a\ud83d""#);
        buffer.push_literal(r#""\ude00b\ud83d""#);
        buffer.push_literal(r#""c\n\"\/\\""#);
        assert_eq!(buffer.take(), "a\u{1f600}b\u{fffd}c\n\"/\\");
    }

    #[test]
    fn half_a_pair_waits_while_the_rest_is_taken() {
        let mut buffer = TextBuffer::default();
        buffer.push_literal(r#""a\ud83d""#);
        assert_eq!(buffer.take_whole(), "a");
        assert_eq!(buffer.take_whole(), "");
        buffer.push_literal(r#""\ude00b\ud83d""#);
        assert_eq!(buffer.take_whole(), "\u{1f600}b");
        assert_eq!(buffer.take(), "\u{fffd}");
    }

    #[test]
    fn quoting_escapes_what_json_forbids_and_nothing_else() {
        let text = "a\"\\\n\u{1}\u{2028}é\u{7f}";
        assert_eq!(&*quoted(text), "\"a\\\"\\\\\\n\\u0001\u{2028}é\u{7f}\"");
        assert_eq!(text_of(&quoted(text)).unwrap(), text);
    }
}
