//! What can still be read of a sidecar that is no JSON any more: the keys and rows around the damage.
//!
//! A row or a value is taken whole or not at all. Bytes that are no text become U+FFFD where the row around them can be
//! read otherwise.

mod walk;

use std::collections::BTreeMap;

use serde_json::StreamDeserializer;
use serde_json::de::SliceRead;
use serde_json::value::RawValue;

use self::walk::Walk;
use super::sidecar::read_session;
use crate::model::{Fields, List, Session, SessionId, quote};

/// What can still be read of a sidecar.
#[derive(Debug)]
pub struct Salvaged {
    /// The session, with the rows and keys that are whole.
    pub session: Session,
    /// Whether no row can be missing: its list of messages was read from end to end.
    pub has_all_messages: bool,
}

/// Reads what can be read of a damaged sidecar; nothing if that is no more than an empty session.
pub fn salvage_session(id: &SessionId, bytes: &[u8]) -> Option<Salvaged> {
    let text = cleaned(bytes);
    let first = first_value(&text).map(|value| value.0).unwrap_or_default();
    let whole = |text: &str| read_session(id, text.as_bytes().to_vec()).ok().filter(has_messages);
    if let Some(session) = whole(&text).or_else(|| whole(&without_nan(&text))).or_else(|| whole(first)) {
        return Some(Salvaged { session, has_all_messages: true });
    }
    let mut parts = Parts::default();
    Walk::new(&text).gather(&mut parts);
    if parts.items(List::Messages).is_empty() && !parts.take_renamed_messages() {
        parts.lists.clear();
        Walk::new(&text).gather_loose(&mut parts);
    }
    let session = read_session(id, parts.to_json(id).into_bytes()).ok()?;
    let is_something = !parts.keys.is_empty() || has_messages(&session);
    is_something.then_some(Salvaged { session, has_all_messages: parts.has_all_messages })
}

fn has_messages(session: &Session) -> bool {
    session.len(List::Messages) > 0
}

/// Text without bytes that JSON does not know. A run of NUL bytes becomes one sign.
fn cleaned(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '\0' if text.ends_with('\u{fffd}') => {}
            // Between tokens it is a blank, within a text it would not be allowed.
            '\t' => text.push(' '),
            c if c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\x7f') => text.push('\u{fffd}'),
            c => text.push(c),
        }
    }
    text
}

/// The text with null where another program wrote a number that JSON does not know.
fn without_nan(text: &str) -> String {
    const ODD: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    let (mut out, mut rest, mut is_text) = (String::with_capacity(text.len()), text, false);
    while let Some(c) = rest.chars().next() {
        let odd = ODD.iter().find(|word| !is_text && rest.starts_with(**word));
        let len = match (odd, is_text && c == '\\') {
            (Some(word), _) => {
                out.push_str("null");
                rest = &rest[word.len()..];
                continue;
            }
            (None, true) => c.len_utf8() + rest[1..].chars().next().map_or(0, char::len_utf8),
            (None, false) => c.len_utf8(),
        };
        is_text ^= c == '"';
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

/// The JSON value that a text begins with, behind blanks, and where it ends. The error says whether the text ended first.
fn first_value(text: &str) -> Result<(&str, usize), bool> {
    let mut values = StreamDeserializer::<_, &RawValue>::new(SliceRead::new(text.as_bytes()));
    match values.next() {
        Some(Ok(value)) => Ok((value.get(), values.byte_offset())),
        Some(Err(error)) => Err(error.is_eof()),
        None => Err(true),
    }
}

/// What was found, in order.
#[derive(Default)]
struct Parts {
    keys: Vec<(String, String)>,
    lists: BTreeMap<&'static str, Vec<String>>,
    has_all_messages: bool,
}

impl Parts {
    fn add(&mut self, key: &str, value: &str) {
        self.keys.push((key.to_owned(), value.to_owned()));
    }

    fn items(&mut self, list: List) -> &mut Vec<String> {
        self.lists.entry(list.key()).or_default()
    }

    /// A list of messages under another name: its key was damaged.
    fn take_renamed_messages(&mut self) -> bool {
        let messages = |value: &str| {
            let items: Vec<&RawValue> = serde_json::from_str(value).ok()?;
            let items: Vec<String> = items.iter().map(|item| item.get().to_owned()).collect();
            let are_all = !items.is_empty() && items.iter().all(|item| is_item(List::Messages, item));
            are_all.then_some(items)
        };
        let found = self.keys.iter().enumerate().find_map(|(at, (_, value))| Some((at, messages(value)?)));
        let Some((at, items)) = found else { return false };
        self.keys.remove(at);
        *self.items(List::Messages) = items;
        self.has_all_messages = true;
        true
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
        let is_list = |key: &str| List::ALL.iter().any(|list| list.key() == key);
        self.keys.iter().filter(|(key, _)| !is_list(key)).for_each(|(key, value)| entry(key, value));
        for list in List::ALL.map(List::key) {
            let items = self.lists.get(list).map(|items| items.join(",\n")).unwrap_or_default();
            entry(list, &format!("[{items}]"));
        }
        json.truncate(json.len() - ",\n".len());
        json.push_str("\n}\n");
        json
    }
}

/// Whether a value is a message wherever it stands.
fn is_surely_message(value: &str) -> bool {
    Fields::parse(value).is_some_and(|fields| fields.get("role").is_some() && fields.get("content").is_some())
}

/// Whether a value is an item of a list wherever it stands.
fn is_sure(list: List, value: &str) -> bool {
    if list == List::ToolCalls { is_item(list, value) } else { is_surely_message(value) }
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
mod tests;
