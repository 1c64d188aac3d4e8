//! What the reader of a sidecar owes to any bytes at all: it takes what a JSON reader takes, finds what that finds, and
//! writes what it read.

use std::fmt;

use lastword::format::{Head, Unreadable, encode, is_walked, read_head, read_session};
use lastword::{List, Session, SessionId};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Fails if a rule is broken on these bytes.
pub(crate) fn check(bytes: &[u8]) {
    let id = SessionId::parse("s").unwrap();
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let unreadable = read_session(&id, bytes.to_vec()).unwrap_err();
            return assert_eq!(unreadable, Unreadable::Utf8 { offset: error.valid_up_to() });
        }
    };
    let expected = serde_json::from_str::<Pairs<'_>>(text);
    assert_eq!(is_walked(text), expected.is_ok(), "the quick way and the JSON reader differ: {expected:?}");
    match (read_session(&id, bytes.to_vec()), expected) {
        (Ok(session), Ok(pairs)) => {
            assert_same(&session, &pairs);
            assert_survives_a_save(&session, &pairs);
            assert_heads(&id, text, &pairs);
        }
        (Err(error), Err(_)) => {
            let is_other_json = serde_json::from_str::<&RawValue>(text).is_ok();
            assert_eq!(error == Unreadable::Shape, is_other_json, "{error:?}");
        }
        (read, expected) => panic!("read as {read:?}, and by a JSON reader as {expected:?}"),
    }
}

/// The keys of an object as they are spelt, with the texts of their values.
#[derive(Debug)]
struct Pairs<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Pairs<'a> {
    /// The value that counts: the last of equal keys.
    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }
}

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
                    pairs.push((&key.get()[1..key.get().len() - 1], value.get()));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

/// The items of a list as a JSON reader finds them; nothing if the value is kept as it is.
fn items_of(value: &str) -> Option<Vec<&str>> {
    match value.as_bytes()[0] {
        b'n' => Some(Vec::new()),
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(value).unwrap();
            Some(items.into_iter().map(RawValue::get).collect())
        }
        _ => None,
    }
}

fn list_of(key: &str) -> Option<List> {
    List::ALL.into_iter().find(|list| list.key() == key)
}

fn assert_same(session: &Session, pairs: &Pairs<'_>) {
    for (key, _) in &pairs.0 {
        let value = pairs.get(key).unwrap();
        let items = list_of(key).and_then(|_| items_of(value));
        assert_eq!(session.get(key), items.is_none().then_some(value), "{key}");
    }
    for list in List::ALL {
        let expected = pairs.get(list.key()).map_or(Some(Vec::new()), items_of);
        assert_eq!(session.is_list(list), expected.is_some());
        assert_eq!(session.texts(list).collect::<Vec<_>>(), expected.unwrap_or_default(), "{list:?}");
    }
    let _ = (session.title().len(), session.pending_turn(), session.active_run().is_some());
    let _ = session.messages().map(|row| row.content().len() + row.role().len()).sum::<usize>();
    let _ = session.tool_cards().map(|card| card.name().len() + card.row_index().unwrap_or(0).min(1)).sum::<usize>();
}

/// What is written reads as what was read, key by key, and is written the same again.
fn assert_survives_a_save(session: &Session, pairs: &Pairs<'_>) {
    let written = encode(session).bytes().to_vec();
    let text = std::str::from_utf8(&written).unwrap();
    let again: Pairs<'_> = serde_json::from_str(text).unwrap();
    let meant = |(key, value): &(&str, &str)| match list_of(key).and_then(|_| items_of(value)) {
        Some(items) => (key.to_string(), items.join("\n")),
        None => (key.to_string(), value.to_string()),
    };
    assert!(pairs.0.iter().map(meant).eq(again.0.iter().map(meant)), "lost in a save: {text}");
    let read = read_session(session.id(), written.clone()).unwrap();
    assert_eq!(encode(&read).bytes(), written);
}

/// The beginning of a sidecar says what the whole says of the keys before the transcript, or that it does not suffice.
fn assert_heads(id: &SessionId, text: &str, pairs: &Pairs<'_>) {
    let before = Pairs(pairs.0.iter().take_while(|(key, _)| *key != "messages").copied().collect());
    let suffices = before.0.len() < pairs.0.len()
        && ["session_id", "title", "updated_at", "message_count"].iter().all(|key| before.get(key).is_some());
    for cut in [text.len() / 3, text.len() * 2 / 3, text.len()] {
        match read_head(id, &text.as_bytes()[..cut]) {
            Head::Metadata(head) => {
                assert!(suffices);
                before.0.iter().filter(|(key, _)| list_of(key).is_none()).for_each(|(key, _)| {
                    assert_eq!(head.get(key), before.get(key), "{key}");
                });
            }
            Head::TooShort => assert!(cut < text.len(), "all of it is too short"),
            Head::ReadAll => assert!(cut < text.len() || !suffices, "it has all that is needed"),
        }
    }
}
