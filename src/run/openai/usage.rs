//! The `usage` event, made from how an endpoint counts tokens.

use crate::model::{Event, Object};

/// What the event calls a count, and what endpoints call it.
const COUNTS: [(&str, [&str; 2]); 3] = [
    ("input_tokens", ["prompt_tokens", "input_tokens"]),
    ("output_tokens", ["completion_tokens", "output_tokens"]),
    ("total_tokens", ["total_tokens", "total_tokens"]),
];

/// The event of a `usage` object; none if the value is not an object. A count that the endpoint does not give is null, but
/// the sum of two counts that it gives is known. Whatever else it says stays under its own keys.
pub(super) fn usage_event(usage: &str, model: Option<&str>) -> Option<Event> {
    let usage = Object::parse(usage)?;
    let [input, output, total] = COUNTS.map(|(_, keys)| keys.iter().find_map(|key| count(&usage, key)));
    let total = total.or_else(|| input?.checked_add(output?));
    let mut payload = Object::default();
    for ((name, _), count) in COUNTS.iter().zip([input, output, total]) {
        payload.set(name, count.map_or_else(|| "null".to_owned(), |count| count.to_string()));
    }
    if let Some(model) = model {
        payload.set_text("model", model);
    }
    let is_counted = |key: &str| COUNTS.iter().any(|(_, keys)| keys.contains(&key));
    for (key, value) in usage.iter().filter(|(key, _)| !is_counted(key)) {
        if payload.get(key).is_none() {
            payload.set(key, value);
        }
    }
    Event::new("usage", &payload.to_json()).ok()
}

fn count(usage: &Object, key: &str) -> Option<u64> {
    usage.get(key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(usage: &str, model: Option<&str>, expected: Option<&str>) {
        let event = usage_event(usage, model);
        assert_eq!(event.as_ref().map(Event::payload), expected);
    }

    #[test]
    fn counts_get_the_names_of_the_event_and_details_keep_theirs() {
        check(
            r#"{"prompt_tokens":3,"completion_tokens":4,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":1}}"#,
            Some("m-7"),
            Some(
                r#"{"input_tokens":3,"output_tokens":4,"total_tokens":9,"model":"m-7","prompt_tokens_details":{"cached_tokens":1}}"#,
            ),
        );
        let same = r#"{"input_tokens":3,"output_tokens":4,"total_tokens":7}"#;
        check(same, None, Some(same));
    }

    #[test]
    fn a_count_that_is_missing_is_unknown_and_a_sum_of_known_counts_is_known() {
        check(r#"{"total_tokens":7}"#, None, Some(r#"{"input_tokens":null,"output_tokens":null,"total_tokens":7}"#));
        let known = r#"{"prompt_tokens":3,"completion_tokens":4}"#;
        check(known, None, Some(r#"{"input_tokens":3,"output_tokens":4,"total_tokens":7}"#));
        let odd = r#"{"prompt_tokens":"3","completion_tokens":-4}"#;
        check(odd, None, Some(r#"{"input_tokens":null,"output_tokens":null,"total_tokens":null}"#));
    }

    #[test]
    fn what_is_no_object_is_no_usage() {
        for usage in ["7", "[]", "\"x\""] {
            check(usage, None, None);
        }
    }
}
