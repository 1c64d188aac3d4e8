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

/// How many times the length of the text may be read in vain.
const EFFORT_MAX: usize = 64;

/// A way through a damaged text.
struct Walk<'t> {
    text: &'t str,
    at: usize,
    /// The blanks before the first key, which all keys of the session itself have.
    indent: Option<Option<&'t str>>,
    /// Bytes that were read in vain.
    effort: usize,
}

impl<'t> Walk<'t> {
    fn new(text: &'t str) -> Self {
        Walk { text, at: 0, indent: None, effort: 0 }
    }

    fn gather(&mut self, parts: &mut Parts) {
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
    fn gather_loose(&mut self, parts: &mut Parts) {
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
mod tests {
    use super::*;

    fn id() -> SessionId {
        SessionId::parse("s1").unwrap()
    }

    fn salvaged(bytes: &[u8]) -> Option<Session> {
        salvage_session(&id(), bytes).map(|salvaged| salvaged.session)
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
                let session = salvaged(&text.as_bytes()[..cut]).unwrap_or_else(|| panic!("cut at {cut}"));
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
                let session = salvaged(&bytes).unwrap();
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
            let session = salvaged(&bytes).unwrap();
            assert_eq!(rows(&session), ["one", "two", "three"]);
            assert_eq!(session.len(List::ToolCalls), 1);
        }
    }

    #[test]
    fn a_session_whose_beginning_is_gone_still_has_its_rows() {
        for text in spellings() {
            let messages = text.find("\"messages\"").unwrap();
            for zeroes in [30, messages, messages + 4, messages + 10, messages + 12] {
                let mut bytes = text.clone().into_bytes();
                bytes[..zeroes].fill(0);
                let session = salvaged(&bytes).unwrap_or_else(|| panic!("{zeroes} zeroes"));
                assert_eq!(rows(&session), ["one", "two", "three"], "{zeroes} zeroes");
                assert!(session.get("role").is_none(), "keys of a row are none of the session");
                assert_eq!(session.len(List::ToolCalls), 1, "{zeroes} zeroes");
            }
        }
    }

    #[test]
    fn a_damaged_key_does_not_hide_the_rows() {
        for text in spellings() {
            for damage in ["messbges\": [", "messages\"; [", "messages\": {", "messages: [", "m\u{1}ssages\": ["] {
                let bytes = text.replacen("messages\": [", damage, 1).into_bytes();
                let session = salvaged(&bytes).unwrap_or_else(|| panic!("{damage}"));
                assert_eq!(rows(&session), ["one", "two", "three"], "{damage}");
            }
        }
    }

    #[test]
    fn what_other_programs_write_as_numbers_costs_no_row() {
        let text =
            spellings()[0].replace("\"tid\": \"t\"", "\"cost\": NaN, \"most\": -Infinity, \"said\": \"NaN \\\" NaN\"");
        let session = salvaged(text.as_bytes()).unwrap();
        assert_eq!(session.item(List::ToolCalls, 0).unwrap().matches("null").count(), 2);
        assert_eq!(session.item(List::ToolCalls, 0).unwrap().matches("NaN").count(), 2);
        assert_eq!(rows(&session), ["one", "two", "three"]);
    }

    #[test]
    fn a_document_that_stands_there_twice_counts_once() {
        for text in spellings() {
            let session = salvaged(format!("{text}{text}").as_bytes()).unwrap();
            assert_eq!(rows(&session), ["one", "two", "three"]);
        }
    }

    #[test]
    fn a_part_of_a_damaged_row_is_no_row() {
        let text = spellings()[0].replace(
            "\"content\": \"two\"",
            "\"content\": \"two\"\u{1},\n      \"parts\": [\n        {\n          \"role\": \"tool\"\n        }\n      ] x",
        );
        let session = salvaged(text.as_bytes()).unwrap();
        assert_eq!(rows(&session), ["one", "three"]);
    }

    #[test]
    fn rows_on_one_line_are_found_behind_a_damaged_one() {
        let text = spellings()[1].replace('\n', "").replacen("\"two\"", "\"two\"x", 1);
        let session = salvaged(text.as_bytes()).unwrap();
        assert_eq!(rows(&session), ["one", "three"]);
        assert_eq!(session.len(List::ToolCalls), 1);
    }

    #[test]
    fn rows_of_another_list_are_no_messages() {
        let row = |at: u32| format!(r#"{{"role":"user","content":"{at}"}}"#);
        let list = |name: &str, rows: std::ops::Range<u32>| {
            format!("\"{name}\":[{}]", rows.map(row).collect::<Vec<_>>().join(","))
        };
        let text = format!(
            "{{\"title\":\"T\",{},{},{}}}",
            list("messages", 0..4),
            "\"tool_calls\":[]",
            list("context_messages", 0..4)
        );
        let end = text.find("],\"tool_calls\"").unwrap();
        for at in [end - 1, end] {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = b'X';
            let session = salvaged(&bytes).unwrap();
            assert!(rows(&session).len() >= 3 && rows(&session).len() <= 4, "{at}: {:?}", rows(&session));
            assert_eq!(session.len(List::ContextMessages), 4, "{at}");
        }
    }

    #[test]
    fn a_row_behind_a_part_of_another_is_a_row() {
        let row = |words: &str| format!("    {{\"role\":\"user\",\"content\":\"{words}\"}}");
        let text = format!(
            "{{\n  \"messages\": [\n{},\n    {{\"role\":\"u\u{fffd}, {},\n{}\n  ]\n}}",
            row("one"),
            row("two"),
            row("three")
        );
        assert_eq!(rows(&salvaged(text.as_bytes()).unwrap()), ["one", "two", "three"]);
    }

    #[test]
    fn what_is_no_text_is_passed_wherever_it_stands() {
        for text in spellings().iter().chain([&spellings()[1].replace('\n', "")]) {
            for at in 0..text.len() {
                let mut bytes = text.clone().into_bytes();
                bytes[at..(at + 30).min(text.len())].fill(0);
                drop(salvaged(&bytes));
                bytes[at] = 0xff;
                drop(salvaged(&bytes));
            }
        }
    }

    #[test]
    fn garbage_in_front_of_a_row_costs_no_other() {
        let text = &spellings()[0];
        let at = text.find("    {\n      \"role\": \"assistant\"").unwrap();
        for garbage in ["  ] {", "  X {", "x   {"] {
            let mut bytes = text.clone().into_bytes();
            bytes.splice(at..at + 5, garbage.bytes());
            let session = salvaged(&bytes).unwrap();
            assert_eq!(rows(&session), ["one", "two", "three"], "{garbage}");
        }
    }

    #[test]
    fn brackets_without_end_are_not_read_for_ever() {
        let text = format!("{{\"messages\": [\n{}", "[[[[\n".repeat(100_000));
        assert!(salvaged(text.as_bytes()).is_none());
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        for bytes in [&b""[..], b"\0\0\0\0", b"[1, 2]", b"garbage", b"{"] {
            assert!(salvaged(bytes).is_none(), "{bytes:?}");
        }
    }
}
