//! How what was found is compared with what was expected: values, not bytes. An expected key must be there and equal;
//! a session, a row, a card and an event may have more keys than expected, a list may not have more items.

use serde_json::{Map, Value};

use crate::marker;

/// The lists of a session.
pub(crate) const LISTS: [&str; 3] = ["messages", "tool_calls", "context_messages"];

const SHOWN_CHARS_MAX: usize = 300;

/// Why a session is not the expected one, key by key.
pub(crate) fn session_differences(found: &Value, expected: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    for (key, value) in expected.as_object().into_iter().flatten() {
        match LISTS.contains(&key.as_str()) && value.is_array() {
            true => differences.extend(list_differences(key, &found[key], value)),
            false => differences.extend(key_difference(key, found.get(key), value)),
        }
    }
    differences
}

/// Why a list of rows, cards or events is not the expected one.
pub(crate) fn list_differences(name: &str, found: &Value, expected: &Value) -> Vec<String> {
    let (Some(found), Some(expected)) = (found.as_array(), expected.as_array()) else {
        return key_difference(name, Some(found), expected).into_iter().collect();
    };
    if found.len() != expected.len() {
        return vec![format!("{name} has {}, expected {}", outline(found), outline(expected))];
    }
    let pairs = found.iter().zip(expected).enumerate();
    pairs.flat_map(|(at, (found, expected))| object_differences(&format!("{name}[{at}]"), found, expected)).collect()
}

/// Why an object is not the expected one; it may have more keys.
pub(crate) fn object_differences(name: &str, found: &Value, expected: &Value) -> Vec<String> {
    let Some(keys) = expected.as_object() else {
        return key_difference(name, Some(found), expected).into_iter().collect();
    };
    let content_or_value = |(key, value): (&String, &Value)| match key == "content" && marker::is_placeholder(value) {
        true => marker::why_not(found, value).map(|why| format!("{name} {why}")),
        false => key_difference(&format!("{name}.{key}"), found.get(key), value),
    };
    keys.iter().filter_map(content_or_value).collect()
}

/// Why a value is not the expected one.
pub(crate) fn key_difference(name: &str, found: Option<&Value>, expected: &Value) -> Option<String> {
    match found {
        None => Some(format!("{name} is missing, expected {}", shown(expected))),
        Some(found) if is_same(found, expected) => None,
        Some(found) => Some(format!("{name} is {}, expected {}", shown(found), shown(expected))),
    }
}

/// Equal as JSON values; 1 and 1.0 are one number.
pub(crate) fn is_same(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Number(found), Value::Number(expected)) => found == expected || found.as_f64() == expected.as_f64(),
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(found, value)| is_same(found, value))
        }
        (Value::Object(found), Value::Object(expected)) => has_same_keys(found, expected),
        _ => found == expected,
    }
}

fn has_same_keys(found: &Map<String, Value>, expected: &Map<String, Value>) -> bool {
    let is_there = |(key, value): (&String, &Value)| found.get(key).is_some_and(|found| is_same(found, value));
    found.len() == expected.len() && expected.iter().all(is_there)
}

/// The files that a step touched, if they are not the expected ones. The order does not matter.
pub(crate) fn file_differences(found: &Value, expected: &Value) -> Vec<String> {
    let sorted = |list: &Value| {
        let paths = list.as_array().into_iter().flatten();
        let mut paths: Vec<String> = paths.filter_map(Value::as_str).map(str::to_owned).collect();
        paths.sort();
        paths
    };
    let difference = |kind: &&str| {
        let (found, expected) = (sorted(&found[kind]), sorted(&expected[kind]));
        (found != expected).then(|| format!("files {kind} are {found:?}, expected {expected:?}"))
    };
    ["created", "changed", "deleted"].iter().filter_map(difference).collect()
}

/// A list in a few words: its length, and how each item begins.
fn outline(items: &[Value]) -> String {
    let begin = |item: &Value| {
        let text = item["content"].as_str().or(item["name"].as_str()).unwrap_or_default();
        format!("{}:{:?}", item["role"].as_str().unwrap_or("-"), text.chars().take(24).collect::<String>())
    };
    format!("{} items ({})", items.len(), items.iter().map(begin).collect::<Vec<_>>().join(", "))
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.chars().count() > SHOWN_CHARS_MAX {
        true => text.chars().take(SHOWN_CHARS_MAX).chain("...".chars()).collect(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_may_have_more_keys_but_lists_not_more_rows() {
        let expected = json!({"messages": [{"content": "a", "timestamp": 1.0}]});
        let more_keys = json!({"title": "t", "messages": [{"content": "a", "timestamp": 1, "_run_id": "r"}]});
        assert!(session_differences(&more_keys, &expected).is_empty());
        let more_rows = json!({"messages": [{"content": "a", "timestamp": 1}, {"content": "b"}]});
        assert_eq!(session_differences(&more_rows, &expected).len(), 1);
    }

    #[test]
    fn inside_a_row_values_are_equal_or_they_are_not() {
        let found = json!([{"args": {"a": 1, "b": 2}}]);
        assert!(list_differences("tool_calls", &found, &json!([{"args": {"b": 2.0, "a": 1}}])).is_empty());
        assert_eq!(list_differences("tool_calls", &found, &json!([{"args": {"a": 1}}])).len(), 1);
        assert_eq!(list_differences("tool_calls", &found, &json!([{"tid": "journal-1"}])).len(), 1);
    }

    #[test]
    fn a_missing_key_is_not_null() {
        assert_eq!(session_differences(&json!({}), &json!({"active_stream_id": null})).len(), 1);
    }
}
