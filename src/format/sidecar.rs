//! A sidecar's text to a session and back. Reading finds the places of keys and rows; writing copies what is unchanged.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::walk::walk;
use crate::model::{Entry, List, Piece, Session, SessionId, Slot};

/// Why bytes are not a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// They are not UTF-8 from this offset on.
    #[error("not UTF-8 at byte {offset}")]
    Utf8 {
        /// The first bad byte.
        offset: usize,
    },
    /// They are not JSON.
    #[error("not JSON: {reason}")]
    Json {
        /// What the JSON reader said.
        reason: String,
    },
    /// They are JSON, but no object.
    #[error("JSON, but not an object")]
    Shape,
}

/// Reads a whole sidecar.
pub fn read_session(id: &SessionId, bytes: Vec<u8>) -> Result<Session, Unreadable> {
    let text = String::from_utf8(bytes).map_err(|e| Unreadable::Utf8 { offset: e.utf8_error().valid_up_to() })?;
    let entries = match walk(&text) {
        Some(entries) => entries,
        None => entries_of(&text)?,
    };
    Ok(Session::from_parts(id.clone(), Arc::new(text), entries))
}

/// Whether the quick way alone takes a text. What it refuses costs a second reading, so it should refuse nothing good.
#[doc(hidden)]
pub fn is_walked(text: &str) -> bool {
    walk(text).is_some()
}

/// The same entries by the JSON reader, which says what is wrong if anything is.
fn entries_of(text: &str) -> Result<Vec<Entry>, Unreadable> {
    let mut found = Found::default();
    collect(text, false, &mut found)?;
    Ok(found.entries)
}

/// What the first bytes of a sidecar tell.
#[derive(Debug)]
pub enum Head {
    /// The keys before the transcript.
    Metadata(Session),
    /// The transcript was not reached: more bytes are needed.
    TooShort,
    /// The keys needed are not before the transcript, or the file is odd: read all of it.
    ReadAll,
}

/// The metadata keys without which the head of a sidecar does not tell enough.
const NEEDED: [&str; 4] = ["session_id", "title", "updated_at", "message_count"];

/// Reads the metadata at the beginning of a sidecar and stops at the transcript.
pub fn read_head(id: &SessionId, prefix: &[u8]) -> Head {
    let text = match std::str::from_utf8(prefix) {
        Ok(text) => text,
        Err(cut) if cut.error_len().is_none() => {
            std::str::from_utf8(&prefix[..cut.valid_up_to()]).expect("valid up to there")
        }
        Err(_) => return Head::ReadAll,
    };
    let mut found = Found::default();
    // What is wrong with it is said by whoever reads all of it.
    let _ = collect(text, true, &mut found);
    let Some(end) = found.messages_at else {
        return if found.is_cut_short { Head::TooShort } else { Head::ReadAll };
    };
    let head = Session::from_parts(id.clone(), Arc::new(text[..end].to_owned()), found.entries);
    if NEEDED.iter().all(|key| head.get(key).is_some()) { Head::Metadata(head) } else { Head::ReadAll }
}

#[derive(Default)]
struct Found {
    entries: Vec<Entry>,
    /// Where the key of the transcript stands, once it was reached.
    messages_at: Option<usize>,
    /// The text ended too early.
    is_cut_short: bool,
}

fn collect(text: &str, stop_at_messages: bool, found: &mut Found) -> Result<(), Unreadable> {
    let first = text.trim_ascii_start();
    if !first.is_empty() && !first.starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok() {
        return Err(Unreadable::Shape);
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let visit = TopLevel { text, stop_at_messages, found: &mut *found };
    let read = visit.deserialize(&mut reader).and_then(|()| reader.end());
    if stop_at_messages && found.messages_at.is_some() {
        // The reader misses the rest of the object, which nobody wants.
        return Ok(());
    }
    read.map_err(|e| {
        found.is_cut_short = e.is_eof();
        Unreadable::Json { reason: e.to_string() }
    })
}

fn place(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

fn piece(text: &str, part: &str) -> Piece {
    let Range { start, end } = place(text, part);
    Piece::Shared { start, end }
}

struct TopLevel<'t, 'f> {
    text: &'t str,
    stop_at_messages: bool,
    found: &'f mut Found,
}

impl<'de> DeserializeSeed<'de> for TopLevel<'de, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TopLevel<'de, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // More than the keys of most sessions.
        self.found.entries.reserve(24);
        while let Some(key) = map.next_key::<&RawValue>()? {
            let name = &key.get()[1..key.get().len() - 1];
            if name == List::Messages.key() {
                self.found.messages_at = Some(place(self.text, name).start);
                if self.stop_at_messages {
                    return Ok(());
                }
            }
            let slot = match List::ALL.iter().any(|list| list.key() == name) {
                true => list(self.text, name, &mut map)?,
                false => Slot::Value(piece(self.text, map.next_value::<&RawValue>()?.get())),
            };
            self.found.entries.push(Entry { key: piece(self.text, name), slot });
        }
        Ok(())
    }
}

/// The value of one of the three lists. Null is an empty list; any other value is kept as it is.
fn list<'de, A: MapAccess<'de>>(text: &'de str, key: &str, map: &mut A) -> Result<Slot, A::Error> {
    let behind_key = &text[place(text, key).end + 1..];
    let value = behind_key.trim_ascii_start().trim_start_matches(':').trim_ascii_start();
    match value.as_bytes().first() {
        Some(b'[') => map.next_value_seed(Items { text }),
        Some(b'n') => map.next_value::<()>().map(|()| Slot::Items(Vec::new())),
        _ => Ok(Slot::Value(piece(text, map.next_value::<&RawValue>()?.get()))),
    }
}

/// The items of a list.
struct Items<'t> {
    text: &'t str,
}

impl<'de> DeserializeSeed<'de> for Items<'de> {
    type Value = Slot;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Slot, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items<'de> {
    type Value = Slot;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Slot, A::Error> {
        let mut pieces = Vec::new();
        while let Some(item) = items.next_element::<&RawValue>()? {
            pieces.push(piece(self.text, item.get()));
        }
        Ok(Slot::Items(pieces))
    }
}

/// A session's text, ready to be stored, and the session as it would be read back from it.
#[derive(Debug)]
pub struct Encoded {
    session: Session,
}

impl Encoded {
    /// The bytes to store.
    pub fn bytes(&self) -> &[u8] {
        self.session.source().as_bytes()
    }

    /// The session that these bytes are.
    pub fn into_session(self) -> Session {
        self.session
    }
}

/// Writes a session: a key a line, a row a line, unchanged values byte for byte as they were read.
pub fn encode(session: &Session) -> Encoded {
    let source = session.source();
    let mut out = String::with_capacity(source.len() + source.len() / 64 + 4096);
    let mut entries = Vec::with_capacity(session.entries().len());
    out.push('{');
    for entry in session.entries() {
        out.push_str(if entries.is_empty() { "\n  \"" } else { ",\n  \"" });
        let key = push_piece(&entry.key, source, &mut out);
        out.push_str("\": ");
        let slot = match &entry.slot {
            Slot::Value(value) => Slot::Value(push_piece(value, source, &mut out)),
            Slot::Items(items) => Slot::Items(push_items(items, source, &mut out)),
        };
        entries.push(Entry { key, slot });
    }
    out.push_str("\n}\n");
    Encoded { session: Session::from_parts(session.id().clone(), Arc::new(out), entries) }
}

fn push_piece(piece: &Piece, source: &str, out: &mut String) -> Piece {
    let start = out.len();
    out.push_str(piece.text(source));
    Piece::Shared { start, end: out.len() }
}

fn push_items(items: &[Piece], source: &str, out: &mut String) -> Vec<Piece> {
    let mut places = Vec::with_capacity(items.len());
    out.push('[');
    for item in items {
        out.push_str(if places.is_empty() { "\n    " } else { ",\n    " });
        places.push(push_piece(item, source, out));
    }
    out.push_str(if items.is_empty() { "]" } else { "\n  ]" });
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::model::Row;

    fn id() -> SessionId {
        SessionId::parse("s").unwrap()
    }

    fn read(text: &str) -> Session {
        read_session(&id(), text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn unknown_keys_order_and_untouched_bytes_survive_a_save() {
        let text = "{\"session_id\":\"s\", \"zeta\" : {\"a\": 1.50},\n \"messages\": [ {\"role\" :  \"user\", \"x\": 1e3 } , 5 ], \"tail\": null}";
        let mut session = read(text);
        session.set("alpha", "true");
        session.push_message(&Row::assistant("hi", 7)).unwrap();
        let saved = String::from_utf8(encode(&session).bytes().to_vec()).unwrap();
        assert_eq!(
            saved,
            "{\n  \"session_id\": \"s\",\n  \"zeta\": {\"a\": 1.50},\n  \"alpha\": true,\n  \"messages\": [\n    \
             {\"role\" :  \"user\", \"x\": 1e3 },\n    5,\n    \
             {\"role\":\"assistant\",\"content\":\"hi\",\"timestamp\":7}\n  ],\n  \"tail\": null\n}\n"
        );
        assert_eq!(encode(&encode(&session).into_session()).bytes(), saved.as_bytes());
    }

    /// The quick way and the JSON reader find the same, or neither finds anything.
    fn assert_same(text: &str) {
        let (quick, read) = (walk(text), entries_of(text));
        let shown = |entries: &Vec<Entry>| format!("{entries:?}");
        assert_eq!(quick.as_ref().map(shown), read.as_ref().ok().map(shown), "{text:?}: {read:?}");
    }

    #[test]
    fn the_quick_way_takes_what_the_json_reader_takes_and_nothing_else() {
        let values = [
            "0",
            "-0",
            "-",
            "01",
            "1.",
            ".5",
            "1.5e+3",
            "1e",
            "1e5",
            "-1E-2",
            "+1",
            "1e999",
            "true",
            "tru",
            "truex",
            "nul",
            "null",
            "false",
            "NaN",
            "\"\"",
            "\"a",
            "\"\\\"\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\ud800\"",
            "\"\\u00\"",
            "\"a\nb\"",
            "\"\u{7f}\"",
            "[]",
            "[ ]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1,2",
            "{}",
            "{ }",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "{a:1}",
            "{\"a\":}",
            "[}",
            "{]",
            "[[]",
            "[[1],{\"a\":[{}]}]",
            "\"0123456789abcdef\\n0123456789abcdef\\\\\"",
            "\"\u{e9}\u{1f600}\"",
            "",
            " ",
            "1 1",
            "\u{a0}1",
        ];
        for value in values {
            assert_same(value);
            for key in ["k", "messages", "tool_calls", "k\\u0041", "k\\"] {
                for text in [
                    "{\"KEY\":VALUE}",
                    " { \"KEY\" : VALUE , \"b\":[1] } ",
                    "{\"KEY\":[VALUE]}",
                    "{\"KEY\":VALUE",
                    "{\"KEY\":VALUE}x",
                ] {
                    assert_same(&text.replace("KEY", key).replace("VALUE", value));
                }
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(crate::seeds::config("sidecar"))]

        #[test]
        fn the_quick_way_takes_what_the_json_reader_takes_whatever_is_cut_or_changed(
            pieces in proptest::collection::vec(proptest::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u00e9", "1", "-2.5e3", "true", "null", " ", "\n", "\"messages\":[",
                "\"a\":", "\"text that is longer than one step\"", "\u{2028}",
            ]), 0..24),
            cut in 0usize..400, changed in 0usize..400, to in 0u8..0x80,
        ) {
            assert_same(&format!("{{{}}}", pieces.concat()));
            let whole = "{\"session_id\":\"s\",\"n\":[1,-2.5e3,{\"k\":null}],\"messages\":[{\"role\":\"user\",\"content\":\"a \\\"quoted\\\" word\\n\"},\n[],true,{\"content\":[{\"type\":\"text\"}]}],\"tool_calls\":null}";
            let at = |place: usize| whole.floor_char_boundary(place % whole.len());
            assert_same(&whole[..at(cut)]);
            let mut bytes = whole.as_bytes().to_vec();
            bytes[at(changed)] = to;
            assert_same(std::str::from_utf8(&bytes).unwrap());
        }
    }

    #[test]
    fn a_new_session_reads_back_as_it_was_written() {
        let session = Session::new(id(), "A \"title\"", Timestamp::from_seconds(5.0));
        let encoded = encode(&session);
        let back = read(std::str::from_utf8(encoded.bytes()).unwrap());
        assert_eq!(back.title(), "A \"title\"");
        assert_eq!(encode(&back).bytes(), encoded.bytes());
    }

    #[test]
    fn what_is_no_session_is_said_by_name() {
        let read = |bytes: &[u8]| read_session(&id(), bytes.to_vec()).unwrap_err();
        assert!(matches!(read(b""), Unreadable::Json { .. }));
        assert!(matches!(read(b"{\"session_id\": \"s\", \"mess"), Unreadable::Json { .. }));
        assert!(matches!(read(b"{} x"), Unreadable::Json { .. }));
        assert!(matches!(read(&[0; 64]), Unreadable::Json { .. }));
        assert_eq!(read(b"[]"), Unreadable::Shape);
        assert_eq!(read(b"null"), Unreadable::Shape);
        assert_eq!(read(b"{\"a\": \"\xff\"}"), Unreadable::Utf8 { offset: 7 });
    }

    #[test]
    fn odd_lists_are_kept_and_never_overwritten() {
        let mut session = read("{\"messages\": {\"a\": 1}, \"tool_calls\": null}");
        assert_eq!(session.len(List::Messages), 0);
        assert!(session.push_message(&Row::user("x", 1)).is_err());
        assert!(session.push_item(List::ToolCalls, "{}").is_ok());
        let saved = String::from_utf8(encode(&session).bytes().to_vec()).unwrap();
        assert!(saved.contains("\"messages\": {\"a\": 1}"), "{saved}");
    }

    #[test]
    fn half_a_surrogate_pair_loads_and_saves_as_it_is() {
        let session = read("{\"title\": \"\\ud83d\", \"messages\": [{\"content\": \"\\udc00\"}]}");
        assert_eq!(session.title(), "\u{fffd}");
        assert_eq!(session.message(0).unwrap().content(), "\u{fffd}");
        let saved = encode(&session);
        let saved = std::str::from_utf8(saved.bytes()).unwrap();
        assert!(saved.contains("\\ud83d") && saved.contains("\\udc00"));
    }

    #[test]
    fn a_head_ends_at_the_transcript() {
        let text = "{\"session_id\":\"s\",\"title\":\"t\",\"updated_at\":1,\"message_count\":9,\"messages\":[{\"ro";
        let Head::Metadata(head) = read_head(&id(), text.as_bytes()) else { panic!("no metadata") };
        assert_eq!(head.get("message_count"), Some("9"));
        assert!(matches!(read_head(&id(), &text.as_bytes()[..30]), Head::TooShort));
        assert!(matches!(read_head(&id(), b"{\"messages\":[],\"title\":\"t\"}"), Head::ReadAll));
        assert!(matches!(read_head(&id(), b"[]"), Head::ReadAll));
    }
}
