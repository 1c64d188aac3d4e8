//! The bound on how deeply JSON from outside is nested: one scanner for every door. What stands on disk has no such bound.
//!
//! A level is a list or an object. The outermost value of a body, or of a JSON line, is level 1, so that a payload begins on
//! level 2 of the line that was sent and of the journal's line.

/// Where a JSON text opens a list or an object within `levels_max` others; nothing if it does not. A text that is not JSON
/// gives some answer, with as little stack.
pub fn nested_deeper_at(json: &[u8], levels_max: usize) -> Option<usize> {
    let (mut at, mut levels) = (0, 0_usize);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => at = end_of_text(json, at + 1),
            b'[' | b'{' if levels == levels_max => return Some(at),
            b'[' | b'{' => levels += 1,
            b']' | b'}' => levels = levels.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where the quotes are that end a text; the end of all if there are none.
fn end_of_text(json: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if json[at] == b'"' {
            return at;
        }
        at += 2;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::limits::JSON_DEPTH_MAX;

    /// The levels of a value, by its parsed form.
    fn levels(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
            Value::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let text =
            prop::collection::vec(prop::sample::select(vec!["\"", "\\", "[", "]", "{", "}", "\n", "a", "é"]), 0..6);
        let text = text.prop_map(|parts| parts.concat());
        let plain =
            prop_oneof![Just(json!(null)), any::<i32>().prop_map(|n| json!(n)), text.clone().prop_map(Value::from)];
        plain.prop_recursive(8, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text.clone(), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(crate::seeds::config("depth"))]

        #[test]
        fn levels_are_counted_as_a_parser_counts_them(value in value(), is_pretty: bool) {
            let text = match is_pretty {
                true => serde_json::to_string_pretty(&value).unwrap(),
                false => value.to_string(),
            };
            let levels = levels(&value);
            prop_assert_eq!(nested_deeper_at(text.as_bytes(), levels), None);
            if let Some(fewer) = levels.checked_sub(1) {
                let at = nested_deeper_at(text.as_bytes(), fewer).unwrap();
                let opens = matches!(text.as_bytes()[at], b'[' | b'{');
                prop_assert!(opens, "{}", &text[at..]);
            }
        }

        #[test]
        fn any_bytes_are_scanned_to_their_end(bytes: Vec<u8>) {
            prop_assert_eq!(nested_deeper_at(&bytes, bytes.len()), None);
        }
    }

    #[test]
    fn the_hundredth_level_is_taken_and_the_next_is_not() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert_eq!(nested_deeper_at(nested(JSON_DEPTH_MAX).as_bytes(), JSON_DEPTH_MAX), None);
        assert_eq!(nested_deeper_at(nested(JSON_DEPTH_MAX + 1).as_bytes(), JSON_DEPTH_MAX), Some(JSON_DEPTH_MAX));
        assert_eq!(nested_deeper_at(nested(5_000_000).as_bytes(), JSON_DEPTH_MAX), Some(JSON_DEPTH_MAX));
    }
}
