//! What can still be read of a sidecar that is no JSON any more: the keys and rows around the damage.
//!
//! A row or a value is taken whole or not at all. Bytes that are no text become U+FFFD where the row around them can be
//! read otherwise.

use std::collections::BTreeMap;

use serde_json::StreamDeserializer;
use serde_json::de::SliceRead;
use serde_json::value::RawValue;

use super::sidecar::read_session;
use crate::model::{Fields, List, Session, SessionId, quote, text_of};

/// Reads what can be read of a damaged sidecar; nothing if that is no more than an empty session.
pub fn salvage_session(id: &SessionId, bytes: &[u8]) -> Option<Session> {
    let text = cleaned(bytes);
    if let Ok(session) = read_session(id, text.clone().into_bytes()) {
        return Some(session);
    }
    let mut parts = Parts::default();
    Walk { text: &text, at: 0, indent: None }.gather(&mut parts);
    let session = read_session(id, parts.to_json(id).into_bytes()).ok()?;
    (!parts.keys.is_empty()).then_some(session)
}

/// Text without bytes that JSON does not know. A run of NUL bytes becomes one sign.
fn cleaned(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '\0' if text.ends_with('\u{fffd}') => {}
            c if c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t' | '\x7f') => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    text
}

/// What was found, in order.
#[derive(Default)]
struct Parts {
    keys: Vec<(String, String)>,
    lists: BTreeMap<&'static str, Vec<String>>,
}

impl Parts {
    fn add(&mut self, key: &str, value: &str) {
        self.keys.push((key.to_owned(), value.to_owned()));
    }

    fn to_json(&self, id: &SessionId) -> String {
        let mut json = String::from("{\n");
        let mut entry = |key: &str, value: &str| {
            quote(key, &mut json);
            json.push_str(": ");
            json.push_str(value);
            json.push_str(",\n");
        };
        if !self.keys.iter().any(|(key, _)| key == "session_id") {
            entry("session_id", &format!("\"{id}\""));
        }
        self.keys.iter().for_each(|(key, value)| entry(key, value));
        for list in List::ALL.map(List::key) {
            let items = self.lists.get(list).map(|items| items.join(",\n")).unwrap_or_default();
            entry(list, &format!("[{items}]"));
        }
        json.truncate(json.len() - ",\n".len());
        json.push_str("\n}\n");
        json
    }
}

/// A way through a damaged text.
struct Walk<'t> {
    text: &'t str,
    at: usize,
    /// The blanks before the first key, which all keys of the session itself have.
    indent: Option<&'t str>,
}

impl<'t> Walk<'t> {
    fn gather(&mut self, parts: &mut Parts) {
        self.at = self.text.find('{').map_or(self.text.len(), |at| at + 1);
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

    /// The next key of the session itself, whatever stands before it.
    fn next_key(&mut self) -> Option<String> {
        loop {
            let indent = self.skip_blanks();
            if self.indent.is_none_or(|known| known == indent)
                && let Some(key) = self.key()
            {
                self.indent.get_or_insert(indent);
                return Some(key);
            }
            if self.at >= self.text.len() {
                return None;
            }
            self.skip_line();
        }
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

    /// The items of a list, up to its end or to a key that stands where only those of the session do.
    fn gather_items(&mut self, list: List, parts: &mut Parts) {
        let items = parts.lists.entry(list.key()).or_default();
        loop {
            self.skip(',');
            if self.skip(']') {
                return;
            }
            let (start, indent) = (self.at, self.skip_blanks());
            if self.text[self.at..].starts_with('"') && self.indent == Some(indent) {
                self.at = start;
                return;
            }
            match self.value().filter(|value| is_item(list, value)) {
                Some(value) => items.push(value.to_owned()),
                None if self.at >= self.text.len() => return,
                None => self.skip_line(),
            }
        }
    }

    /// The JSON value that stands here.
    fn value(&mut self) -> Option<&'t str> {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let mut values = StreamDeserializer::<_, &RawValue>::new(SliceRead::new(rest.as_bytes()));
        let value = values.next()?.ok()?.get();
        self.at += value.len();
        Some(value)
    }

    fn skip(&mut self, sign: char) -> bool {
        let start = self.at;
        self.skip_blanks();
        let is_there = self.text[self.at..].starts_with(sign);
        self.at = if is_there { self.at + sign.len_utf8() } else { start };
        is_there
    }

    /// Passes blanks and a comma, and gives the blanks behind the last line feed.
    fn skip_blanks(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        let len = rest.len() - rest.trim_start_matches([' ', '\n', '\r', '\t', ',']).len();
        self.at += len;
        let blanks = &rest[..len];
        blanks.rfind('\n').map_or("", |at| &blanks[at + 1..])
    }

    /// Passes what is left of the line, up to its line feed.
    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        let step = rest.chars().next().map_or(0, char::len_utf8);
        self.at += rest[step..].find('\n').map_or(rest.len(), |at| step + at);
    }
}

/// Whether a value can be an item of a list, and not a part of one.
fn is_item(list: List, value: &str) -> bool {
    let Some(fields) = value.starts_with('{').then(|| Fields::parse(value)).flatten() else { return false };
    match list {
        List::Messages | List::ContextMessages => fields.get("role").is_some(),
        List::ToolCalls => fields.get("name").is_some() || fields.get("tid").is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> SessionId {
        SessionId::parse("s1").unwrap()
    }

    fn rows(session: &Session) -> Vec<String> {
        session.messages().map(|row| row.content().into_owned()).collect()
    }

    /// As the reference program spells it, and as we do.
    fn spellings() -> [String; 2] {
        let pretty = r#"{
  "session_id": "s1",
  "title": "Trip",
  "extra": {
    "role": "not a row"
  },
  "messages": [
    {
      "role": "user",
      "content": "one"
    },
    {
      "role": "assistant",
      "content": "two"
    },
    {
      "role": "user",
      "content": "three"
    }
  ],
  "tool_calls": [
    {
      "name": "ls",
      "tid": "t"
    }
  ]
}"#;
        let flat = "{\n\"session_id\": \"s1\",\n\"title\": \"Trip\",\n\"extra\": {\"role\": \"not a row\"},\n\"messages\": [\n\
                    {\"role\":\"user\",\"content\":\"one\"},\n{\"role\":\"assistant\",\"content\":\"two\"},\n\
                    {\"role\":\"user\",\"content\":\"three\"}\n],\n\"tool_calls\": [\n{\"name\":\"ls\",\"tid\":\"t\"}\n]\n}\n";
        [pretty.to_owned(), flat.to_owned()]
    }

    #[test]
    fn a_cut_anywhere_leaves_the_rows_before_it() {
        for text in spellings() {
            let ends: Vec<usize> =
                ["\"one\"", "\"two\"", "\"three\""].map(|row| text.find(row).unwrap() + row.len()).into();
            for cut in text.find("Trip").unwrap() + 6..text.len() {
                let session = salvage_session(&id(), &text.as_bytes()[..cut]).unwrap_or_else(|| panic!("cut at {cut}"));
                let whole = ends.iter().filter(|end| text[**end..].find('}').unwrap() + **end < cut).count();
                assert_eq!(rows(&session), &["one", "two", "three"][..whole], "cut at {cut}");
                assert_eq!(session.title(), "Trip");
            }
        }
    }

    #[test]
    fn damage_in_one_row_takes_no_other() {
        for text in spellings() {
            let at = text.find("\"two\"").unwrap();
            for (garbage, kept) in [(&b"\x00\x00"[..], 3), (b"\xff", 3), (b"\"", 2), (b"\"}{[", 3)] {
                let mut bytes = text.clone().into_bytes();
                bytes.splice(at + 2..at + 2 + garbage.len(), garbage.iter().copied());
                let session = salvage_session(&id(), &bytes).unwrap();
                assert_eq!(rows(&session).len(), kept, "{garbage:?}");
                assert_eq!(rows(&session).last().unwrap(), "three");
                assert_eq!(session.len(List::ToolCalls), 1, "{garbage:?}");
            }
        }
    }

    #[test]
    fn damage_between_the_lists_takes_neither() {
        for text in spellings() {
            let at = text[..text.find("\"tool_calls\"").unwrap()].rfind(']').unwrap();
            let mut bytes = text.clone().into_bytes();
            bytes.splice(at..at + 2, b"@@".iter().copied());
            let session = salvage_session(&id(), &bytes).unwrap();
            assert_eq!(rows(&session), ["one", "two", "three"]);
            assert_eq!(session.len(List::ToolCalls), 1);
        }
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        for bytes in [&b""[..], b"\0\0\0\0", b"[1, 2]", b"garbage", b"{"] {
            assert!(salvage_session(&id(), bytes).is_none(), "{bytes:?}");
        }
    }
}
